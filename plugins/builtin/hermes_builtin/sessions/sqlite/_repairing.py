"""Making a damaged archive whole again, after a copy that was verified."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

from hermes_builtin.sessions._model import Session
from hermes_builtin.sessions.archive import Problem, Progress
from hermes_builtin.sessions.sqlite._care import copy_of, rebuild
from hermes_builtin.sessions.sqlite._checking import check
from hermes_builtin.sessions.sqlite._connections import Connections, is_damage
from hermes_builtin.sessions.sqlite._schema import ARCHIVE
from hermes_core.database import open_database
from hermes_core.errors import DatabaseError
from hermes_core.home import sync_folder

_TABLES: Final = ("archive_sessions", "archive_messages", "archive_imports")
_MESSAGES: Final = Session._fields.index("messages")


def repair(connections: Connections, progress: Progress | None = None) -> dict[str, Any]:
    """Make it whole again; says what was done."""
    problems = check(connections)
    if not problems:
        return {"problems": 0, "copy": "", "lost": 0}
    done: dict[str, Any] = {"problems": len(problems)}
    done["copy"] = str(_verified_copy(connections))
    index_only = all(problem.index_only for problem in problems)
    if index_only and _rebuilt(connections, progress):
        done["lost"] = 0
    else:
        done["lost"] = _salvage(connections, progress)
    left = check(connections)
    if any(not problem.index_only for problem in left if not _is_checksum(problem)):
        raise DatabaseError(
            f"could not be repaired: {left[0].what}",
            where=str(connections.path),
            hint=f"the copy is {done['copy']}",
        )
    return done


def _rebuilt(connections: Connections, progress: Progress | None) -> bool:
    """Make the index anew in place; False if what it was made of is damaged too."""
    try:
        rebuild(connections, progress)
    except DatabaseError as error:
        if is_damage(error):
            return False
        raise
    return True


def _is_checksum(problem: Problem) -> bool:
    """A changed text can't be told from the right one; it stays, and stays reported."""
    return "is not what was stored" in problem.what


def _verified_copy(connections: Connections) -> Path:
    """A copy made by SQLite, with as much in it as the original gives."""
    path = copy_of(connections.path, time.strftime("%Y%m%d-%H%M%S.copy"))
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    with connections.reading() as original, closing(sqlite3.connect(path)) as copy:
        original.backup(copy)
        for table in _TABLES:
            if _count(original, table) != _count(copy, table):
                raise DatabaseError("the copy is not complete", where=str(path))
    return path


def _count(database: sqlite3.Connection, table: str) -> int:
    return sum(1 for _ in _readable(database, table))


def _salvage(connections: Connections, progress: Progress | None) -> int:
    """Move all that can be read into a new file, and put it in place; gives what was lost."""
    aside = copy_of(connections.path, "repaired")
    with connections.reading() as original, closing(open_database(aside, ARCHIVE)) as new:
        expected: int = sum(row[_MESSAGES] for row in _readable(original, "archive_sessions"))
        new.execute("BEGIN IMMEDIATE")
        saved = 0
        for table in _TABLES:
            for row in _readable(original, table):
                marks = ", ".join("?" * len(row))
                with suppress(sqlite3.IntegrityError):
                    new.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", row)  # noqa: S608
                    saved += table == "archive_messages"
        _recount(new)
        new.execute("COMMIT")
    with closing(Connections(aside)) as fresh:
        rebuild(fresh, progress)
    _swap(connections, aside)
    return max(expected - saved, 0)


def _readable(database: sqlite3.Connection, table: str) -> Iterator[tuple[Any, ...]]:
    """The rows that can be read, stepping over those that can't."""
    after = -1
    try:
        highest = database.execute(f"SELECT max(rowid) FROM {table}").fetchone()[0] or 0  # noqa: S608
    except sqlite3.DatabaseError:
        highest = 2**62
    step = 1
    while after <= highest:
        try:
            for row in database.execute(
                f"SELECT rowid, * FROM {table} WHERE rowid > ? ORDER BY rowid",  # noqa: S608
                (after,),
            ):
                after, step = row[0], 1
                yield row[1:]
        except sqlite3.DatabaseError:
            after += step
            step *= 2
        else:
            return


def _recount(database: sqlite3.Connection) -> None:
    """Let the sessions say how many messages they have now; and what has no session, one."""
    database.execute(
        "INSERT OR IGNORE INTO archive_sessions SELECT id >> 22, 'recovered-' || (id >> 22), '',"
        " '', '', '', '', '', min(at), NULL, max(at), 0, 0 FROM archive_messages"
        " WHERE id >> 22 NOT IN (SELECT number FROM archive_sessions) GROUP BY id >> 22"
    )
    database.execute(
        "UPDATE archive_sessions SET messages = (SELECT count(*) FROM archive_messages"
        " WHERE id BETWEEN number << 22 AND ((number + 1) << 22) - 1)"
    )


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
    for suffix in ("-wal", "-shm"):
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(copy_of(path, f"damaged{suffix}"))
    path.rename(copy_of(path, "damaged"))
    aside.rename(path)
    with suppress(OSError):
        sync_folder(path.parent)
