"""One connection to a SQLite file: the file is created whole, checked, migrated, or only read."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from sqlite3 import connect  # bound before a plugin can replace it, as `monotonic` and `sleep`
from time import monotonic, sleep, strftime
from typing import Final
from weakref import finalize

from hermes_core.errors import CHECK_FOLDER, DatabaseError, ForeignDatabase
from hermes_core.storage.descriptors import (
    DESCRIPTORS,
    identity_of,
    is_without_a_byte,
    size_of,
    state_of,
)
from hermes_core.storage.files import LockTimeoutError, file_lock, network_file_system, sync_folder
from hermes_core.storage.home import ensure_folder, let_owner_use
from hermes_core.storage.logger import logger
from hermes_core.storage.migration import COPYING_FILE

# Longer than the longest transaction of ours on a slow disk; a turn that fails is worse than a slow
# one.
WAIT_SECONDS: Final = 30.0


POLL_SECONDS: Final = 0.01


LOCK_SECONDS: Final = 10.0


# A file that changes while it is copied is copied again, so often.
_COPIES: Final = 3


# What SQLite puts beside a database in WAL mode, and the database itself, which comes last.
SUFFIXES: Final = ("-wal", "-shm", "")


Migration = str | Callable[[sqlite3.Connection], None]


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


HINTS: Final = {
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


def is_not_a_database(error: BaseException) -> bool:
    """Whether the file is something else, or has lost even its first bytes."""
    return error_code(error) == sqlite3.SQLITE_NOTADB


def is_unwritable(error: BaseException) -> bool:
    """Whether nothing can be written: not allowed, a read-only or full disk, or one that fails."""
    return error_code(error) in _UNWRITABLE


def is_busy(error: BaseException) -> bool:
    """Whether another connection holds a lock, so that trying again may help."""
    return error_code(error) in _BUSY


class _TemporaryFolder:
    """A private folder that is removed with this object, or at the end of the process."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="hermes-"))
        # Not `TemporaryDirectory`, which warns if nobody has closed it: a command need not.
        self.remove = finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class OpenConnection:
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
    with closing(open_read_only(path, None)) as opened:
        yield opened.connection


def open_read_only(path: Path, schema: Schema | None) -> OpenConnection:
    """Open a file for reading; in a copy if it has to be migrated first."""
    name = os.fspath(path)
    state = state_of(name)
    is_open = os.path.lexists(f"{name}-wal")  # somebody has it open, or had it when it was killed
    for way in ("mode=ro", "immutable=1") if is_open else ("immutable=1",):
        if way != "mode=ro" and size_of(f"{name}-wal"):
            break
        connection = connection_to(path, way)
        try:
            if schema is None:
                connection.execute("PRAGMA schema_version").fetchone()
            if schema is None or _is_current(connection, path, schema):
                if way == "mode=ro":
                    return OpenConnection(connection, identity_of(name))
                return OpenConnection(connection, state, is_snapshot=True)
            connection.close()
        except sqlite3.Error as error:
            connection.close()
            if not is_unwritable(error):
                raise
        except BaseException:
            connection.close()
            raise
    return _private_copy(path, schema)


def _private_copy(path: Path, schema: Schema | None) -> OpenConnection:
    try:
        folder = _TemporaryFolder()
        copy = folder.path / path.name
        state = _copied(os.fspath(path), os.fspath(copy))
        connection = (
            connection_to(copy, "mode=rw") if schema is None else open_database(copy, schema)
        )
    except OSError as error:
        what = f"can't be opened: {error.strerror or error}"
        hint = HINTS[sqlite3.SQLITE_CANTOPEN]
        raise DatabaseError(what, where=str(path), hint=hint) from error
    return OpenConnection(connection, state, is_snapshot=True, folder=folder)


def _copied(source: str, target: str) -> tuple[int, ...]:
    """Copy a database and its WAL; returns their state, which has not changed meanwhile."""
    for _ in range(_COPIES):
        before = state_of(source)
        shutil.copyfile(source, target)
        with suppress(FileNotFoundError):
            shutil.copyfile(f"{source}-wal", f"{target}-wal")
        if state_of(source) == before:
            break
    return before


# -- opening a file ---------------------------------------------------------------------------


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
        elif is_without_a_byte(path):
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
        for suffix in SUFFIXES:
            with suppress(OSError):
                aside.with_name(aside.name + suffix).unlink()


def _move_orphans(path: Path) -> None:
    """Rename the WAL of a database that is gone: a new one would get its pages, or delete it."""
    if not size_of(f"{path}-wal"):
        return
    # Under a lock, which every creator that sees this WAL takes: one that comes later must not
    # rename the WAL of the database that the first has created.
    with file_lock(path.with_name(f"{path.name}.new.lock"), LOCK_SECONDS):
        if path.exists() and not is_without_a_byte(path):
            return
        name = free_name(path)
        logger.error("%s is gone; what is left of it is renamed to %s", path, f"{name}-wal")
        for suffix in SUFFIXES[:-1]:
            with suppress(FileNotFoundError):
                path.with_name(path.name + suffix).replace(path.with_name(name + suffix))


def free_name(path: Path) -> str:
    """A name for what is set aside of a database, with the time, that nothing has yet."""
    stamp = f"{path.name}.damaged-{strftime('%Y%m%d-%H%M%S')}"
    names = (f"{stamp}-{number}" if number else stamp for number in count())
    return next(
        each
        for each in names
        if not any(os.path.lexists(path.with_name(each + suffix)) for suffix in SUFFIXES)
    )


def _publish(aside: Path, path: Path) -> None:
    try:
        # A link fails if the name exists, a rename would replace another process's database.
        os.link(aside, path)
    except FileExistsError:
        pass
    except OSError:  # a file system without links
        with file_lock(path.with_name(f"{path.name}.new.lock"), LOCK_SECONDS):
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
        sleep(POLL_SECONDS)


def _connected(path: Path, schema: Schema) -> sqlite3.Connection:
    # mode=rw: a plain path would create an empty file if another process has just renamed this one.
    database = connection_to(path, "mode=rw")
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
        raise damage("its schema is damaged") from error
    except BaseException:
        database.close()
        raise
    return database


def connection_to(path: Path, way: str) -> sqlite3.Connection:
    """A connection in autocommit mode; ``way`` is a parameter of the address, as ``mode=rw``."""
    DESCRIPTORS.check(os.fspath(path))
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
    database.create_function(COPYING_FILE, 0, str)
    return database


def damage(what: str) -> sqlite3.DatabaseError:
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
