"""Text that was put at the end of a file without a separator: ``echo ... >> MEMORY.md``."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.notes import append, notes_file, recorded, saved, stored

pytestmark = pytest.mark.files_only("about what a shell puts at the end of a file")


@pytest.fixture
def writer(agent):
    """A session that has saved two notes."""
    started = agent()
    saved(started.add("likes tea"))
    saved(started.add("works on Linux"))
    return started


@pytest.mark.parametrize(
    "end", ["\n", "", "\r\n", "\n\n"], ids=["echo", "echo -n", "CRLF", "blank"]
)
def test_appended_text_is_an_entry_of_its_own(end: str, writer, home: Path, agent) -> None:
    append(home, f"uses vim{end}")
    expected = ["likes tea", "works on Linux", "uses vim"]
    assert writer.entries() == expected
    assert agent("s2").entries() == expected
    saved(writer.add("new"))
    assert stored(home) == [*expected, "new"]


def test_appended_text_of_several_lines_is_one_entry(writer, home: Path) -> None:
    append(home, "\nuses vim\nwith plugins\n")
    saved(writer.add("new"))
    assert stored(home) == ["likes tea", "works on Linux", "uses vim\nwith plugins", "new"]


@pytest.mark.parametrize("end", ["\n", ""], ids=["echo", "echo -n"])
def test_what_is_appended_after_each_write_is_an_entry_each_time(end, writer, home) -> None:
    append(home, f"one{end}")
    saved(writer.add("two"))
    append(home, f"three{end}")
    saved(writer.add("four"))
    assert stored(home) == ["likes tea", "works on Linux", "one", "two", "three", "four"]


def test_two_texts_appended_in_a_row_are_both_there(writer, home: Path) -> None:
    append(home, "one\n")
    append(home, "two\n")
    saved(writer.add("new"))
    first, second, *between, new = stored(home)
    assert (first, second, new) == ("likes tea", "works on Linux", "new")
    assert "\n".join(between).splitlines() == ["one", "two"]


def test_two_texts_appended_around_a_refused_call_are_two_entries(writer, home: Path) -> None:
    """The refusal has looked at the file, so the second text is known to be another."""
    append(home, "one\n")
    writer.remove("there is no such entry")
    append(home, "two\n")
    assert writer.entries() == ["likes tea", "works on Linux", "one", "two"]


def test_appended_text_with_separators_is_several_entries(writer, home: Path) -> None:
    append(home, "\n§\none\n§\ntwo\n")
    assert writer.entries() == ["likes tea", "works on Linux", "one", "two"]


def test_a_separator_and_then_a_text_appended_by_hand_is_one_entry_more(writer, home) -> None:
    append(home, "\n§\n")
    append(home, "uses vim\n")
    saved(writer.add("new"))
    assert stored(home) == ["likes tea", "works on Linux", "uses vim", "new"]


@pytest.mark.parametrize(
    "line",
    [
        "- uses vim",
        "* uses vim",
        "# Editor",
        "1. uses vim",
        "## Editor",
        "(uses vim)",
        '"vim" is the editor',
        "/etc/hosts is managed",
        "vim über alles",
        ".env has the keys",
        ":wq leaves vim",
        "'main' is the branch",
        "%PATH% too",
        "日本語のメモ",
    ],
)
def test_whatever_the_appended_line_begins_with_it_is_an_entry(line, writer, home) -> None:
    append(home, f"{line}\n")
    assert writer.entries() == ["likes tea", "works on Linux", line]


@pytest.mark.parametrize("line", ["- uses vim", '"vim" is the editor', "/etc/hosts is managed"])
def test_on_a_line_of_its_own_it_is_an_entry_too(line, writer, home: Path) -> None:
    append(home, f"\n{line}\n")
    assert writer.entries() == ["likes tea", "works on Linux", line]


@pytest.mark.parametrize(
    "rest", [" and macOS", ".", ", mostly", "; never Windows", "!", ": Debian", "\u2026"]
)
@pytest.mark.parametrize("end", ["", "\n"], ids=["as it was", "newline by the editor"])
def test_the_last_entry_continued_in_an_editor_stays_one_entry(rest, end, writer, home) -> None:
    append(home, f"{rest}{end}")
    assert writer.entries() == ["likes tea", f"works on Linux{rest}"]
    saved(writer.add("new"))
    assert stored(home) == ["likes tea", f"works on Linux{rest}", "new"]


def test_the_last_entry_continued_and_another_added_in_an_editor(writer, home: Path) -> None:
    append(home, " and macOS\n\n§\n\nuses vim\n")
    assert writer.entries() == ["likes tea", "works on Linux and macOS", "uses vim"]


@pytest.mark.parametrize(
    ("before", "after"),
    [("the port is 80", "the port is 8080"), ("has a cat", "has a caterpillar")],
)
def test_a_last_entry_that_another_agent_replaced_by_a_longer_one_is_one_entry(
    before: str, after: str, home: Path, agent
) -> None:
    """hermes-agent rewrites the file by a rename; nobody has appended anything."""
    writer = agent()
    saved(writer.add("likes tea"))
    saved(writer.add(before))
    new = home / "memories" / "new"
    new.write_text(f"likes tea\n§\n{after}", "utf-8")
    new.replace(notes_file(home))
    assert writer.entries() == ["likes tea", after]


def test_a_newline_that_an_editor_puts_at_the_end_changes_no_entry(writer, home: Path) -> None:
    append(home, "\n")
    assert writer.entries() == ["likes tea", "works on Linux"]
    saved(writer.add("new"))
    assert notes_file(home).read_text("utf-8") == "likes tea\n§\nworks on Linux\n§\nnew"


def test_appended_text_is_recorded_as_an_edit_of_the_file(writer, home: Path) -> None:
    append(home, "uses vim\n")
    saved(writer.add("new"))
    ours, theirs, *_ = recorded(home)
    assert (ours["who"], theirs["who"]) == ("tool", "file edit")
    assert theirs["before"] == "likes tea\n§\nworks on Linux"
    assert theirs["after"] == "likes tea\n§\nworks on Linuxuses vim\n"


def test_text_appended_to_a_file_with_one_entry_is_an_entry_of_its_own(home, agent) -> None:
    writer = agent()
    saved(writer.add("likes tea"))
    append(home, "uses vim\n")
    assert writer.entries() == ["likes tea", "uses vim"]


def test_list_items_appended_on_lines_of_their_own_are_not_the_last_entry(home, agent) -> None:
    """The file of an editor, which we have seen but not rewritten."""
    writer = agent()
    saved(writer.add("likes tea"))
    append(home, "\n")
    saved(writer.add("likes tea"))  # it is there already: nothing is rewritten
    append(home, "- uses vim\n")
    append(home, "- uses zsh\n")
    assert writer.entries()[0] == "likes tea"
    assert "\n".join(writer.entries()[1:]).splitlines() == ["- uses vim", "- uses zsh"]


def test_appended_text_that_was_noticed_is_an_entry_after_an_edit_elsewhere(writer, home) -> None:
    append(home, "uses vim\n")
    saved(writer.add("likes tea"))  # it is there already
    assert "file edit" in {each["who"] for each in recorded(home)}
    path = notes_file(home)
    path.write_text(path.read_text("utf-8").replace("tea", "coffee"), "utf-8")
    assert writer.entries() == ["likes coffee", "works on Linux", "uses vim"]
