"""Copies of databases that others write to: one moment of it, and nobody waits."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from hermes_core.errors import DatabaseError
from hermes_core.storage.snapshot import Snapshot, is_database


def database(path: Path, mode: str, rows: int = 3000) -> sqlite3.Connection:
    made = sqlite3.connect(path, isolation_level=None, timeout=0)
    made.execute(f"PRAGMA journal_mode = {mode}")
    made.execute("CREATE TABLE facts (id INTEGER PRIMARY KEY, text TEXT)")
    made.executemany("INSERT INTO facts (text) VALUES (?)", [("x" * 1000,)] * rows)
    return made


def count(path: Path) -> int:
    with closing(sqlite3.connect(path)) as copy:
        assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return int(copy.execute("SELECT count(*) FROM facts").fetchone()[0])


def test_a_snapshot_has_the_moment_at_which_it_was_made_whatever_is_written(tmp_path):
    with closing(database(tmp_path / "a.db", "WAL")) as writer:
        steps = []

        def write(done: int, total: int) -> None:
            steps.append((done, total))
            writer.execute("INSERT INTO facts (text) VALUES ('later')")  # with a timeout of 0

        with closing(Snapshot(tmp_path / "a.db")) as snapshot:
            writer.execute("INSERT INTO facts (text) VALUES ('after')")
            assert snapshot.copy(tmp_path / "b.db", write) == ""
        assert len(steps) > 2
        assert steps[-1][0] == steps[-1][1]
        assert count(tmp_path / "b.db") == 3000
        assert count(tmp_path / "a.db") == 3001 + len(steps)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.db", "b.db"]


def test_the_log_can_be_emptied_as_soon_as_the_copy_is_made(tmp_path):
    with closing(database(tmp_path / "a.db", "WAL")) as writer:
        with closing(Snapshot(tmp_path / "a.db")) as snapshot:
            writer.execute("INSERT INTO facts (text) VALUES ('after')")
            (busy, *_) = writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            assert busy
            snapshot.copy(tmp_path / "b.db")
            # What follows a copy (checks, compression) takes longer than the copy itself.
            assert writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0)
        assert count(tmp_path / "b.db") == 3000


def test_with_a_rollback_journal_writers_get_in_between_the_steps(tmp_path):
    with closing(database(tmp_path / "a.db", "DELETE")) as writer:
        steps = []

        def write(done: int, total: int) -> None:
            steps.append(done)
            if done < total:
                writer.execute("INSERT INTO facts (text) VALUES ('later')")

        with closing(Snapshot(tmp_path / "a.db")) as snapshot:
            assert snapshot.copy(tmp_path / "b.db", write) == ""
        # After some restarts it is made in one step; else it would never end.
        assert 5 < len(steps) < 20
        assert count(tmp_path / "b.db") == count(tmp_path / "a.db")


def test_what_a_killed_process_left_in_the_log_is_copied(tmp_path):
    child = os.fork()
    if child == 0:
        database(tmp_path / "a.db", "WAL", rows=5)
        os._exit(0)
    os.waitpid(child, 0)
    with closing(Snapshot(tmp_path / "a.db")) as snapshot:
        snapshot.copy(tmp_path / "b.db")
    assert count(tmp_path / "b.db") == 5


def test_damage_is_said(tmp_path):
    database(tmp_path / "a.db", "WAL").close()
    with (tmp_path / "a.db").open("r+b") as file:
        file.seek(3 * 4096)
        file.write(os.urandom(2 * 4096))
    with closing(Snapshot(tmp_path / "a.db")) as snapshot:
        assert snapshot.copy(tmp_path / "b.db") != ""


def test_a_database_is_told_from_other_files(tmp_path):
    database(tmp_path / "a.db", "WAL", rows=1).close()
    for name, content in {"empty": b"", "text": b"some text", "long": b"x" * 10_000}.items():
        (tmp_path / name).write_bytes(content)
    found = [each.name for each in sorted(tmp_path.iterdir()) if is_database(each)]
    assert found == ["a.db"]
    with pytest.raises(DatabaseError, match="can't be copied"):
        Snapshot(tmp_path / "long")
