"""Text and tables: wrapped at words on a terminal of any width, one line each when piped."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from hermes_core.cli import output
from hermes_core.cli.output import Table, amount, say_field, say_text, width_of, wrapped

LONG = "Stores every conversation as a graph of people, places and facts, and recalls them."
CHINESE = "把每一次对话存成图谱,在代理休息时整理,并在需要时回忆起最重要的内容;需要一台服务器。" * 2
URL = "https://memories.example.com/api/v1/organisations/default/workspaces/default/facts"
HEADER = ("NAME", "STATE", "DESCRIPTION")

Screen = Callable[[int], None]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """Make standard output a terminal of so many columns, without colours."""

    def be(columns: int) -> None:
        monkeypatch.setattr(output, "on_terminal", lambda: True)
        monkeypatch.setattr(output, "terminal_width", lambda: columns)
        monkeypatch.setenv("NO_COLOR", "1")

    return be


@pytest.mark.parametrize("width", [20, 60, 80])
@pytest.mark.parametrize("text", [LONG, CHINESE, f"a {CHINESE} {LONG}", "👩 💻🧠" * 40])
def test_every_line_fits_and_no_character_is_lost(text, width):
    lines = wrapped(text, width)
    assert len(lines) > 1
    assert max(map(width_of, lines)) <= width
    assert "".join("".join(lines).split()) == "".join(text.split())


def test_a_line_ends_at_words_and_the_next_is_indented():
    assert wrapped("  one two three four five", 24) == ["  one two three four", "    five"]
    assert wrapped("one two three four five six", 26, 5)[1] == "     six"


def test_text_without_blanks_is_not_broken_before_punctuation():
    for width in range(20, 60):
        for line in wrapped(CHINESE, width, 0):
            assert line[0] not in ",。;"
            assert width_of(line) <= width


@pytest.mark.parametrize("before", ["- ", "location:       "])
def test_a_word_that_fits_on_no_line_follows_what_it_belongs_to_and_stays_whole(before):
    assert wrapped(f"{before}{URL} and more words", 60) == [before + URL, "  and more words"]


def test_a_value_is_wrapped_in_its_own_column(terminal, capsys):
    terminal(40)
    say_field("description", LONG, 12)
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("description: Stores every")
    assert all(line.startswith(" " * 13) and line[13] != " " for line in rest)


def test_a_text_of_several_lines_stays_in_its_own_column(terminal, capsys):
    terminal(40)
    say_text(f"{LONG}\nA second line.", "  d0d0915c  ", 12)
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("  d0d0915c  Stores every")
    assert all(line.startswith(" " * 12) and line[12] != " " for line in rest)
    assert rest[-1] == f"{'':12}A second line."


def test_when_piped_nothing_is_wrapped_and_fields_are_separated_by_tabs(capsys):
    say_field("description", LONG * 3, 12)
    Table(HEADER).print([("alpha", "active", LONG * 3)], ["active"])
    assert capsys.readouterr().out == f"description: {LONG * 3}\nalpha\tactive\t{LONG * 3}\n"


def shown(capsys: pytest.CaptureFixture[str], *rows: tuple[str, str, str]) -> str:
    Table(HEADER).print(rows, [""] * len(rows))
    return capsys.readouterr().out


ROWS = (("alpha", "active", LONG), ("beta-memory", "installed", "Short."))


def test_the_last_column_is_beside_the_others_where_there_is_room(terminal, capsys):
    terminal(60)
    assert shown(capsys, *ROWS).splitlines() == [
        "NAME         STATE      DESCRIPTION",
        "alpha        active     Stores every conversation as a graph",
        "                        of people, places and facts, and",
        "                        recalls them.",
        "beta-memory  installed  Short.",
    ]


def test_the_last_column_is_below_the_others_where_there_is_no_room(terminal, capsys):
    terminal(40)
    assert shown(capsys, *ROWS).splitlines() == [
        "NAME         STATE",
        "alpha        active",
        "    Stores every conversation as a graph",
        "    of people, places and facts, and",
        "    recalls them.",
        "beta-memory  installed",
        "    Short.",
    ]


def test_one_long_name_does_not_push_the_others_off_the_screen(terminal, capsys):
    terminal(60)
    name = "a-plugin-with-a-very-long-name-that-somebody-chose-in-anger"
    lines = shown(capsys, *ROWS * 2, (name, "broken", "Why.")).splitlines()
    assert lines[0] == "NAME         STATE      DESCRIPTION"
    assert lines[-3:] == [name, "    broken", f"{'':24}Why."]


def test_long_names_of_all_rows_make_paragraphs(terminal, capsys):
    terminal(40)
    name = "session-with-an-identifier-of-40-columns"
    assert shown(capsys, (name, "active", "Why is that?")).splitlines() == [
        name,
        "    active",
        "    Why is that?",
    ]


def test_a_header_that_is_wider_than_the_cells_gives_way(terminal, capsys):
    terminal(20)
    Table(("TIME", "OUTCOME", "TOOK", "ERROR")).print([("12:00:00", "ok", "1 ms", "x")], [""])
    assert capsys.readouterr().out == "12:00:00  ok  1 ms\n    x\n"


def test_a_table_that_grows_has_one_header_and_columns_that_only_get_wider(terminal, capsys):
    terminal(80)
    table = Table(HEADER)
    table.print([("a", "b", "c")], [""])
    table.print([("a-longer-name", "b", "c")], [""])
    table.print([("a", "b", "c")], [""])
    assert capsys.readouterr().out.splitlines() == [
        "NAME  STATE  DESCRIPTION",
        "a     b      c",
        "a-longer-name  b      c",
        "a              b      c",
    ]


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [(0, "entry", "0 entries"), (1, "entry", "1 entry"), (1200, "message", "1,200 messages")],
)
def test_an_amount_agrees_with_its_noun(number, noun, text):
    assert amount(number, noun) == text


def test_rich_is_not_needed_for_a_table():
    code = (
        "import sys; from hermes_core.cli import output; output.on_terminal = lambda: True;"
        "output.print_table(('A', 'B'), [('a', 'b')], ['active']); assert 'rich' not in sys.modules"
    )
    subprocess.run([sys.executable, "-P", "-c", code], check=True)


def test_a_path_that_has_no_room_beside_its_label_starts_on_the_next_line(terminal, capsys):
    terminal(60)
    path = f"/home/ann/{'a' * 36}/plugin"
    output.say_field("from", path)
    output.say_field("config", "/" + "b" * 58)
    assert capsys.readouterr().out.splitlines() == [
        "from:",
        f"    {path}",
        "config:",
        f" /{'b' * 58}",
    ]


def test_a_path_that_fits_on_no_line_stays_beside_its_label(terminal, capsys):
    terminal(60)
    output.say_field("from", "/" + "b" * 60)
    assert capsys.readouterr().out == f"from:      /{'b' * 60}\n"


def test_no_line_ends_between_a_number_and_its_unit():
    text = "the call took 2.6 ms, returned 14 B, and the next one is due in 30 min."
    for width in range(20, 80):
        lines = wrapped(text, width)
        assert not any(line[-1].isdigit() for line in lines), lines


CALL = ("16:21:10", "builtin", "system_prompt_block", "ok", "2.6 ms", "14 B", "")
CALLS = ("TIME", "PROVIDER", "HOOK", "OUTCOME", "TOOK", "BYTES", "ERROR")


def test_a_table_of_many_columns_keeps_its_header_on_a_narrow_terminal(terminal, capsys):
    terminal(60)
    output.print_table(CALLS, [CALL], [""])
    assert capsys.readouterr().out.splitlines() == [
        "TIME     PROVIDER HOOK                OUTCOME TOOK   BYTES",
        "16:21:10 builtin  system_prompt_block ok      2.6 ms 14 B",
    ]


def test_several_of_many_columns_go_below_the_others(terminal, capsys):
    terminal(60)
    failed = ("2026-11-18 16:21:10", "sample", "prefetch", "failed", "2.6 ms", "-", "it broke")
    output.print_table(CALLS, [("2026-11-18 16:21:10", *CALL[1:]), failed], ["", ""])
    assert capsys.readouterr().out.splitlines() == [
        "TIME                 PROVIDER  HOOK                 OUTCOME",
        "2026-11-18 16:21:10  builtin   system_prompt_block  ok",
        "    took: 2.6 ms  bytes: 14 B",
        "2026-11-18 16:21:10  sample    prefetch             failed",
        "    took: 2.6 ms",
        "    it broke",
    ]


def test_the_columns_after_one_that_is_too_wide_stay_in_order(terminal, capsys):
    terminal(80)
    rows = [
        (f"name-{number}", "package", "none", "local", "-", "long " * 30) for number in range(9)
    ]
    wide = ("short", "package", "", "local", "VARIABLE_THAT_IS_LONG (optional)", "words " * 20)
    output.print_table(
        ("NAME", "PACKAGE", "GRADE", "MEMORIES", "NEEDS", "DESCRIPTION"), [*rows, wide], [""] * 10
    )
    lines = capsys.readouterr().out.splitlines()
    (line,) = (each for each in lines if each.startswith("short"))
    assert line.index("local") == lines[0].index("MEMORIES")
    assert line.index("VARIABLE") == lines[0].index("NEEDS")
