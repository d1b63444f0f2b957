"""Connections to the archive: one that writes, one that reads, both made when needed.

Readers never wait for the writer, nor it for them. Who needs both takes the writer's lock
first. Before a fork both are closed; parent and child open their own.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from hermes_builtin.sessions.sqlite._schema import ARCHIVE
from hermes_core.database import (
    WAIT_SECONDS,
    close_before_forks,
    empty_database,
    open_database,
    transaction,
)
from hermes_core.errors import DatabaseError

_CORRUPT: Final = 11  # SQLITE_CORRUPT
_NOT_A_DATABASE: Final = 26
_FULL: Final = 13
_READ_ONLY: Final = 8

#: A checkpoint waits for the disk. It is made in a quiet moment, or when the WAL has 32 MB.
_CHECKPOINT_PAGES: Final = 8000
#: So much of the index is merged without being read again.
_CACHE_KIB: Final = 32_000
#: The upper pages of index and tables stay in memory from one search to the next.
_READING_CACHE_KIB: Final = 16_000

_HINTS: Final = {
    _CORRUPT: "run: hermes-plugins sessions check",
    _NOT_A_DATABASE: "run: hermes-plugins sessions check",
    _FULL: "free some space; what was stored before is safe",
    _READ_ONLY: "it can be read only; check its permissions",
}


def is_damage(error: BaseException) -> bool:
    """Whether an error says that the file is not what was written."""
    return _code(error) & 0xFF in (_CORRUPT, _NOT_A_DATABASE)


def is_no_database(error: BaseException) -> bool:
    """Whether the file is something else, or has lost even its first bytes."""
    return _code(error) & 0xFF == _NOT_A_DATABASE


def _code(error: BaseException | None) -> int:
    if isinstance(error, DatabaseError):
        error = error.__cause__
    return int(getattr(error, "sqlite_errorcode", 0) or 0)


class Errors:
    """SQLite's errors as ours: what, where, what to do."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, sqlite3.Error):
            hint = _HINTS.get(_code(error) & 0xFF, "")
            what = f"the archive of conversations can't be used: {error}"
            raise DatabaseError(what, where=str(self._path), hint=hint) from error
        if isinstance(error, UnicodeDecodeError):  # in the text of an error of SQLite's
            what = "the archive of conversations is damaged"
            raise DatabaseError(what, where=str(self._path), hint=_HINTS[_CORRUPT]) from error


class Connections:
    """The archive's file."""

    def __init__(self, path: Path, *, durable: bool = False) -> None:
        self.path = path
        self.errors = Errors(path)
        self._durable = durable
        self._write_lock = threading.RLock()
        self._read_lock = threading.RLock()
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        close_before_forks(self)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction; all of it or nothing is stored. One inside another is part of it."""
        with self._write_lock, self.errors, transaction(self._writer or self._open_writer()) as it:
            yield it

    @contextmanager
    def plain(self) -> Iterator[sqlite3.Connection]:
        """The connection that writes, each statement by itself."""
        with self._write_lock, self.errors:
            yield self._writer or self._open_writer()

    @contextmanager
    def hurried(self, seconds: float) -> Iterator[sqlite3.Connection]:
        """Like `plain`, for what can be done later: other processes are hardly waited for."""
        with self.plain() as database:
            database.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")
            try:
                yield database
            finally:
                database.execute(f"PRAGMA busy_timeout = {int(WAIT_SECONDS * 1000)}")

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection to read from. A look makes no file: without one there is nothing to see."""
        with self._read_lock, self.errors:
            if self._reader is None and not os.path.lexists(self.path):
                with closing(empty_database(ARCHIVE)) as database:
                    yield database
                return
            if self._reader is None:
                self._reader = self._open_reader()
            yield self._reader

    def checkpoint(self) -> None:
        """Bring what is in the WAL to its place, as far as nobody reads it."""
        with self.plain() as database:
            database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def _open_writer(self) -> sqlite3.Connection:
        self._writer = database = open_database(self.path, ARCHIVE)
        database.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        database.execute(f"PRAGMA cache_size = {-_CACHE_KIB}")
        if self._durable:
            database.execute("PRAGMA synchronous = FULL")
        return database

    def _open_reader(self) -> sqlite3.Connection:
        try:
            database = open_database(self.path, ARCHIVE)
        except DatabaseError as error:
            if _code(error) & 0xFF not in (_READ_ONLY, 14):  # can't be opened for writing
                raise
            address = f"{self.path.absolute().as_uri()}?mode=ro"
            database = sqlite3.connect(address, uri=True, check_same_thread=False)
        database.execute("PRAGMA query_only = 1")
        database.execute(f"PRAGMA cache_size = {-_READING_CACHE_KIB}")
        return database

    def before_fork(self) -> None:
        """Close the file, and keep it closed until the fork is over."""
        self._write_lock.acquire()
        self._read_lock.acquire()
        if self._writer is None or not self._writer.in_transaction:
            self.close()

    def after_fork(self) -> None:
        """Go on."""
        self._read_lock.release()
        self._write_lock.release()

    def close(self) -> None:
        """Let go of the file."""
        with self._write_lock, self._read_lock:
            for database in (self._reader, self._writer):
                if database is not None:
                    database.close()
            self._writer = self._reader = None
