"""What a person can see of the outbox and do to it: list, retry, drop, backfill."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from json import dumps, loads  # before a plugin can replace them
from typing import Any, Final, NamedTuple

from hermes_core.config import Config
from hermes_core.config.storage import home_database
from hermes_core.errors import HermesError
from hermes_core.outbox import store as stores
from hermes_core.outbox.records import USED, ProviderKey, Stream, StreamKey, WriteState, turn_id
from hermes_core.outbox.spool import OutboxSpool
from hermes_core.outbox.store import DEFAULT_MAX_MB, OutboxStore
from hermes_core.provider import PastSession
from hermes_core.session import SessionContext
from hermes_core.storage.sql import Connection

_ENTRY: Final = (
    "SELECT writes.id, event_id, hook, state, created, attempts, failing_since, error, "
    "length(payload), stream, provider, owner, session, keywords "
    "FROM writes JOIN streams ON streams.id = stream"
)
# One pass over the table, however many providers and states there are: `status` runs it each time.
_BACKLOGS: Final = (
    "SELECT provider, owner, count(*) FILTER (WHERE state = 'waiting'), "
    "count(*) FILTER (WHERE state = 'aside'), count(*) FILTER (WHERE state = 'dead'), "
    "count(*) FILTER (WHERE state = 'missed'), "
    "min(created) FILTER (WHERE state = 'waiting'), "
    "min(failing_since) FILTER (WHERE state = 'waiting') "
    "FROM writes JOIN streams ON streams.id = stream WHERE {own} "
    "GROUP BY provider, owner ORDER BY provider, owner"
)
_LAST_ERROR: Final = (
    "SELECT error FROM writes JOIN streams ON streams.id = stream "
    "WHERE {own} AND provider = ? AND owner = ? AND state = ? AND error != '' "
    # In PostgreSQL, NULL would come first.
    "ORDER BY failing_since IS NULL, failing_since DESC, writes.id DESC LIMIT 1"
)


class OutboxEntry(NamedTuple):
    """A write without its content."""

    id: int
    event_id: str
    hook: str
    state: WriteState
    created: float
    attempts: int
    failing_since: float | None
    error: str
    bytes: int
    stream: int
    key: StreamKey


class OutboxBacklog(NamedTuple):
    """The undelivered writes for one provider.

    Attributes:
        provider: Its name.
        owner: The distribution that it came from.
        waiting: How many will be delivered, in order.
        skipped: How many failed while others succeeded; they are retried later.
        failed: How many failed permanently; they are retried only if a person asks for it.
        missed: How many had no room; the archive may have them.
        oldest: When the oldest waiting one was stored.
        failing_since: When the first waiting one began to fail; None if none has.
        due: When the next attempt is made, if an agent runs.
        error: The last error of the waiting ones.
        skipped_error: The last error of the skipped ones.
        failed_error: The last error of those that failed permanently.
        deliverers: The processes that deliver some of them now.
    """

    provider: str
    owner: str
    waiting: int
    skipped: int
    failed: int
    missed: int
    oldest: float | None
    failing_since: float | None
    due: float
    error: str
    skipped_error: str
    failed_error: str
    deliverers: tuple[str, ...]


class OutboxReport(NamedTuple):
    """What the outbox of a home contains.

    Attributes:
        backlogs: One for each provider.
        bytes: How much of the file is in use.
        max_bytes: How large it may grow.
        damaged: The names of damaged files beside it.
        place: Where it is: a path, or the address of a database without its password.
        spooled: How many writes wait in the spool, since the outbox did not take them.
        spooled_because: Why.
    """

    backlogs: tuple[OutboxBacklog, ...]
    bytes: int
    max_bytes: int
    damaged: tuple[str, ...]
    place: str = ""
    spooled: int = 0
    spooled_because: str = ""


def report(store: OutboxStore) -> OutboxReport:
    """Return what the outbox contains.

    Raises:
        DatabaseError: It can't be read.
    """
    # Two reads: what changes in between shows in one of them only. The counts come last, so that
    # they are the newest.
    streams = store.waiting_streams()
    own = store.database.of_home("writes")

    def work(connection: Connection) -> tuple[list[OutboxBacklog], int]:
        rows = connection.execute(_BACKLOGS.format(own=own)).fetchall()
        found = [_backlog(store, connection, row, streams) for row in rows]
        return found, store.database.used_bytes(connection)

    backlogs, size = store.database.read(work)
    if not store.database.exists:
        size = 0  # an empty database in memory was read instead
    database = store.database
    return OutboxReport(tuple(backlogs), size, store.max_bytes, database.damaged, database.place)


def _backlog(
    store: OutboxStore, connection: Connection, row: tuple[Any, ...], streams: Sequence[Stream]
) -> OutboxBacklog:
    provider, owner, waiting, skipped, failed, missed, oldest, failing_since = row
    own = [each for each in streams if each.key[:2] == (provider, owner)]

    def last_error(state: str) -> str:
        which = _LAST_ERROR.format(own=store.database.of_home("writes"))
        found = connection.execute(which, (provider, owner, state)).fetchone()
        return str(found[0]) if found else ""

    return OutboxBacklog(
        provider, owner, waiting, skipped, failed, missed, oldest, failing_since,
        due=min((each.due for each in own), default=0.0),
        error=last_error(WriteState.WAITING),
        skipped_error=last_error(WriteState.SKIPPED),
        failed_error=last_error(WriteState.FAILED),
        deliverers=tuple(sorted({each.holder for each in own if store.is_held(each)})),
    )  # fmt: skip


# -- single writes ---------------------------------------------------------------------------


def entries(
    store: OutboxStore, state: WriteState | None = None, limit: int = 2**62
) -> list[OutboxEntry]:
    """Return the writes in the outbox, the oldest first."""
    own = store.database.of_home("writes")
    rows = store.database.read(
        lambda connection: connection.execute(
            f"{_ENTRY} WHERE {own} AND ? IN ('', state) ORDER BY writes.id LIMIT ?",
            (state or "", limit),
        ).fetchall()
    )
    return [_entry(row) for row in rows]


def entry(store: OutboxStore, number: int) -> OutboxEntry:
    """Return one write.

    Raises:
        HermesError: There is no write with that number.
    """
    which = f"{_ENTRY} WHERE {store.database.of_home('writes')} AND writes.id = ?"
    row = store.database.read(lambda connection: connection.execute(which, (number,)).fetchone())
    if row is None:
        raise HermesError(
            f"there is no write {number} in the outbox",
            hint="it may have been delivered; run: hermes-plugins outbox list",
        )
    return _entry(row)


def _entry(row: tuple[Any, ...]) -> OutboxEntry:
    *own, provider, owner, session, keywords = row
    own[3] = WriteState(own[3])
    return OutboxEntry._make((*own, StreamKey(provider, owner, session, keywords)))


def content(store: OutboxStore, number: int) -> dict[str, Any]:
    """Return the arguments of a write's hook; {} if there was no room for them."""
    which = f"SELECT payload FROM writes WHERE {store.database.of_home('writes')} AND id = ?"
    row = store.database.read(lambda connection: connection.execute(which, (number,)).fetchone())
    found: dict[str, Any] = loads(row[0]) if row and row[0] else {}
    return found


def retry(store: OutboxStore, number: int = 0) -> int:
    """Let writes that failed permanently or were skipped wait again; return how many.

    One, or all. They keep their old place and are due now. A write that was skipped before is
    skipped again as soon as it fails and one behind it is accepted.
    """
    # `faults` and `attempts` stay: they make it suspect at once, and tell the provider that it may
    # know the write. `failing_since` does not: a skipped write has another day.
    own = store.database.of_home("writes")
    count = store.database.change(
        lambda connection: (
            connection.execute(
                "UPDATE writes SET state = 'waiting', failing_since = NULL "
                f"WHERE {own} AND state IN ('dead', 'aside') AND ? IN (0, id)",
                (number,),
            ).rowcount
        )
    )
    store.make_due([entry(store, number).stream] if number else None)
    return count


def drop(store: OutboxStore, number: int) -> None:
    """Delete a write: it will not be delivered."""
    which = f"DELETE FROM writes WHERE {store.database.of_home('writes')} AND id = ?"
    store.database.change(lambda connection: connection.execute(which, (number,)))
    store.compact()


# -- what a person wants to be forgotten ------------------------------------------------------


def forget(
    store: OutboxStore,
    matches: Callable[[str], bool],
    is_theirs: Callable[[StreamKey], bool],
    *,
    delete: bool,
) -> dict[str, int]:
    """Find writes, and delete them: they will not be delivered.

    Args:
        store: The outbox.
        matches: Whether a text has what is to be forgotten.
        is_theirs: Whether a stream is of the session or person to be forgotten.
        delete: Whether to delete them.

    Returns:
        How many writes there are of each state; of "sessions" those that are named here.
    """
    if not store.database.exists:
        return {}
    own = store.database.of_home("streams")

    def work(database: Connection) -> Counter[str]:
        found: Counter[str] = Counter()
        store.database.overwrite_deleted(database)
        for stream, *key in database.execute(_STREAM_KEYS.format(own=own), (USED,)).fetchall():
            named = StreamKey(*key)
            theirs = is_theirs(named)
            for number, state, payload, error in database.execute(_CONTENTS, (stream,)).fetchall():
                if theirs or matches(payload) or matches(error):
                    found[WriteState(state).label] += 1
                    if delete:
                        database.execute("DELETE FROM writes WHERE id = ?", (number,))
            if theirs or matches(named.session) or matches(named.keywords):
                found["sessions"] += 1
                if delete:
                    _forget_stream(store, database, stream, named, matches, drop=theirs)
        return found

    counts = store.database.change(work)
    if delete:
        store.compact()
        store.database.erase_free_space()
    return dict(counts)


_STREAM_KEYS: Final = (
    "SELECT id, provider, owner, session, keywords FROM streams "
    "WHERE {own} AND NOT (session = '' AND keywords = ?)"
)
_CONTENTS: Final = "SELECT id, state, payload, error FROM writes WHERE stream = ?"


def _forget_stream(
    store: OutboxStore,
    database: Connection,
    stream: int,
    key: StreamKey,
    matches: Callable[[str], bool],
    *,
    drop: bool,
) -> None:
    """Delete a stream without writes; in any other, leave out the keywords that match."""
    left = database.execute("SELECT 1 FROM writes WHERE stream = ?", (stream,)).fetchone()
    # A process that has claimed it creates it again with its next write.
    if drop or left is None:
        database.execute("DELETE FROM streams WHERE id = ?", (stream,))
        return
    known = loads(key.keywords)
    kept = {name: value for name, value in known.items() if not matches(str(value))}
    store.database.rename_stream(
        database, stream, key._replace(keywords=dumps(kept, sort_keys=True))
    )


# -- missed writes ---------------------------------------------------------------------------


def refill(store: OutboxStore, number: int, payload: str) -> bool:
    """Add the content of a missed write, so that it waits; False if there is no room."""

    def work(connection: Connection) -> bool:
        # Measured each time, unlike in `OutboxStore.put`: no turn waits for a backfill.
        if store.database.used_bytes(connection) + len(payload) > store.max_bytes:
            return False
        connection.execute(
            "UPDATE writes SET state = 'waiting', payload = ? WHERE id = ? AND state = 'missed'",
            (payload, number),
        )
        return True

    return store.database.change(work)


class NewWrite(NamedTuple):
    """A write of a process that has not loaded the provider.

    Attributes:
        key: The stream that it belongs to.
        event_id: Its identity.
        payload: The arguments of its hook, as JSON and without secrets.
        created: When it was said or made.
        hook: The method of the provider.
        attempts: How often it was tried; 1 if the provider may have it, so that it looks it up.
    """

    key: StreamKey
    event_id: str
    payload: str
    created: float
    hook: str = "sync_turn"
    attempts: int = 0


def add_write(store: OutboxStore, write: NewWrite) -> bool:
    """Store a write, so that it waits; False if there is no room."""
    return add_writes(store, [write])


def add_writes(
    store: OutboxStore, writes: Sequence[NewWrite], only: ProviderKey | None = None
) -> bool:
    """Store writes in their order, all or none of them; False if there is no room.

    Args:
        store: The outbox.
        writes: What to store.
        only: Count only what this provider has there: what waits for another one takes no room.
            The last writes that are stored may exceed the limit, so that a large one fits.
    """
    size = sum(len(each.payload) for each in writes)

    def work(connection: Connection) -> bool:
        # Measured each time, unlike in `OutboxStore.put`: no turn waits for this.
        if only is not None:
            if _bytes_of(store, connection, only) >= store.max_bytes:
                return False
        elif store.database.used_bytes(connection) + size > store.max_bytes:
            return False
        for key, group in groupby(writes, key=lambda each: each.key):
            stream = store.database.add_stream(connection, key)
            # With new numbers: they are delivered behind what waits already.
            connection.executemany(
                "INSERT INTO writes (stream, event_id, hook, payload, created, attempts) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (stream, each.event_id, each.hook, each.payload, each.created, each.attempts)
                    for each in group
                ],
            )
        return True

    return store.database.change(work)


def _bytes_of(store: OutboxStore, connection: Connection, provider: ProviderKey) -> int:
    """How much the writes for a provider need, without those that were missed."""
    own = store.database.of_home("writes")
    found = connection.execute(
        "SELECT coalesce(sum(length(payload)), 0) FROM writes JOIN streams ON streams.id = stream "
        f"WHERE {own} AND provider = ? AND owner = ? AND state != 'missed'",
        provider,
    )
    return int(found.fetchone()[0])


def was_used(store: OutboxStore, provider: ProviderKey) -> bool:
    """Whether anything was stored for a provider before; see `USED`."""
    own = store.database.of_home("streams")
    query = f"SELECT 1 FROM streams WHERE {own} AND provider = ? AND owner = ? LIMIT 1"
    return store.database.read(
        lambda connection: connection.execute(query, provider).fetchone() is not None
    )


def known_key(store: OutboxStore, wanted: StreamKey) -> StreamKey | None:
    """Return the newest key of the same session of the same person; None if there is none.

    Several people may have sessions of this name.
    """
    own = store.database.of_home("streams")
    rows = store.database.read(
        lambda connection: connection.execute(
            "SELECT provider, owner, session, keywords FROM streams "
            f"WHERE {own} AND provider = ? AND owner = ? AND session = ? ORDER BY id DESC",
            wanted[:3],
        ).fetchall()
    )
    return next((key for row in rows if _is_same(key := StreamKey(*row), wanted)), None)


def _is_same(key: StreamKey, wanted: StreamKey) -> bool:
    """Whether two keys are of one session of one person."""
    try:
        return key[:3] == wanted[:3] and key.context.identity == wanted.context.identity
    except HermesError:  # its keywords can't be read
        return False


def max_mb(config: Config) -> float:
    """Return how many megabytes the outbox may use."""
    return DEFAULT_MAX_MB if config.outbox_max_mb is None else config.outbox_max_mb


def open_store(config: Config, *, set_aside: bool) -> OutboxStore:
    """Return the store of a home, with what waited for it in the spool.

    With ``set_aside``, a damaged file is renamed and replaced.
    """
    store = stores.open_store(
        config.home,
        max_mb=max_mb(config),
        durable=config.durable,
        set_aside=set_aside,
        database=home_database(config.home, config.memory),
    )
    # If it can't be handed over, whoever reads the store finds out why.
    with suppress(HermesError):
        OutboxSpool(config.home).hand_over(store)
    return store


# -- backfill --------------------------------------------------------------------------------


#: A missed turn is found by its time: without room for its content, there was no room for a
#: reference either. A turn is archived at most so many seconds before it is stored here.
_ARCHIVED_BEFORE: Final = 60.0

ArchivedTurn = Mapping[str, Any]
#: Returns the archived turns of a session, by its id and its keywords.
TurnsOf = Callable[[str, Mapping[str, Any]], Sequence[ArchivedTurn]]
#: Removes secrets from a value.
Mask = Callable[[Any], Any]


class BackfillResult(NamedTuple):
    """What a backfill did.

    Attributes:
        refilled: How many missed writes wait again.
        added: How many turns were added.
        known: How many turns were left alone, since they wait already.
        not_found: Missed writes that are not in the archive.
        no_room: Whether the outbox was full before the end.
    """

    refilled: int = 0
    added: int = 0
    known: int = 0
    not_found: tuple[OutboxEntry, ...] = ()
    no_room: bool = False


def refill_missed(store: OutboxStore, turns_of: TurnsOf, mask: Mask) -> BackfillResult:
    """Add the content of every missed write from the archive, under its old event id."""
    refilled, not_found = 0, []
    missed = sorted(entries(store, WriteState.MISSED), key=lambda each: (each.stream, each.id))
    for _, group in groupby(missed, key=lambda each: each.stream):
        for write, arguments in _found(list(group), turns_of):
            if arguments is None:
                not_found.append(write)
            elif refill(store, write.id, _payload(arguments, mask)):
                refilled += 1
            else:
                return BackfillResult(refilled, not_found=tuple(not_found), no_room=True)
    return BackfillResult(refilled, not_found=tuple(not_found))


def _found(
    writes: list[OutboxEntry], turns_of: TurnsOf
) -> Iterator[tuple[OutboxEntry, dict[str, Any] | None]]:
    """Yield the writes of one stream, each with its arguments; None if not in the archive."""
    key = writes[0].key
    session = key.context
    turns = turns_of(session.session_id, session.keywords())
    used: set[int] = set()
    for write in writes:
        if write.hook == "on_session_end":
            # The end of a session carries its whole conversation, as far as it went by then.
            said = [turn for turn in turns if turn["at"] <= write.created]
            messages = [message for turn in said for message in turn["messages"]]
            yield write, {"messages": messages} if messages else None
            continue
        # Notes and delegations are in no archive. A turn is used once: two writes of one moment
        # are two turns, and the second must not get the words of the first.
        place = _turn_of(turns, write) if write.hook == "sync_turn" else -1
        if place < 0 or place in used:
            yield write, None
        else:
            used.add(place)
            yield write, _arguments(turns[place], session.session_id)


def _turn_of(turns: Sequence[ArchivedTurn], write: OutboxEntry) -> int:
    """Return the index of a write's turn; -1 if it is not in the archive."""
    said = [place for place, turn in enumerate(turns) if turn["at"] <= write.created]
    if not said or write.created - turns[said[-1]]["at"] > _ARCHIVED_BEFORE:
        return -1
    return said[-1]


def _arguments(turn: ArchivedTurn, session: str) -> dict[str, Any]:
    return {
        "user_content": turn["user_content"],
        "assistant_content": turn["assistant_content"],
        "session_id": session,
        "messages": turn["messages"],
    }


def turn_payload(turn: ArchivedTurn, session: str, mask: Mask) -> str:
    """Return the arguments of ``sync_turn`` for an archived turn, as JSON and without secrets."""
    return _payload(_arguments(turn, session), mask)


def _payload(arguments: dict[str, Any], mask: Mask) -> str:
    clean = mask(arguments)
    kept = {name: arguments[name] for name in ("session_id",) if name in arguments}
    return dumps({**clean, **kept}, default=str)


def add_archived(
    store: OutboxStore, provider: ProviderKey, sessions: Iterable[PastSession], mask: Mask
) -> BackfillResult:
    """Add archived turns that are not in the outbox.

    Args:
        store: The outbox.
        provider: The provider that gets them.
        sessions: Those that have the turns.
        mask: Removes secrets.
    """
    added = known = 0
    present = entries(store)
    ids = {each.event_id for each in present}
    for session in sessions:
        key = key_of(store, provider, session)
        turns = list(session.turns())
        own = [each for each in present if _is_same(each.key, key)]
        wait = {_turn_of(turns, each) for each in own if each.hook == "sync_turn"}
        for place, turn in enumerate(turns):
            event_id = turn_id(key, turn["at"])
            if place in wait or event_id in ids:
                known += 1
                continue
            # It may have been delivered when it was said: a provider that can, looks it up.
            payload = turn_payload(turn, session.session, mask)
            if not add_write(store, NewWrite(key, event_id, payload, turn["at"], attempts=1)):
                return BackfillResult(added=added, known=known, no_room=True)
            added += 1
    return BackfillResult(added=added, known=known)


def key_of(store: OutboxStore, provider: ProviderKey, session: PastSession) -> StreamKey:
    """Return the key that the session's own manager used, if it is known."""
    archived = SessionContext.from_keywords(session.session, session.keywords)
    key = StreamKey.of(*provider, archived)
    return known_key(store, key) or key
