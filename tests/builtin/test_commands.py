"""`hermes-plugins memory`: what a person types, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support.commands import Machine, snapshot
from support.notes import POISON, append, notes_file, recorded, stored, write_notes
from support.storages import Storage

pytestmark = pytest.mark.usefixtures("both_storages")


def fed(machine: Machine, text: bytes, *arguments: str, **env: str):
    """Run the command with a text on its standard input."""
    return subprocess.run(
        machine.command("memory", *arguments),
        input=text,
        env={**machine.environment, **env},
        capture_output=True,
        timeout=60,
        check=False,
    )


def test_notes_are_added_replaced_removed_and_shown(machine: Machine) -> None:
    out = machine.run("memory", "add", "likes tea").done().out
    assert "1 entry" in out
    assert "0% — 9/2,200 chars" in out
    machine.run("memory", "add", "called Ada", "--target", "user").done()
    machine.run("memory", "add", "uses vim").done()
    machine.run("memory", "replace", "tea", "likes coffee").done()
    machine.run("memory", "remove", "vim").done()
    assert stored(machine.home) == ["likes coffee"]
    assert stored(machine.home, "user") == ["called Ada"]
    out = machine.run("memory", "show").done().out
    assert "likes coffee" in out
    assert "called Ada" in out
    assert ("(memory)" if Storage.current.url else str(notes_file(machine.home))) in out
    only = machine.run("memory", "show", "--target", "user").done().out
    assert "likes coffee" not in only
    assert {each["who"] for each in recorded(machine.home)} == {"command"}


def test_json_says_what_was_done(machine: Machine) -> None:
    added = machine.json("memory", "add", "likes tea")
    assert added["changed"] is True
    assert (added["target"], added["entry_count"]) == ("memory", 1)
    assert added["usage"] == "0% — 9/2,200 chars"
    assert machine.json("memory", "add", "likes tea")["changed"] is False
    assert machine.json("memory", "replace", "tea", "likes coffee")["changed"] is True
    shown = machine.json("memory", "show")
    (entry,) = shown["notebooks"]["memory"]["entries"]
    assert entry["text"] == "likes coffee"
    assert shown["notebooks"]["user"]["entries"] == []
    assert shown["pending"] == 0
    changes = machine.json("memory", "history")["changes"]
    assert [(each["action"], each["removed"], each["added"]) for each in changes] == [
        ("replace", ["likes tea"], ["likes coffee"]),
        ("add", [], ["likes tea"]),
    ]
    undone = machine.json("memory", "undo")
    assert undone["changed"] is True
    assert stored(machine.home) == ["likes tea"]
    assert machine.json("memory", "remove", "tea")["entry_count"] == 0


def test_what_can_not_be_done_is_one_line_on_stderr(machine: Machine) -> None:
    write_notes(machine.home, "likes tea\n§\nlikes coffee")
    for arguments, cause in (
        (("add", ""), "is empty"),
        (("add", "x" * 5000), "2,200"),
        (("replace", "cocoa", "x"), "cocoa"),
        (("replace", "likes", "x"), "likes tea; likes coffee"),
        (("remove", "cocoa", "--json"), "cocoa"),
        (("add", POISON), "memory allow"),
        (("undo", "99"), "no such change"),
        (("approve", "ffffffff"), "ffffffff"),
        (("reject", "../../config"), "pending"),
        (("allow", "ffffffff"), "ffffffff"),
    ):
        assert cause in machine.run("memory", *arguments).failed()
    assert stored(machine.home) == ["likes tea", "likes coffee"]


@pytest.mark.parametrize(
    "arguments",
    [("undo", "abc"), ("add", "x", "--target", "other"), ("replace", "x"), ("dance",)],
    ids=str,
)
def test_wrong_usage_is_exit_code_2(arguments: tuple[str, ...], machine: Machine) -> None:
    with machine.unchanged():
        machine.run("memory", *arguments).misused()


@pytest.mark.files_only
def test_looking_at_an_empty_home_makes_nothing(machine: Machine) -> None:
    for command in ("show", "history", "pending"):
        machine.run("memory", command).done()
        machine.json("memory", command)
    assert snapshot(machine.home) == {}


def test_a_text_may_come_from_standard_input(machine: Machine) -> None:
    done = fed(machine, "zwei\r\nZeilen ä\n".encode(), "add", "-")
    assert done.returncode == 0, done.stderr
    assert stored(machine.home) == ["zwei\nZeilen ä"]
    assert fed(machine, b"one line", "replace", "zwei", "-").returncode == 0
    assert stored(machine.home) == ["one line"]
    empty = fed(machine, b"", "add", "-")
    assert empty.returncode == 1
    assert b"the note is empty" in empty.stderr


def test_standard_input_that_is_no_text_is_one_clear_line(machine: Machine) -> None:
    done = fed(machine, b"caf\xe9", "add", "-")
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr
    assert not notes_file(machine.home).exists()


def test_standard_input_that_is_no_text_is_expected_in_any_locale(machine: Machine) -> None:
    done = fed(machine, b"caf\xe9", "add", "-", PYTHONIOENCODING="utf-8:strict")
    assert done.returncode == 1
    assert b"unexpected" not in done.stderr
    assert b"UTF-8" in done.stderr


def test_a_text_that_begins_with_dashes_can_be_added(machine: Machine) -> None:
    machine.run("memory", "add", "--", "--verbose is my default").done()
    assert stored(machine.home) == ["--verbose is my default"]


@pytest.mark.skipif(os.name != "posix", reason="arguments are bytes on POSIX")
def test_an_argument_that_is_no_text_is_refused(machine: Machine) -> None:
    done = subprocess.run(
        [*machine.command("memory", "add"), b"caf\xe9"],
        env=machine.environment,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr
    assert not notes_file(machine.home).exists()


def test_the_history_names_who_and_what(machine: Machine) -> None:
    machine.run("memory", "add", "likes tea").done()
    append(machine.home, "by a shell\n")
    machine.run("memory", "remove", "tea").done()
    out = machine.run("memory", "history").done().out
    assert "remove by command" in out
    assert "edit by file edit" in out
    assert "- likes tea" in out
    assert "+ by a shell" in out
    assert len(machine.json("memory", "history", "--limit", "1")["changes"]) == 1
    assert machine.json("memory", "history", "--target", "user")["changes"] == []


def test_the_history_has_the_edit_that_a_person_just_made(machine: Machine) -> None:
    machine.run("memory", "add", "likes tea").done()
    append(machine.home, "by a shell\n")
    newest = machine.json("memory", "history")["changes"][0]
    assert (newest["who"], newest["added"]) == ("file edit", ["by a shell"])


def test_changes_are_undone_by_their_number(machine: Machine) -> None:
    machine.run("memory", "add", "one").done()
    machine.run("memory", "add", "two").done()
    second, first = (each["id"] for each in recorded(machine.home))
    machine.run("memory", "undo", str(first)).done()
    assert stored(machine.home) == ["two"]
    assert str(second + 1) in machine.run("memory", "undo").done().out
    assert sorted(stored(machine.home)) == ["one", "two"]


@pytest.mark.files_only
def test_an_unreadable_notebook_is_told_and_the_other_is_shown(machine: Machine) -> None:
    path = write_notes(machine.home, b"caf\xe9")
    write_notes(machine.home, "called Ada", "user")
    result = machine.run("memory", "show")
    assert result.code == 1
    assert "called Ada" in result.out
    assert str(path) in result.err
    assert "UTF-8" in result.err
    shown = machine.json("memory", "show", code=1)["notebooks"]
    assert "UTF-8" in shown["memory"]["error"]
    assert shown["user"]["error"] == ""
    assert "UTF-8" in machine.run("memory", "add", "new").failed()
    assert path.read_bytes() == b"caf\xe9"


def test_a_broken_configuration_stops_a_change_before_it_is_made(machine: Machine) -> None:
    write_notes(machine.home, "likes tea")
    machine.write_config("memory: {memory_char_limit: many}\n")
    with machine.unchanged():
        assert "memory_char_limit" in machine.run("memory", "add", "new").failed()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc can't be written")
def test_a_home_that_can_not_be_made_is_one_line(machine: Machine) -> None:
    error = machine.run("memory", "add", "new", env={"HERMES_HOME": "/proc/hermes"}).failed()
    assert "/proc/hermes" in error


def test_a_note_can_not_command_the_terminal_of_who_looks_at_it(machine: Machine) -> None:
    write_notes(machine.home, "likes tea\n§\nclear \x1b[2J\x1b]0;title\x07 me \u202etxt.exe")
    shown = machine.run("memory", "show").out
    assert "likes tea" in shown
    for character in "\x1b\x07\u202e":
        assert character not in shown
