"""Which streams have something to deliver, and when: by the first waiting write of each kind."""

from __future__ import annotations

from typing import Final, NamedTuple

from hermes_core.outbox.records import Stream, StreamKey
from hermes_core.storage.sql import Connection

#: The first waiting write of each kind, for each stream. Only these decide when the stream is due:
#: what is behind them waits for them, whatever its own time is.
_HEADS: Final = (
    "SELECT heads.stream, is_turn, first, due, waiting, oldest FROM ("
    "SELECT stream, hook = 'sync_turn' AS is_turn, min(id) AS first, count(*) AS waiting, "
    "min(created) AS oldest FROM writes WHERE {own} AND state = 'waiting' GROUP BY 1, 2"
    ") AS heads JOIN writes ON writes.id = first"
)
_SKIPPED_HEADS: Final = (
    "SELECT stream, min(due) FROM writes WHERE {own} AND state = 'aside' GROUP BY 1"
)


class _Head(NamedTuple):
    """The first waiting write of one kind in a stream, and how many there are."""

    stream: int
    is_turn: bool
    id: int
    due: float
    writes: int
    oldest: float


def _oldest(heads: list[_Head]) -> int:
    return min(each.id for each in heads)


def open_streams(connection: Connection, own: str) -> list[Stream]:
    """The streams with waiting writes, the oldest first; then those with skipped ones.

    Args:
        connection: Where to read.
        own: The condition for the writes to look at.
    """
    heads: dict[int, list[_Head]] = {}
    for row in connection.execute(_HEADS.format(own=own)).fetchall():
        heads.setdefault(row[0], []).append(_Head(*row))
    found = sorted(heads.values(), key=_oldest)
    for number, due in connection.execute(_SKIPPED_HEADS.format(own=own)).fetchall():
        if number not in heads:
            found.append([_Head(number, False, 0, due, 0, 0.0)])
    return [stream for each in found if (stream := _stream_of(connection, each))]


def _stream_of(connection: Connection, heads: list[_Head]) -> Stream | None:
    """Build a `Stream`. What is behind a turn is not due before that turn."""
    first = min(heads, key=lambda each: each.id)
    due = first.due if first.is_turn else min(each.due for each in heads)
    row = connection.execute(
        "SELECT provider, owner, session, keywords, holder, expires FROM streams WHERE id = ?",
        (first.stream,),
    ).fetchone()
    if row is None:  # another process has just delivered the last of it
        return None
    provider, owner, session, keywords, holder, expires = row
    key = StreamKey(provider, owner, session, keywords)
    count = sum(each.writes for each in heads)
    oldest = min(each.oldest for each in heads)
    return Stream(first.stream, key, holder, expires, due, count, oldest)
