"""Everything that reads or changes the outbox. Knows no provider.

`OutboxStore` has the rules: order, claims, attempts, room. They are the same whether the rows are
in a file (`outbox.sqlite`) or in PostgreSQL (`outbox.postgres`). `OutboxDatabase`
(`outbox.database`) is what these two must offer.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hermes_core.errors import DatabaseError, HermesError
from hermes_core.outbox.database import OutboxDatabase
from hermes_core.outbox.heads import open_streams
from hermes_core.outbox.records import (
    NO_LIMITS,
    TURN,
    USED,
    FailureLimits,
    Stream,
    StreamKey,
    Write,
    WriteContent,
    WriteState,
)
from hermes_core.outbox.sqlite import OutboxFile
from hermes_core.storage.processes import machine_of
from hermes_core.storage.sql import Connection

if TYPE_CHECKING:
    from hermes_core.storage.postgres import Database


DEFAULT_MAX_MB: Final = 256

#: How long the claim of a process that does not renew it is respected. The worker renews it every
#: 15 seconds, so only a process that was suspended, or another machine's, loses it by time. One of
#: this machine that ended is known to be gone at once.
LEASE_SECONDS: Final = 300.0

#: Notes and delegations are small and in no archive, so they may use this much more room.
_RESERVE: Final = 0.125
_ARCHIVED: Final = ("sync_turn", "on_session_end")

#: How long it is remembered that a write was handed over, if nobody removes it from the spool.
_SPOOLED_SECONDS: Final = 90 * 86_400.0

_PROCESS_ENDED: Final = "the process that delivered it ended before there was an answer"

_WRITE: Final = (
    "SELECT id, stream, event_id, hook, payload, created, attempts, failing_since, error, state, "
    "due, faults FROM writes"
)

#: The two kinds of writes: turns, and everything else, which comes after the turns before it. It
#: may pass turns that failed so often, by their own fault or at all: see `FailureLimits`.
_TURNS: Final = "hook = 'sync_turn'"
_OTHERS: Final = (
    "hook != 'sync_turn' AND NOT EXISTS (SELECT 1 FROM writes AS earlier WHERE "
    "earlier.stream = writes.stream AND earlier.state = 'waiting' AND earlier.id < writes.id "
    "AND earlier.hook = 'sync_turn' AND earlier.faults < ? AND earlier.attempts < ?)"
)
_NOTHING_WAITS: Final = (
    " AND NOT EXISTS (SELECT 1 FROM writes WHERE stream = streams.id AND state = 'waiting')"
)


@dataclass(slots=True)
class _UnrecordedWrites:
    """Writes of a stream that were tried while the file could not be changed."""

    delivered: list[Write] = field(default_factory=list)
    failed: list[Write] = field(default_factory=list)


class OutboxFull(HermesError):  # noqa: N818 - reads as what happened
    """There is no room for another write."""


class OutboxStore:
    """Stores writes, and remembers who delivers them.

    Args:
        database: Where.
        max_bytes: How large it may grow.
        clock: Returns the time; the database's own by default.
    """

    def __init__(
        self,
        database: OutboxDatabase,
        *,
        max_bytes: int,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.database = database
        self.clock = clock or database.clock
        self._own_clock = database.clock
        #: The streams that this process has claimed, each for one `StreamDelivery`. The claim in
        #: the file names only the process, so it does not separate two managers in one process.
        self.claimed: set[int] = set()
        #: What happened while the file could not be changed, by stream. It is recorded together
        #: with the next change of the stream, so that nobody can deliver it and find the writes as
        #: they were before.
        self._unrecorded: defaultdict[int, _UnrecordedWrites] = defaultdict(_UnrecordedWrites)
        self._max_bytes = max_bytes
        self._room = 0

    @property
    def max_bytes(self) -> int:
        """How large the outbox may grow."""
        return self._max_bytes

    @property
    def problem(self) -> DatabaseError | None:
        """What happened to the database, and what to do about it; None if nothing did."""
        return self.database.problem

    @property
    def lock(self) -> threading.RLock:
        """Held while the database is in use. Take it to make several steps one."""
        return self.database.lock

    # -- storing --------------------------------------------------------------------------

    def find_stream(self, key: StreamKey) -> int:
        """Return the number of a stream; 0 if it does not exist yet."""
        return self.database.read(lambda connection: self.database.find_stream(connection, key))

    def put(
        self,
        key: StreamKey,
        stream: int,
        content: WriteContent,
        *,
        claim: bool,
        spooled_after: str | None = None,
        created: float | None = None,
    ) -> tuple[int, bool]:
        """Store a write, and claim its stream in the same transaction.

        Args:
            key: The stream that it belongs to.
            stream: The number of that stream; 0 if not known.
            content: What to store.
            claim: Whether to claim the stream; not if it is claimed already.
            spooled_after: For a write of the spool, the event id of the one before it; "" for the
                first. The same transaction stores that it was handed over; see `handed_over`.
                Nobody knows if an earlier attempt to store it succeeded, so it counts as tried, as
                if a process had ended that may have delivered it.
            created: When it was written; now by default.

        Returns:
            The number of the stream, and whether it was claimed.

        Raises:
            OutboxFull: There is no room. The write is stored without its content.
        """
        now = self.clock() if created is None else created
        event_id, hook, payload = content

        def work(connection: Connection) -> tuple[int, bool, bool]:
            # Another process may have removed an empty stream, or set the whole file aside.
            found = self._lock_stream(connection, stream, key)
            number = stream if found else self.database.add_stream(connection, key)
            wanted = claim or (not found and stream in self.claimed)
            self.claimed -= {stream} if not found else set()
            # The write may start a delivery under a claim that there is already.
            if number in self.claimed:
                self._catch_up(connection, number)
            if spooled_after is not None:
                self._forget_spooled(connection, (event_id, spooled_after))
                statement = "INSERT INTO spooled (event_id, at) VALUES (?, ?)"
                connection.execute(statement, (event_id, self.clock()))
                if self._has_event(connection, number, event_id):
                    return number, False, True
            # Without room, the row is stored without its content: `backfill` finds its turn by it.
            fits = self._has_room(connection, hook, len(payload))
            state, kept = (WriteState.WAITING, payload) if fits else (WriteState.MISSED, "")
            connection.execute(
                "INSERT INTO writes (stream, event_id, hook, payload, created, state, attempts) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (number, event_id, hook, kept, now, state, int(spooled_after is not None)),
            )
            claimed = fits and wanted and self._claim(connection, number)
            return number, claimed, fits

        with self.lock:
            number, claimed, fits = self.database.change(work)
            if claimed or number in self.claimed:
                self._note_claim(number)
        if not fits:
            raise OutboxFull(
                f"the outbox is full ({self._max_bytes / 1e6:g} MB): this write is not queued",
                where=self.database.place,
                hint="when the service works again, run: hermes-plugins outbox backfill",
            )
        return number, claimed

    def handed_over(self, events: Sequence[str]) -> int:
        """Return how many of the writes at the beginning of the spool were handed over before.

        Whoever did it was killed before it could remove them there. They may be delivered by now.

        Args:
            events: The event ids of the writes in the spool, in order.
        """
        own = self.database.of_home("spooled")
        rows = self.database.read(
            lambda connection: connection.execute(
                f"SELECT event_id FROM spooled WHERE {own}"
            ).fetchall()
        )
        known = {row[0] for row in rows}
        return max((place for place, each in enumerate(events, 1) if each in known), default=0)

    def forget_spooled(self, event_id: str) -> None:
        """A write that was handed over is no longer in the spool, nor is one before it."""
        self.database.change(lambda connection: self._forget_spooled(connection, (event_id,)))

    def _forget_spooled(self, connection: Connection, events: Sequence[str]) -> None:
        own = self.database.of_home("spooled")
        connection.executemany(
            # Old ones: of a process that was killed after it had removed the write from the spool.
            f"DELETE FROM spooled WHERE {own} AND (event_id = ? OR at < ?)",
            [(each, self.clock() - _SPOOLED_SECONDS) for each in events],
        )

    @staticmethod
    def _has_event(connection: Connection, stream: int, event_id: str) -> bool:
        query = "SELECT 1 FROM writes WHERE stream = ? AND event_id = ?"
        return connection.execute(query, (stream, event_id)).fetchone() is not None

    def _has_room(self, connection: Connection, hook: str, size: int) -> bool:
        """Whether a write fits."""
        # The file is measured only when it may have become too large: that takes three queries.
        self._room -= size + 256
        if self._room <= 0:
            # Other processes write, too, so use a part of what is left before measuring again.
            left = self._max_bytes - self.database.used_bytes(connection) - size
            self._room = int(min(left, self._max_bytes / 16))
        reserve = 0 if hook in _ARCHIVED else self._max_bytes * _RESERVE
        return self._room + reserve > 0

    # -- claiming -------------------------------------------------------------------------

    def claim(self, stream: int) -> bool:
        """Claim a stream; False if this process or another one that runs has it already."""
        with self.lock:
            claimed = self.database.change(lambda connection: self._claim(connection, stream))
            if claimed:
                self._note_claim(stream)
        return claimed

    def _note_claim(self, stream: int) -> None:
        self.claimed.add(stream)
        self._unrecorded.pop(stream, None)

    def _lock_stream(self, connection: Connection, stream: int, key: StreamKey) -> bool:
        """Whether a stream is still there; nobody else stores in it until the transaction ends.

        So the order of the numbers in a stream is the order in which its writes became visible.
        """
        # By its key, too: in a new file, the number may belong to another stream.
        found = connection.execute(
            "SELECT 1 FROM streams WHERE id = ? AND provider = ? AND owner = ? AND session = ? "
            "AND keywords = ?" + self.database.locked,
            (stream, *key),
        ).fetchone()
        return found is not None

    def _now(self) -> float | None:
        """The time for claims: an injected one, else the database's own."""
        return None if self.clock == self._own_clock and self.database.now != "?" else self.clock()

    def _claim(self, connection: Connection, stream: int) -> bool:
        if stream in self.claimed:
            return False
        self._catch_up(connection, stream)
        me, now = self.database.this_process(), self._now()
        # Usually nobody has it, and this statement is all.
        claimed = connection.execute(
            f"UPDATE streams SET holder = ?, expires = {self.database.now} + ? WHERE id = "
            f"(SELECT id FROM streams WHERE id = ? AND holder = ''{self.database.skip_locked})",
            (me, now, LEASE_SECONDS, stream),
        )
        if claimed.rowcount > 0:
            return True
        # A row that somebody else has locked is being claimed, or gets a write: look again later.
        row = connection.execute(
            f"SELECT holder, expires - {self.database.now} FROM streams WHERE id = ?"
            + self.database.skip_locked,
            (now, stream),
        ).fetchone()
        if row is None:
            return False
        holder, left = row
        if holder != me and self._is_held(holder, left):
            return False
        connection.execute(
            f"UPDATE streams SET holder = ?, expires = {self.database.now} + ? WHERE id = ?",
            (me, now, LEASE_SECONDS, stream),
        )
        if not holder:
            return True
        # Whoever had it did not release it: another process that ended, or a session of this one
        # that ended while the file could not be changed. It may have delivered some of these. A
        # higher attempt number lets the provider check for that.
        connection.execute(
            "UPDATE writes SET attempts = attempts + 1 "
            "WHERE stream = ? AND state IN ('waiting', 'aside')",
            (stream,),
        )
        if holder != me:
            connection.execute(
                "UPDATE writes SET error = ? WHERE error = '' AND id = "
                "(SELECT min(id) FROM writes WHERE stream = ? AND state = 'waiting')",
                (_PROCESS_ENDED, stream),
            )
        return True

    def is_claimed_elsewhere(self, stream: Stream) -> bool:
        """Whether another running process delivers a stream."""
        return stream.holder != self.database.this_process() and self.is_held(stream)

    def is_held(self, stream: Stream) -> bool:
        """Whether a running process delivers a stream."""
        return self._is_held(stream.holder, stream.expires - self.clock())

    def _is_held(self, holder: str, left: float) -> bool:
        if not holder or left <= 0 or not self.database.is_alive(holder):
            return False
        # A claim that ends later than any can was made before the clock went back. A process of
        # this machine renews it in a moment; one of another machine may be gone.
        ours = machine_of(holder) == machine_of(self.database.this_process())
        return ours or left <= 2 * LEASE_SECONDS

    def keep_claim(self, stream: int) -> bool:
        """Renew the claim of one stream; False if another process has it now.

        That happens to a process that was suspended for longer than its claim.
        """
        me = self.database.this_process()
        values = (me, self._now(), LEASE_SECONDS, stream, me)
        return self.database.change(
            lambda connection: (
                connection.execute(
                    f"UPDATE streams SET holder = ?, expires = {self.database.now} + ? "
                    "WHERE id = ? AND holder IN ('', ?)",
                    values,
                ).rowcount
                > 0
            )
        )

    def renew_claims(self) -> None:
        """Renew the claims of this process."""
        now, me = self._now(), self.database.this_process()
        # A copy, since other threads claim and release meanwhile. Each row names the holder: after
        # a suspension, another process may have the stream.
        rows = [(now, LEASE_SECONDS, stream, me) for stream in list(self.claimed)]
        if not rows:
            return
        self.database.change(
            lambda connection: connection.executemany(
                f"UPDATE streams SET expires = {self.database.now} + ? WHERE id = ? AND holder = ?",
                rows,
            )
        )

    # -- delivering -----------------------------------------------------------------------

    def next_waiting(
        self,
        stream: int,
        after: int = 0,
        *,
        turns: bool | None = None,
        passing: FailureLimits = NO_LIMITS,
    ) -> Write | None:
        """Return the oldest waiting write of a stream.

        Args:
            stream: The stream.
            after: Only writes with a higher number.
            turns: True: only turns. False: only other writes with no waiting turn before them.
            passing: Which turns other writes don't wait for: those that are suspect by this.
        """
        kind, values = _kind(passing, turns=turns)
        return self._first(
            f"WHERE stream = ? AND state = 'waiting' AND id > ?{kind} ORDER BY id LIMIT 1",
            (stream, after, *values),
        )

    def next_behind(
        self,
        suspect: Write,
        limits: FailureLimits,
        *,
        turns: bool,
        passing: FailureLimits = NO_LIMITS,
    ) -> Write | None:
        """Return the waiting write to try in place of a suspect.

        That is the oldest behind it that is not suspect itself. After a long outage there may be
        none. Then it is the one with the fewest attempts, so that each has its turn: if all of
        them waited for the suspect, a single bad write would hold them up for ever.
        """
        kind, values = _kind(passing, turns=turns)
        return self._first(
            f"WHERE stream = ? AND state = 'waiting' AND id > ?{kind} "
            "ORDER BY CASE WHEN faults < ? AND attempts < ? THEN 0 ELSE attempts END, id LIMIT 1",
            (suspect.stream, suspect.id, *values, *limits),
        )

    def next_skipped(self, stream: int, *, turns: bool) -> Write | None:
        """Return a skipped write that is due again."""
        # Each has its own time, and their order is lost anyway: a skipped write waits for no other.
        return self._first(
            "WHERE stream = ? AND state = 'aside' AND due <= ? AND (hook = ?) = ? "
            "ORDER BY id LIMIT 1",
            (stream, self.clock(), TURN, turns),
        )

    def _first(self, which: str, values: tuple[object, ...]) -> Write | None:
        row = self.database.read(
            lambda connection: connection.execute(f"{_WRITE} {which}", values).fetchone()
        )
        return None if row is None else Write._make(row)._replace(state=WriteState(row[9]))

    def remove_delivered(self, stream: int, done: Sequence[Write], *, release: bool) -> str:
        """Remove delivered writes; return the hook of the next waiting one, "" if none waits.

        With ``release``, the claim ends in the same transaction if nothing waits. If the file
        can't be changed, the writes are remembered and removed later.
        """

        def work(connection: Connection) -> str:
            self._catch_up(connection, stream)
            if release and self._release(connection, stream, if_delivered=True):
                return ""
            return _first_waiting(connection, stream)

        with self.lock:
            self._unrecorded[stream].delivered.extend(done)
            first = self.database.change(work)
            del self._unrecorded[stream]
            if release and not first:
                self.claimed.discard(stream)
        return first

    def mark_failed(
        self,
        write: Write,
        error: str,
        due: float,
        *,
        permanently: bool = False,
        own_fault: bool = False,
    ) -> None:
        """Record that an attempt failed.

        Args:
            write: The write.
            error: Why, in one line.
            due: When to retry it.
            permanently: Don't retry it.
            own_fault: Whether the error may be about this write alone.
        """

        def work(connection: Connection) -> None:
            # The state in the file, not the one in `write`: a person may have changed it while
            # the attempt was under way (`outbox retry`).
            connection.execute(
                "UPDATE writes SET attempts = attempts + 1, faults = faults + ?, error = ?, "
                "state = CASE WHEN ? THEN 'dead' ELSE state END, due = ?, "
                "failing_since = coalesce(failing_since, ?) WHERE id = ? AND event_id = ?",
                (int(own_fault), error, permanently, due, self.clock(), write.id, write.event_id),
            )

        with self.lock:
            try:
                self.database.change(work)
            except DatabaseError:
                self._unrecorded[write.stream].failed.append(write)
                raise

    def skip(self, write: Write, due: float, faults: int = 0) -> None:
        """Let the writes behind one that keeps failing go first, and retry it at ``due``.

        It counts as one that failed by its own fault at least so often, whatever its errors said.
        """
        self.database.change(
            lambda connection: connection.execute(
                "UPDATE writes SET state = ?, due = ?, "
                "faults = CASE WHEN faults < ? THEN ? ELSE faults END "
                "WHERE id = ? AND event_id = ?",
                (WriteState.SKIPPED, due, faults, faults, write.id, write.event_id),
            )
        )

    def postpone(self, write: Write, due: float, why: str = "") -> None:
        """Retry a write at ``due`` without counting a failure."""
        self.database.change(
            lambda connection: connection.execute(
                "UPDATE writes SET due = ?, error = coalesce(nullif(?, ''), error) "
                "WHERE id = ? AND event_id = ?",
                (due, why, write.id, write.event_id),
            )
        )

    def explain(self, write: Write, why: str) -> None:
        """Record why a write waits, unless an earlier failure says more."""
        self.database.change(
            lambda connection: connection.execute(
                "UPDATE writes SET error = ? WHERE id = ? AND event_id = ? AND error = ''",
                (why, write.id, write.event_id),
            )
        )

    def release(self, stream: int) -> None:
        """End the claim of a stream."""

        def work(connection: Connection) -> None:
            # In one transaction: as long as a delivered write is in the file, so is our claim.
            # If we die, whoever claims the stream then knows that its writes may have arrived.
            self._catch_up(connection, stream)
            self._release(connection, stream)

        with self.lock:
            self.claimed.discard(stream)  # if the file can't be changed, the claim expires
            self.database.change(work)
            self._unrecorded.pop(stream, None)

    def _catch_up(self, connection: Connection, stream: int) -> None:
        """Record what could not be recorded when it happened."""
        if stream in self._unrecorded:
            _delete(connection, self._unrecorded[stream].delivered)
            connection.executemany(
                "UPDATE writes SET attempts = attempts + 1 WHERE id = ? AND event_id = ?",
                [(each.id, each.event_id) for each in self._unrecorded[stream].failed],
            )

    def _release(self, connection: Connection, stream: int, *, if_delivered: bool = False) -> bool:
        """End our claim of a stream, perhaps only if nothing waits in it; whether that was done."""
        released = connection.execute(
            "UPDATE streams SET holder = '', expires = 0 WHERE id = ? AND holder = ?"
            + (_NOTHING_WAITS if if_delivered else ""),
            (stream, self.database.this_process()),
        )
        return released.rowcount > 0

    def reset_after_fork(self) -> None:
        """Forget the claims of the parent, and what it has delivered: it removes that itself."""
        self.claimed.clear()
        self._unrecorded.clear()

    def make_due(self, streams: Iterable[int] | None = None) -> None:
        """Make waiting writes due now: those of these streams, or all."""

        def work(connection: Connection) -> None:
            own = self.database.of_home("writes")
            which = f"UPDATE writes SET due = 0 WHERE {own} AND state = 'waiting' AND due > 0"
            if streams is None:
                connection.execute(which)
            else:
                rows = [(each,) for each in streams]
                connection.executemany(f"{which} AND stream = ?", rows)

        self.database.change(work)

    def correct_times(self, *, latest: float) -> None:
        """Forget times that only a clock that went back can explain: nobody would wait for them.

        Args:
            latest: When a write can be due at most.
        """
        own = self.database.of_home("writes")

        def work(connection: Connection) -> None:
            now = self.clock()  # here: while this waited for the file, a write may have failed
            connection.execute(f"UPDATE writes SET due = 0 WHERE {own} AND due > ?", (latest,))
            connection.execute(
                f"UPDATE writes SET failing_since = ? WHERE {own} AND failing_since > ?",
                (now, now),
            )

        if self.database.exists:
            self.database.change(work)

    def compact(self) -> bool:
        """Remove empty streams, and return some of the free space.

        Returns:
            Whether there is more free space.
        """

        def work(connection: Connection) -> bool:
            own = self.database.of_home("streams")
            query = f"SELECT DISTINCT provider, owner FROM streams WHERE {own}"
            for provider, owner in connection.execute(query).fetchall():
                self.database.add_stream(connection, StreamKey(provider, owner, "", USED))
            return self.database.compact(connection)

        return self.database.exists and self.database.change(work)

    # -- reading --------------------------------------------------------------------------

    def waiting_streams(self) -> list[Stream]:
        """Return the streams in which a write waits, the oldest first."""
        return [each for each in self.open_streams() if each.writes]

    def open_streams(self, only: int | None = None) -> list[Stream]:
        """The streams with waiting writes, the oldest first; then those with skipped ones.

        Args:
            only: Look at this one alone.
        """
        own = self.database.of_home("writes")
        if only is not None:
            own += f" AND stream = {only:d}"

        return self.database.read(lambda connection: open_streams(connection, own))

    def count(self, stream: int) -> int:
        """Return how many writes of a stream wait."""
        row = self.database.read(
            lambda connection: connection.execute(
                "SELECT count(*) FROM writes WHERE stream = ? AND state = 'waiting'", (stream,)
            ).fetchone()
        )
        return int(row[0])

    def close(self) -> None:
        """Close the database; the next use opens it again."""
        self.database.close()


def _kind(passing: FailureLimits, *, turns: bool | None) -> tuple[str, tuple[int, ...]]:
    """The condition for one kind of writes, and its values."""
    if turns is None:
        return "", ()
    return (f" AND {_TURNS}", ()) if turns else (f" AND {_OTHERS}", passing)


def _delete(connection: Connection, writes: Sequence[Write]) -> None:
    # In a new file, created after damage, the number may belong to another write.
    rows = [(each.id, each.event_id) for each in writes]
    connection.executemany("DELETE FROM writes WHERE id = ? AND event_id = ?", rows)


def _first_waiting(connection: Connection, stream: int) -> str:
    found = connection.execute(
        "SELECT hook FROM writes WHERE stream = ? AND state = 'waiting' ORDER BY id LIMIT 1",
        (stream,),
    ).fetchone()
    return str(found[0]) if found else ""


def open_store(
    home: Path,
    *,
    max_mb: float = DEFAULT_MAX_MB,
    durable: bool = False,
    set_aside: bool = True,
    database: Database | None = None,
) -> OutboxStore:
    """Return the store of a home.

    Args:
        home: The home.
        max_mb: How large it may grow.
        durable: Whether a write survives a power cut, too.
        set_aside: Whether a damaged file is renamed and replaced.
        database: Where the home stores what it remembers; None for files.
    """
    size = int(max_mb * 1_000_000)
    if database is None:
        file = OutboxFile(home / "outbox.db", durable=durable, set_aside=set_aside)
        return OutboxStore(file, max_bytes=size)
    from hermes_core.outbox.postgres import PostgresOutbox  # noqa: PLC0415 - imports psycopg

    return OutboxStore(PostgresOutbox(database), max_bytes=size)
