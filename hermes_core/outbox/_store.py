"""What is done with the rows of outbox.db. Knows SQL, and nothing of providers."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from hermes_core.errors import HermesError
from hermes_core.outbox._file import OutboxFile
from hermes_core.outbox._layout import DEAD, MISSED, WAITING, Origin, Stream, Write
from hermes_core.processes import is_alive, this_process

#: How long a process that does not renew its claim keeps others away.
LEASE_SECONDS: Final = 300.0

_VACUUM_PAGES: Final = 64
#: Notes and delegations are small, and no archive has them: they may use this much more.
_RESERVE: Final = 0.125
_ARCHIVED: Final = ("sync_turn", "on_session_end")

#: What a write takes of which there is no content.
_MISSED_BYTES: Final = 90
_COUNT_MISSED: Final = "SELECT count(*) FROM writes WHERE state = 'missed'"
_DESERTED: Final = "the process that delivered it ended before there was an answer"

_WRITE: Final = (
    "SELECT id, stream, event_id, hook, payload, created, attempts, failing_since, error, state "
    "FROM writes"
)


class OutboxFull(HermesError):  # noqa: N818 - reads as what happened
    """There is no room for another write."""


class OutboxStore:
    """The outbox of one home.

    Args:
        path: The file; made with the first write.
        max_bytes: How large it may grow.
        durable: Whether a write survives a power cut too.
        clock: The time, for tests.
        mends: Whether a damaged file is set aside, and a new one begun.
    """

    def __init__(
        self,
        path: Path,
        *,
        max_bytes: int,
        durable: bool = False,
        clock: Callable[[], float] = time.time,
        mends: bool = True,
    ) -> None:
        self.file = OutboxFile(path, durable=durable, mends=mends)
        self.clock = clock
        #: The streams that somebody in this process delivers: nobody else here may.
        self.held: set[int] = set()
        self._max_bytes = max_bytes
        self._room = 0

    @property
    def max_bytes(self) -> int:
        """How large the file may grow."""
        return self._max_bytes

    # -- putting in -----------------------------------------------------------------------

    def find(self, origin: Origin) -> int:
        """The number of an origin's stream; 0 if it has none yet."""
        return self.file.look(lambda database: _find(database, origin))

    def put(
        self, origin: Origin, stream: int, event: tuple[str, str, str], *, take: bool
    ) -> tuple[int, bool]:
        """Keep a write, and claim its stream with it.

        Args:
            origin: Whose it is.
            stream: The number of its stream, as far as is known.
            event: Its identity, its hook and its content.
            take: Whether the stream is to be claimed; not if it is ours already.

        Returns:
            The number of the stream, and whether it is ours now.

        Raises:
            OutboxFull: There is no room. That there was such a write is kept.
        """
        now = self.clock()
        event_id, hook, payload = event

        def work(database: sqlite3.Connection) -> tuple[int, bool, bool]:
            # Somebody may have tidied an empty stream away, or set the whole file aside.
            found = _exists(database, stream, origin)
            number = stream if found else _stream(database, origin)
            claim = take or (not found and stream in self.held)
            self.held -= {stream} if not found else set()
            fits = self._has_room(database, hook, len(payload))
            state, kept = (WAITING, payload) if fits else (MISSED, "")
            database.execute(
                "INSERT INTO writes (stream, event_id, hook, payload, created, state) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (number, event_id, hook, kept, now, state),
            )
            claimed = fits and claim and self._claim(database, number, now)
            return number, claimed, fits

        number, claimed, fits = self.file.change(work)
        if claimed:
            self.held.add(number)
        if not fits:
            raise OutboxFull(
                f"the outbox is full ({self._max_bytes / 1e6:g} MB): this write is not queued",
                where=str(self.file.path),
                hint="when the backend works again, run: hermes-plugins outbox backfill",
            )
        return number, claimed

    def _has_room(self, database: sqlite3.Connection, hook: str, size: int) -> bool:
        """Whether a write fits; the file is measured only when it may have become too large."""
        self._room -= size + 256
        if self._room <= 0:
            # Others write too, so what is left is not all ours.
            left = self._max_bytes - used(database) - size
            self._room = int(min(left, self._max_bytes / 16))
        reserve = 0 if hook in _ARCHIVED else self._max_bytes * _RESERVE
        return self._room + reserve > 0

    # -- claiming -------------------------------------------------------------------------

    def take(self, stream: int) -> bool:
        """Claim a stream; False if somebody here or another process that runs has it."""
        now = self.clock()
        with self.file.lock:
            claimed = self.file.change(lambda database: self._claim(database, stream, now))
            if claimed:
                self.held.add(stream)
        return claimed

    def _claim(self, database: sqlite3.Connection, stream: int, now: float) -> bool:
        if stream in self.held:
            return False
        me = this_process()
        claimed = database.execute(
            "UPDATE streams SET holder = ?, expires = ? WHERE id = ? AND holder IN ('', ?)",
            (me, now + LEASE_SECONDS, stream, me),
        ).rowcount
        if claimed:
            return True
        row = database.execute("SELECT holder, expires FROM streams WHERE id = ?", (stream,))
        holder, expires = row.fetchone() or ("", 0)
        if expires > now and is_alive(holder):
            return False
        database.execute(
            "UPDATE streams SET holder = ?, expires = ? WHERE id = ?",
            (me, now + LEASE_SECONDS, stream),
        )
        # Whoever had it may have delivered some of these: whoever gets them shall look.
        database.execute(
            "UPDATE writes SET attempts = attempts + 1 WHERE stream = ? AND state = 'waiting'",
            (stream,),
        )
        database.execute(
            "UPDATE writes SET error = ? WHERE error = '' AND id = "
            "(SELECT min(id) FROM writes WHERE stream = ? AND state = 'waiting')",
            (_DESERTED, stream),
        )
        return True

    def keeps(self, stream: int) -> bool:
        """Go on holding a stream that we claimed; False if it was taken from us since.

        A process that was stopped may wake up when others have given it up.
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

    def renew(self) -> None:
        """Go on holding what we hold."""
        expires = self.clock() + LEASE_SECONDS
        rows = [(expires, stream, this_process()) for stream in list(self.held)]
        if not rows:
            return
        self.file.change(
            lambda database: database.executemany(
                "UPDATE streams SET expires = ? WHERE id = ? AND holder = ?", rows
            )
        )

    # -- taking out -----------------------------------------------------------------------

    def next(self, stream: int, after: int = 0) -> Write | None:
        """The oldest write of a stream that waits, behind number ``after``."""
        row = self.file.look(
            lambda database: database.execute(
                f"{_WRITE} WHERE stream = ? AND state = 'waiting' AND id > ? ORDER BY id LIMIT 1",
                (stream, after),
            ).fetchone()
        )
        return None if row is None else Write(*row)

    def settle(self, stream: int, done: Sequence[Write], when_empty: Callable[[], None]) -> bool:
        """Remove what was delivered. An empty stream is let go; whether it was empty.

        ``when_empty`` is called before anybody else can put something in.
        """

        def work(database: sqlite3.Connection) -> bool:
            _delete(database, done)
            empty = not _has_waiting(database, stream)
            if empty:
                _release(database, stream)
            return empty

        with self.file.lock:
            empty = self.file.change(work)
            if empty:
                self.held.discard(stream)
                when_empty()
        return empty

    def failed(self, write: Write, error: str, due: float, *, dead: bool) -> None:
        """Note that a write was not taken."""

        def work(database: sqlite3.Connection) -> None:
            database.execute(
                "UPDATE writes SET attempts = attempts + 1, error = ?, state = ?, "
                "failing_since = coalesce(failing_since, ?) WHERE id = ? AND event_id = ?",
                (error, DEAD if dead else WAITING, self.clock(), write.id, write.event_id),
            )
            if not dead:
                database.execute("UPDATE streams SET due = ? WHERE id = ?", (due, write.stream))

        self.file.change(work)

    def postpone(self, stream: int, due: float) -> None:
        """Leave a stream alone until then."""
        self.file.change(
            lambda database: database.execute(
                "UPDATE streams SET due = ? WHERE id = ?", (due, stream)
            )
        )

    def note(self, stream: int, why: str) -> None:
        """Say why the next write of a stream waits, where that is no failure of its own."""
        self.file.change(
            lambda database: database.execute(
                "UPDATE writes SET error = ? WHERE id = "
                "(SELECT min(id) FROM writes WHERE stream = ? AND state = 'waiting')",
                (why, stream),
            )
        )

    def release(self, stream: int, done: Sequence[Write] = ()) -> None:
        """Let a stream go, whatever is in it."""

        def work(database: sqlite3.Connection) -> None:
            _delete(database, done)
            _release(database, stream)

        with self.file.lock:
            self.held.discard(stream)  # if the file can't be changed, the claim runs out
            self.file.change(work)

    def hurry(self, streams: Iterable[int] | None = None) -> None:
        """Try at once what waits for its time: these streams, or all."""

        def work(database: sqlite3.Connection) -> None:
            if streams is None:
                database.execute("UPDATE streams SET due = 0")
            else:
                rows = [(each,) for each in streams]
                database.executemany("UPDATE streams SET due = 0 WHERE id = ? AND due > 0", rows)

        self.file.change(work)

    def tidy(self) -> bool:
        """Forget streams that are empty, and give back some of what deleted writes took.

        Returns:
            Whether there is more to give back.
        """
        if not self.file.path.exists():
            return False

        def work(database: sqlite3.Connection) -> bool:
            database.execute(
                "DELETE FROM streams WHERE holder = '' "
                "AND NOT EXISTS (SELECT 1 FROM writes WHERE stream = streams.id)"
            )
            free = int(database.execute("PRAGMA freelist_count").fetchone()[0])
            # It gives one page for each step, and Python makes one step only.
            for _ in range(min(free, _VACUUM_PAGES)):
                database.execute("PRAGMA incremental_vacuum(1)")
            return free > _VACUUM_PAGES

        return self.file.change(work)

    # -- looking --------------------------------------------------------------------------

    def waiting(self) -> list[Stream]:
        """The streams in which something waits, the oldest first."""
        rows = self.file.look(
            lambda database: database.execute(
                "SELECT streams.id, provider, owner, session, keywords, holder, expires, due, "
                "count(*), min(created) FROM writes JOIN streams ON streams.id = stream "
                "WHERE state = 'waiting' GROUP BY streams.id ORDER BY min(writes.id)"
            ).fetchall()
        )
        return [
            Stream(number, Origin(*origin), *rest)
            for number, *origin, holder, expires, due, count, oldest in rows
            for rest in [(holder, expires, due, count, oldest)]
        ]

    def count(self, stream: int) -> int:
        """How many writes of a stream wait."""
        row = self.file.look(
            lambda database: database.execute(
                "SELECT count(*) FROM writes WHERE stream = ? AND state = 'waiting'", (stream,)
            ).fetchone()
        )
        return int(row[0])

    def close(self) -> None:
        """Let go of the file."""
        self.file.close()


def used(database: sqlite3.Connection) -> int:
    """How much of the file is in use, but for what only says that there was no room.

    Else that alone could fill it, and there would never be room again.
    """
    pages, free, size = (
        int(database.execute(f"PRAGMA {name}").fetchone()[0])
        for name in ("page_count", "freelist_count", "page_size")
    )
    missed = int(database.execute(_COUNT_MISSED).fetchone()[0])
    return max((pages - free) * size - missed * _MISSED_BYTES, 0)


def _stream(database: sqlite3.Connection, origin: Origin) -> int:
    database.execute(
        "INSERT OR IGNORE INTO streams (provider, owner, session, keywords) VALUES (?, ?, ?, ?)",
        origin,
    )
    return _find(database, origin)


def _find(database: sqlite3.Connection, origin: Origin) -> int:
    found = database.execute(
        "SELECT id FROM streams WHERE provider = ? AND owner = ? AND session = ? AND keywords = ?",
        origin,
    ).fetchone()
    return int(found[0]) if found else 0


def _exists(database: sqlite3.Connection, stream: int, origin: Origin) -> bool:
    found = database.execute(
        "SELECT provider, owner, session, keywords FROM streams WHERE id = ?", (stream,)
    ).fetchone()
    return bool(found == origin)  # in a new file the number may be another's


def _delete(database: sqlite3.Connection, writes: Sequence[Write]) -> None:
    # In a new file, begun after damage, the number may be another write's.
    rows = [(each.id, each.event_id) for each in writes]
    database.executemany("DELETE FROM writes WHERE id = ? AND event_id = ?", rows)


def _has_waiting(database: sqlite3.Connection, stream: int) -> bool:
    found = database.execute(
        "SELECT 1 FROM writes WHERE stream = ? AND state = 'waiting' LIMIT 1", (stream,)
    )
    return found.fetchone() is not None


def _release(database: sqlite3.Connection, stream: int) -> None:
    database.execute(
        "UPDATE streams SET holder = '', expires = 0 WHERE id = ? AND holder = ?",
        (stream, this_process()),
    )
