"""What `doctor` looks at in the built-in's files, and how much of it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from support.archives import fill

from hermes_builtin import doctor
from hermes_builtin.sessions.archive import indexed_words
from hermes_builtin.sessions.sqlite import SqliteArchive

pytestmark = pytest.mark.files_only("about damage of files")


def take_out_of_the_index(path: Path) -> None:
    """Remove the oldest message from the index, as a bug would."""
    with closing(sqlite3.connect(path)) as database, database:
        number, content, extra = database.execute(
            "SELECT id, content, extra FROM archive_messages ORDER BY id LIMIT 1"
        ).fetchone()
        database.execute(
            "INSERT INTO archive_index (archive_index, rowid, words) VALUES ('delete', ?, ?)",
            (number, " ".join(indexed_words(content, extra))),
        )


def test_a_large_archive_is_looked_up_by_the_words_of_its_newest_messages(home, monkeypatch):
    path = home / "state.db"
    fill(path, sessions=3, turns=2)
    (row,) = [each for each in doctor.diagnose(home, fix=False) if each[0] == "conversations"]
    assert row == ("conversations", "ok", "24 messages, all searchable", "")
    monkeypatch.setattr(doctor, "NEWEST", 4)
    take_out_of_the_index(path)
    (row,) = [each for each in doctor.diagnose(home, fix=False) if each[0] == "conversations"]
    assert row[1:3] == (
        "ok",
        "24 messages, the newest 4 searchable (to test all: hermes-plugins sessions check)",
    )
    steps: list[tuple[int, int]] = []
    with closing(SqliteArchive(path)) as archive:
        (problem,) = archive.check(lambda *step: steps.append(step))
    assert problem.what.endswith("is missing in it")
    assert problem.index_only
    assert steps == [(0, 24)]
