"""The log's file: written in batches, bounded, moved aside and begun anew when damaged."""

from __future__ import annotations

import math
import os
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from hermes_core.call_log._call import LAYOUT, Call
from hermes_core.database import identity_of, open_database, transaction
from hermes_core.errors import DatabaseError, one_line
from hermes_core.locking import file_lock

MOST_ROWS: Final = 100_000
#: 18 MB: rows with long errors are fewer. What is freed is used again, so the file stays there.
MOST_PAGES: Final = 4400
_STEP: Final = 1000
#: The WAL is written back after so many pages, a megabyte.
_CHECKPOINT_PAGES: Final = 250

#: A fork and `close` wait for a write, so it must not wait for others for long.
_BUSY_MS: Final = 500
_LOCK_SECONDS: Final = 0.5

_NAME_CHARACTERS: Final = 100
_ERROR_CHARACTERS: Final = 200
_LARGEST: Final = 1 << 53

_INSERT: Final = (
    "INSERT INTO calls (at, provider, hook, session, outcome, seconds, bytes, error)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)


class CallFile:
    """The one who writes. Not for two threads at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._database: sqlite3.Connection | None = None
        self._identity = (0, 0)

    def write(self, calls: Sequence[Call], lost: int) -> None:
        """Store calls, and how many more there were.

        Raises:
            DatabaseError: They could not be stored; none of them was.
        """
        try:
            database = self._opened()
            with transaction(database):
                database.executemany(_INSERT, map(_row, calls))
                if lost:
                    _count_lost(database, lost)
                _prune(database)
        except sqlite3.Error as error:
            self.close()
            raise DatabaseError(f"can't be written: {error}", where=str(self.path)) from error

    def close(self) -> None:
        """Let go of the file."""
        database, self._database = self._database, None
        if database is not None:
            with suppress(sqlite3.Error):
                database.close()

    def set_aside(self) -> Path | None:
        """Put a damaged file away, in place of the last one; None if another was faster.

        Raises:
            HermesError: Somebody else has the lock.
            OSError: It can't be renamed.
        """
        self.close()
        aside = self.path.with_name(f"{self.path.name}.damaged")
        with file_lock(self.path.with_name(f".{self.path.name}.lock"), _LOCK_SECONDS):
            if _is_sound(self.path):
                return None
            for suffix in ("-wal", "-shm", ""):  # a new file must not find an old WAL
                with suppress(FileNotFoundError):
                    os.replace(f"{self.path}{suffix}", f"{aside}{suffix}")  # noqa: PTH105
        return aside

    def _opened(self) -> sqlite3.Connection:
        """The connection, to the file that has its name now."""
        if self._database is not None and self._identity != identity_of(self.path):
            self.close()
        if self._database is None:
            self._database = open_database(self.path, LAYOUT)
            self._identity = identity_of(self.path)
            self._database.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
            self._database.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        return self._database


def is_damage(error: BaseException) -> bool:
    """Whether an error says that the file is not what was written."""
    code = int(getattr(error.__cause__, "sqlite_errorcode", 0) or 0)
    return code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _is_sound(path: Path) -> bool:
    try:
        with closing(open_database(path, LAYOUT)) as database:
            return bool(database.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok")
    except sqlite3.DatabaseError:
        return False
    except DatabaseError as error:
        if is_damage(error):
            return False
        raise


def _row(call: Call) -> tuple[float | int | str, ...]:
    """What SQLite can store: one bad value must not keep all others from being written."""
    at, provider, hook, session, outcome, seconds, size, error = call
    return (
        _number(at),
        *(one_line(name[:_NAME_CHARACTERS]) for name in (provider, hook, session, outcome)),
        _number(seconds),
        int(min(max(_number(size), 0), _LARGEST)),
        one_line(error[:_ERROR_CHARACTERS]),
    )


def _number(value: float) -> float:
    try:
        return value if math.isfinite(value) else 0
    except OverflowError:  # an integer beyond all floats
        return 0


def _count_lost(database: sqlite3.Connection, calls: int) -> None:
    now = time.time()
    counted = database.execute("UPDATE lost SET calls = calls + ?, at = ?", (calls, now))
    if not counted.rowcount:
        database.execute("INSERT INTO lost VALUES (?, ?)", (calls, now))


def _prune(database: sqlite3.Connection) -> None:
    """Delete the oldest. Rows go nowhere else, so their numbers say how many there are."""
    while True:
        oldest, newest = database.execute(
            "SELECT (SELECT min(id) FROM calls), (SELECT max(id) FROM calls)"
        ).fetchone()
        if oldest is None:
            return
        over = newest - oldest + 1 - MOST_ROWS
        if _pages(database) > MOST_PAGES:
            over = max(over, _STEP)
        if over <= 0:
            return
        database.execute("DELETE FROM calls WHERE id < ?", (oldest + min(over, _STEP),))


def _pages(database: sqlite3.Connection) -> int:
    """How many pages are in use."""
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    (free,) = database.execute("PRAGMA freelist_count").fetchone()
    return int(pages - free)
