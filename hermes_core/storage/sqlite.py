"""SQLite files: private, created whole, migrated, reopened when replaced, closed before a fork.

`SqliteFile` is the one class through which this project uses a SQLite database: the outbox, the
call log, the history of the notes and the archive of conversations. `sqlite_connection` opens
single connections.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from time import sleep
from typing import Final, TypeVar

from hermes_core.errors import DatabaseError, ForeignDatabase, HermesError
from hermes_core.storage.descriptors import (
    DESCRIPTORS,
    NO_FILE,
    identity_of,
    is_without_a_byte,
    never_close,
    state_of,
)
from hermes_core.storage.files import file_lock
from hermes_core.storage.forks import close_before_fork
from hermes_core.storage.migration import COPYING_FILE, is_frozen
from hermes_core.storage.sqlite_connection import (
    HINTS,
    LOCK_SECONDS,
    POLL_SECONDS,
    SUFFIXES,
    WAIT_SECONDS,
    OpenConnection,
    Schema,
    damage,
    empty_database,
    error_code,
    free_name,
    is_damage,
    is_not_a_database,
    is_unwritable,
    open_database,
    open_read_only,
    transaction,
)

_T = TypeVar("_T")

# Two seconds: a reader of ours is done by then.
_CHECKPOINTS: Final = 40
_CHECKPOINT_PAUSE: Final = 0.05

Pragmas = Mapping[str, int]


class SqliteFile:
    """One database file for all threads of a process.

    It is opened when first needed, opened again when another file has taken its name, and closed
    before the process forks. Reading never creates the file.

    Args:
        path: The file.
        schema: What it contains.
        durable: Whether a commit survives a power cut, too (``synchronous = FULL``).
        separate_reader: Whether readers get their own connection, so that they never wait for a
            writer, nor it for them. They may then read a file that they may not write.
        pragmas: For the connection that writes, such as ``{"cache_size": -32000}``.
        reader_pragmas: The same for the separate reader.
        on_open: Called with every new connection that may write.
        wait_seconds: How long to wait for another process.
        set_aside: Whether a damaged file is renamed and replaced by a new one. Otherwise damage
            is an error, with ``damage_hint``.
        keep_all_damaged: Whether each damaged file gets its own name
            (``outbox.db.damaged-DATE``), or the last one replaces the others (``.damaged``).
        damage_hint: What to do about a damaged file.
        foreign_hint: The same if it is not a database at all; by default ``damage_hint``.
        on_new_file: Called under the lock after the file in use was replaced: with the name that
            the damaged one has now, or with "" if somebody moved or removed it.

    Every method raises `DatabaseError` if the file can't be used.
    """

    def __init__(
        self,
        path: Path,
        schema: Schema,
        *,
        durable: bool = False,
        separate_reader: bool = False,
        pragmas: Pragmas | None = None,
        reader_pragmas: Pragmas | None = None,
        on_open: Callable[[sqlite3.Connection], None] | None = None,
        wait_seconds: float = WAIT_SECONDS,
        set_aside: bool = False,
        keep_all_damaged: bool = True,
        damage_hint: str = "",
        foreign_hint: str = "",
        on_new_file: Callable[[str], None] | None = None,
    ) -> None:
        self.path = path
        self.schema = schema
        #: Held while the connection that writes is in use. Take it to make several steps one.
        self.lock = threading.RLock()
        #: How often another file took the place of the one in use: row numbers mean others then.
        self.replacements = 0
        self._name = os.fspath(path)
        # In WAL mode, NORMAL loses the last commits at a power cut, but never damages the file;
        # FULL syncs at every commit.
        self._pragmas = {**(pragmas or {}), **({"synchronous": 2} if durable else {})}
        self._reader_pragmas = reader_pragmas or {}
        self._separate = separate_reader
        self._on_open = on_open
        self._wait_seconds = wait_seconds
        self._sets_aside = set_aside
        self._keeps_all = keep_all_damaged
        self._damage_hint = damage_hint
        self._foreign_hint = foreign_hint or damage_hint
        self._on_new_file = on_new_file
        # Whoever needs both locks takes the writer's first.
        self._reader_lock = threading.RLock() if separate_reader else self.lock
        self._writer: OpenConnection | None = None
        self._copying = ""
        self._reader: OpenConnection | None = None
        close_before_fork(self)
        DESCRIPTORS.files.add(self)

    # -- whole steps: these may be repeated with a new file --------------------------------

    def change(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Run ``work`` in a transaction; it may be run again, with a new file after damage."""

        def attempt() -> _T:
            with self.writing() as connection, transaction(connection):
                return work(connection)

        return self._repeated(attempt)

    def read(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Run ``work``, which only reads; it may be run again, with a new file after damage."""

        def attempt() -> _T:
            with self.reading() as connection:
                return work(connection)

        return self._repeated(attempt)

    def _repeated(self, attempt: Callable[[], _T]) -> _T:
        try:
            return attempt()
        except DatabaseError as error:
            if not self._sets_aside or not is_damage(error):
                raise
        with self.lock:
            # Under the lock, so that no other thread writes to the new file before this attempt is
            # repeated.
            self.set_aside_damaged()
            return attempt()

    # -- connections -----------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Commit everything done inside, or nothing. A nested one is part of the outer one."""
        with self.writing() as connection, transaction(connection):
            yield connection

    def copy_as(self, migration: str) -> None:
        """Store to tables that are frozen, for the migration with this id. "" ends that."""
        with self.lock:
            self._copying = migration
            self.close()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """The connection that writes, for this thread alone; each statement commits by itself."""
        with self.lock, self._errors():
            DESCRIPTORS.check(self._name)
            yield self._current_writer()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection to read from; an empty database in memory if there is no file."""
        with self._reader_lock, self._errors():
            DESCRIPTORS.check(self._name)
            reader = self._current_reader() if self._separate else self._existing_writer()
            if reader is None:
                with closing(empty_database(self.schema)) as nothing:
                    yield nothing
            else:
                yield reader

    @contextmanager
    def hurried(self, seconds: float) -> Iterator[sqlite3.Connection]:
        """Like `writing`, for what can be done later: wait ``seconds`` for other processes."""
        with self.writing() as connection:
            connection.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")
            try:
                yield connection
            finally:
                connection.execute(f"PRAGMA busy_timeout = {int(self._wait_seconds * 1000)}")

    def is_whole(self) -> bool:
        """Whether SQLite finds nothing wrong with the file. Reads all of it."""
        with self.reading() as connection:
            return bool(connection.execute("PRAGMA integrity_check(1)").fetchone()[0] == "ok")

    def erase_free_space(self, *, largest: int | None = None) -> bool:
        """Leave nothing of deleted rows in the file: rewrite it, and empty its write-ahead log.

        Others can read meanwhile; whoever wants to write waits.

        Args:
            largest: Don't rewrite a file with more bytes, since writers would wait for too long.

        Returns:
            Whether all of it was done. A process that reads keeps the log from being emptied.
        """
        if not self.path.exists():
            return True
        with self.writing() as connection:
            fits = largest is None or self.path.stat().st_size <= largest
            if fits:
                connection.execute("VACUUM")
        # Short waits: a checkpoint that waits for a reader lets no writer through.
        with self.hurried(POLL_SECONDS) as connection:
            for _ in range(_CHECKPOINTS):
                if not connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                    return fits
                sleep(_CHECKPOINT_PAUSE)
        return False

    def close(self) -> None:
        """Close the connections; the next use opens new ones."""
        with self.lock, self._reader_lock:
            DESCRIPTORS.look()
            for opened in (self._reader, self._writer):
                if opened is not None:
                    opened.close()
            self._reader = self._writer = None

    def abandon(self) -> set[tuple[int, ...]]:
        """Leave the connections open permanently; returns which files they have open."""
        all_opened = [each for each in (self._reader, self._writer) if each is not None]
        self._reader = self._writer = None
        for opened in all_opened:
            never_close(opened.connection)
        return {opened.identity[:2] for opened in all_opened}

    def _current_writer(self) -> sqlite3.Connection:
        if self._writer is not None and self._was_replaced(self._writer):
            self._forget_replaced()
        if self._writer is None:
            self._writer = self._opened()
        return self._writer.connection

    def _existing_writer(self) -> sqlite3.Connection | None:
        if self._writer is not None and self._was_replaced(self._writer):
            self._forget_replaced()
        if self._writer is not None:
            return self._writer.connection
        if not self._is_there():
            return None
        try:
            return self._current_writer()
        except DatabaseError as error:
            if not is_unwritable(error):
                raise
            return self._current_reader()

    def _current_reader(self) -> sqlite3.Connection | None:
        if self._reader is not None and self._was_replaced(self._reader):
            self._reader.close()
            self._reader = None
        if self._reader is None:
            if not self._is_there():
                return None
            self._reader = self._opened_reader()
        return self._reader.connection

    def _is_there(self) -> bool:
        """Whether there is something to read.

        A file without a byte is not "nothing": whoever asks for what it had must not hear that
        there never was anything. Only a write makes it a database again.
        """
        if not os.path.lexists(self._name):
            return False
        if is_without_a_byte(self.path):
            what = f"{self.schema.name} is lost: the file is empty (0 bytes)"
            raise DatabaseError(what, where=self._name) from damage(what)
        return True

    def _was_replaced(self, opened: OpenConnection) -> bool:
        """Whether somebody moved or removed the file: nobody would look into it again."""
        # Not within a transaction: its statements must all go to one file.
        if opened.connection.in_transaction:
            return False
        now = state_of(self._name) if opened.is_snapshot else identity_of(self._name)
        return opened.identity != now

    def _forget_replaced(self) -> None:
        self.close()
        self.replacements += 1
        if self._on_new_file is not None:
            self._on_new_file("")

    def _opened(self) -> OpenConnection:
        before = identity_of(self._name)
        connection = open_database(self.path, self.schema)
        if copying := self._copying:
            connection.create_function(COPYING_FILE, 0, lambda: copying)
        pragmas = {"busy_timeout": int(self._wait_seconds * 1000), **self._pragmas}
        return self._configured(connection, before, pragmas, self._on_open)

    def _opened_reader(self) -> OpenConnection:
        before = identity_of(self._name)
        pragmas = {"query_only": 1, **self._reader_pragmas}
        try:
            connection = open_database(self.path, self.schema)
        except DatabaseError as error:
            if not is_unwritable(error):
                raise
            # Usually opened for writing even by a reader: only such a connection can recover a WAL
            # that a killed process left. The fallback is for files, folders and disks that can't
            # be written.
            opened = open_read_only(self.path, self.schema)
            self._configured(opened.connection, before, pragmas, on_open=None)
            return opened
        return self._configured(connection, before, pragmas, self._on_open)

    def _configured(
        self,
        connection: sqlite3.Connection,
        before: tuple[int, int],
        pragmas: Pragmas,
        on_open: Callable[[sqlite3.Connection], None] | None,
    ) -> OpenConnection:
        try:
            if on_open is not None:
                on_open(connection)
            for name, value in pragmas.items():
                connection.execute(f"PRAGMA {name} = {value}")
        except BaseException:
            connection.close()
            raise
        # What had the name before we connected: if another file took it in between, the next use
        # notices. Only a file that we have just created is looked at now.
        return OpenConnection(connection, before if before != NO_FILE else identity_of(self._name))

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """SQLite's errors as `DatabaseError`: what, where, what to do."""
        try:
            yield
        except DatabaseError as error:
            error.hint = error.hint or self._hint(error)
            raise
        except sqlite3.Error as error:
            what = f"{self.schema.name} can't be used: {error}"
            raise DatabaseError(what, where=self._name, hint=self._hint(error)) from error
        except UnicodeDecodeError as error:  # in the text of SQLite's message about a damaged file
            what = f"{self.schema.name} is damaged"
            raise DatabaseError(what, where=self._name, hint=self._damage_hint) from error

    def _hint(self, error: BaseException) -> str:
        if is_frozen(error):
            return "restart the agent"
        if is_not_a_database(error):
            return self._foreign_hint
        return self._damage_hint if is_damage(error) else HINTS.get(error_code(error), "")

    # -- damage ----------------------------------------------------------------------------

    def set_aside_damaged(self) -> str:
        """Rename a damaged file, so that the next use creates a new one.

        Returns:
            Its new name; "" if the file is whole, since another process was faster.

        Raises:
            DatabaseError: It can't be renamed.
        """
        with self.lock:
            self.close()
            seconds = min(self._wait_seconds, LOCK_SECONDS)
            try:
                # Two processes find the same damage at the same time. The second must see the first
                # one's new file and leave it in place.
                with file_lock(self.path.with_name(f"{self.path.name}.lock"), seconds):
                    name = "" if self._is_whole_now() else self._renamed()
            except (OSError, HermesError) as error:
                if isinstance(error, ForeignDatabase):
                    raise
                what = f"{self.schema.name} is damaged and can't be set aside: {error}"
                raise DatabaseError(what, where=self._name) from error
            if name:
                self.replacements += 1
                if self._on_new_file is not None:
                    self._on_new_file(name)
            return name

    def _is_whole_now(self) -> bool:
        if is_without_a_byte(self.path):
            return False
        try:
            with closing(open_database(self.path, self.schema)) as connection:
                answer = connection.execute("PRAGMA integrity_check(1)").fetchone()
                return bool(answer[0] == "ok")
        except (sqlite3.DatabaseError, UnicodeDecodeError):
            return False
        except DatabaseError as error:
            if is_damage(error):
                return False
            raise

    def _renamed(self) -> str:
        """Rename the file and what belongs to it; returns its new name."""
        name = free_name(self.path) if self._keeps_all else f"{self.path.name}.damaged"
        # The database last: a new one must not find an old WAL, whose pages SQLite would add.
        for suffix in SUFFIXES:
            with suppress(FileNotFoundError):
                aside = self.path.with_name(name + suffix)
                self.path.with_name(self.path.name + suffix).replace(aside)
        return name

    # -- forks -----------------------------------------------------------------------------
    #
    # A child inherits SQLite's record of its locks, and then even a new connection there takes
    # none. So connections are closed before a fork, and both sides open their own.

    def before_fork(self) -> None:
        """Close the file, and keep it closed until the fork is over."""
        self.lock.acquire()
        self._reader_lock.acquire()
        # This thread forks inside its own transaction: closing would roll it back. The child must
        # not use the connection then.
        if self._writer is None or not self._writer.connection.in_transaction:
            self.close()

    def after_fork(self) -> None:
        """Let threads use the file again, in the parent and in the child."""
        self._reader_lock.release()
        self.lock.release()
