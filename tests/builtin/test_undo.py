"""Changes taken back: the newest, an older one, an undo itself, and edits by others."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.notes import (
    Agent,
    append,
    notes_file,
    notes_text,
    recorded,
    refused,
    saved,
    stored,
    write_notes,
)

from hermes_builtin.notes import Author, NotesError, history

#: Over PostgreSQL in `make test`, too.
FAST = True
pytestmark = pytest.mark.usefixtures("both_storages")

PERSON = Author("command")


def undo(session: Agent, number: int | None = None) -> None:
    session.notes.undo(number, PERSON)


def number_of(home: Path, text: str) -> int:
    """The number of the change that brought a text."""
    found = [
        each for each in recorded(home) if text in each["after"] and text not in each["before"]
    ]
    return int(found[-1]["id"])


@pytest.fixture
def session(agent) -> Agent:
    """A session with two notes."""
    started: Agent = agent()
    saved(started.add("one"))
    saved(started.add("two"))
    return started


def test_an_addition_is_taken_back(session: Agent, home: Path) -> None:
    undo(session)
    assert stored(home) == ["one"]


def test_a_replacement_is_taken_back_in_its_place(session: Agent, home: Path) -> None:
    saved(session.replace("one", "1"))
    undo(session)
    assert notes_text(home) == "one\n§\ntwo"


def test_a_removal_is_taken_back_in_its_place(session: Agent, home: Path) -> None:
    saved(session.remove("one"))
    undo(session)
    assert stored(home) == ["one", "two"]


def test_a_batch_is_taken_back_as_one(session: Agent, home: Path) -> None:
    operations = [{"action": "remove", "old_text": "one"}, {"action": "add", "content": "three"}]
    saved(session.batch(*operations))
    undo(session)
    assert stored(home) == ["one", "two"]


def test_an_undo_can_be_undone(session: Agent, home: Path) -> None:
    saved(session.replace("one", "1"))
    for expected in (["one", "two"], ["1", "two"], ["one", "two"]):
        undo(session)
        assert stored(home) == expected


def test_an_undo_is_recorded_like_any_change(session: Agent, home: Path) -> None:
    undo(session)
    newest = recorded(home)[0]
    assert (newest["who"], newest["action"]) == ("command", "undo")
    assert (newest["before"], newest["after"]) == ("one\n§\ntwo", "one")


def test_an_older_change_is_taken_back_and_later_ones_are_kept(session: Agent, home: Path) -> None:
    saved(session.add("three"))
    saved(session.replace("two", "2"))
    undo(session, number_of(home, "one"))
    assert sorted(stored(home)) == ["2", "three"]


def test_an_older_removal_is_taken_back_and_later_changes_are_kept(session, home: Path) -> None:
    saved(session.remove("one"))
    removal = recorded(home)[0]["id"]
    saved(session.add("three"))
    write_notes(home, "two\n§\nthree\n§\nby hand")
    undo(session, removal)
    assert sorted(stored(home)) == ["by hand", "one", "three", "two"]


def test_taking_back_what_is_gone_already_changes_nothing(session: Agent, home: Path) -> None:
    number = number_of(home, "one")
    saved(session.remove("one"))
    before = len(recorded(home))
    _, written = session.notes.undo(number, PERSON)
    assert written.steps == []
    assert stored(home) == ["two"]
    assert len(recorded(home)) == before


def test_what_is_there_again_already_is_not_brought_back_a_second_time(session, home) -> None:
    saved(session.remove("one"))
    removal = recorded(home)[0]["id"]
    write_notes(home, "two\n§\none")
    undo(session, removal)
    assert stored(home) == ["two", "one"]


def test_the_newest_change_may_be_in_either_notebook(session: Agent, home: Path) -> None:
    saved(session.add("about you", "user"))
    undo(session)
    assert stored(home, "user") == []
    assert stored(home) == ["one", "two"]


def test_an_undo_may_pass_the_cap(agent, home: Path) -> None:
    session = agent(memory_char_limit=20)
    saved(session.add("a" * 15))
    saved(session.replace("aaa", "b"))
    number = recorded(home)[0]["id"]
    saved(session.add("c" * 15))
    undo(session, number)
    assert sorted(stored(home)) == ["a" * 15, "c" * 15]


# -- edits by others --------------------------------------------------------------------------


def test_an_edit_that_nobody_has_noticed_yet_is_the_newest_change(session, home: Path) -> None:
    write_notes(home, "two\n§\nby hand\n")
    undo(session)
    assert stored(home) == ["one", "two"]


def test_appended_text_is_taken_back(session: Agent, home: Path) -> None:
    append(home, "by a shell\n")
    saved(session.add("three"))
    undo(session, recorded(home)[1]["id"])
    assert stored(home) == ["one", "two", "three"]


def test_appended_text_that_was_noticed_is_still_the_newest_change(session, home: Path) -> None:
    append(home, "by a shell\n")
    saved(session.add("one"))  # it is there already
    undo(session)
    assert stored(home) == ["one", "two"]


@pytest.mark.files_only
def test_a_deleted_file_is_brought_back(session: Agent, home: Path) -> None:
    notes_file(home).unlink()
    undo(session)
    assert stored(home) == ["one", "two"]


def test_a_removal_by_an_editor_is_taken_back_after_later_changes(session, home: Path) -> None:
    write_notes(home, "two")
    saved(session.add("three"))
    undo(session, recorded(home)[1]["id"])
    assert sorted(stored(home)) == ["one", "three", "two"]


def test_an_undo_of_an_edit_can_be_undone(session: Agent, home: Path) -> None:
    write_notes(home, "two\n§\nby hand")
    undo(session)
    undo(session)
    assert sorted(stored(home)) == ["by hand", "two"]


def test_a_conversion_of_line_ends_has_nothing_to_take_back(session: Agent, home: Path) -> None:
    write_notes(home, "one\r\n§\r\ntwo\r\n")
    undo(session)
    assert notes_text(home) == "one\r\n§\r\ntwo\r\n"


# -- what can't be undone ---------------------------------------------------------------------


def test_with_no_change_there_is_nothing_to_undo(agent, home: Path) -> None:
    with pytest.raises(NotesError, match="nothing to undo"):
        undo(agent())
    assert not notes_file(home).exists()


@pytest.mark.parametrize(
    "number",
    [
        99,
        -1,
        0,
        2**70,
    ],
)
def test_a_change_that_there_is_not_is_a_clear_error(number: int, session: Agent) -> None:
    with pytest.raises(NotesError, match="no such change"):
        undo(session, number)


@pytest.mark.files_only
def test_an_unreadable_file_is_not_overwritten_by_an_undo(session: Agent, home: Path) -> None:
    path = write_notes(home, b"caf\xe9")
    with pytest.raises(NotesError, match="UTF-8"):
        undo(session, number_of(home, "one"))
    assert path.read_bytes() == b"caf\xe9"


def test_notes_that_were_there_before_us_can_not_be_undone_away(agent, home: Path) -> None:
    write_notes(home, "precious\n§\nmore")
    session = agent()
    with pytest.raises(NotesError, match="nothing to undo"):
        undo(session)
    assert stored(home) == ["precious", "more"]


def test_in_a_home_that_was_there_before_us_the_newest_change_is_ours(agent, home: Path) -> None:
    write_notes(home, "precious", "user")
    write_notes(home, "one")
    session = agent()
    saved(session.add("two"))
    undo(session)
    assert stored(home, "user") == ["precious"]
    assert stored(home) == ["one"]


def test_a_notebook_that_has_not_changed_for_long_is_no_edit(agent, home, monkeypatch) -> None:
    """Old changes are dropped from the history, not what the other notebook holds."""
    monkeypatch.setattr(history, "KEPT", 20)
    session = agent()
    saved(session.add("precious", "user"))
    for number in range(100):
        saved(session.add("note") if number % 2 == 0 else session.remove("note"))
    refused(session.remove("no such entry", "user"))
    undo(session)
    assert stored(home, "user") == ["precious"]
    assert stored(home) == ["note"]
    made_by_others = [each for each in recorded(home) if each["who"] == "file edit"]
    assert all(each["before"] == each["after"] for each in made_by_others)


def test_a_text_appended_to_a_notebook_that_has_not_changed_for_long_is_an_entry(
    agent, home: Path, monkeypatch
) -> None:
    monkeypatch.setattr(history, "KEPT", 20)
    session = agent()
    saved(session.add("precious", "user"))
    for number in range(100):
        saved(session.add("note") if number % 2 == 0 else session.remove("note"))
    append(home, "by a shell\n", "user")
    assert session.entries("user") == ["precious", "by a shell"]


@pytest.mark.files_only
def test_the_oldest_change_that_is_kept_still_says_what_was_before_it(
    agent, home: Path, monkeypatch
) -> None:
    monkeypatch.setattr(history, "KEPT", 20)
    session = agent()
    saved(session.add("other"))
    for number in range(100):
        saved(session.add("note") if number % 2 == 0 else session.remove("note"))
    oldest = recorded(home)[-1]
    assert (oldest["action"], oldest["before"]) == ("remove", "other\n§\nnote")
    undo(session, oldest["id"])
    assert stored(home) == ["other", "note"]


@pytest.mark.parametrize("odd", ["{{", "3", "[1]", '{"a": 1}'])
def test_a_record_of_entries_that_cannot_be_read_stops_nobody(
    session, home: Path, odd: str
) -> None:
    with session.notes.database.transaction() as database:
        database.execute("UPDATE changes SET entries = ?", (odd,))
    saved(session.add("three"))
    undo(session)
    undo(session, number_of(home, "one"))
    assert stored(home) == ["two"]
