"""SQLite files: private, created whole, migrated, reopened when replaced, closed before a fork.

`SqliteFile` is the one class through which this project uses a SQLite database: the outbox, the
call log, the history of the notes and the archive of conversations. The functions below it do
the same for a single connection.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from errno import ENOSPC
from itertools import count
from pathlib import Path
from sqlite3 import connect  # bound before a plugin can replace it, as `monotonic` and `sleep`
from time import monotonic, sleep, strftime
from typing import Final, Protocol, TypeVar
from weakref import WeakSet, finalize

from hermes_core.errors import CHECK_FOLDER, DatabaseError, ForeignDatabase, HermesError
from hermes_core.storage.files import LockTimeoutError, file_lock, network_file_system, sync_folder
from hermes_core.storage.frozen import is_frozen
from hermes_core.storage.home import ensure_folder, let_owner_use
from hermes_core.storage.logger import logger

_T = TypeVar("_T")

# Longer than the longest transaction of ours on a slow disk; a turn that fails is worse than a slow
# one.
WAIT_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.01
_LOCK_SECONDS: Final = 10.0
# Two seconds: a reader of ours is done by then.
_CHECKPOINTS: Final = 40
_CHECKPOINT_PAUSE: Final = 0.05
# A file that changes while it is copied is copied again, so often.
_COPIES: Final = 3
# What SQLite puts beside a database in WAL mode, and the database itself, which comes last.
_SUFFIXES: Final = ("-wal", "-shm", "")
_NO_FILE: Final = (0, 0)

Migration = str | Callable[[sqlite3.Connection], None]
Pragmas = Mapping[str, int]

_DAMAGE: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
# What SQLite says if it may not, or can't, write the file or what belongs beside it. Creating the
# shared memory of a WAL on a full disk is an I/O error.
_UNWRITABLE: Final = (
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
)
#: How often a writer looks whether the lock is free.
_POLL_MILLISECONDS: Final = 3
_BUSY: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)

_HINTS: Final = {
    sqlite3.SQLITE_FULL: "free some disk space; what was stored before is safe",
    sqlite3.SQLITE_READONLY: "it can't be written: check its permissions and its file system",
    sqlite3.SQLITE_CANTOPEN: "check its permissions and those of its folder",
    sqlite3.SQLITE_IOERR: "check whether the disk is full or failing, and `ulimit -f`",
    sqlite3.SQLITE_BUSY: "another process is using it; try again",
}


@dataclass(frozen=True, slots=True)
class Schema:
    """What a kind of database contains.

    Attributes:
        name: For messages, such as "the archive".
        application_id: Stored in the file's header; a file with another one is refused.
        migrations: The nth takes version n to n + 1. All that are needed run in one
            transaction.
        prepare: Pragmas for a new, empty file, which can't be set later.
        additions: Changes that leave every statement of older versions valid, by the column that
            each adds (``table.column``). They run where that column is missing and don't change
            the version, so a process of an older version can still open the file.
    """

    name: str
    application_id: int
    migrations: Sequence[Migration]
    prepare: str = ""
    additions: Mapping[str, Callable[[sqlite3.Connection], None]] = field(default_factory=dict)

    @property
    def version(self) -> int:
        """The newest version."""
        return len(self.migrations)


# -- errors ----------------------------------------------------------------------------------


def error_code(error: BaseException | None) -> int:
    """SQLite's primary result code of an error, or of the one that it wraps; 0 if none."""
    if isinstance(error, DatabaseError):
        while isinstance(error, DatabaseError):
            error = error.__cause__
    # The low byte is the primary code; the rest says which variant it is (SQLITE_BUSY_SNAPSHOT,
    # ...).
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def is_damage(error: BaseException) -> bool:
    """Whether an error says that the file's content is not what was written."""
    return error_code(error) in _DAMAGE


def is_unwritable(error: BaseException) -> bool:
    """Whether nothing can be written: not allowed, a read-only or full disk, or one that fails."""
    return error_code(error) in _UNWRITABLE


def is_busy(error: BaseException) -> bool:
    """Whether another connection holds a lock, so that trying again may help."""
    return error_code(error) in _BUSY


# -- a file for all threads of a process -----------------------------------------------------


class _TemporaryFolder:
    """A private folder that is removed with this object, or at the end of the process."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="hermes-"))
        # Not `TemporaryDirectory`, which warns if nobody has closed it: a command need not.
        self.remove = finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class _Opened:
    """A connection, and which file it is connected to."""

    connection: sqlite3.Connection
    identity: tuple[int, ...]
    #: Whether the connection does not see later changes of the file; then these replace it.
    is_snapshot: bool = False
    #: Where a private copy is.
    folder: _TemporaryFolder | None = None

    def close(self) -> None:
        """Close the connection, and remove the copy."""
        with suppress(sqlite3.Error):
            self.connection.close()
        if self.folder is not None:
            self.folder.remove()


class _DescriptorWatch:
    """Notices that something in this process has closed descriptors that are not its own.

    SQLite goes on writing to the numbers of its descriptors, and these may be other files by then.
    A new connection does not help: SQLite shares descriptors between the connections of a process
    to one file. So that file is not used again in this process.

    The end of a pipe stands for all descriptors: a process has no other one with its identity.
    On Windows pipes have no identity, and nothing is noticed.
    """

    def __init__(self) -> None:
        self.files: WeakSet[SqliteFile] = WeakSet()
        self._handle = -1
        self._identity = _NO_FILE
        self._unusable: set[tuple[int, ...]] = set()

    def check(self, name: str) -> None:
        """Raise if the descriptors of a file are gone; begin to watch if nobody has yet."""
        # Without a lock, which a forked child could inherit taken: two threads that both find it
        # do the same twice.
        self.look()
        if self._identity == _NO_FILE:
            self._begin()
        if self._unusable and _identity(name) in self._unusable:
            raise DatabaseError(
                "something in this process has closed its file descriptors",
                where=name,
                hint="restart the agent; a plugin may have done it: see isolation: process",
            )

    def look(self) -> None:
        """Give up every open file if descriptors were closed."""
        if self._identity == _NO_FILE or _descriptor_identity(self._handle) == self._identity:
            return
        for file in list(self.files):
            self._unusable |= file.abandon()
        self._begin()

    def _begin(self) -> None:
        with suppress(OSError):
            self._handle, other = os.pipe()
            os.close(other)
            self._identity = _descriptor_identity(self._handle)


def _descriptor_identity(handle: int) -> tuple[int, int]:
    try:
        found = os.fstat(handle)
    except OSError:
        return _NO_FILE
    return found.st_dev, found.st_ino


def _never_close(connection: sqlite3.Connection) -> None:
    """Never close a connection: closing it would write to, and close, whatever it finds."""
    import ctypes  # noqa: PLC0415 - hardly ever needed

    # A reference of ours would be dropped when the interpreter ends, and the connection closed.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


# Module state: descriptors belong to the process.
_WATCH: Final = _DescriptorWatch()


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
        self._on_new_file = on_new_file
        # Whoever needs both locks takes the writer's first.
        self._reader_lock = threading.RLock() if separate_reader else self.lock
        self._writer: _Opened | None = None
        self._reader: _Opened | None = None
        close_before_fork(self)
        _WATCH.files.add(self)

    # -- whole steps: these may be repeated with a new file --------------------------------

    def change(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Run ``work`` in a transaction; it may be run again, with a new file after damage."""

        def attempt() -> _T:
            with self.transaction() as connection:
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

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """The connection that writes, for this thread alone; each statement commits by itself."""
        with self.lock, self._errors():
            _WATCH.check(self._name)
            yield self._current_writer()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection to read from; an empty database in memory if there is no file."""
        with self._reader_lock, self._errors():
            _WATCH.check(self._name)
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
        with self.hurried(_POLL_SECONDS) as connection:
            for _ in range(_CHECKPOINTS):
                if not connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                    return fits
                sleep(_CHECKPOINT_PAUSE)
        return False

    def close(self) -> None:
        """Close the connections; the next use opens new ones."""
        with self.lock, self._reader_lock:
            _WATCH.look()
            for opened in (self._reader, self._writer):
                if opened is not None:
                    opened.close()
            self._reader = self._writer = None

    def abandon(self) -> set[tuple[int, ...]]:
        """Leave the connections open permanently; returns which files they have open."""
        all_opened = [each for each in (self._reader, self._writer) if each is not None]
        self._reader = self._writer = None
        for opened in all_opened:
            _never_close(opened.connection)
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
        if self._writer is None and not self._is_there():
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
        if _is_without_a_byte(self.path):
            what = f"{self.schema.name} is lost: the file is empty (0 bytes)"
            raise DatabaseError(what, where=self._name) from _damage(what)
        return True

    def _was_replaced(self, opened: _Opened) -> bool:
        """Whether somebody moved or removed the file: nobody would look into it again."""
        # Not within a transaction: its statements must all go to one file.
        if opened.connection.in_transaction:
            return False
        now = _state_of(self._name) if opened.is_snapshot else _identity(self._name)
        return opened.identity != now

    def _forget_replaced(self) -> None:
        self.close()
        self.replacements += 1
        if self._on_new_file is not None:
            self._on_new_file("")

    def _opened(self) -> _Opened:
        before = _identity(self._name)
        connection = open_database(self.path, self.schema)
        pragmas = {"busy_timeout": int(self._wait_seconds * 1000), **self._pragmas}
        return self._configured(connection, before, pragmas, self._on_open)

    def _opened_reader(self) -> _Opened:
        before = _identity(self._name)
        pragmas = {"query_only": 1, **self._reader_pragmas}
        try:
            connection = open_database(self.path, self.schema)
        except DatabaseError as error:
            if not is_unwritable(error):
                raise
            # Usually opened for writing even by a reader: only such a connection can recover a WAL
            # that a killed process left. The fallback is for files, folders and disks that can't
            # be written.
            opened = _opened_read_only(self.path, self.schema)
            self._configured(opened.connection, before, pragmas, on_open=None)
            return opened
        return self._configured(connection, before, pragmas, self._on_open)

    def _configured(
        self,
        connection: sqlite3.Connection,
        before: tuple[int, int],
        pragmas: Pragmas,
        on_open: Callable[[sqlite3.Connection], None] | None,
    ) -> _Opened:
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
        return _Opened(connection, before if before != _NO_FILE else _identity(self._name))

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
        return self._damage_hint if is_damage(error) else _HINTS.get(error_code(error), "")

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
            seconds = min(self._wait_seconds, _LOCK_SECONDS)
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
        if _is_without_a_byte(self.path):
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
        name = _free_name(self.path) if self._keeps_all else f"{self.path.name}.damaged"
        # The database last: a new one must not find an old WAL, whose pages SQLite would add.
        for suffix in _SUFFIXES:
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


# -- reading what can't be written -----------------------------------------------------------
#
# SQLite reads a WAL database in a folder where it may not create files only if a writer has
# created them already, or if we say that nobody changes the file (``immutable``). The second
# ignores the WAL, so a file whose WAL has content is copied instead. Somebody else may be allowed
# to write: a connection that does not see changes is replaced when the files change.


@contextmanager
def read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that changes nothing, and creates nothing beside the file if nobody has it open.

    Raises:
        DatabaseError: It can't be opened.
        sqlite3.Error: It is not a database, or can't be read.
    """
    with closing(_opened_read_only(path, None)) as opened:
        yield opened.connection


def _opened_read_only(path: Path, schema: Schema | None) -> _Opened:
    """Open a file for reading; in a copy if it has to be migrated first."""
    name = os.fspath(path)
    state = _state_of(name)
    is_open = os.path.lexists(f"{name}-wal")  # somebody has it open, or had it when it was killed
    for way in ("mode=ro", "immutable=1") if is_open else ("immutable=1",):
        if way != "mode=ro" and _size(f"{name}-wal"):
            break
        connection = _connection(path, way)
        try:
            if schema is None:
                connection.execute("PRAGMA schema_version").fetchone()
            if schema is None or _is_current(connection, path, schema):
                if way == "mode=ro":
                    return _Opened(connection, _identity(name))
                return _Opened(connection, state, is_snapshot=True)
            connection.close()
        except sqlite3.Error as error:
            connection.close()
            if not is_unwritable(error):
                raise
        except BaseException:
            connection.close()
            raise
    return _private_copy(path, schema)


def _private_copy(path: Path, schema: Schema | None) -> _Opened:
    try:
        folder = _TemporaryFolder()
        copy = folder.path / path.name
        state = _copied(os.fspath(path), os.fspath(copy))
        connection = _connection(copy, "mode=rw") if schema is None else open_database(copy, schema)
    except OSError as error:
        what = f"can't be opened: {error.strerror or error}"
        hint = _HINTS[sqlite3.SQLITE_CANTOPEN]
        raise DatabaseError(what, where=str(path), hint=hint) from error
    return _Opened(connection, state, is_snapshot=True, folder=folder)


def _identity(name: str) -> tuple[int, int]:
    """Which file has this name now: an open connection may have one that was moved away."""
    try:
        found = os.stat(name)  # noqa: PTH116 - at every use
    except OSError:
        return _NO_FILE
    return found.st_dev, found.st_ino


def _state_of(name: str) -> tuple[int, ...]:
    """Which file has this name now, and whether it or its WAL was changed since."""
    state: tuple[int, ...] = _identity(name)
    for suffix in ("", "-wal"):
        with suppress(OSError):
            found = os.stat(name + suffix)  # noqa: PTH116 - at every use
            state = (*state, found.st_size, found.st_mtime_ns)
    return state


def _is_without_a_byte(path: Path) -> bool:
    """Whether a file was truncated to nothing. We never leave one like that."""
    return path.is_file() and not _size(os.fspath(path))


def _size(name: str) -> int:
    try:
        return os.stat(name).st_size  # noqa: PTH116
    except OSError:
        return 0


def _copied(source: str, target: str) -> tuple[int, ...]:
    """Copy a database and its WAL; returns their state, which has not changed meanwhile."""
    for _ in range(_COPIES):
        before = _state_of(source)
        shutil.copyfile(source, target)
        with suppress(FileNotFoundError):
            shutil.copyfile(f"{source}-wal", f"{target}-wal")
        if _state_of(source) == before:
            break
    return before


# -- one connection --------------------------------------------------------------------------


def open_database(path: Path, schema: Schema) -> sqlite3.Connection:
    """Return a connection in autocommit mode, for any thread; create or migrate the file.

    Raises:
        ForeignDatabase: The file belongs to another program; it is not changed.
        DatabaseError: It can't be opened.
    """
    try:
        if not path.exists():
            _create(path, schema)
        elif not path.is_file():
            raise DatabaseError("is not a regular file", where=str(path), hint="move it away")
        elif _is_without_a_byte(path):
            # SQLite takes it for a new database, and would delete the WAL, which may have much of
            # what was stored.
            logger.error("%s is empty (0 bytes): %s starts again", path, schema.name)
            _move_orphans(path)
        return _retry_while_busy(lambda: _connected(path, schema))
    except sqlite3.Error as error:
        # Without a hint: if it is damaged, the caller adds how to repair it.
        raise DatabaseError(f"{schema.name} can't be opened: {error}", where=str(path)) from error
    except OSError as error:
        what = f"{schema.name} can't be opened: {error.strerror or error}"
        raise DatabaseError(what, where=str(path), hint=CHECK_FOLDER) from error
    except LockTimeoutError as error:
        raise DatabaseError(error.what, where=error.where, hint=error.hint) from error


def empty_database(schema: Schema) -> sqlite3.Connection:
    """Return an empty database in memory, to read from while there is no file yet."""
    database = connect(":memory:", isolation_level=None, check_same_thread=False)
    _migrate(database, schema)
    return database


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Commit everything done inside, or nothing. A nested one is part of the outer one."""
    if database.in_transaction:
        yield database
        return
    _begin(database)
    try:
        yield database
        database.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            database.execute("ROLLBACK")
        raise


def _begin(database: sqlite3.Connection) -> None:
    """Take the write lock now, waiting as long as ``busy_timeout`` says.

    A deferred transaction would start as a reader, and fail with SQLITE_BUSY at its first write,
    without waiting, if another process has written meanwhile. SQLite's own pauses grow to 100 ms:
    with several writers, one would wait that much longer than the lock is held. So it gets a
    timeout that is over after its first two pauses, again and again.
    """
    wait = int(database.execute("PRAGMA busy_timeout").fetchone()[0])
    end = monotonic() + wait / 1000
    database.execute(f"PRAGMA busy_timeout = {min(wait, _POLL_MILLISECONDS)}")
    try:
        while True:
            try:
                database.execute("BEGIN IMMEDIATE")
            except sqlite3.Error as error:
                if not is_busy(error) or monotonic() >= end:
                    raise
            else:
                return
    finally:
        database.execute(f"PRAGMA busy_timeout = {wait}")


def _create(path: Path, schema: Schema) -> None:
    """Create a database under a temporary name, and rename it unless another process was faster.

    So nobody ever sees half of a database.
    """
    ensure_folder(path.parent)
    aside = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")
    os.close(os.open(aside, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    let_owner_use(aside)  # SQLite gives its own files the mode of the database
    try:
        with closing(connect(aside, isolation_level=None)) as database:
            database.executescript(schema.prepare)
            database.execute(f"PRAGMA journal_mode = {_journal(path)}")
            _migrate(database, schema)
        _move_orphans(path)
        _publish(aside, path)
        with suppress(OSError):
            sync_folder(path.parent)
    finally:
        for suffix in _SUFFIXES:
            with suppress(OSError):
                aside.with_name(aside.name + suffix).unlink()


def _move_orphans(path: Path) -> None:
    """Rename the WAL of a database that is gone: a new one would get its pages, or delete it."""
    if not _size(f"{path}-wal"):
        return
    # Under a lock, which every creator that sees this WAL takes: one that comes later must not
    # rename the WAL of the database that the first has created.
    with file_lock(path.with_name(f"{path.name}.new.lock"), _LOCK_SECONDS):
        if path.exists() and not _is_without_a_byte(path):
            return
        name = _free_name(path)
        logger.error("%s is gone; what is left of it is renamed to %s", path, f"{name}-wal")
        for suffix in _SUFFIXES[:-1]:
            with suppress(FileNotFoundError):
                path.with_name(path.name + suffix).replace(path.with_name(name + suffix))


def _free_name(path: Path) -> str:
    """A name for what is set aside of a database, with the time, that nothing has yet."""
    stamp = f"{path.name}.damaged-{strftime('%Y%m%d-%H%M%S')}"
    names = (f"{stamp}-{number}" if number else stamp for number in count())
    return next(
        each
        for each in names
        if not any(os.path.lexists(path.with_name(each + suffix)) for suffix in _SUFFIXES)
    )


def _publish(aside: Path, path: Path) -> None:
    try:
        # A link fails if the name exists, a rename would replace another process's database.
        os.link(aside, path)
    except FileExistsError:
        pass
    except OSError:  # a file system without links
        with file_lock(path.with_name(f"{path.name}.new.lock"), _LOCK_SECONDS):
            if not path.exists():
                aside.rename(path)


def _retry_while_busy(attempt: Callable[[], sqlite3.Connection]) -> sqlite3.Connection:
    # SQLite itself waits in most calls, but not when the journal mode changes.
    end = monotonic() + WAIT_SECONDS
    while True:
        try:
            return attempt()
        except sqlite3.OperationalError as error:
            if not is_busy(error) or monotonic() >= end:
                raise
        sleep(_POLL_SECONDS)


def _connected(path: Path, schema: Schema) -> sqlite3.Connection:
    # mode=rw: a plain path would create an empty file if another process has just renamed this one.
    database = _connection(path, "mode=rw")
    try:
        version = _checked(database, path, schema)
        if version == 0:
            database.executescript(schema.prepare)
        wanted = _journal(path)
        if database.execute("PRAGMA journal_mode").fetchone()[0] != wanted:
            database.execute(f"PRAGMA journal_mode = {wanted}")
        database.execute("PRAGMA synchronous = NORMAL")
        if version < schema.version or _missing(database, schema):
            _migrate(database, schema)
    except (sqlite3.DataError, UnicodeDecodeError) as error:
        # Random bytes in place of the schema can look like an endless value, or appear in SQLite's
        # message, which is then not UTF-8.
        database.close()
        raise _damage("its schema is damaged") from error
    except BaseException:
        database.close()
        raise
    return database


def _connection(path: Path, way: str) -> sqlite3.Connection:
    _WATCH.check(os.fspath(path))
    database = connect(
        f"{path.absolute().as_uri()}?{way}",
        uri=True,
        timeout=WAIT_SECONDS,
        # Python's own transaction handling commits at times that depend on the statement; ours is
        # explicit.
        isolation_level=None,
        check_same_thread=False,
    )
    database.text_factory = _text
    return database


def _damage(what: str) -> sqlite3.DatabaseError:
    """An error of ours that counts as damage."""
    damage = sqlite3.DatabaseError(what)
    damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return damage


def _is_current(database: sqlite3.Connection, path: Path, schema: Schema) -> bool:
    """Whether a file can be read as it is, without a migration."""
    return _checked(database, path, schema) == schema.version and not _missing(database, schema)


def _text(stored: bytes) -> str:
    """Decode what can be decoded: a damaged letter must not hide all others."""
    return stored.decode("utf-8", "replace")


def _journal(path: Path) -> str:
    """The journal mode: WAL needs memory shared by all processes, so none over a network."""
    kind = network_file_system(path)
    if not kind:
        return "wal"
    logger.warning("%s is on a network file system (%s): writing is slower there", path, kind)
    return "truncate"


def _checked(database: sqlite3.Connection, path: Path, schema: Schema) -> int:
    """Return the version of the database; raise if it is not ours."""
    # In one transaction: another process may be filling an empty file at this moment, and what is
    # not yet its version must not meet what are already its tables.
    database.execute("BEGIN")
    try:
        version = int(database.execute("PRAGMA user_version").fetchone()[0])
        owner = int(database.execute("PRAGMA application_id").fetchone()[0])
        is_new = version == owner == 0 and _is_empty(database)
    finally:
        with suppress(sqlite3.Error):  # after an I/O error SQLite has ended it already
            database.execute("ROLLBACK")
    if owner != schema.application_id and not is_new:
        raise ForeignDatabase(
            f"is not {schema.name} of hermes-plugins",
            where=str(path),
            hint="it was not changed; move it away to start with a new file",
        )
    if version > schema.version:
        raise ForeignDatabase(
            f"{schema.name} was written by a newer version of hermes-plugins "
            f"(format {version}, this one knows {schema.version})",
            where=str(path),
            hint="it was not changed; upgrade hermes-plugins",
        )
    return version


def _is_empty(database: sqlite3.Connection) -> bool:
    return database.execute("SELECT 1 FROM sqlite_master").fetchone() is None


def _migrate(database: sqlite3.Connection, schema: Schema) -> None:
    with transaction(database):
        version = int(database.execute("PRAGMA user_version").fetchone()[0])
        for migration in schema.migrations[version:]:
            if callable(migration):
                migration(database)
            else:
                for statement in filter(str.strip, migration.split(";\n")):
                    database.execute(statement)
        for addition in _missing(database, schema):
            addition(database)
        database.execute(f"PRAGMA application_id = {schema.application_id}")
        database.execute(f"PRAGMA user_version = {schema.version}")


def _missing(database: sqlite3.Connection, schema: Schema) -> list[Callable[..., None]]:
    """The additions that a file does not have yet."""
    query = "SELECT 1 FROM pragma_table_info(?) WHERE name = ?"
    return [
        addition
        for column, addition in schema.additions.items()
        if database.execute(query, column.split(".")).fetchone() is None
    ]


# -- forks -----------------------------------------------------------------------------------


class Forkable(Protocol):
    """An object with connections or locks that a forked child must not inherit in use."""

    def before_fork(self) -> None:
        """Wait for what is going on, let nothing begin, and close connections."""

    def after_fork(self) -> None:
        """Go on, in the parent or in the child."""


class _ForkHandlers:
    """Calls every `Forkable` around a fork. Registers itself with Python when first used."""

    def __init__(self) -> None:
        self._all: WeakSet[Forkable] = WeakSet()
        self._waiting: list[Forkable] = []
        self._registered = False

    def add(self, holder: Forkable) -> None:
        if not self._registered and hasattr(os, "register_at_fork"):
            self._registered = True
            os.register_at_fork(
                before=self._before, after_in_parent=self._after, after_in_child=self._after
            )
        self._all.add(holder)

    def _before(self) -> None:
        self._waiting.extend(self._all)
        for holder in self._waiting:
            holder.before_fork()

    def _after(self) -> None:
        while self._waiting:
            self._waiting.pop().after_fork()


# Module state, since fork handlers belong to the process and Python can't unregister them.
_FORK_HANDLERS: Final = _ForkHandlers()


def close_before_fork(holder: Forkable) -> None:
    """Have ``before_fork`` and ``after_fork`` of an object called around each fork.

    SQLite's locks belong to a process, and its notes about them are copied into a child: even a
    new connection there would take no lock. So connections are closed before.
    """
    _FORK_HANDLERS.add(holder)


# -- copying a database that others use --------------------------------------------------------

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
                self._opened = _Opened(_connection(path, "mode=rw"), _NO_FILE)
                self._begin()
            except sqlite3.Error as error:
                if not is_unwritable(error):
                    raise
                self._opened = _opened_read_only(path, None)
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
            with closing(_connection(target, "immutable=1")) as copy:
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
            hint = _HINTS.get(error_code(error), "")
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
