"""Recall: what Honcho knows that helps with the message at hand.

Each message is asked about when it comes. What does not depend on it (the session's summary, what
the agent is like) is fetched after a turn, and kept for the next.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from hermes_core.backends import Recalled
from hermes_memory_honcho.dialectic import Dialectic
from hermes_memory_honcho.naming import Names
from hermes_memory_honcho.service import Excerpt, Portrait, Service
from hermes_memory_honcho.settings import Settings
from hermes_memory_honcho.texts import around, clipped, is_trivial
from hermes_memory_honcho.wire import HonchoError

logger = logging.getLogger(__name__)

_BUDGET: Final = 3.6  # hosts give recall 4 seconds
_EXCERPTS: Final = 5
_EXCERPT: Final = 300
_CHARS_PER_TOKEN: Final = 4

_T = TypeVar("_T")


class Standing(NamedTuple):
    """What holds for a whole session."""

    summary: str = ""
    ai: Portrait = Portrait()


@dataclass(slots=True)
class _Progress:
    """How far a session is: its turn, and what was found for an earlier one."""

    turn: int = 0
    standing: Standing | None = None
    base: Recalled = field(default_factory=Recalled)
    base_turn: int = 0


class Recaller:
    """One agent's recall."""

    def __init__(self, service: Service, settings: Settings) -> None:
        self._service = service
        self._names: Names = service.names
        self._settings = settings
        self._dialectic = Dialectic(service, settings)
        self._sessions: dict[str, _Progress] = {}
        self._lock = threading.Lock()

    def forget(self, session_id: str) -> None:
        """A session begins anew."""
        with self._lock:
            self._sessions.pop(session_id, None)

    def recall(self, query: str, session_id: str) -> Recalled:
        """What helps with a message."""
        if self._settings.recall_mode == "tools" or is_trivial(query):
            return Recalled()
        progress = self._progress(session_id)
        progress.turn += 1
        with self._service.wire.within(_BUDGET):
            base = self._base(query, session_id, progress)
            answer = self._dialectic.answer(query)
        texts = [base.text, f"## Honcho's answer\n{answer}" if answer else ""]
        limit = self._settings.context_tokens * _CHARS_PER_TOKEN
        text = clipped("\n\n".join(filter(None, texts)), limit)
        return Recalled(text, base.count + bool(answer))

    def warm(self, session_id: str) -> None:
        """Fetch what the next message of a session needs, whatever it is."""
        if self._settings.recall_mode == "tools" or not self._settings.base_wait:
            return
        with self._service.wire.within(self._settings.base_wait):
            self._progress(session_id).standing = self._standing(session_id)

    def summary(self, session_id: str) -> str:
        """Honcho's summary of a session, as it was after the last turn. Nothing is asked."""
        return (self._progress(session_id).standing or Standing()).summary

    def _progress(self, session_id: str) -> _Progress:
        with self._lock:
            return self._sessions.setdefault(session_id, _Progress())

    def _base(self, query: str, session_id: str, progress: _Progress) -> Recalled:
        """What is known, with regard to the message; asked as often as the settings say."""
        settings = self._settings
        first = progress.base_turn == 0
        if not settings.base_wait or (not first and settings.injection_frequency == "first-turn"):
            return Recalled()
        if first or progress.turn - progress.base_turn >= settings.context_cadence:
            with self._service.wire.within(settings.base_wait):
                progress.base = self._asked(query, session_id, progress)
            progress.base_turn = progress.turn
        return progress.base

    def _asked(self, query: str, session_id: str, progress: _Progress) -> Recalled:
        person = self._service.portrait(self._names.user, query)
        said = _in_time(lambda: self._service.search(query, self._names.user, _EXCERPTS)) or []
        if progress.standing is None:
            progress.standing = _in_time(lambda: self._standing(session_id))
        standing = progress.standing or Standing()
        sections = {
            "User Representation": person.representation,
            "User Peer Card": "\n".join(person.card),
            "Related messages": "\n".join(f"- {self._shown(each, query)}" for each in said),
            "Session Summary": standing.summary,
            "AI Self-Representation": standing.ai.representation,
            "AI Identity Card": "\n".join(standing.ai.card),
        }
        text = "\n\n".join(f"## {title}\n{body}" for title, body in sections.items() if body)
        return Recalled(text, _counted(person.representation) + len(person.card) + len(said))

    def _standing(self, session_id: str) -> Standing:
        place = self._names.place(session_id)
        return Standing(
            self._service.summary(place.session), self._service.portrait(self._names.ai)
        )

    def _shown(self, found: Excerpt, query: str) -> str:
        who = "assistant" if found.peer == self._names.ai else found.peer
        return f"[{who}] {around(found.text, query, _EXCERPT)}"


def _counted(representation: str) -> int:
    lines = (line.strip() for line in representation.splitlines())
    return sum(1 for line in lines if line and not line.startswith("#"))


def _in_time(ask: Callable[[], _T]) -> _T | None:
    """What is only good to have: without it there is still what was found before."""
    try:
        return ask()
    except HonchoError as error:
        logger.info("honcho: recalled without a part: %s", error)
        return None
