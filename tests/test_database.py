"""Opening databases: whole or not at all, ours or refused, and patient with others."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from hermes_core.database import Layout, open_database
from hermes_core.errors import DatabaseError, ForeignDatabase

ONE = Layout("the shelf", 77, ("CREATE TABLE books (title TEXT)",))
TWO = Layout("the shelf", 77, (*ONE.migrations, "ALTER TABLE books ADD COLUMN author TEXT"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "shelf.db"


def columns(database: sqlite3.Connection) -> list[str]:
    return [row[1] for row in database.execute("PRAGMA table_info(books)")]


def test_a_new_database_is_private_in_wal_mode_and_complete(path: Path) -> None:
    with closing(open_database(path, TWO)) as database:
        database.execute("INSERT INTO books VALUES ('Emma', 'Austen')")
        assert database.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        if os.name == "posix":
            modes = {stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
            assert modes == {0o600}
    assert [each.name for each in path.parent.iterdir()] == ["shelf.db"]


def test_an_older_version_is_taken_forward_with_what_is_in_it(path: Path) -> None:
    with closing(open_database(path, ONE)) as database:
        database.execute("INSERT INTO books VALUES ('Emma')")
    with closing(open_database(path, TWO)) as database:
        assert columns(database) == ["title", "author"]
        assert database.execute("SELECT * FROM books").fetchall() == [("Emma", None)]


def test_a_migration_that_fails_changes_nothing(path: Path) -> None:
    open_database(path, ONE).close()
    bad = Layout("the shelf", 77, (*TWO.migrations, "CREATE TABLE books (again TEXT)"))
    with pytest.raises(DatabaseError, match="already exists"):
        open_database(path, bad)
    with closing(open_database(path, ONE)) as database:
        assert columns(database) == ["title"]


def test_a_newer_version_is_refused_untouched(path: Path) -> None:
    open_database(path, TWO).close()
    before = path.read_bytes()
    with pytest.raises(ForeignDatabase, match=r"newer version.*format 2, this one knows 1"):
        open_database(path, ONE)
    assert path.read_bytes() == before


def test_a_database_of_another_program_is_refused_untouched(path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE theirs (x)")
    before = path.read_bytes()
    with pytest.raises(ForeignDatabase, match="is not the shelf of hermes-plugins"):
        open_database(path, ONE)
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == ["shelf.db"]


def test_an_empty_file_becomes_a_database(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    with closing(open_database(path, ONE)) as database:
        assert columns(database) == ["title"]


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: path.write_text("no database" * 99)])
def test_what_is_no_database_is_an_error_with_its_path(path: Path, make) -> None:
    path.parent.mkdir()
    make(path)
    with pytest.raises(DatabaseError) as caught:
        open_database(path, ONE)
    assert caught.value.where == str(path)
    assert caught.value.what in (
        "is not a regular file",
        "the shelf can't be opened: file is not a database",
    )


OPENER = """
import sys
from pathlib import Path
from hermes_core.database import Layout, open_database
sys.stdin.readline()
for _ in range(20):
    database = open_database(Path(sys.argv[1]), Layout("it", 77, ["CREATE TABLE t (x)"]))
    database.execute("INSERT INTO t VALUES (1)")
    database.close()
"""


@pytest.mark.parametrize("exists", [False, True], ids=["new", "empty"])
def test_many_who_open_a_new_database_at_once_never_hear_that_it_is_locked(
    path: Path, exists: bool
) -> None:
    path.parent.mkdir()
    if exists:
        path.touch()
    openers = [
        subprocess.Popen(
            [sys.executable, "-P", "-c", OPENER, path],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(6)
    ]
    for opener in openers:
        opener.stdin.write("\n")
        opener.stdin.flush()
    for opener in openers:
        _, err = opener.communicate(timeout=120)
        assert opener.returncode == 0, err
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT count(*) FROM t").fetchone() == (120,)
