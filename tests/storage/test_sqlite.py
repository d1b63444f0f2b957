"""SQLite files: created whole, ours or refused, reopened, set aside, closed before a fork."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest

from hermes_core.errors import DatabaseError, ForeignDatabase
from hermes_core.storage import sqlite, sqlite_connection
from hermes_core.storage.sqlite import SqliteFile
from hermes_core.storage.sqlite_connection import Schema, error_code, is_damage, open_database

STRESS = bool(os.environ.get("HERMES_STRESS"))
OPENERS, TIMES = (6, 20) if STRESS else (3, 8)

ONE = Schema("the shelf", 77, ("CREATE TABLE books (title TEXT)",))
TWO = Schema("the shelf", 77, (*ONE.migrations, "ALTER TABLE books ADD COLUMN author TEXT"))


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
    bad = Schema("the shelf", 77, (*TWO.migrations, "CREATE TABLE books (again TEXT)"))
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


def test_an_empty_file_that_another_process_fills_meanwhile_is_not_foreign(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its version, its owner and its tables are looked at in one moment."""
    path.parent.mkdir()
    path.touch()
    is_empty = sqlite_connection._is_empty

    def filled_by_another(database: sqlite3.Connection) -> bool:
        with closing(sqlite3.connect(path, timeout=0)) as other, suppress(sqlite3.OperationalError):
            other.execute("CREATE TABLE books (title TEXT)")
        return is_empty(database)

    monkeypatch.setattr(sqlite_connection, "_is_empty", filled_by_another)
    with closing(open_database(path, ONE)) as database:
        assert columns(database) == ["title"]


OPENER = """
import os
import sys
from pathlib import Path
from hermes_core.storage.sqlite_connection import Schema, open_database
if sys.argv[3] == "no links":
    def refuse(*_):
        raise OSError("links are not supported")
    os.link = refuse
sys.stdin.readline()
for _ in range(int(sys.argv[2])):
    database = open_database(Path(sys.argv[1]), Schema("it", 77, ["CREATE TABLE t (x)"]))
    database.execute("INSERT INTO t VALUES (1)")
    database.close()
"""


@pytest.mark.scaled
@pytest.mark.parametrize("start", ["new", "empty", "no links"])
def test_many_who_open_a_new_database_at_once_never_hear_that_it_is_locked(
    path: Path, start: str
) -> None:
    path.parent.mkdir()
    if start == "empty":
        path.touch()
    openers = [
        subprocess.Popen(
            [sys.executable, "-P", "-c", OPENER, path, str(TIMES), start],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(OPENERS)
    ]
    for opener in openers:
        opener.stdin.write("\n")
        opener.stdin.flush()
    for opener in openers:
        _, err = opener.communicate(timeout=120)
        assert opener.returncode == 0, err
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT count(*) FROM t").fetchone() == (OPENERS * TIMES,)


def test_on_a_network_file_system_a_database_does_without_shared_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sqlite_connection, "network_file_system", lambda _path: "nfs4")
    path = tmp_path / "shelf.db"
    with closing(open_database(path, Schema("it", 7, ["CREATE TABLE t (x)"]))) as opened:
        opened.execute("INSERT INTO t VALUES (1)")
        assert opened.execute("PRAGMA journal_mode").fetchone()[0] == "truncate"
        assert not path.with_name("shelf.db-wal").exists()
    assert "network file system (nfs4)" in caplog.text
    monkeypatch.undo()
    with closing(open_database(path, Schema("it", 7, ["CREATE TABLE t (x)"]))) as opened:
        assert opened.execute("SELECT x FROM t").fetchone() == (1,)
        assert opened.execute("PRAGMA journal_mode").fetchone()[0] == "wal"


# -- SqliteFile ------------------------------------------------------------------------------


def titles(file: SqliteFile) -> list[str]:
    found = file.read(lambda database: database.execute("SELECT title FROM books").fetchall())
    return [title for (title,) in found]


def add(file: SqliteFile, title: str) -> None:
    file.change(lambda database: database.execute("INSERT INTO books VALUES (?)", (title,)))


@pytest.fixture(params=[False, True], ids=["one connection", "separate reader"])
def separate(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_reading_creates_no_file(path: Path, separate: bool) -> None:
    file = SqliteFile(path, ONE, separate_reader=separate)
    assert titles(file) == []
    assert not path.parent.exists()
    add(file, "Emma")
    assert titles(file) == ["Emma"]
    file.close()


def test_a_nested_transaction_is_part_of_the_outer_one(path: Path) -> None:
    file = SqliteFile(path, ONE)

    def add_and_fail(_: sqlite3.Connection) -> None:
        add(file, "Emma")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        file.change(add_and_fail)
    assert titles(file) == []
    file.close()


@pytest.mark.parametrize("removed", [True, False], ids=["removed", "moved"])
def test_a_file_that_was_replaced_is_opened_again(
    path: Path, separate: bool, removed: bool
) -> None:
    news: list[str] = []
    file = SqliteFile(path, ONE, separate_reader=separate, on_new_file=news.append)
    add(file, "Emma")
    assert titles(file) == ["Emma"]
    for each in path.parent.glob("shelf.db*"):
        each.unlink() if removed else each.rename(each.with_name(f"old-{each.name}"))
    assert titles(file) == []
    add(file, "Persuasion")
    assert titles(file) == ["Persuasion"]
    assert (news, file.replacements) == ([""], 1)
    file.close()


def test_a_file_that_is_replaced_while_it_is_opened_is_noticed(
    path: Path, separate: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = SqliteFile(path, ONE, separate_reader=separate)
    add(file, "Emma")
    file.close()
    connect = sqlite.open_database

    def replaced_after(where: Path, schema: Schema) -> sqlite3.Connection:
        connection = connect(where, schema)
        for each in where.parent.glob("shelf.db*"):
            each.rename(each.with_name(f"old-{each.name}"))
        connect(where, schema).close()
        return connection

    with monkeypatch.context() as patch:
        patch.setattr(sqlite, "open_database", replaced_after)
        assert titles(file) == ["Emma"]
    assert titles(file) == []
    file.close()


def test_a_reader_that_can_not_be_set_up_leaves_no_connection(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[sqlite3.Connection] = []
    connect = sqlite.open_database

    def noted(where: Path, schema: Schema) -> sqlite3.Connection:
        made.append(connect(where, schema))
        return made[-1]

    file = SqliteFile(path, ONE, separate_reader=True, reader_pragmas={"cache_size = (": 1})
    add(file, "Emma")
    monkeypatch.setattr(sqlite, "open_database", noted)
    with pytest.raises(DatabaseError):
        titles(file)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        made[0].execute("SELECT 1")
    file.close()


def test_a_damaged_file_is_set_aside_and_the_step_is_repeated(path: Path) -> None:
    news: list[str] = []
    file = SqliteFile(path, ONE, set_aside=True, on_new_file=news.append)
    for number in range(2):
        add(file, "Emma")
        file.close()
        path.write_bytes(b"noise" * 1000)
        add(file, f"Persuasion {number}")
        assert titles(file) == [f"Persuasion {number}"]
        file.change(lambda database: database.execute("DELETE FROM books"))
    names = sorted(each.name for each in path.parent.glob("*.damaged-*"))
    assert sorted(news) == names
    assert len(names) == 2
    assert file.is_whole()
    file.close()


def test_only_the_last_damaged_file_is_kept_if_wished(path: Path) -> None:
    file = SqliteFile(path, ONE, set_aside=True, keep_all_damaged=False)
    for _ in range(2):
        add(file, "Emma")
        file.close()
        path.write_bytes(b"noise" * 1000)
    assert titles(file) == []
    assert [each.name for each in path.parent.glob("*damaged*")] == ["shelf.db.damaged"]
    file.close()


def test_a_file_that_is_not_set_aside_is_refused_with_what_to_do(
    path: Path, separate: bool
) -> None:
    path.parent.mkdir()
    path.write_bytes(b"noise" * 1000)
    file = SqliteFile(path, ONE, separate_reader=separate, damage_hint="run: repair")
    for use in (titles, lambda file: add(file, "Emma")):
        with pytest.raises(DatabaseError) as caught:
            use(file)
        assert is_damage(caught.value)
        assert (caught.value.hint, caught.value.where) == ("run: repair", str(path))
    assert path.read_bytes() == b"noise" * 1000


def test_a_whole_file_is_never_set_aside(path: Path) -> None:
    file = SqliteFile(path, ONE, set_aside=True)
    add(file, "Emma")
    assert file.set_aside_damaged() == ""
    assert titles(file) == ["Emma"]
    file.close()


def test_another_process_s_lock_is_waited_for_as_long_as_asked(path: Path) -> None:
    file = SqliteFile(path, ONE, wait_seconds=0.01)
    add(file, "Emma")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseError, match="locked") as caught:
            add(file, "Persuasion")
    assert sqlite_connection.is_busy(caught.value)
    assert "try again" in caught.value.hint
    with file.hurried(0.0) as database:
        assert database.execute("PRAGMA busy_timeout").fetchone() == (0,)
    with file.writing() as database:
        assert database.execute("PRAGMA busy_timeout").fetchone() == (10,)
    file.close()


def test_a_writer_looks_again_and_again_whether_the_lock_is_free(path: Path) -> None:
    holder, waiting = SqliteFile(path, ONE), SqliteFile(path, ONE, wait_seconds=1.0)
    said: list[str] = []
    with closing(holder), closing(waiting):
        with waiting.writing() as database:
            database.set_trace_callback(said.append)
        with holder.transaction(), pytest.raises(DatabaseError, match="locked"):
            waiting.change(lambda database: None)
        # One statement would be SQLite's own waiting, with pauses of up to 100 ms.
        assert said.count("BEGIN IMMEDIATE") > 10
        # What it waits for other statements is as before.
        with waiting.writing() as database:
            assert database.execute("PRAGMA busy_timeout").fetchone()[0] == 1000
        waiting.change(lambda database: database.execute("INSERT INTO books VALUES ('Emma')"))


def test_pragmas_and_durability_apply_to_the_connections(path: Path) -> None:
    opened: list[sqlite3.Connection] = []
    file = SqliteFile(
        path,
        ONE,
        durable=True,
        separate_reader=True,
        pragmas={"cache_size": -111},
        reader_pragmas={"cache_size": -222},
        on_open=opened.append,
    )
    with file.writing() as database:
        assert database.execute("PRAGMA synchronous").fetchone() == (2,)
        assert database.execute("PRAGMA cache_size").fetchone() == (-111,)
    with file.reading() as database:
        assert database.execute("PRAGMA cache_size").fetchone() == (-222,)
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            database.execute("DELETE FROM books")
    assert len(opened) == 2
    file.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_parent_and_child_go_on_after_a_fork(path: Path, separate: bool) -> None:
    file = SqliteFile(path, ONE, separate_reader=separate)
    add(file, "before")
    assert titles(file) == ["before"]
    child = os.fork()
    if child == 0:  # pragma: no cover - the child's coverage is not collected
        try:
            assert file._writer is None
            add(file, "child")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    add(file, "parent")
    assert titles(file) == ["before", "child", "parent"]
    file.close()


def test_a_code_is_found_in_the_error_and_in_what_it_wraps() -> None:
    inner = sqlite3.DatabaseError("noise")
    inner.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    outer = DatabaseError("can't be used")
    outer.__cause__ = inner
    assert error_code(outer) == error_code(inner) == sqlite3.SQLITE_CORRUPT
    assert error_code(ValueError()) == error_code(None) == 0
