"""The outbox as a file, outbox.db."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from time import time  # bound before a plugin can replace it
from typing import Final

from hermes_core.errors import DatabaseError
from hermes_core.outbox.records import USED, StreamKey
from hermes_core.storage.logger import logger
from hermes_core.storage.processes import is_alive, this_process
from hermes_core.storage.sql import Connection
from hermes_core.storage.sqlite import SqliteFile
from hermes_core.storage.sqlite_connection import Schema

# ``streams.due`` is not used since format 2. It stays, since dropping it would make the file
# unreadable for an older version that runs beside this one.
# AUTOINCREMENT, so that a number is never used again: processes remember the numbers of streams and
# writes, and the order of the numbers is the order of delivery. The indexes cover only the states
# that are looked for all the time, so that many writes that failed permanently cost nothing.
_TABLES: Final = """
CREATE TABLE streams (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    provider TEXT NOT NULL,
    owner TEXT NOT NULL,
    session TEXT NOT NULL,
    keywords TEXT NOT NULL,
    holder TEXT NOT NULL DEFAULT '',
    expires REAL NOT NULL DEFAULT 0,
    due REAL NOT NULL DEFAULT 0,
    UNIQUE (provider, owner, session, keywords)
);
CREATE TABLE writes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    stream INTEGER NOT NULL REFERENCES streams,
    event_id TEXT NOT NULL,
    hook TEXT NOT NULL,
    payload TEXT NOT NULL,
    created REAL NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    failing_since REAL,
    error TEXT NOT NULL DEFAULT '',
    state TEXT NOT NULL DEFAULT 'waiting'
);
CREATE INDEX waiting_writes ON writes (stream, id) WHERE state = 'waiting';
CREATE INDEX missed_writes ON writes (stream) WHERE state = 'missed';
"""

#: ``due``: when to retry a write. ``faults``: how often it failed for what may be its own reason.
_OWN_RETRIES: Final = """
ALTER TABLE writes ADD COLUMN due REAL NOT NULL DEFAULT 0;
ALTER TABLE writes ADD COLUMN faults INTEGER NOT NULL DEFAULT 0;
CREATE INDEX aside_writes ON writes (stream, id) WHERE state = 'aside';
"""

#: The last write that was handed over from the spool and may still be in its file.
_SPOOLED: Final = "CREATE TABLE spooled (event_id TEXT PRIMARY KEY, at REAL NOT NULL)"


def _add_spooled(database: sqlite3.Connection) -> None:
    database.execute(_SPOOLED)


OUTBOX: Final = Schema(
    "the outbox",
    0x48504F42,
    (_TABLES, _OWN_RETRIES),
    prepare="PRAGMA auto_vacuum = INCREMENTAL",
    additions={"spooled.event_id": _add_spooled},
)

# Little at a time, since it happens while a person talks with the agent.
_VACUUM_PAGES: Final = 64
# Four times SQLite's own: a checkpoint happens within somebody's commit, and a turn waits for it.
_CHECKPOINT_PAGES: Final = 4000
_BACKFILL: Final = "run: hermes-plugins outbox backfill --since WHEN"
_DAMAGE_HINT: Final = "the next agent sets it aside, or run: hermes-plugins outbox retry"
#: The size of a row without content.
_MISSED_BYTES: Final = 90


class OutboxFile(SqliteFile):
    """The file. One connection, and one lock, for reading and writing.

    Args:
        path: The file; created with the first write.
        durable: Whether a write survives a power cut, too.
        set_aside: Whether a damaged file is renamed, and a new one created; otherwise damage is
            an error.
    """

    #: No two transactions run at once, so no row needs a lock.
    locked = skip_locked = ""
    #: The time by which claims expire is the one that we pass.
    is_remote = False
    now = "?"

    def __init__(self, path: Path, *, durable: bool = False, set_aside: bool = True) -> None:
        super().__init__(
            path,
            OUTBOX,
            durable=durable,
            pragmas={"wal_autocheckpoint": _CHECKPOINT_PAGES},
            set_aside=set_aside,
            damage_hint=_DAMAGE_HINT,
            on_new_file=self._note_new_file,
        )
        self.place = str(path)
        #: What happened to the file, and what to do about it; None if nothing did.
        self.problem: DatabaseError | None = None

    def clock(self) -> float:
        """The time."""
        return time()

    def _note_new_file(self, damaged: str) -> None:
        name = self.path.name
        what = (
            f"{name} was damaged and is set aside as {damaged}"
            if damaged
            else f"{name} was moved or removed while it was in use"
        )
        what = f"{what}; writes that waited in it were not delivered"
        self.problem = DatabaseError(what, hint=_BACKFILL)
        logger.error("memory: %s", self.problem)

    @property
    def exists(self) -> bool:
        """Whether anything was ever stored."""
        return self.path.exists()

    @property
    def damaged(self) -> tuple[str, ...]:
        """The names of damaged files beside it."""
        found = self.path.parent.glob(f"{self.path.name}.damaged-*")
        names = (each.name for each in found)
        return tuple(sorted(name for name in names if not name.endswith(("-wal", "-shm"))))

    def this_process(self) -> str:
        """What this process is called in claims."""
        return this_process()

    def is_alive(self, process: str) -> bool:
        """Whether a process that has a claim still runs."""
        return is_alive(process)

    def of_home(self, table: str) -> str:  # noqa: ARG002 - the file has no other rows
        """The condition for the rows of this home."""
        return "TRUE"

    def find_stream(self, connection: Connection, key: StreamKey) -> int:
        """Return the number of a stream; 0 if it does not exist."""
        found = connection.execute(
            "SELECT id FROM streams WHERE provider = ? AND owner = ? AND session = ? "
            "AND keywords = ?",
            key,
        ).fetchone()
        return int(found[0]) if found else 0

    def add_stream(self, connection: Connection, key: StreamKey) -> int:
        """Return the number of a stream; it is created if it does not exist."""
        connection.execute(
            "INSERT OR IGNORE INTO streams (provider, owner, session, keywords) "
            "VALUES (?, ?, ?, ?)",
            key,
        )
        return self.find_stream(connection, key)

    def rename_stream(self, connection: Connection, stream: int, key: StreamKey) -> None:
        """Give a stream another key, unless another one has it."""
        connection.execute(
            "UPDATE OR IGNORE streams SET keywords = ? WHERE id = ?", (key.keywords, stream)
        )

    def overwrite_deleted(self, connection: Connection) -> None:
        """Have what is deleted overwritten."""
        connection.execute("PRAGMA secure_delete = 1")

    def used_bytes(self, connection: Connection) -> int:
        """Return how much of the file is in use, without the rows of missed writes.

        Otherwise these alone could fill it, and there would never be room again.
        """
        pages, free, size = (
            int(connection.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "freelist_count", "page_size")
        )
        count = connection.execute("SELECT count(*) FROM writes WHERE state = 'missed'")
        return max((pages - free) * size - int(count.fetchone()[0]) * _MISSED_BYTES, 0)

    def compact(self, connection: Connection) -> bool:
        """Remove empty streams, and return some of the free space to the file system.

        Returns:
            Whether there is more free space.
        """
        # Not claimed ones: their process is about to store a write, or to find that it did.
        connection.execute(
            "DELETE FROM streams WHERE holder = '' AND NOT (session = '' AND keywords = ?) "
            "AND NOT EXISTS (SELECT 1 FROM writes WHERE stream = streams.id)",
            (USED,),
        )
        free = int(connection.execute("PRAGMA freelist_count").fetchone()[0])
        # SQLite frees one page per step of the statement, and Python makes one step only.
        for _ in range(min(free, _VACUUM_PAGES)):
            connection.execute("PRAGMA incremental_vacuum(1)")
        return free > _VACUUM_PAGES
