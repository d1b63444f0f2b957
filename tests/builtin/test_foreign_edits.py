"""The file is the truth: what others made of it is taken over, and nothing is brought back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.notes import (
    notes_file,
    recorded,
    refused,
    saved,
    stored,
    write_notes,
)

pytestmark = pytest.mark.files_only(
    "about edits of the files; test_state_machine.py has those of a database"
)


@pytest.fixture
def writer(agent):
    """A session that has saved three notes."""
    started = agent()
    for entry in ("one", "two", "three"):
        saved(started.add(entry))
    return started


def test_what_an_editor_rewrote_is_taken_over_as_it_stands(writer, home: Path) -> None:
    write_notes(home, "three\n\n§\n\nfour\n\n§\n\none, in more words\n")
    saved(writer.add("five"))
    assert stored(home) == ["three", "four", "one, in more words", "five"]


def test_the_tool_finds_what_an_editor_wrote(writer, home: Path) -> None:
    write_notes(home, "one\n§\nby hand")
    saved(writer.replace("hand", "by tool"))
    assert stored(home) == ["one", "by tool"]
    saved(writer.remove("one"))
    assert stored(home) == ["by tool"]


def test_an_entry_that_an_editor_removed_is_not_brought_back(writer, home: Path, agent) -> None:
    write_notes(home, "one\n§\nthree")
    saved(writer.add("four"))
    saved(agent("s2").add("five"))
    saved(writer.replace("four", "4"))
    assert stored(home) == ["one", "three", "4", "five"]


def test_an_entry_that_reappears_was_added_and_stays(writer, home: Path) -> None:
    saved(writer.remove("two"))
    write_notes(home, "one\n§\nthree\n§\ntwo")
    saved(writer.add("four"))
    assert stored(home) == ["one", "three", "two", "four"]


def test_a_file_that_was_deleted_is_not_brought_back(writer, home: Path) -> None:
    notes_file(home).unlink()
    assert writer.entries() == []
    saved(writer.add("new"))
    assert stored(home) == ["new"]


def test_a_file_that_was_emptied_is_not_brought_back(writer, home: Path) -> None:
    write_notes(home, "")
    saved(writer.add("new"))
    assert stored(home) == ["new"]


def test_duplicates_that_a_person_wrote_are_left_alone(writer, home: Path) -> None:
    write_notes(home, "one\n§\none\n§\ntwo")
    saved(writer.add("new"))
    assert stored(home) == ["one", "one", "two", "new"]
    saved(writer.remove("one"))
    assert stored(home) == ["one", "two", "new"]


def test_a_conversion_of_line_ends_changes_no_entry(writer, home: Path) -> None:
    saved(writer.add("of\ntwo lines"))
    path = notes_file(home)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert writer.entries() == ["one", "two", "three", "of\ntwo lines"]
    saved(writer.add("new"))
    assert path.read_bytes() == "one\n§\ntwo\n§\nthree\n§\nof\ntwo lines\n§\nnew".encode()


def test_another_session_of_ours_is_not_overwritten(writer, home: Path, agent) -> None:
    other = agent("s2")
    saved(other.add("from s2"))
    saved(writer.add("from s1"))
    saved(other.remove("one"))
    assert stored(home) == ["two", "three", "from s2", "from s1"]


def test_edits_are_recorded_as_edits_of_the_file(writer, home: Path) -> None:
    write_notes(home, "one\n§\nfour")
    saved(writer.add("five"))
    ours, theirs, *_ = recorded(home)
    assert (ours["who"], ours["session"]) == ("tool", "s1")
    assert (theirs["who"], theirs["target"]) == ("file edit", "memory")
    assert theirs["before"] == "one\n§\ntwo\n§\nthree"
    assert theirs["after"] == ours["before"] == "one\n§\nfour"
    assert ours["after"] == notes_file(home).read_text("utf-8")


def test_a_refused_call_records_the_edit_that_it_found(writer, home: Path) -> None:
    write_notes(home, "one\n§\nfour")
    refused(writer.remove("no such entry"))
    assert recorded(home)[0]["who"] == "file edit"
    assert stored(home) == ["one", "four"]


def test_an_edit_is_recorded_once(writer, home: Path) -> None:
    write_notes(home, "one\n§\nfour\n")
    for _ in range(3):
        refused(writer.remove("no such entry"))
    saved(writer.add("one"))
    assert [each["who"] for each in recorded(home)] == ["file edit", "tool", "tool", "tool"]


# -- more than the cap, written by hand -------------------------------------------------------


def test_a_file_over_the_cap_is_read_in_whole_and_can_be_made_smaller(home: Path, agent) -> None:
    long = "x" * 3000
    write_notes(home, f"{long}\n§\nshort\n§\nother")
    writer = agent()
    assert writer.entries() == [long, "short", "other"]
    assert long in writer.prompt
    assert "[100% — 3,016/2,200 chars]" in writer.prompt
    refused(writer.add("more"))
    saved(writer.remove("other"))
    saved(writer.replace("short", "shrt"))
    saved(writer.replace("xxx", "y" * 2000))
    saved(writer.add("more"))
    assert stored(home) == ["y" * 2000, "shrt", "more"]


# -- an editor that saves while we write ------------------------------------------------------


class Rival:
    """Writes to the file whenever we are about to put ours in its place."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch, *texts: str | bytes) -> None:
        self.home = home
        self.left = list(texts)
        self.saves = 0
        self._real = os.fsync
        monkeypatch.setattr(os, "fsync", self)

    def __call__(self, handle: int) -> None:
        """Our new text is on its way to the disk: the editor saves now."""
        self._real(handle)
        if self.left:
            self.saves += 1
            write_notes(self.home, self.left.pop(0))


def test_an_edit_between_reading_and_writing_is_not_overwritten(writer, home, monkeypatch) -> None:
    rival = Rival(home, monkeypatch, "one\n§\nby the editor")
    answer = saved(writer.add("by the tool"))
    assert rival.saves == 1
    assert stored(home) == ["one", "by the editor", "by the tool"]
    assert answer["entry_count"] == 3
    assert [each["who"] for each in recorded(home)[:2]] == ["tool", "file edit"]


def test_an_edit_in_between_that_takes_the_entry_away_is_a_clear_refusal(
    writer, home, monkeypatch
) -> None:
    Rival(home, monkeypatch, "one\n§\nby the editor")
    answer = writer.replace("two", "2")
    refused(answer)
    assert answer["current_entries"] == ["one", "by the editor"]
    assert stored(home) == ["one", "by the editor"]


def test_a_file_that_never_stands_still_is_left_alone(writer, home: Path, monkeypatch) -> None:
    rival = Rival(home, monkeypatch, *(f"one\n§\nsave {n}" for n in range(100)))
    error = refused(writer.add("by the tool"))
    assert str(notes_file(home)) in error
    assert "changed" in error
    assert 1 < rival.saves < 100
    assert stored(home) == ["one", f"save {rival.saves - 1}"]
    assert [each.name for each in (home / "memories").glob(".*")] == []


def test_an_unreadable_file_put_there_in_between_is_left_alone(writer, home, monkeypatch) -> None:
    Rival(home, monkeypatch, b"caf\xe9")
    assert "UTF-8" in refused(writer.add("by the tool"))
    assert notes_file(home).read_bytes() == b"caf\xe9"
