"""What a person may see of the outbox, and do to it. Functions over `OutboxStore`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from hermes_core.config import Config
from hermes_core.errors import HermesError
from hermes_core.outbox._layout import DEAD, MISSED, WAITING, Origin, Stream
from hermes_core.outbox._outbox import DEFAULT_MAX_MB
from hermes_core.outbox._store import OutboxStore, used
from hermes_core.processes import is_alive

STATES: Final = (WAITING, DEAD, MISSED)

_ENTRY: Final = (
    "SELECT writes.id, event_id, hook, state, created, attempts, failing_since, error, "
    "length(payload), stream, provider, owner, session, keywords "
    "FROM writes JOIN streams ON streams.id = stream"
)
_BACKLOGS: Final = (
    "SELECT provider, owner, sum(state = 'waiting'), sum(state = 'dead'), sum(state = 'missed'), "
    "min(created) FILTER (WHERE state = 'waiting'), "
    "min(failing_since) FILTER (WHERE state = 'waiting') "
    "FROM writes JOIN streams ON streams.id = stream "
    "GROUP BY provider, owner ORDER BY provider, owner"
)
_LAST_ERROR: Final = (
    "SELECT error FROM writes JOIN streams ON streams.id = stream "
    "WHERE provider = ? AND owner = ? AND state = ? AND error != '' "
    "ORDER BY failing_since DESC, writes.id DESC LIMIT 1"
)


class Entry(NamedTuple):
    """A write as it may be listed: everything but its content."""

    id: int
    event_id: str
    hook: str
    state: str
    created: float
    attempts: int
    failing_since: float | None
    error: str
    bytes: int
    stream: int
    origin: Origin


class Backlog(NamedTuple):
    """What is left of the writes for one provider.

    Attributes:
        provider: Its name.
        owner: The distribution that it came from.
        waiting: How many will be tried.
        dead: How many will not, unless a person says so.
        missed: How many there was no room for; the archive may have them.
        oldest: When the oldest one that waits was written.
        failing_since: When deliveries of one that waits began to fail; None if none has.
        due: When the next attempt is made, if somebody delivers.
        error: What went wrong last with one that waits.
        dead_error: The same of those that were given up.
        deliverers: The processes that deliver some of it now.
    """

    provider: str
    owner: str
    waiting: int
    dead: int
    missed: int
    oldest: float | None
    failing_since: float | None
    due: float
    error: str
    dead_error: str
    deliverers: tuple[str, ...]


class OutboxReport(NamedTuple):
    """How the outbox of a home stands."""

    backlogs: tuple[Backlog, ...]
    bytes: int
    max_bytes: int
    set_aside: tuple[str, ...]


def report(store: OutboxStore) -> OutboxReport:
    """How the outbox stands.

    Raises:
        DatabaseError: It can't be read.
    """
    streams = store.waiting()

    def work(database: sqlite3.Connection) -> tuple[list[Backlog], int]:
        rows = database.execute(_BACKLOGS).fetchall()
        return [_backlog(database, row, streams, store.clock()) for row in rows], used(database)

    backlogs, size = store.file.look(work)
    return OutboxReport(tuple(backlogs), size, store.max_bytes, set_aside(store.file.path))


def _backlog(
    database: sqlite3.Connection, row: tuple[Any, ...], streams: Sequence[Stream], now: float
) -> Backlog:
    provider, owner, waiting, dead, missed, oldest, failing_since = row
    own = [each for each in streams if each.origin[:2] == (provider, owner)]

    def last_error(state: str) -> str:
        found = database.execute(_LAST_ERROR, (provider, owner, state)).fetchone()
        return str(found[0]) if found else ""

    return Backlog(
        provider, owner, waiting, dead, missed, oldest, failing_since,
        due=min((each.due for each in own), default=0.0),
        error=last_error(WAITING),
        dead_error=last_error(DEAD),
        deliverers=tuple(sorted({each.holder for each in own if is_held(each, now)})),
    )  # fmt: skip


def is_held(stream: Stream, now: float) -> bool:
    """Whether a process that runs has it."""
    return bool(stream.holder) and stream.expires > now and is_alive(stream.holder)


def set_aside(path: Path) -> tuple[str, ...]:
    """The names of damaged files that lie beside the outbox."""
    found = path.parent.glob(f"{path.name}.damaged-*")
    return tuple(sorted(each.name for each in found if not each.name.endswith(("-wal", "-shm"))))


def is_whole(store: OutboxStore) -> bool:
    """Whether SQLite finds nothing wrong with the file.

    Raises:
        DatabaseError: It can't even be opened.
    """
    answer = store.file.look(lambda database: database.execute("PRAGMA quick_check(1)").fetchone())
    return bool(answer[0] == "ok")


# -- one by one ------------------------------------------------------------------------------


def entries(store: OutboxStore, state: str = "", limit: int = -1) -> list[Entry]:
    """The writes in the outbox, the oldest first."""
    rows = store.file.look(
        lambda database: database.execute(
            f"{_ENTRY} WHERE ?1 IN ('', state) ORDER BY writes.id LIMIT ?2", (state, limit)
        ).fetchall()
    )
    return [_entry(row) for row in rows]


def entry(store: OutboxStore, number: int) -> Entry:
    """One write.

    Raises:
        HermesError: There is none of that number.
    """
    row = store.file.look(
        lambda database: database.execute(f"{_ENTRY} WHERE writes.id = ?", (number,)).fetchone()
    )
    if row is None:
        raise HermesError(
            f"there is no write {number} in the outbox",
            hint="it may have been delivered; see: hermes-plugins outbox list",
        )
    return _entry(row)


def _entry(row: tuple[Any, ...]) -> Entry:
    *own, provider, owner, session, keywords = row
    return Entry._make((*own, Origin(provider, owner, session, keywords)))


def content(store: OutboxStore, number: int) -> dict[str, Any]:
    """What a write says, by the arguments of its hook; {} if there was no room for it."""
    row = store.file.look(
        lambda database: database.execute(
            "SELECT payload FROM writes WHERE id = ?", (number,)
        ).fetchone()
    )
    found: dict[str, Any] = json.loads(row[0]) if row and row[0] else {}
    return found


def wake(store: OutboxStore, number: int = 0) -> int:
    """Let dead writes wait again, one or all; gives how many that are. All is due at once."""
    count = store.file.change(
        lambda database: (
            database.execute(
                "UPDATE writes SET state = 'waiting', failing_since = NULL "
                "WHERE state = 'dead' AND ?1 IN (0, id)",
                (number,),
            ).rowcount
        )
    )
    store.hurry([entry(store, number).stream] if number else None)
    return count


def drop(store: OutboxStore, number: int) -> None:
    """Remove a write for good."""
    store.file.change(
        lambda database: database.execute("DELETE FROM writes WHERE id = ?", (number,))
    )
    store.tidy()


# -- putting back ----------------------------------------------------------------------------


def refill(store: OutboxStore, number: int, payload: str) -> bool:
    """Give a write that was missed its content; False if there is no room."""

    def work(database: sqlite3.Connection) -> bool:
        if used(database) + len(payload) > store.max_bytes:
            return False
        database.execute(
            "UPDATE writes SET state = 'waiting', payload = ? WHERE id = ? AND state = 'missed'",
            (payload, number),
        )
        return True

    return store.file.change(work)


def add_turn(
    store: OutboxStore, origin: Origin, event_id: str, payload: str, created: float
) -> bool:
    """Let a turn of earlier wait; False if there is no room."""

    def work(database: sqlite3.Connection) -> bool:
        if used(database) + len(payload) > store.max_bytes:
            return False
        database.execute(
            "INSERT OR IGNORE INTO streams (provider, owner, session, keywords) "
            "VALUES (?, ?, ?, ?)",
            origin,
        )
        database.execute(
            "INSERT INTO writes (stream, event_id, hook, payload, created) "
            "SELECT id, ?, 'sync_turn', ?, ? FROM streams "
            "WHERE provider = ? AND owner = ? AND session = ? AND keywords = ?",
            (event_id, payload, created, *origin),
        )
        return True

    return store.file.change(work)


def known_origin(store: OutboxStore, provider: str, owner: str, session: str) -> Origin | None:
    """The origin of a session whose writes are or were in the outbox."""
    row = store.file.look(
        lambda database: database.execute(
            "SELECT provider, owner, session, keywords FROM streams "
            "WHERE provider = ? AND owner = ? AND session = ? ORDER BY id DESC LIMIT 1",
            (provider, owner, session),
        ).fetchone()
    )
    return Origin(*row) if row else None


def max_mb(config: Config) -> float:
    """How large the outbox may grow."""
    return DEFAULT_MAX_MB if config.outbox_max_mb is None else config.outbox_max_mb


def open_store(config: Config, *, mends: bool) -> OutboxStore:
    """The outbox of a home. Who only looks does not mend: it would move a damaged file."""
    limit = int(max_mb(config) * 1_000_000)
    path = config.home / "outbox.db"
    return OutboxStore(path, max_bytes=limit, durable=config.durable, mends=mends)
