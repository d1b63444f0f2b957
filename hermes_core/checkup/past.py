"""What the archive and the notes have for a provider that does not have it yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from hashlib import blake2b
from typing import Any

from hermes_core.checkup.replayed_turns import KnownTurn, Replay, ReplayedTurns, content_of
from hermes_core.config import Config
from hermes_core.dispatch import as_builtin
from hermes_core.errors import HermesError
from hermes_core.loading.activation import activate_builtin
from hermes_core.outbox import StreamKey
from hermes_core.outbox.records import turn_id
from hermes_core.provider import BuiltinMethods, PastNote, PastSession
from hermes_core.session import SessionContext

#: A turn of the archive, with what is known of it.
TurnAhead = tuple[KnownTurn, Mapping[str, Any]]


def builtin_of(config: Config) -> BuiltinMethods:
    """The built-in provider, which has the past."""
    builtin = as_builtin(activate_builtin(config))
    if builtin is None:  # the built-in may be replaced by one without an archive
        raise HermesError("the built-in provider has no archive to replay from")
    return builtin


def sessions_of(config: Config, replay: Replay) -> Iterator[PastSession]:
    """The sessions of a pass."""
    builtin = builtin_of(config)
    return builtin.past_sessions(config.home, replay.since, replay.until, replay.asked)


def turns_by_session(
    config: Config, replay: Replay
) -> Iterator[tuple[PastSession, list[TurnAhead]]]:
    """Each session with its turns that are still to be handed over; changes nothing."""
    with closing(ReplayedTurns(config.home, replay.key, replay.began)) as handed:
        for session in sessions_of(config, replay):
            yield session, turns_ahead(replay, session, handed)


def turns_ahead(replay: Replay, session: PastSession, handed: ReplayedTurns) -> list[TurnAhead]:
    """The turns of a session that are still to be handed over."""
    return [each for each in turns_of(replay, session, handed) if not each[0].is_done]


def turns_of(replay: Replay, session: PastSession, handed: ReplayedTurns) -> list[TurnAhead]:
    """The turns of a session, each with what is known of it."""
    context = SessionContext.from_keywords(session.session, session.keywords)
    key = StreamKey.of(*replay.target, context)
    seen: Counter[float] = Counter()
    turns = list(session.turns())
    ids: list[tuple[str, str]] = []
    for turn in turns:
        at = turn["at"]
        content = content_of(turn_id(key, at), turn["user_content"], turn["assistant_content"])
        ids.append((turn_id(key, at, seen[at]), content))
        seen[at] += 1
    return list(zip(handed.find(ids), turns, strict=True))


def notes_ahead(config: Config, replay: Replay, handed: ReplayedTurns) -> list[PastNote]:
    """The notes that are there now and still to be handed over."""
    notes = builtin_of(config).past_notes(config.home, config.memory)
    by_event = {note_event(replay, note): note for note in notes}
    done = handed.done([*by_event])
    return [note for event, note in by_event.items() if event not in done]


def note_key(replay: Replay, note: PastNote) -> StreamKey:
    """The stream to which a note belongs."""
    context = SessionContext.from_keywords(note.session, note.keywords)
    return StreamKey.of(*replay.target, context)


def note_event(replay: Replay, note: PastNote) -> str:
    """The event id of a note: by its text, since a note is there once."""
    change = note.change
    text = "\0".join((*note_key(replay, note), change["target"], change["content"]))
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def length_of(turn: Mapping[str, Any]) -> int:
    """How many characters a turn has."""
    return len(turn["user_content"]) + len(turn["assistant_content"])
