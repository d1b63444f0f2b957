"""What is in the files: entries, the line between them, and texts that look like that line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.notes import notes_file, saved, stored, write_notes

from hermes_builtin.notes.entries import parse, render

pytestmark = pytest.mark.files_only("about what is in the files")

calm = settings(deadline=None, database=None, derandomize=True)
MANY = 1000 if os.environ.get("HERMES_STRESS") else 30

LEGACY = "# My notes\n\n## Environment\nLinux, zsh\n\n### Shell\nbash too\n\n## Style\nshort"
LEGACY_ENTRIES = [
    "# My notes",
    "## Environment\nLinux, zsh\n\n### Shell\nbash too",
    "## Style\nshort",
]

READ = {
    "as we write it": ("a\n§\nb", ["a", "b"]),
    "a newline at the end": ("a\n§\nb\n", ["a", "b"]),
    "blank lines around the separator": ("a\n\n§\n\n\nb\n\n", ["a", "b"]),
    "blanks beside the separator": ("a\n  §\t\nb", ["a", "b"]),
    "Windows line ends": ("a\r\n§\r\nb\r\nc\r\n", ["a", "b\nc"]),
    "old Mac line ends": ("a\r§\rb", ["a", "b"]),
    "mixed line ends": ("a\r\n§\nb\r§\r\nc", ["a", "b", "c"]),
    "a byte order mark": ("\ufeffa\n§\nb", ["a", "b"]),
    "a byte order mark and Windows line ends": ("\ufeffa\r\n§\r\nb\r\n", ["a", "b"]),
    "separators at both ends": ("§\na\n§\nb\n§\n", ["a", "b"]),
    "several separators in a row": ("a\n§\n§\n\n§\nb", ["a", "b"]),
    "nothing but separators": ("§\n§\n§", []),
    "nothing": ("", []),
    "nothing but white space": (" \n\t\n\r\n", []),
    "a section sign within a line": (
        "see § 5\n§\n§ 6 too\n§\nend §",
        ["see § 5", "§ 6 too", "end §"],
    ),
    "blank lines within an entry": ("a\n\nb\n§\nc", ["a\n\nb", "c"]),
    "an escaped separator": ("a\n\\§\nb\n§\nc", ["a\n§\nb", "c"]),
    "one entry": ("just this", ["just this"]),
    "plain Markdown": ("- likes tea\n- likes cats\n", ["- likes tea\n- likes cats"]),
    "headings, from before there were separators": (LEGACY, LEGACY_ENTRIES),
    "headings with Windows line ends": (LEGACY.replace("\n", "\r\n"), LEGACY_ENTRIES),
    "headings in a file that has separators": ("## a\nx\n## b\n§\nc", ["## a\nx\n## b", "c"]),
}


@pytest.mark.parametrize(("text", "entries"), READ.values(), ids=READ)
def test_a_file_is_read_as_a_person_would_mean_it_and_not_touched(
    text, entries, home: Path, agent
) -> None:
    path = write_notes(home, text)
    before = path.stat()
    reader = agent()
    assert reader.entries() == entries
    assert reader.prompt
    assert path.read_bytes() == text.encode()
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert [each.name for each in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(("text", "entries"), READ.values(), ids=READ)
def test_the_first_write_keeps_every_entry_and_makes_the_file_plain(
    text, entries, home: Path, agent
) -> None:
    write_notes(home, text)
    saved(agent().add("new"))
    plain = [entry.replace("\n§\n", "\n\\§\n") for entry in entries]
    assert notes_file(home).read_bytes() == "\n§\n".join([*plain, "new"]).encode()


def test_entries_are_joined_by_the_delimiter_without_a_newline_at_the_end(home, agent) -> None:
    writer = agent()
    for entry in ("first", "second\nwith two lines", "dritte ä 三"):
        saved(writer.add(entry))
    expected = "first\n§\nsecond\nwith two lines\n§\ndritte ä 三"
    assert notes_file(home).read_bytes() == expected.encode()


def test_the_two_targets_are_two_files(home: Path, agent) -> None:
    writer = agent()
    saved(writer.add("about the work"))
    saved(writer.add("about the user", "user"))
    assert (home / "memories" / "MEMORY.md").read_text("utf-8") == "about the work"
    assert (home / "memories" / "USER.md").read_text("utf-8") == "about the user"


LOOKALIKES = [
    "§",
    "a\n§\nb",
    "a\n  §\t\nb",
    "a\n\n§\n\nb",
    "§\n§\n§",
    "\\§",
    "a\n\\§\nb",
    "a\n\\\\\\§\n\\§\n§\nb",
    "a\n\\ §\nb",
]


@pytest.mark.parametrize("entry", LOOKALIKES)
def test_an_entry_with_lines_like_the_separator_stays_one_entry(entry, home: Path, agent) -> None:
    writer = agent()
    for content in ("before", entry, "after"):
        answer = saved(writer.add(content))
    assert answer["entry_count"] == 3
    assert len(stored(home)) == 3  # for hermes-agent too
    assert agent().entries() == ["before", entry, "after"]


@pytest.mark.parametrize("entry", LOOKALIKES)
def test_lines_like_the_separator_survive_when_nobody_remembers_the_file(
    entry, home: Path, agent
) -> None:
    """As on another machine, to which only the file was copied."""
    writer = agent()
    saved(writer.add(entry))
    saved(writer.add("after"))
    writer.close()
    for path in (home / "memories").glob("history.db*"):
        path.unlink()
    reader = agent()
    assert reader.entries() == [entry, "after"]
    saved(reader.add("more"))  # escaping does not pile up
    assert agent().entries() == [entry, "after", "more"]


def test_a_line_with_the_section_sign_alone_is_stored_with_a_backslash(home, agent) -> None:
    saved(agent().add("a\n§\nb"))
    assert notes_file(home).read_text("utf-8") == "a\n\\§\nb"


def test_white_space_around_an_entry_is_not_stored(home: Path, agent) -> None:
    saved(agent().add(" \r\n\t an entry\r\nof two lines \n\n"))
    assert notes_file(home).read_bytes() == b"an entry\nof two lines"


# -- for any text ---------------------------------------------------------------------------

TEXTS = st.text(st.sampled_from("ab§\\ \t\n#é\u2028\x0b\x85"), max_size=30) | st.text(max_size=30)
ENTRIES = st.lists(TEXTS.map(lambda text: text.replace("\r", "").strip()).filter(bool), max_size=5)


def is_plain(entries: list[str]) -> bool:
    """Without what means something else at the beginning of a file, or alone in it.

    One entry with headings in it is what a legacy file looks like.
    """
    return "\ufeff" not in "".join(entries) and (len(entries) != 1 or "## " not in entries[0])


@pytest.mark.scaled
@settings(calm, max_examples=MANY)
@given(ENTRIES.filter(is_plain))
def test_what_is_rendered_parses_to_the_same_entries(entries: list[str]) -> None:
    assert parse(render(entries)) == entries


@pytest.mark.scaled
@settings(calm, max_examples=MANY)
@given(TEXTS)
def test_any_text_parses_to_entries_that_are_stable(text: str) -> None:
    entries = parse(text)
    assert all(entry and entry == entry.strip() for entry in entries)
    if is_plain(entries):
        assert parse(render(entries)) == entries


@settings(calm)
@given(TEXTS)
def test_no_word_of_a_text_is_dropped(text: str) -> None:
    def letters(each: str) -> str:
        return "".join(each.replace("§", "").replace("\\", "").split())

    assert letters("".join(parse(text))) == letters(text.removeprefix("\ufeff"))
