"""Archived conversations as the turns that they were written as: to hand them over once more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from hermes_builtin.sessions._model import CRON, EVERYBODY, HIDDEN_SOURCES, Message, Scope, Session
from hermes_builtin.sessions._place import place
from hermes_builtin.sessions.sqlite import SqliteArchive

#: Where no person spoke, and who never reaches an external provider.
_NOT_PRIMARY: Final = HIDDEN_SOURCES | {CRON, "flush"}


def archived_turns(home: Path, session_id: str, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The turns of one session in their order; none if the archive does not have it.

    Args:
        home: Whose archive.
        session_id: As the host called it.
        facts: The keywords of ``initialize``: two users may have sessions of one name.
    """
    names = ("user_id", "chat_id", "agent_identity")
    scope = Scope(*(str(facts.get(name) or "") for name in names))
    with closing(SqliteArchive(place(home).path)) as archive:
        session = archive.session(session_id, scope)
        return [] if session is None else list(_turns(archive.messages(session)))


def sessions_since(home: Path, since: float) -> Iterator[dict[str, Any]]:
    """The sessions in which a person spoke since then: what is known of each, and its turns.

    What was imported is left out: it was never to be sent.
    """
    with closing(SqliteArchive(place(home).path)) as archive:
        for session in archive.sessions(EVERYBODY):
            if session.active < since or session.source in _NOT_PRIMARY:
                continue
            if archive.imported("", session.id):
                continue
            turns = [each for each in _turns(archive.messages(session)) if each["at"] >= since]
            if turns:
                yield {
                    "session": _given_name(archive, session),
                    "keywords": _keywords(session),
                    "turns": turns,
                }


def _turns(messages: Iterable[Message]) -> Iterator[dict[str, Any]]:
    """Each turn from what the user said up to the last answer to it."""
    turn: list[Message] = []
    for message in messages:
        if message.role == "user" and turn:
            yield from _turn(turn)
            turn = []
        turn.append(message)
    yield from _turn(turn)


def _turn(messages: list[Message]) -> Iterator[dict[str, Any]]:
    answers = [each.content for each in messages if each.role == "assistant" and each.content]
    if messages and messages[0].role == "user" and answers:
        yield {
            "at": messages[0].at,
            "user_content": messages[0].content,
            "assistant_content": answers[-1],
            "messages": [
                {"role": each.role, "content": each.content, **each.extra} for each in messages
            ],
        }


def _given_name(archive: SqliteArchive, session: Session) -> str:
    """What the host called a session whose name was taken here."""
    name = session.id.rpartition("@")[0]
    scope = Scope(session.user_id, session.chat_id, session.profile)
    return name if name and session.id in archive.names(name, scope) else session.id


def _keywords(session: Session) -> dict[str, str]:
    known = {
        "platform": session.source,
        "agent_identity": session.profile,
        "user_id": session.user_id,
        "chat_id": session.chat_id,
        "parent_session_id": session.parent,
    }
    return {name: value for name, value in known.items() if value}
