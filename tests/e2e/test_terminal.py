"""On a terminal: a table with a header, in colours that can be switched off."""

from __future__ import annotations

import re
import unicodedata

import pytest
from support.commands import Machine, posix_only, run_on_terminal

pytestmark = posix_only

COLOUR = re.compile(r"\033\[[0-9;]*m")


@pytest.fixture
def stocked(machine: Machine) -> Machine:
    """One provider in each of the states that have a colour of their own, and one without."""
    machine.install("alpha", version="1.0")
    machine.install("a-longer-name", version="20.1")
    machine.install("twice", distribution="first-owner")
    machine.install("twice", distribution="second-owner")
    return machine


def width(text: str) -> int:
    """How many columns a terminal takes for it."""
    return sum(1 + (unicodedata.east_asian_width(each) in "WF") for each in text)


def test_list_is_a_table_with_a_header_and_aligned_columns(stocked):
    code, shown = run_on_terminal(stocked, "list", columns=200)
    assert code == 0
    lines = COLOUR.sub("", shown).splitlines()
    assert lines[0].split() == ["NAME", "STATE", "VERSION", "SOURCE", "DESCRIPTION"]
    assert len(lines) == 1 + 5
    starts = [lines[0].index(word) for word in lines[0].split()]
    for line in lines[1:]:
        assert all(line[start - 1] == " " != line[start] for start in starts[1:])
    assert "\t" not in shown


def test_states_differ_in_colour(stocked):
    _, shown = run_on_terminal(stocked, "list", columns=200)
    header, builtin, longer, _, twice, _ = shown.splitlines()
    assert COLOUR.match(header)
    assert COLOUR.match(builtin).group() != COLOUR.match(twice).group()
    assert not COLOUR.search(longer)
    assert shown.count("\033[0m") == len(COLOUR.findall(shown)) / 2


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
@pytest.mark.parametrize("arguments", [("list",), ("info", "builtin")])
def test_without_colours_where_they_are_not_wanted(stocked, env, arguments):
    code, shown = run_on_terminal(stocked, *arguments, env=env)
    assert code == 0
    assert "\033" not in shown


def test_an_empty_no_color_does_not_count(stocked):
    _, shown = run_on_terminal(stocked, "list", env={"NO_COLOR": ""})
    assert COLOUR.search(shown)


def test_status_says_in_colour_whether_it_works(stocked):
    stocked.write_config("memory: {provider: alpha}\n")
    _, shown = run_on_terminal(stocked, "status")
    assert re.search(r"\033\[32mworks\033\[0m", shown)
    _, shown = run_on_terminal(stocked, "status", env={"NO_COLOR": "1"})
    assert "\033" not in shown


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_no_line_is_wider_than_the_terminal(stocked, columns):
    code, shown = run_on_terminal(stocked, "list", columns=columns)
    assert code == 0
    lines = COLOUR.sub("", shown).splitlines()
    assert max(map(len, lines)) <= columns
    if columns >= 60:  # nothing is cut off: what has no room beside is below
        names = [line.split()[0] for line in lines[1:] if not line.startswith(" ")]
        assert names == ["builtin", "a-longer-name", "alpha", "twice", "twice"]
        words = " ".join(lines).split()
        assert "…" not in "".join(lines)
        assert {"installed", "20.1", "memory-a-longer-name", "conflict", "remembers"} <= set(words)


def test_a_terminal_that_reports_no_width_gets_a_table(stocked):
    code, shown = run_on_terminal(stocked, "list", columns=0)
    assert code == 0
    assert "NAME" in shown


def test_wide_characters_take_two_columns(machine):
    machine.add_directory("kioku-記憶の保存", manifest="description: " + "記憶" * 30 + "\n")
    machine.install("alpha", version="1.0")
    _, shown = run_on_terminal(machine, "list", columns=60)
    lines = COLOUR.sub("", shown).splitlines()
    assert max(map(width, lines)) <= 60
    rows = [line for line in lines[1:] if not line.startswith(" ")]
    column = {width(re.split(r"(?<=  )(?=active|installed)", line)[0]) for line in rows}
    assert len(column) == 1


def test_json_is_the_same_on_a_terminal(stocked):
    _, shown = run_on_terminal(stocked, "list", "--json")
    assert shown == stocked.run("list", "--json").out


def test_an_error_and_its_hint_are_lines_wrapped_at_words(stocked):
    code, shown = run_on_terminal(stocked, "enable", "alpa", columns=60)
    assert code == 1
    error, hint, *rest = shown.splitlines()
    assert error == "hermes-plugins: no memory provider 'alpa' is installed"
    assert hint.startswith("hint: did you mean alpha?")
    assert all(line.startswith("  ") for line in rest)
    assert max(map(len, shown.splitlines())) <= 60
    assert "\033" not in shown
