"""Opening our SQLite databases: private, in WAL mode where that is safe, of the right version.

A database appears under its name only when it is whole, so nobody ever sees half of one.
Where another process is in the way, opening waits; SQLite itself does so for most calls,
but not for a change of the journal mode.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, Protocol
from weakref import WeakSet

from hermes_core.errors import DatabaseError, ForeignDatabase
from hermes_core.filesystem import network_file_system
from hermes_core.home import ensure_folder, sync_folder

logger = logging.getLogger("hermes_core")

WAIT_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.01
_SUFFIXES: Final = ("", "-wal", "-shm")

Migration = str | Callable[[sqlite3.Connection], None]


class Layout(NamedTuple):
    """What a kind of database is.

    Attributes:
        name: For messages, such as "the archive".
        application_id: In the file's header, so that we know our own.
        migrations: The nth takes version n to n + 1; all that are needed run in one
            transaction.
        prepare: Pragmas for a new, empty file, which can't be set later.
    """

    name: str
    application_id: int
    migrations: Sequence[Migration]
    prepare: str = ""

    @property
    def version(self) -> int:
        """The newest version."""
        return len(self.migrations)


def open_database(path: Path, layout: Layout) -> sqlite3.Connection:
    """A connection in autocommit mode, for any thread, to a database of the newest version.

    Raises:
        ForeignDatabase: The file is somebody else's; it is left as it is.
        DatabaseError: It can't be opened.
    """
    try:
        if not path.exists():
            _create(path, layout)
        elif not path.is_file():
            raise DatabaseError("is not a regular file", where=str(path), hint="move it away")
        return _patiently(lambda: _connected(path, layout))
    except sqlite3.Error as error:
        raise DatabaseError(f"{layout.name} can't be opened: {error}", where=str(path)) from error
    except OSError as error:
        reason = error.strerror or error
        raise DatabaseError(f"{layout.name} can't be opened: {reason}", where=str(path)) from error


def empty_database(layout: Layout) -> sqlite3.Connection:
    """A database in memory, for who wants to read from a file that is not there yet."""
    database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    _migrate(database, layout)
    return database


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """All that is done inside, or nothing. One inside another is part of it."""
    if database.in_transaction:
        yield database
        return
    database.execute("BEGIN IMMEDIATE")
    try:
        yield database
        database.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            database.execute("ROLLBACK")
        raise


def identity_of(path: Path) -> tuple[int, int]:
    """Which file has this name now: whoever has it open may have one that was moved away."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino


def is_busy(error: sqlite3.Error) -> bool:
    """Whether somebody else was in the way, so that trying again may help."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _create(path: Path, layout: Layout) -> None:
    """Make a new database aside, and put it in place if nobody else was faster."""
    ensure_folder(path.parent)
    aside = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")
    os.close(os.open(aside, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        with closing(sqlite3.connect(aside, isolation_level=None)) as database:
            database.executescript(layout.prepare)
            database.execute(f"PRAGMA journal_mode = {_journal(path)}")
            _migrate(database, layout)
        _publish(aside, path)
        with suppress(OSError):
            sync_folder(path.parent)
    finally:
        for suffix in _SUFFIXES:
            with suppress(OSError):
                aside.with_name(aside.name + suffix).unlink()


def _publish(aside: Path, path: Path) -> None:
    try:
        os.link(aside, path)
    except FileExistsError:
        pass
    except OSError:  # a file system without links
        if not path.exists():
            aside.rename(path)


def _patiently(connect: Callable[[], sqlite3.Connection]) -> sqlite3.Connection:
    end = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            return connect()
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() >= end:
                raise
        time.sleep(_POLL_SECONDS)


def _connected(path: Path, layout: Layout) -> sqlite3.Connection:
    database = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        timeout=WAIT_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )
    database.text_factory = _text
    try:
        version = _checked(database, path, layout)
        if version == 0:
            database.executescript(layout.prepare)
        wanted = _journal(path)
        if database.execute("PRAGMA journal_mode").fetchone()[0] != wanted:
            database.execute(f"PRAGMA journal_mode = {wanted}")
        database.execute("PRAGMA synchronous = NORMAL")
        if version < layout.version:
            _migrate(database, layout)
    except BaseException:
        database.close()
        raise
    return database


def _text(stored: bytes) -> str:
    """Text as far as it can be read: a damaged letter must not hide all others."""
    return stored.decode("utf-8", "replace")


def _journal(path: Path) -> str:
    """WAL needs memory that all processes share, which they do not over a network."""
    kind = network_file_system(path)
    if not kind:
        return "wal"
    logger.warning("%s is on a network file system (%s): writing is slower there", path, kind)
    return "truncate"


def _checked(database: sqlite3.Connection, path: Path, layout: Layout) -> int:
    """The version of the database, if it is ours."""
    version = int(database.execute("PRAGMA user_version").fetchone()[0])
    owner = int(database.execute("PRAGMA application_id").fetchone()[0])
    if owner != layout.application_id and not (version == owner == 0 and _is_empty(database)):
        raise ForeignDatabase(
            f"is not {layout.name} of hermes-plugins",
            where=str(path),
            hint="it was not changed; move it away to start anew",
        )
    if version > layout.version:
        raise ForeignDatabase(
            f"{layout.name} was written by a newer version of hermes-plugins "
            f"(format {version}, this one knows {layout.version})",
            where=str(path),
            hint="it was not changed; upgrade hermes-plugins",
        )
    return version


def _is_empty(database: sqlite3.Connection) -> bool:
    return database.execute("SELECT 1 FROM sqlite_master").fetchone() is None


def _migrate(database: sqlite3.Connection, layout: Layout) -> None:
    with transaction(database):
        version = int(database.execute("PRAGMA user_version").fetchone()[0])
        for migration in layout.migrations[version:]:
            if callable(migration):
                migration(database)
            else:
                for statement in filter(str.strip, migration.split(";\n")):
                    database.execute(statement)
        database.execute(f"PRAGMA application_id = {layout.application_id}")
        database.execute(f"PRAGMA user_version = {layout.version}")


# -- forks -----------------------------------------------------------------------------------


class Forkable(Protocol):
    """Somebody who holds connections, which must not be carried into a child process."""

    def before_fork(self) -> None:
        """Wait for what is going on, let nothing begin, and close the connections."""

    def after_fork(self) -> None:
        """Go on, in the parent or in the child."""


_HOLDERS: Final[WeakSet[Forkable]] = WeakSet()


def close_before_forks(holder: Forkable) -> None:
    """Have connections closed before the process forks.

    SQLite's locks belong to a process, and what it remembers of them is copied into a child:
    even a new connection there would take none.
    """
    if hasattr(os, "register_at_fork") and not _REGISTERED:
        _REGISTERED.append(True)
        os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)
    _HOLDERS.add(holder)


# That the handlers are registered is a fact of the process, as the handlers are.
_REGISTERED: Final[list[bool]] = []
_HELD: Final[list[Forkable]] = []


def _before() -> None:
    _HELD.extend(_HOLDERS)
    for holder in _HELD:
        holder.before_fork()


def _after() -> None:
    while _HELD:
        _HELD.pop().after_fork()
