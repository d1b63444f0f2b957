"""A history that can't be used: the notes themselves are not touched by that."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.notes import append, recorded, refused, saved, stored
from support.other_user import bound_by_modes

pytestmark = pytest.mark.files_only("a history that can be damaged is a file")


@pytest.fixture
def broken_history(home: Path, agent) -> Path:
    """A home with one note, whose history is no database any more."""
    session = agent("before")
    saved(session.add("one"))
    session.close()
    for path in (home / "memories").glob("history.db*"):
        path.unlink()
    (home / "memories" / "history.db").write_bytes(b"no database " * 1000)
    return home


def test_a_broken_history_is_a_clear_error_and_the_notes_are_untouched(
    broken_history: Path, agent
) -> None:
    session = agent()
    error = refused(session.add("two"))
    assert "history.db" in error
    assert stored(broken_history) == ["one"]


def test_a_broken_history_does_not_keep_the_notes_out_of_the_prompt(broken_history, agent) -> None:
    session = agent()
    assert "one" in session.prompt
    assert "can't be read" not in session.prompt


def test_a_history_that_was_moved_away_starts_anew(broken_history: Path, agent) -> None:
    (broken_history / "memories" / "history.db").unlink()
    session = agent()
    saved(session.add("two"))
    append(broken_history, "three\n")
    assert session.entries() == ["one", "two", "three"]


def test_a_history_that_was_moved_away_in_a_session_starts_anew_in_it(home: Path, agent) -> None:
    session = agent()
    saved(session.add("one"))
    for path in (home / "memories").glob("history.db*"):
        path.unlink()
    saved(session.add("two"))
    assert [each["after"] for each in recorded(home)][:1] == ["one\n§\ntwo"]


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX modes")
def test_a_folder_with_a_history_that_became_read_only_has_its_notes_in_the_prompt(
    home: Path, agent
) -> None:
    session = agent("before")
    saved(session.add("likes tea"))
    session.close()
    (home / "memories").chmod(0o500)
    try:
        with bound_by_modes():
            assert "likes tea" in agent().prompt
    finally:
        (home / "memories").chmod(0o700)
