"""A copy of a SQLite database at one moment, while others write to it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from errno import ENOSPC
from pathlib import Path
from sqlite3 import connect  # bound before a plugin can replace it, as `monotonic` and `sleep`
from time import monotonic, sleep
from typing import Final

from hermes_core.errors import DatabaseError
from hermes_core.storage.descriptors import NO_FILE
from hermes_core.storage.sqlite_connection import (
    HINTS,
    OpenConnection,
    connection_to,
    error_code,
    is_unwritable,
    open_read_only,
    read_only,
)

#: Pages per step: 1 MB at the usual page size.
_STEP_PAGES: Final = 256


# With a rollback journal, a change of somebody else restarts the copy. After so many restarts it
# is made in one step, for which writers wait.
_RESTARTS: Final = 5


_LONGEST_PAUSE: Final = 0.05


_UNWRITTEN: Final = frozenset((sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE))


CopyProgress = Callable[[int, int], None]


def is_database(path: Path) -> bool:
    """Whether a file is a SQLite database with something in it.

    SQLite is asked. If this process opened and closed the file itself, the locks of its other
    connections to it would be gone.

    Raises:
        DatabaseError: It can't be opened.
    """
    try:
        with read_only(path) as database:
            return database.execute("SELECT 1 FROM sqlite_master").fetchone() is not None
    except (sqlite3.Error, UnicodeDecodeError) as error:
        if error_code(error) == sqlite3.SQLITE_NOTADB:
            return False
        raise DatabaseError(f"can't be opened: {error}", where=str(path)) from error


class Snapshot:
    """A database at one moment, whatever others write to it meanwhile.

    With a write-ahead log, the moment is when this object is created: no writer waits for it, nor
    it for them. With a rollback journal, it is a moment during `copy`. It can be copied once.

    Raises:
        DatabaseError: The file can't be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._errors():
            # As for readers of ours: only a connection that may write recovers a WAL that a killed
            # process left.
            try:
                self._opened = OpenConnection(connection_to(path, "mode=rw"), NO_FILE)
                self._begin()
            except sqlite3.Error as error:
                if not is_unwritable(error):
                    raise
                self._opened = open_read_only(path, None)
                self._begin()

    def _begin(self) -> None:
        connection = self._opened.connection
        connection.execute("PRAGMA query_only = 1")
        self._is_pinned = connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        if self._is_pinned:
            # A copy in several steps begins again when somebody writes, unless its source is in
            # a transaction already.
            connection.execute("BEGIN")
            connection.execute("SELECT 1 FROM sqlite_master").fetchone()

    def copy(self, target: Path, progress: CopyProgress | None = None) -> str:
        """Copy it to a new file in small steps, with a pause after each.

        Returns:
            What SQLite finds wrong with the copy; "" if it is whole.

        Raises:
            DatabaseError: It can't be read.
            OSError: The copy can't be written.
        """
        steps = _CopySteps(None if self._is_pinned else _RESTARTS, progress)
        with self._errors():
            try:
                self._copy(target, _STEP_PAGES, steps)
            except _RestartedTooOften:
                self._copy(target, -1, _CopySteps(None, progress))
            self._release()
            with closing(connection_to(target, "immutable=1")) as copy:
                found = str(copy.execute("PRAGMA quick_check(1)").fetchone()[0])
        return "" if found == "ok" else found

    def _copy(self, target: Path, pages: int, steps: _CopySteps) -> None:
        with closing(connect(target, isolation_level=None)) as copy:
            # Nobody uses it before it is complete.
            copy.execute("PRAGMA synchronous = OFF")
            copy.execute("PRAGMA journal_mode = OFF")
            self._opened.connection.backup(copy, pages=pages, progress=steps.done, sleep=0.01)

    def _release(self) -> None:
        """Let go of the moment: until then, the log can't be emptied and grows with each commit.

        What has grown meanwhile is moved to the database here. Otherwise the next commit of an
        agent would do that, and wait for the disk.
        """
        connection = self._opened.connection
        if self._is_pinned:
            connection.execute("ROLLBACK")
            connection.execute("PRAGMA query_only = 0")
            with suppress(sqlite3.Error):  # a file that can't be written
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def close(self) -> None:
        """End it."""
        self._opened.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            # Only the copy is written to.
            if getattr(error, "sqlite_errorcode", 0) in _UNWRITTEN:
                raise OSError(ENOSPC, f"no space for a copy of {self.path.name}") from error
            hint = HINTS.get(error_code(error), "")
            what = f"can't be copied: {error}"
            raise DatabaseError(what, where=str(self.path), hint=hint) from error


class _RestartedTooOften(Exception):  # noqa: N818 - not an error
    """Others write all the time."""


class _CopySteps:
    """What happens between two steps of a copy."""

    def __init__(self, restarts: int | None, progress: CopyProgress | None) -> None:
        self._restarts = restarts
        self._progress = progress
        self._left: int | None = None
        self._at = monotonic()

    def done(self, _status: int, remaining: int, total: int) -> None:
        if self._restarts is not None and self._left is not None and remaining >= self._left > 0:
            self._restarts -= 1
            if self._restarts < 0:
                raise _RestartedTooOften
        self._left = remaining
        if self._progress is not None:
            self._progress(total - remaining, total)
        # Half of the time for others: a copy at full speed fills the queue of the disk, and a
        # commit that is synced waits behind it.
        sleep(min(monotonic() - self._at, _LONGEST_PAUSE))
        self._at = monotonic()
