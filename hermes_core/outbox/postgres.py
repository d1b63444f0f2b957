"""The outbox in PostgreSQL: any machine of a fleet delivers what another one left.

The rules are those of `OutboxStore`. What differs from a file:

* Several transactions run at once. Whoever stores a write locks the row of its stream, so the order
  of the numbers is the order in which the writes became visible. Whoever claims a stream passes by
  rows that are locked (``FOR UPDATE SKIP LOCKED``).
* Claims expire by the clock of the server, so the clocks of the machines may differ.
* A process of another machine, or of another container, can't be checked. It loses its claim by
  not renewing it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from hashlib import sha256
from time import monotonic, time  # bound before a plugin can replace it
from typing import Final, TypeVar

from hermes_core.errors import DatabaseError
from hermes_core.outbox.records import USED, StreamKey
from hermes_core.storage.postgres import (
    FOR_NOBODY,
    Component,
    Database,
    Transactions,
    protect_table,
)
from hermes_core.storage.processes import fleet_process, may_be_alive
from hermes_core.storage.sql import Connection

_T = TypeVar("_T")

# The numbers of a stream and of a write are never used again: processes remember them, and the
# order of the numbers is the order of delivery. The partial indexes are as in `outbox.sqlite`.
# ``digest``: the key of a stream may be longer than an entry of an index.
# The keys have the namespace: whoever may insert rows of one can neither take numbers of another
# one's next rows nor refer to its streams, which would lock them.
_TABLES: Final = f"""
CREATE TABLE hermes.outbox_streams (
    id bigint GENERATED ALWAYS AS IDENTITY,
    namespace text NOT NULL DEFAULT current_setting('hermes.namespace'),
    provider text NOT NULL,
    owner text NOT NULL,
    session text NOT NULL,
    keywords text NOT NULL,
    digest bytea NOT NULL,
    holder text NOT NULL DEFAULT '',
    expires double precision NOT NULL DEFAULT 0,
    PRIMARY KEY (namespace, id),
    UNIQUE (namespace, digest)
);
CREATE TABLE hermes.outbox_writes (
    id bigint GENERATED ALWAYS AS IDENTITY,
    namespace text NOT NULL DEFAULT current_setting('hermes.namespace'),
    stream bigint NOT NULL,
    event_id text NOT NULL,
    hook text NOT NULL,
    payload text NOT NULL,
    created double precision NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    failing_since double precision,
    error text NOT NULL DEFAULT '',
    state text NOT NULL DEFAULT 'waiting',
    due double precision NOT NULL DEFAULT 0,
    faults integer NOT NULL DEFAULT 0,
    PRIMARY KEY (namespace, id),
    FOREIGN KEY (namespace, stream) REFERENCES hermes.outbox_streams (namespace, id)
);
CREATE INDEX outbox_writes_of ON hermes.outbox_writes (namespace, stream);
CREATE INDEX outbox_waiting ON hermes.outbox_writes (namespace, stream, id) WHERE state = 'waiting';
CREATE INDEX outbox_aside ON hermes.outbox_writes (namespace, stream, id) WHERE state = 'aside';
{protect_table("outbox_streams", FOR_NOBODY)}
{protect_table("outbox_writes", FOR_NOBODY)}
"""

#: As in `outbox.sqlite`.
_SPOOLED: Final = f"""
CREATE TABLE hermes.outbox_spooled (
    namespace text NOT NULL DEFAULT current_setting('hermes.namespace'),
    event_id text NOT NULL,
    at double precision NOT NULL,
    PRIMARY KEY (namespace, event_id)
);
{protect_table("outbox_spooled", FOR_NOBODY)}
"""

OUTBOX: Final = Component("outbox", (_TABLES, _SPOOLED))

#: How long the difference between the server's clock and ours is believed.
_CLOCK_SECONDS: Final = 60.0
#: The size of a row without content.
_ROW_BYTES: Final = 200


class PostgresOutbox:
    """The rows of one home.

    Args:
        database: Where they are.
    """

    locked = " FOR UPDATE"
    skip_locked = " FOR UPDATE SKIP LOCKED"
    now = "coalesce(?::float8, extract(epoch FROM clock_timestamp())::float8)"

    is_remote = True
    exists = True
    damaged = ()
    #: Numbers of rows are never used again, whatever happens to the server.
    replacements = 0
    problem: DatabaseError | None = None

    def __init__(self, database: Database) -> None:
        self.place = database.where
        self._transactions = Transactions(database, OUTBOX, ("streams", "writes", "spooled"))
        #: What to add to our clock to get the server's, and when that was measured.
        self._ahead = 0.0
        self._measured = -_CLOCK_SECONDS

    @property
    def lock(self) -> threading.RLock:
        """Held while a thread of this process uses the outbox; see `OutboxDatabase`."""
        return self._transactions.lock

    def clock(self) -> float:
        """The time by the server's clock, without asking it."""
        return time() + self._ahead

    def change(self, work: Callable[[Connection], _T]) -> _T:
        """Run ``work`` in a transaction."""
        with self._transactions.begin() as connection:
            self._measure(connection)
            return work(connection)

    def read(self, work: Callable[[Connection], _T]) -> _T:
        """Run ``work``, which only reads."""
        return self._transactions.read(work)

    def _measure(self, connection: Connection) -> None:
        """Compare the clocks, now and then."""
        if monotonic() - self._measured < _CLOCK_SECONDS:
            return
        before = time()
        row = connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8")
        self._ahead = float(row.fetchone()[0]) - (before + time()) / 2
        self._measured = monotonic()

    def this_process(self) -> str:
        """What this process is called in claims."""
        return fleet_process()

    def is_alive(self, process: str) -> bool:
        """Whether a process that has a claim may still run."""
        return may_be_alive(process)

    def of_home(self, table: str) -> str:
        """The condition for the rows of this home."""
        return f"{table}.namespace = current_setting('hermes.namespace')"

    def find_stream(self, connection: Connection, key: StreamKey) -> int:
        """Return the number of a stream; 0 if it does not exist."""
        which = f"SELECT id FROM streams WHERE {self.of_home('streams')} AND digest = ?"
        found = connection.execute(which, (_digest(key),)).fetchone()
        return int(found[0]) if found else 0

    def add_stream(self, connection: Connection, key: StreamKey) -> int:
        """Return the number of a stream, locked; it is created if it does not exist."""
        found = connection.execute(
            "INSERT INTO streams (provider, owner, session, keywords, digest) "
            "VALUES (?, ?, ?, ?, ?) "
            # Changes nothing, but locks the row: nobody can remove it before we are done.
            "ON CONFLICT (namespace, digest) DO UPDATE SET digest = excluded.digest RETURNING id",
            (*key, _digest(key)),
        ).fetchone()
        return int(found[0])

    def rename_stream(self, connection: Connection, stream: int, key: StreamKey) -> None:
        """Give a stream another key, unless another one has it."""
        if self.find_stream(connection, key) == 0:
            connection.execute(
                "UPDATE streams SET keywords = ?, digest = ? WHERE id = ?",
                (key.keywords, _digest(key), stream),
            )

    def overwrite_deleted(self, connection: Connection) -> None:
        """Nothing: the server decides when it overwrites what was deleted."""

    def erase_free_space(self) -> bool:
        """False: only the server's own VACUUM does that, and its log has it longer."""
        return False

    def used_bytes(self, connection: Connection) -> int:
        """Return how much room the writes use, without those that were missed."""
        found = connection.execute(
            f"SELECT coalesce(sum(octet_length(payload) + {_ROW_BYTES}), 0) FROM writes "
            f"WHERE {self.of_home('writes')} AND state != 'missed'"
        ).fetchone()
        return int(found[0])

    def compact(self, connection: Connection) -> bool:
        """Remove empty streams; the server returns free space itself."""
        empty = "NOT EXISTS (SELECT 1 FROM writes WHERE stream = streams.id)"
        rows = connection.execute(
            f"SELECT id FROM streams WHERE {self.of_home('streams')} AND holder = '' "
            f"AND NOT (session = '' AND keywords = ?) AND {empty}{self.skip_locked}",
            (USED,),
        ).fetchall()
        # The second statement sees what was stored until the first one had its locks.
        connection.executemany(f"DELETE FROM streams WHERE id = ? AND {empty}", rows)
        return False

    def is_whole(self) -> bool:
        """Whether the server answers: it checks its pages itself."""
        self.read(lambda connection: connection.execute("SELECT 1 FROM streams LIMIT 1"))
        return True

    def close(self) -> None:
        """Nothing to close: the connections belong to all of the process."""


def _digest(key: StreamKey) -> bytes:
    return sha256("\0".join(f"{len(each)}:{each}" for each in key).encode()).digest()
