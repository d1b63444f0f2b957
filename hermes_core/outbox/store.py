"""Everything that reads or changes outbox.db. Knows no provider."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import time
from typing import Final, NamedTuple

from hermes_core.errors import DatabaseError, HermesError
from hermes_core.outbox.records import (
    NO_LIMITS,
    OUTBOX,
    TURN,
    Limits,
    Stream,
    StreamKey,
    Write,
    WriteState,
)
from hermes_core.storage.logger import logger
from hermes_core.storage.processes import is_alive, machine_of, this_process
from hermes_core.storage.sqlite import SqliteFile

#: How long the claim of a process that does not renew it is respected. The worker renews it every
#: 15 seconds, so only a process that was suspended, or another machine's, loses it by time. One of
#: this machine that ended is known to be gone at once.
LEASE_SECONDS: Final = 300.0

# Little at a time, since it happens while a person talks with the agent.
_VACUUM_PAGES: Final = 64
# Four times SQLite's own: a checkpoint happens within somebody's commit, and a turn waits for it.
_CHECKPOINT_PAGES: Final = 4000
_BACKFILL: Final = "run: hermes-plugins outbox backfill --since WHEN"
_DAMAGE_HINT: Final = "the next agent sets it aside, or run: hermes-plugins outbox retry"
#: Notes and delegations are small and in no archive, so they may use this much more room.
_RESERVE: Final = 0.125
_ARCHIVED: Final = ("sync_turn", "on_session_end")

#: The size of a row without content.
_MISSED_BYTES: Final = 90
_COUNT_MISSED: Final = "SELECT count(*) FROM writes WHERE state = 'missed'"
_PROCESS_ENDED: Final = "the process that delivered it ended before there was an answer"

_WRITE: Final = (
    "SELECT id, stream, event_id, hook, payload, created, attempts, failing_since, error, state, "
    "due, faults FROM writes"
)

#: The two kinds of writes: turns, and everything else, which comes after the turns before it. It
#: may pass turns that failed so often, by their own fault or at all: see `Limits`.
_TURNS: Final = "hook = 'sync_turn'"
_OTHERS: Final = (
    "hook != 'sync_turn' AND NOT EXISTS (SELECT 1 FROM writes AS earlier WHERE "
    "earlier.stream = writes.stream AND earlier.state = 'waiting' AND earlier.id < writes.id "
    "AND earlier.hook = 'sync_turn' AND earlier.faults < ? AND earlier.attempts < ?)"
)
#: The first waiting write of each kind, for each stream. Only these decide when the stream is due:
#: what is behind them waits for them, whatever its own time is.
_HEADS: Final = (
    "SELECT heads.stream, is_turn, first, due, waiting, oldest FROM ("
    "SELECT stream, hook = 'sync_turn' AS is_turn, min(id) AS first, count(*) AS waiting, "
    "min(created) AS oldest FROM writes WHERE state = 'waiting' GROUP BY 1, 2"
    ") AS heads JOIN writes ON writes.id = first"
)
_SKIPPED_HEADS: Final = "SELECT stream, min(due) FROM writes WHERE state = 'aside' GROUP BY 1"


class _Head(NamedTuple):
    """The first waiting write of one kind in a stream, and how many there are."""

    stream: int
    is_turn: int
    id: int
    due: float
    writes: int
    oldest: float


@dataclass(slots=True)
class _Unrecorded:
    """Writes of a stream that were tried while the file could not be changed."""

    delivered: list[Write] = field(default_factory=list)
    failed: list[Write] = field(default_factory=list)


class OutboxFull(HermesError):  # noqa: N818 - reads as what happened
    """There is no room for another write."""


class OutboxStore:
    """Stores writes, and remembers who delivers them.

    Args:
        path: The file; created with the first write.
        max_bytes: How large it may grow.
        durable: Whether a write survives a power cut, too.
        clock: Returns the time.
        set_aside: Whether a damaged file is renamed, and a new one created; otherwise damage is
            an error.
    """

    def __init__(
        self,
        path: Path,
        *,
        max_bytes: int,
        durable: bool = False,
        clock: Callable[[], float] = time,
        set_aside: bool = True,
    ) -> None:
        # One connection, and one lock, for reading and writing: `OrderedDelivery` relies on it that
        # nothing is stored between its last look and the end of its round.
        self.file = SqliteFile(
            path,
            OUTBOX,
            durable=durable,
            pragmas={"wal_autocheckpoint": _CHECKPOINT_PAGES},
            set_aside=set_aside,
            damage_hint=_DAMAGE_HINT,
            on_new_file=self._note_new_file,
        )
        #: What happened to the file, as a warning for people; "" if nothing did.
        self.problem = ""
        self.clock = clock
        #: The streams that this process has claimed, each for one `StreamDelivery`. The claim in
        #: the file names only the process, so it does not separate two managers in one process.
        self.claimed: set[int] = set()
        #: What happened while the file could not be changed, by stream. It is recorded together
        #: with the next change of the stream's claim, so that nobody can claim the stream and
        #: find the writes as they were before.
        self._unrecorded: defaultdict[int, _Unrecorded] = defaultdict(_Unrecorded)
        self._max_bytes = max_bytes
        self._room = 0

    @property
    def max_bytes(self) -> int:
        """How large the file may grow."""
        return self._max_bytes

    def _note_new_file(self, damaged: str) -> None:
        name = self.file.path.name
        what = (
            f"{name} was damaged and is set aside as {damaged}"
            if damaged
            else f"{name} was moved or removed while it was in use"
        )
        self.problem = f"{what}; writes that waited in it were not delivered ({_BACKFILL})"
        logger.error("memory: %s", self.problem)

    # -- storing --------------------------------------------------------------------------

    def find_stream(self, key: StreamKey) -> int:
        """Return the number of a stream; 0 if it does not exist yet."""
        return self.file.read(lambda database: _find(database, key))

    def put(
        self, key: StreamKey, stream: int, event: tuple[str, str, str], *, claim: bool
    ) -> tuple[int, bool]:
        """Store a write, and claim its stream in the same transaction.

        Args:
            key: The stream that it belongs to.
            stream: The number of that stream; 0 if not known.
            event: Its event id, its hook and its content.
            claim: Whether to claim the stream; not if it is claimed already.

        Returns:
            The number of the stream, and whether it was claimed.

        Raises:
            OutboxFull: There is no room. The write is stored without its content.
        """
        now = self.clock()
        event_id, hook, payload = event

        def work(database: sqlite3.Connection) -> tuple[int, bool, bool]:
            # Another process may have removed an empty stream, or set the whole file aside.
            found = _exists(database, stream, key)
            number = stream if found else _stream(database, key)
            wanted = claim or (not found and stream in self.claimed)
            self.claimed -= {stream} if not found else set()
            # Without room, the row is stored all the same: `backfill` finds its turn by it.
            fits = self._has_room(database, hook, len(payload))
            state, kept = (WriteState.WAITING, payload) if fits else (WriteState.MISSED, "")
            database.execute(
                "INSERT INTO writes (stream, event_id, hook, payload, created, state) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (number, event_id, hook, kept, now, state),
            )
            claimed = fits and wanted and self._claim(database, number, now)
            return number, claimed, fits

        number, claimed, fits = self.file.change(work)
        if claimed:
            self._note_claim(number)
        if not fits:
            raise OutboxFull(
                f"the outbox is full ({self._max_bytes / 1e6:g} MB): this write is not queued",
                where=str(self.file.path),
                hint="when the service works again, run: hermes-plugins outbox backfill",
            )
        return number, claimed

    def _has_room(self, database: sqlite3.Connection, hook: str, size: int) -> bool:
        """Whether a write fits."""
        # The file is measured only when it may have become too large: that takes three queries.
        self._room -= size + 256
        if self._room <= 0:
            # Other processes write, too, so use a part of what is left before measuring again.
            left = self._max_bytes - used_bytes(database) - size
            self._room = int(min(left, self._max_bytes / 16))
        reserve = 0 if hook in _ARCHIVED else self._max_bytes * _RESERVE
        return self._room + reserve > 0

    # -- claiming -------------------------------------------------------------------------

    def claim(self, stream: int) -> bool:
        """Claim a stream; False if this process or another one that runs has it already."""
        now = self.clock()
        with self.file.lock:
            claimed = self.file.change(lambda database: self._claim(database, stream, now))
            if claimed:
                self._note_claim(stream)
        return claimed

    def _note_claim(self, stream: int) -> None:
        self.claimed.add(stream)
        self._unrecorded.pop(stream, None)

    def _claim(self, database: sqlite3.Connection, stream: int, now: float) -> bool:
        if stream in self.claimed:
            return False
        self._catch_up(database, stream)
        me = this_process()
        row = database.execute("SELECT holder, expires FROM streams WHERE id = ?", (stream,))
        holder, expires = row.fetchone() or ("", 0)
        if _is_held(holder, expires, now):
            return False
        database.execute(
            "UPDATE streams SET holder = ?, expires = ? WHERE id = ?",
            (me, now + LEASE_SECONDS, stream),
        )
        if not holder:
            return True
        # Whoever had it did not release it: another process that ended, or a session of this one
        # that ended while the file could not be changed. It may have delivered some of these. A
        # higher attempt number lets the provider check for that.
        database.execute(
            "UPDATE writes SET attempts = attempts + 1 "
            "WHERE stream = ? AND state IN ('waiting', 'aside')",
            (stream,),
        )
        if holder != me:
            database.execute(
                "UPDATE writes SET error = ? WHERE error = '' AND id = "
                "(SELECT min(id) FROM writes WHERE stream = ? AND state = 'waiting')",
                (_PROCESS_ENDED, stream),
            )
        return True

    def is_claimed_elsewhere(self, stream: Stream) -> bool:
        """Whether another running process delivers a stream."""
        return _is_held(stream.holder, stream.expires, self.clock())

    def keep_claim(self, stream: int) -> bool:
        """Renew the claim of one stream; False if another process has it now.

        That happens to a process that was suspended for longer than its claim.
        """
        me = this_process()
        expires = self.clock() + LEASE_SECONDS
        return self.file.change(
            lambda database: (
                database.execute(
                    "UPDATE streams SET holder = ?, expires = ? WHERE id = ? AND holder IN ('', ?)",
                    (me, expires, stream, me),
                ).rowcount
                > 0
            )
        )

    def renew_claims(self) -> None:
        """Renew the claims of this process."""
        expires = self.clock() + LEASE_SECONDS
        # A copy, since other threads claim and release meanwhile. Each row names the holder: after
        # a suspension, another process may have the stream.
        rows = [(expires, stream, this_process()) for stream in list(self.claimed)]
        if not rows:
            return
        self.file.change(
            lambda database: database.executemany(
                "UPDATE streams SET expires = ? WHERE id = ? AND holder = ?", rows
            )
        )

    # -- delivering -----------------------------------------------------------------------

    def next_waiting(
        self,
        stream: int,
        after: int = 0,
        *,
        turns: bool | None = None,
        passing: Limits = NO_LIMITS,
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
        self, suspect: Write, limits: Limits, *, turns: bool, passing: Limits = NO_LIMITS
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
        row = self.file.read(
            lambda database: database.execute(f"{_WRITE} {which}", values).fetchone()
        )
        return None if row is None else Write._make(row)._replace(state=WriteState(row[9]))

    def remove_delivered(self, stream: int, done: Sequence[Write], *, release: bool) -> str:
        """Remove delivered writes; return the hook of the next waiting one, "" if none waits.

        With ``release``, the claim ends in the same transaction if nothing waits. If the file
        can't be changed, the writes are remembered and removed later.
        """

        def work(database: sqlite3.Connection) -> str:
            self._catch_up(database, stream)
            first = _first_waiting(database, stream)
            if release and not first:
                _release(database, stream)
            return first

        with self.file.lock:
            self._unrecorded[stream].delivered.extend(done)
            first = self.file.change(work)
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

        def work(database: sqlite3.Connection) -> None:
            # The state in the file, not the one in `write`: a person may have changed it while
            # the attempt was under way (`outbox retry`).
            database.execute(
                "UPDATE writes SET attempts = attempts + 1, faults = faults + ?, error = ?, "
                "state = CASE WHEN ? THEN 'dead' ELSE state END, due = ?, "
                "failing_since = coalesce(failing_since, ?) WHERE id = ? AND event_id = ?",
                (own_fault, error, permanently, due, self.clock(), write.id, write.event_id),
            )

        with self.file.lock:
            try:
                self.file.change(work)
            except DatabaseError:
                self._unrecorded[write.stream].failed.append(write)
                raise

    def skip(self, write: Write, due: float, faults: int = 0) -> None:
        """Let the writes behind one that keeps failing go first, and retry it at ``due``.

        It counts as one that failed by its own fault at least so often, whatever its errors said.
        """
        self.file.change(
            lambda database: database.execute(
                "UPDATE writes SET state = ?, due = ?, faults = max(faults, ?) "
                "WHERE id = ? AND event_id = ?",
                (WriteState.SKIPPED, due, faults, write.id, write.event_id),
            )
        )

    def postpone(self, write: Write, due: float, why: str = "") -> None:
        """Retry a write at ``due`` without counting a failure."""
        self.file.change(
            lambda database: database.execute(
                "UPDATE writes SET due = ?, error = coalesce(nullif(?, ''), error) "
                "WHERE id = ? AND event_id = ?",
                (due, why, write.id, write.event_id),
            )
        )

    def explain(self, write: Write, why: str) -> None:
        """Record why a write waits, unless an earlier failure says more."""
        self.file.change(
            lambda database: database.execute(
                "UPDATE writes SET error = ? WHERE id = ? AND event_id = ? AND error = ''",
                (why, write.id, write.event_id),
            )
        )

    def release(self, stream: int) -> None:
        """End the claim of a stream."""

        def work(database: sqlite3.Connection) -> None:
            # In one transaction: as long as a delivered write is in the file, so is our claim.
            # If we die, whoever claims the stream then knows that its writes may have arrived.
            self._catch_up(database, stream)
            _release(database, stream)

        with self.file.lock:
            self.claimed.discard(stream)  # if the file can't be changed, the claim expires
            self.file.change(work)
            self._unrecorded.pop(stream, None)

    def _catch_up(self, database: sqlite3.Connection, stream: int) -> None:
        """Record what could not be recorded when it happened."""
        if stream in self._unrecorded:
            _delete(database, self._unrecorded[stream].delivered)
            database.executemany(
                "UPDATE writes SET attempts = attempts + 1 WHERE id = ? AND event_id = ?",
                [(each.id, each.event_id) for each in self._unrecorded[stream].failed],
            )

    def reset_after_fork(self) -> None:
        """Forget the claims of the parent, and what it has delivered: it removes that itself."""
        self.claimed.clear()
        self._unrecorded.clear()

    def make_due(self, streams: Iterable[int] | None = None) -> None:
        """Make waiting writes due now: those of these streams, or all."""

        def work(database: sqlite3.Connection) -> None:
            which = "UPDATE writes SET due = 0 WHERE state = 'waiting' AND due > 0"
            if streams is None:
                database.execute(which)
            else:
                rows = [(each,) for each in streams]
                database.executemany(f"{which} AND stream = ?", rows)

        self.file.change(work)

    def correct_times(self, *, latest: float) -> None:
        """Forget times that only a clock that went back can explain: nobody would wait for them.

        Args:
            latest: When a write can be due at most.
        """
        now = self.clock()

        def work(database: sqlite3.Connection) -> None:
            database.execute("UPDATE writes SET due = 0 WHERE due > ?", (latest,))
            database.execute(
                "UPDATE writes SET failing_since = ? WHERE failing_since > ?", (now, now)
            )

        if self.file.path.exists():
            self.file.change(work)

    def compact(self) -> bool:
        """Remove empty streams, and return some of the free space to the file system.

        Returns:
            Whether there is more free space.
        """
        if not self.file.path.exists():
            return False

        def work(database: sqlite3.Connection) -> bool:
            # Not claimed ones: their process is about to store a write, or to find that it did.
            database.execute(
                "DELETE FROM streams WHERE holder = '' "
                "AND NOT EXISTS (SELECT 1 FROM writes WHERE stream = streams.id)"
            )
            free = int(database.execute("PRAGMA freelist_count").fetchone()[0])
            # SQLite frees one page per step of the statement, and Python makes one step only.
            for _ in range(min(free, _VACUUM_PAGES)):
                database.execute("PRAGMA incremental_vacuum(1)")
            return free > _VACUUM_PAGES

        return self.file.change(work)

    # -- reading --------------------------------------------------------------------------

    def waiting_streams(self) -> list[Stream]:
        """Return the streams in which a write waits, the oldest first."""
        return [each for each in self.open_streams() if each.writes]

    def open_streams(self) -> list[Stream]:
        """The streams with waiting writes, the oldest first; then those with skipped ones."""

        def work(database: sqlite3.Connection) -> list[Stream]:
            heads: dict[int, list[_Head]] = {}
            for row in database.execute(_HEADS):
                heads.setdefault(row[0], []).append(_Head(*row))
            found = [_stream_of(database, own) for own in sorted(heads.values(), key=_oldest)]
            for number, due in database.execute(_SKIPPED_HEADS).fetchall():
                if number not in heads:
                    nothing = _Head(number, 0, 0, due, 0, 0.0)
                    found.append(_stream_of(database, [nothing]))
            return found

        return self.file.read(work)

    def count(self, stream: int) -> int:
        """Return how many writes of a stream wait."""
        row = self.file.read(
            lambda database: database.execute(
                "SELECT count(*) FROM writes WHERE stream = ? AND state = 'waiting'", (stream,)
            ).fetchone()
        )
        return int(row[0])

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        self.file.close()


def used_bytes(database: sqlite3.Connection) -> int:
    """Return how much of the file is in use, without the rows of missed writes.

    Otherwise these alone could fill it, and there would never be room again.
    """
    pages, free, size = (
        int(database.execute(f"PRAGMA {name}").fetchone()[0])
        for name in ("page_count", "freelist_count", "page_size")
    )
    missed = int(database.execute(_COUNT_MISSED).fetchone()[0])
    return max((pages - free) * size - missed * _MISSED_BYTES, 0)


def _is_held(holder: str, expires: float, now: float) -> bool:
    """Whether another running process has a claim."""
    me = this_process()
    if holder in ("", me) or expires <= now or not is_alive(holder):
        return False
    # A claim that ends later than any can was made before the clock went back. A process of this
    # machine renews it in a moment; one of another machine may be gone.
    return machine_of(holder) == machine_of(me) or expires <= now + 2 * LEASE_SECONDS


def _kind(passing: Limits, *, turns: bool | None) -> tuple[str, tuple[int, ...]]:
    """The condition for one kind of writes, and its values."""
    if turns is None:
        return "", ()
    return (f" AND {_TURNS}", ()) if turns else (f" AND {_OTHERS}", passing)


def _stream(database: sqlite3.Connection, key: StreamKey) -> int:
    database.execute(
        "INSERT OR IGNORE INTO streams (provider, owner, session, keywords) VALUES (?, ?, ?, ?)",
        key,
    )
    return _find(database, key)


def _find(database: sqlite3.Connection, key: StreamKey) -> int:
    found = database.execute(
        "SELECT id FROM streams WHERE provider = ? AND owner = ? AND session = ? AND keywords = ?",
        key,
    ).fetchone()
    return int(found[0]) if found else 0


def _exists(database: sqlite3.Connection, stream: int, key: StreamKey) -> bool:
    found = database.execute(
        "SELECT provider, owner, session, keywords FROM streams WHERE id = ?", (stream,)
    ).fetchone()
    return bool(found == key)  # in a new file, the number may belong to another stream


def _delete(database: sqlite3.Connection, writes: Sequence[Write]) -> None:
    # In a new file, created after damage, the number may belong to another write.
    rows = [(each.id, each.event_id) for each in writes]
    database.executemany("DELETE FROM writes WHERE id = ? AND event_id = ?", rows)


def _first_waiting(database: sqlite3.Connection, stream: int) -> str:
    found = database.execute(
        "SELECT hook FROM writes WHERE stream = ? AND state = 'waiting' ORDER BY id LIMIT 1",
        (stream,),
    ).fetchone()
    return str(found[0]) if found else ""


def _oldest(heads: list[_Head]) -> int:
    return min(each.id for each in heads)


def _stream_of(database: sqlite3.Connection, heads: list[_Head]) -> Stream:
    """Build a `Stream`. What is behind a turn is not due before that turn."""
    first = min(heads, key=lambda each: each.id)
    due = first.due if first.is_turn else min(each.due for each in heads)
    provider, owner, session, keywords, holder, expires = database.execute(
        "SELECT provider, owner, session, keywords, holder, expires FROM streams WHERE id = ?",
        (first.stream,),
    ).fetchone()
    key = StreamKey(provider, owner, session, keywords)
    count = sum(each.writes for each in heads)
    oldest = min(each.oldest for each in heads)
    return Stream(first.stream, key, holder, expires, due, count, oldest)


def _release(database: sqlite3.Connection, stream: int) -> None:
    database.execute(
        "UPDATE streams SET holder = '', expires = 0 WHERE id = ? AND holder = ?",
        (stream, this_process()),
    )
