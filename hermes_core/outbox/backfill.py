"""Writes that had no room, or were lost with a damaged outbox, put back from the archive."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import groupby
from typing import Any, Final, NamedTuple

from hermes_core.outbox._layout import MISSED, Origin
from hermes_core.outbox._store import OutboxStore
from hermes_core.outbox.care import Entry, add_turn, entries, known_origin, refill

#: A turn goes to the archive first; how long that may have taken.
_EARLIER: Final = 60.0

Turn = Mapping[str, Any]
#: The turns of a session, by its name and its keywords.
TurnsOf = Callable[[str, Mapping[str, Any]], Sequence[Turn]]
#: Takes secrets out of a value.
Mask = Callable[[Any], Any]


class Backfilled(NamedTuple):
    """What came of it.

    Attributes:
        refilled: How many writes that were missed wait again.
        added: How many turns wait that were not in the outbox.
        known: How many turns were left alone, since they wait already.
        not_found: Writes that no archive has, or not in its conversation.
        no_room: Whether the outbox was full before the end.
    """

    refilled: int = 0
    added: int = 0
    known: int = 0
    not_found: tuple[Entry, ...] = ()
    no_room: bool = False


def refill_missed(store: OutboxStore, turns_of: TurnsOf, mask: Mask) -> Backfilled:
    """Give every write that was missed its content back, under the same identity."""
    refilled, not_found = 0, []
    missed = sorted(entries(store, MISSED), key=lambda each: (each.stream, each.id))
    for _, group in groupby(missed, key=lambda each: each.stream):
        for write, arguments in _found(list(group), turns_of):
            if arguments is None:
                not_found.append(write)
            elif refill(store, write.id, _payload(arguments, mask)):
                refilled += 1
            else:
                return Backfilled(refilled, not_found=tuple(not_found), no_room=True)
    return Backfilled(refilled, not_found=tuple(not_found))


def _found(writes: list[Entry], turns_of: TurnsOf) -> Iterator[tuple[Entry, dict[str, Any] | None]]:
    """The arguments of each write of one stream, as far as the archive has them."""
    origin = writes[0].origin
    turns = turns_of(origin.session, json.loads(origin.keywords))
    used: set[int] = set()
    for write in writes:
        if write.hook == "on_session_end":
            said = [turn for turn in turns if turn["at"] <= write.created]
            messages = [message for turn in said for message in turn["messages"]]
            yield write, {"messages": messages} if messages else None
            continue
        place = _turn_of(turns, write) if write.hook == "sync_turn" else -1
        if place < 0 or place in used:
            yield write, None
        else:
            used.add(place)
            yield write, _arguments(turns[place], origin.session)


def _turn_of(turns: Sequence[Turn], write: Entry) -> int:
    """The place of the turn that a write was about; -1 if it is not there."""
    said = [place for place, turn in enumerate(turns) if turn["at"] <= write.created]
    if not said or write.created - turns[said[-1]]["at"] > _EARLIER:
        return -1
    return said[-1]


def _arguments(turn: Turn, session: str) -> dict[str, Any]:
    return {
        "user_content": turn["user_content"],
        "assistant_content": turn["assistant_content"],
        "session_id": session,
        "messages": turn["messages"],
    }


def _payload(arguments: dict[str, Any], mask: Mask) -> str:
    clean = mask(arguments)
    kept = {name: arguments[name] for name in ("session_id",) if name in arguments}
    return json.dumps({**clean, **kept}, default=str)


def add_archived(
    store: OutboxStore, whose: tuple[str, str], sessions: Iterable[Mapping[str, Any]], mask: Mask
) -> Backfilled:
    """Let archived turns wait that are not in the outbox.

    Args:
        store: The outbox.
        whose: The provider that gets them, and its owner.
        sessions: Each with its ``session``, ``keywords`` and ``turns``.
        mask: Takes secrets out.
    """
    added = known = 0
    present = entries(store)
    ids = {each.event_id for each in present}
    for session in sessions:
        origin = _origin(store, whose, session)
        turns = session["turns"]
        own = [each for each in present if each.origin[:3] == origin[:3]]
        wait = {_turn_of(turns, each) for each in own if each.hook == "sync_turn"}
        for place, turn in enumerate(turns):
            event_id = _identity(origin, turn)
            if place in wait or event_id in ids:
                known += 1
                continue
            payload = _payload(_arguments(turn, origin.session), mask)
            if not add_turn(store, origin, event_id, payload, turn["at"]):
                return Backfilled(added=added, known=known, no_room=True)
            added += 1
    return Backfilled(added=added, known=known)


def _origin(store: OutboxStore, whose: tuple[str, str], session: Mapping[str, Any]) -> Origin:
    """As the session's own manager began it, as far as that is known."""
    known = known_origin(store, *whose, session["session"])
    told = session["keywords"]
    if known is not None and json.loads(known.keywords).get("user_id") == told.get("user_id"):
        return known
    keywords = {
        "platform": "cli",
        "agent_context": "primary",
        "agent_identity": "default",
        "agent_workspace": "hermes",
        **told,
    }
    return Origin(*whose, session["session"], json.dumps(keywords, sort_keys=True))


def _identity(origin: Origin, turn: Turn) -> str:
    """The same whenever it is asked for, so that a turn is not added twice."""
    told = "\0".join((*origin[:3], repr(turn["at"])))
    return blake2b(told.encode("utf-8", "replace"), digest_size=16).hexdigest()
