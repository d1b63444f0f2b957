"""The file outbox.db: its connection, its errors in our words, and what to do with a broken one."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Final, TypeVar

from hermes_core.database import (
    close_before_forks,
    empty_database,
    identity_of,
    open_database,
    transaction,
)
from hermes_core.errors import DatabaseError, ForeignDatabase
from hermes_core.locking import LockTimeoutError, file_lock
from hermes_core.outbox._layout import OUTBOX

logger = logging.getLogger("hermes_core")

_T = TypeVar("_T")

_CORRUPT: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_CHECKPOINT_PAGES: Final = 4000
_SUFFIXES: Final = ("", "-wal", "-shm")
_LOCK_SECONDS: Final = 10.0

_MENDS: Final = "the next agent that runs sets it aside, or run: hermes-plugins outbox retry"
_HINTS: Final = {
    sqlite3.SQLITE_FULL: "free some space; what was stored before is safe",
    sqlite3.SQLITE_READONLY: "it can be read only; check its permissions",
    sqlite3.SQLITE_BUSY: "another process holds it; try again",
}


class OutboxFile:
    """One connection for all threads, made when needed and closed before a fork.

    Args:
        path: The file.
        durable: Whether what is written survives a power cut, too.
        mends: Whether a damaged file is set aside; else that is an error.
    """

    def __init__(self, path: Path, *, durable: bool = False, mends: bool = True) -> None:
        self.path = path
        self.lock = threading.RLock()
        #: What happened to the file, for people.
        self.problem = ""
        self._durable = durable
        self._mends = mends
        #: How often another file took its place: the numbers of its rows mean others then.
        self.renewals = 0
        self._database: sqlite3.Connection | None = None
        self._identity = (0, 0)
        close_before_forks(self)

    def change(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Do ``work`` in a transaction. A damaged file is set aside, and a new one begun."""
        return self._mended(lambda: self._in_transaction(work))

    def look(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Do ``work``, which only reads. A look makes no file."""
        return self._mended(lambda: self._looked(work))

    def _mended(self, attempt: Callable[[], _T]) -> _T:
        with self.lock:
            self._leave_moved()
            try:
                return attempt()
            except DatabaseError as error:
                if not _is_damage(error):
                    raise
                if not self._mends:
                    raise DatabaseError(error.what, where=error.where, hint=_MENDS) from error
                self._set_aside()
                return attempt()

    def _in_transaction(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        with self._errors(), transaction(self._connected()) as database:
            return work(database)

    def _looked(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        with self._errors():
            if self._database is None and not os.path.lexists(self.path):
                nothing = empty_database(OUTBOX)
                try:
                    return work(nothing)
                finally:
                    nothing.close()
            return work(self._connected())

    def _connected(self) -> sqlite3.Connection:
        if self._database is None:
            self._database = open_database(self.path, OUTBOX)
            self._identity = identity_of(self.path)
            self._database.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
            if self._durable:
                self._database.execute("PRAGMA synchronous = FULL")
        return self._database

    def _leave_moved(self) -> None:
        """Let go of a file that somebody moved or removed: nobody will look into it again."""
        database = self._database
        if database is None or database.in_transaction or self._identity == identity_of(self.path):
            return
        self.close()
        self.renewals += 1
        self.problem = (
            "outbox.db was moved or removed while it was in use; writes that waited in it are not "
            "delivered (run: hermes-plugins outbox backfill --since WHEN)"
        )
        logger.error("memory: %s", self.problem)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            hint = _HINTS.get(_code(error), "")
            what = f"the outbox can't be used: {error}"
            raise DatabaseError(what, where=str(self.path), hint=hint) from error

    def _set_aside(self) -> None:
        """Rename a damaged file, unless somebody else has done so already."""
        self.close()
        try:
            with file_lock(self.path.with_name(f"{self.path.name}.lock"), _LOCK_SECONDS):
                if self._is_whole():
                    return
                name = self._renamed()
                self.renewals += 1
        except (OSError, LockTimeoutError) as error:
            what = f"the outbox is damaged and can't be set aside: {error}"
            raise DatabaseError(what, where=str(self.path)) from error
        self.problem = (
            f"outbox.db was damaged and is set aside as {name}; writes that waited in it were "
            "not delivered (run: hermes-plugins outbox backfill --since WHEN)"
        )
        logger.error("memory: %s", self.problem)

    def _renamed(self) -> str:
        """Rename the file and what belongs to it; gives its new name."""
        stamp = f"{self.path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}"
        names = (f"{stamp}-{number}" if number else stamp for number in count())
        name = next(each for each in names if not os.path.lexists(self.path.with_name(each)))
        for suffix in _SUFFIXES:
            with suppress(FileNotFoundError):
                self.path.with_name(self.path.name + suffix).rename(
                    self.path.with_name(name + suffix)
                )
        return name

    def _is_whole(self) -> bool:
        try:
            database = open_database(self.path, OUTBOX)
        except ForeignDatabase:
            raise
        except DatabaseError:
            return False
        try:
            return bool(database.execute("PRAGMA integrity_check(1)").fetchone()[0] == "ok")
        except sqlite3.DatabaseError:
            return False
        finally:
            database.close()

    def before_fork(self) -> None:
        """Close the file, and keep it closed until the fork is over."""
        self.lock.acquire()
        if self._database is None or not self._database.in_transaction:
            self.close()

    def after_fork(self) -> None:
        """Go on."""
        self.lock.release()

    def close(self) -> None:
        """Let go of the file."""
        with self.lock:
            database, self._database = self._database, None
            if database is not None:
                database.close()


def _code(error: BaseException | None) -> int:
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def _is_damage(error: DatabaseError) -> bool:
    return _code(error.__cause__) in _CORRUPT
