"""Making a damaged archive whole again, after a copy that was verified."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

from hermes_builtin.sessions.archive import Progress
from hermes_builtin.sessions.sqlite import _leaves
from hermes_builtin.sessions.sqlite._care import copy_of, rebuild
from hermes_builtin.sessions.sqlite._checking import check
from hermes_builtin.sessions.sqlite._connections import Connections, is_damage, is_no_database
from hermes_builtin.sessions.sqlite._indexing import facts_of
from hermes_builtin.sessions.sqlite._schema import (
    ARCHIVE,
    MOST_MESSAGES,
    ROLE_BITS,
    SESSION_BITS,
    bounds,
)
from hermes_builtin.sessions.sqlite._writing import checksum, session_checksum
from hermes_core.database import open_database
from hermes_core.errors import DatabaseError, ForeignDatabase
from hermes_core.home import sync_folder

_MOST_SESSIONS: Final = 100_000
_UNKNOWN_PLACES: Final = 4096
_SESSION_COLUMNS: Final = 14
_MESSAGE_COLUMNS: Final = 6


def repair(connections: Connections, progress: Progress | None = None) -> dict[str, Any]:
    """Make it whole again; says what was done."""
    problems = check(connections)
    if not problems:
        return {"problems": 0, "copy": "", "lost": 0}
    done: dict[str, Any] = {"problems": len(problems)}
    if not _can_be_opened(connections):
        aside = _set_aside(connections)
        return {**done, "copy": str(aside), "lost": None}
    copy = _verified_copy(connections)
    done["copy"] = str(copy)
    index_only = all(problem.index_only for problem in problems)
    if index_only and _rebuilt(connections, progress):
        done["lost"] = 0
    else:
        done["lost"] = _salvage(connections, copy, progress)
    left = check(connections)
    if left:
        raise DatabaseError(
            f"could not be repaired: {left[0].what}",
            where=str(connections.path),
            hint=f"the copy is {done['copy']}",
        )
    return done


def _can_be_opened(connections: Connections) -> bool:
    """Whether there is anything left that SQLite takes for a database.

    Raises:
        ForeignDatabase: There is, and it is somebody else's.
    """
    try:
        with connections.reading():
            return True
    except ForeignDatabase:
        raise
    except DatabaseError as error:
        if not is_damage(error) or is_no_database(error):
            raise DatabaseError(
                error.what,
                where=error.where,
                hint="it is left alone; move it away, and a new archive is begun",
            ) from error
        return False


def _set_aside(connections: Connections) -> Path:
    """Put a file away that can't be read at all, as it is."""
    connections.close()
    path = connections.path
    aside = copy_of(path, "damaged")
    for suffix in ("-wal", "-shm"):
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(copy_of(path, f"damaged{suffix}"))
    path.rename(aside)
    return aside


def _rebuilt(connections: Connections, progress: Progress | None) -> bool:
    """Make the index anew in place; False if what it was made of is damaged too."""
    try:
        rebuild(connections, progress)
    except DatabaseError as error:
        if is_damage(error):
            return False
        raise
    return True


def _verified_copy(connections: Connections) -> Path:
    """A copy made by SQLite, with as much in it as the original gives."""
    path = copy_of(connections.path, time.strftime("%Y%m%d-%H%M%S.copy"))
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    with connections.reading() as original, closing(sqlite3.connect(path)) as copy:
        copy.text_factory = original.text_factory
        original.backup(copy)
        for what in ("archive_messages", "archive_sessions"):
            if _count(original, what) != _count(copy, what):
                raise DatabaseError("the copy is not complete", where=str(path))
    return path


def _count(database: sqlite3.Connection, table: str) -> int | None:
    """How many rows a table has; None if that can't be told."""
    with suppress(sqlite3.Error):
        return int(database.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608
    return None


def _salvage(connections: Connections, copy: Path, progress: Progress | None) -> int:
    """Move all that can be read into a new file, and put it in place; gives what was lost."""
    aside = copy_of(connections.path, "repaired")
    with connections.reading() as original, closing(open_database(aside, ARCHIVE)) as new:
        new.execute("BEGIN IMMEDIATE")
        _save_leaves(copy, new)
        _save_sessions(original, new)
        _save_messages(original, new)
        for origin, session, position in _imports(original):
            new.execute(
                "INSERT OR IGNORE INTO archive_imports VALUES (?, ?, ?)",
                (origin, session, position),
            )
        lost = _recount(new)
        new.execute("COMMIT")
    with closing(Connections(aside)) as fresh:
        rebuild(fresh, progress)
    _swap(connections, aside)
    return lost


def _save_leaves(copy: Path, new: sqlite3.Connection) -> None:
    """Copy what is whole on the pages of a file, whether SQLite can reach it there or not."""
    for number, values in _leaves.rows(copy):
        if len(values) == _SESSION_COLUMNS and _is_session(values):
            _insert(new, "archive_sessions", (number, *values[1:]))
        elif len(values) == _MESSAGE_COLUMNS and _is_message(number, values):
            _insert(new, "archive_messages", (number, *values[1:]))


def _is_session(values: list[Any]) -> bool:
    *texts, started = values[1:9]
    is_known = all(isinstance(each, str) for each in texts) and isinstance(started, int | float)
    return is_known and bool(values[-1] == session_checksum(*texts, float(started)))


def _is_message(number: int, values: list[Any]) -> bool:
    _, at, size, check, content, extra = values
    if not (isinstance(at, int | float) and isinstance(content, str) and len(content) == size):
        return False
    return bool(check == checksum(number, float(at), content, extra))


def _insert(new: sqlite3.Connection, table: str, values: tuple[Any, ...]) -> None:
    """Insert a row unless it is there; one that does not fit is left out."""
    marks = ", ".join("?" * len(values))
    with suppress(sqlite3.Error):
        new.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", values)  # noqa: S608


def _save_sessions(original: sqlite3.Connection, new: sqlite3.Connection) -> None:
    """Copy the sessions."""
    for row in _rows_of(original, "archive_sessions", range(1, _highest(original) + 1)):
        number, *texts = row[:8]
        times = [each if isinstance(each, int | float) else 0.0 for each in row[8:11]]
        facts = [each if isinstance(each, str) else "" for each in texts]
        messages, following = (each if isinstance(each, int) else 0 for each in row[11:13])
        check = session_checksum(*facts, times[0])
        _insert(new, "archive_sessions", (number, *facts, *times, messages, following, check))


def _highest(database: sqlite3.Connection) -> int:
    """The largest number that a session can have."""
    for query in (
        "SELECT seq FROM sqlite_sequence WHERE name = 'archive_sessions'",
        "SELECT max(number) FROM archive_sessions",
        f"SELECT max(id) >> {SESSION_BITS} FROM archive_messages",  # noqa: S608
    ):
        with suppress(sqlite3.Error):
            row = database.execute(query).fetchone()
            if row and isinstance(row[0], int) and 0 < row[0] < _MOST_SESSIONS:
                return row[0]
    return _MOST_SESSIONS


def _save_messages(original: sqlite3.Connection, new: sqlite3.Connection) -> None:
    """Copy the messages. One that is not what was stored stays, and is marked as damaged."""
    for session in range(1, _highest(original) + 1):
        if _is_complete(new, session):
            continue
        low, _ = bounds(session)
        places = range(low, low + (_places(original, session) << ROLE_BITS))
        for number, at, _, stored, content, extra in _rows_of(original, "archive_messages", places):
            if not isinstance(content, str) or not isinstance(at, int | float):
                continue
            if stored != checksum(number, at, content, extra):
                extra = json.dumps({**facts_of(extra), "damaged": True}, ensure_ascii=False)  # noqa: PLW2901
            check = checksum(number, at, content, extra)
            _insert(new, "archive_messages", (number, at, len(content), check, content, extra))


def _is_complete(new: sqlite3.Connection, session: int) -> bool:
    """Whether a session has all the messages that it should have."""
    row = new.execute(
        "SELECT messages = (SELECT count(*) FROM archive_messages WHERE id BETWEEN ? AND ?)"
        " FROM archive_sessions WHERE number = ?",
        (*bounds(session), session),
    ).fetchone()
    return bool(row and row[0])


def _places(database: sqlite3.Connection, session: int) -> int:
    """How many messages a session can have had."""
    with suppress(sqlite3.Error):
        row = database.execute(
            "SELECT next FROM archive_sessions WHERE number = ?", (session,)
        ).fetchone()
        if row and isinstance(row[0], int) and 0 <= row[0] <= MOST_MESSAGES:
            return row[0]
    return _UNKNOWN_PLACES


def _rows_of(database: sqlite3.Connection, table: str, numbers: range) -> Iterator[tuple[Any, ...]]:
    """The rows with these numbers that can be read: all at once, or else one by one."""
    if not numbers:
        return
    # For one row alone the next one is not looked at, which may be on a damaged page.
    condition = "rowid = ?" if len(numbers) == 1 else "rowid BETWEEN ? AND ?"
    edges = (numbers[0],) if len(numbers) == 1 else (numbers[0], numbers[-1])
    try:
        rows = database.execute(f"SELECT * FROM {table} WHERE {condition}", edges).fetchall()  # noqa: S608
    except sqlite3.Error:
        if len(numbers) == 1:
            return
        middle = len(numbers) // 2
        yield from _rows_of(database, table, numbers[:middle])
        yield from _rows_of(database, table, numbers[middle:])
    else:
        yield from (row for row in rows if row[0] in numbers)


def _imports(database: sqlite3.Connection) -> list[tuple[str, str, int]]:
    with suppress(sqlite3.Error):
        return database.execute("SELECT origin, session, position FROM archive_imports").fetchall()
    return []


def _recount(database: sqlite3.Connection) -> int:
    """Let the sessions say how many messages they have now; gives how many are lost.

    Messages whose session is lost get a new one.
    """
    expected, saved = database.execute(
        "SELECT (SELECT total(messages) FROM archive_sessions),"
        " (SELECT count(*) FROM archive_messages)"
    ).fetchone()
    lost = database.execute(
        f"SELECT id >> {SESSION_BITS} AS session, min(at), max(at) FROM archive_messages"  # noqa: S608
        " WHERE session NOT IN (SELECT number FROM archive_sessions) GROUP BY session"
    ).fetchall()
    for number, begin, end in lost:
        facts = (f"recovered-{number}", "", "", "", "", "", "")
        database.execute(
            f"INSERT INTO archive_sessions VALUES ({', '.join('?' * 14)})",  # noqa: S608
            (number, *facts, begin, None, end, 0, 0, session_checksum(*facts, begin)),
        )
    # A range of the primary key: looking at all messages for each session would take for ever.
    of_session = f"id BETWEEN number << {SESSION_BITS} AND ((number + 1) << {SESSION_BITS}) - 1"
    database.execute(
        "UPDATE archive_sessions SET messages = (SELECT count(*) FROM archive_messages"  # noqa: S608
        f" WHERE {of_session}), next = max(next, coalesce((SELECT"
        f" ((max(id) - (number << {SESSION_BITS})) >> {ROLE_BITS}) + 1 FROM archive_messages"
        f" WHERE {of_session}), 0))"
    )
    return max(int(expected) - int(saved), 0)


def _swap(connections: Connections, aside: Path) -> None:
    path = connections.path
    connections.close()
    with closing(sqlite3.connect(path, timeout=1)) as database:
        try:
            alone = database.execute("PRAGMA journal_mode = DELETE").fetchone()[0] == "delete"
        except sqlite3.OperationalError:
            alone = False
        except sqlite3.DatabaseError:  # too damaged for that; nobody else can use it either
            alone = True
    if not alone:
        raise DatabaseError(
            "is in use by another program",
            where=str(path),
            hint=f"end it and try again; what could be saved is in {aside}",
        )
    _set_aside(connections)
    aside.rename(path)
    with suppress(OSError):
        sync_folder(path.parent)
