"""What a home remembers, in order and with its times: for a provider that did not get it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

from hermes_builtin.notes import Notes, Person, view
from hermes_builtin.notes.notebook import Notebook
from hermes_builtin.sessions.archive import EVERYBODY, NO_PLATFORMS, NOBODY, Archive, Session
from hermes_builtin.sessions.conversations import (
    joined_turns_of,
    keywords_of,
    unanswered_at_end,
)
from hermes_builtin.sessions.location import locate
from hermes_core.privacy.origin import ASSISTANT, IMPORT
from hermes_core.provider import PastNote, PastSession
from hermes_core.session import TERMINAL

#: The session of notes that are passed on later: they may come from many.
_SESSION: Final = "hermes-plugins"


def past_sessions(home: Path, since: float, until: float, oldest: float) -> Iterator[PastSession]:
    """The sessions with turns in a period, in the order in which they began.

    Args:
        home: Whose archive.
        since: Turns from this time on.
        until: Turns before this time.
        oldest: Messages without an answer belong to the next turn from this time on.
    """
    with closing(locate(home).open()) as archive:
        sessions = sorted(archive.sessions(EVERYBODY), key=_place)
        for session in sessions:
            if session.active < since or session.started >= until:
                continue
            yield PastSession(
                session.name or session.id,
                _keywords(session),
                partial(_turns, archive, session, (since, until), oldest),
                _place(session),
                is_primary=session.source not in NOBODY,
                is_imported=_is_imported(archive, session),
                unanswered=partial(_unanswered, archive, session, since, until),
            )


def _is_imported(archive: Archive, session: Session) -> bool:
    """Whether a session is of another program: of an export, or of another archive."""
    first = next(archive.messages(session), None)
    from_export = first is not None and (first.extra or {}).get("origin") == IMPORT
    return from_export or archive.imported("", session.id) > 0


def _place(session: Session) -> tuple[float, str]:
    return session.started, session.id


def _keywords(session: Session) -> dict[str, str]:
    """Who talked; what was imported without a user is of the owner of the machine."""
    known = keywords_of(session)
    return {**known, "platform": TERMINAL} if session.place in NO_PLATFORMS else known


def _turns(
    archive: Archive, session: Session, period: tuple[float, float], oldest: float
) -> Iterator[dict[str, Any]]:
    since, until = period
    for turn in joined_turns_of(archive.messages(session), oldest):
        if since <= turn["at"] < until:
            yield turn


def _unanswered(archive: Archive, session: Session, since: float, until: float) -> int:
    found = unanswered_at_end(archive.messages(session))
    return sum(since <= each.at < until for each in found)


def past_notes(home: Path, memory: Mapping[str, Any]) -> Iterator[PastNote]:
    """The notes that are there now, each once, the oldest first.

    Notes that the guard hides from the model are left out.

    Args:
        home: Whose notes.
        memory: The section ``memory`` of config.yaml.
    """
    with closing(Notes.open(home, memory)) as notes:
        found = [
            each
            for book in notes.all_notebooks()
            if book.target in notes.enabled() and book.text.exists
            for each in _notes_of(notes, book)
        ]
    yield from sorted(found, key=lambda each: each.at)


def _notes_of(notes: Notes, book: Notebook) -> Iterator[PastNote]:
    person = notes.owner(book.key)
    shown = view(book, book.read()).harmless
    origins, times = book.origins(shown), _times(notes, book)
    for text in shown:
        change = {
            "action": "add",
            "target": book.target,
            "content": text,
            "metadata": {
                "write_origin": "replay",
                "origin": origins.get(text, ASSISTANT),
                "session_id": _SESSION,
                "platform": person.platform,
                "tool_name": "memory",
            },
        }
        yield PastNote(_SESSION, _who(person), times.get(text, 0.0), change)


def _who(person: Person) -> dict[str, str]:
    return {
        "platform": person.platform,
        **({"user_id": person.user_id} if person.user_id else {}),
    }


def _times(notes: Notes, book: Notebook) -> dict[str, float]:
    """Since when each entry has been there, as far as the history knows."""
    times: dict[str, float] = {}
    changes = notes.history.changes(book.key, limit=-1)[::-1] if notes.history.exists else []
    for change in changes:
        times = {text: times.get(text, change.at) for text in change.known.entries}
    return times
