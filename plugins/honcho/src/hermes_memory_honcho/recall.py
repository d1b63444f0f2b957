"""Recall: what Honcho knows that helps with the message at hand."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from hermes_core.service import RecallResult, hand_over
from hermes_memory_honcho.client import HonchoError
from hermes_memory_honcho.names import FoundMessage, Names, Portrait
from hermes_memory_honcho.service import HonchoService
from hermes_memory_honcho.settings import LEVELS, HonchoSettings
from hermes_memory_honcho.texts import around, clipped, is_trivial, shortened

# -- Questions to Honcho's own model, with the message at hand: as often and as hard as set -----

logger = logging.getLogger(__name__)

_LONG: Final = (120, 400)  # characters from which a message deserves more thought
_LONGEST_PAUSE: Final = 8  # times the cadence
_ENOUGH: Final = 300  # characters; a longer answer needs no further pass
_FIRST: Final = (
    "They now say: {query}\n\nWhat do you know about them that helps to answer this? Answer in a "
    "few sentences, with facts only."
)
_AGAIN: Final = (
    "They now say: {query}\n\nA first answer to what you know about them that helps here was: "
    "{answer}\n\nWhat is missing or wrong in it? Give the whole answer again."
)


class Dialectic:
    """Asks the model. A model that does not answer in time is asked less and less often."""

    def __init__(self, service: HonchoService, settings: HonchoSettings) -> None:
        self._service = service
        self._settings = settings
        self._messages = 0
        self._next = 1
        self._pause = 1

    def answer(self, query: str) -> str:
        """What the model says to a message; "" if it is not its turn, or too slow."""
        settings = self._settings
        self._messages += 1
        off = not settings.dialectic_cadence or not settings.dialectic_wait
        if off or self._messages < self._next:
            return ""
        found = ""
        try:
            with self._service.wire.within(settings.dialectic_wait):
                for level in self._levels(query):
                    found = self._ask(query, found, level) or found
                    if len(found) > _ENOUGH:
                        break
        except HonchoError as error:
            logger.info("honcho: its model did not answer: %s", error)
        # Exponential back-off, counted in messages: each attempt may cost the turn `dialectic_wait`
        # seconds.
        self._pause = 1 if found else min(self._pause * 2, _LONGEST_PAUSE)
        self._next = self._messages + settings.dialectic_cadence * self._pause
        return clipped(found, settings.dialectic_max_chars)

    def _ask(self, query: str, before: str, level: str) -> str:
        prompt = _AGAIN if before else _FIRST
        room = self._settings.dialectic_max_input - len(prompt) - len(before)
        asked = prompt.format(query=shortened(query, max(room, 100)), answer=before)
        return self._service.ask(asked, self._service.names.user, level)

    def _levels(self, query: str) -> list[str]:
        """How hard each pass thinks."""
        settings = self._settings
        base = LEVELS.index(settings.dialectic_level)
        if settings.reasoning_heuristic:
            cap = max(LEVELS.index(settings.reasoning_level_cap), base)
            base = min(base + sum(len(query) >= each for each in _LONG), cap)
        depth = settings.dialectic_depth
        # A quick first pass, the real one, and with three a short check of the result.
        usual = {1: [base], 2: [0, base], 3: [0, base, 1]}[depth]
        levels = [*settings.dialectic_depth_levels[:depth]]
        return levels + [LEVELS[each] for each in usual[len(levels) :]]


# -- Recall: what Honcho knows that helps with the message at hand ------------------------------
#
# Each message is asked about when it comes. What does not depend on it (the session's summary, what
# the agent is like) is fetched after a turn, and stored for the next.

_BUDGET: Final = 3.6  # hosts allow recall 4 seconds
_EXCERPTS: Final = 5
_EXCERPT: Final = 300
_CHARS_PER_TOKEN: Final = 4
_REST_SECONDS: Final = 30.0  # for so long a server that was too slow is not waited for again
_LONG_REST: Final = 600.0  # the same, if it was too slow for a warm-up too, which asks on and on

_T = TypeVar("_T")


class SessionBackground(NamedTuple):
    """What holds for a whole session."""

    summary: str = ""
    ai: Portrait = Portrait()


@dataclass(slots=True)
class _Progress:
    """How far a session is: its turn, and what was found for an earlier one."""

    turn: int = 0
    facts: SessionBackground | None = None
    card: Sequence[str] = ()
    base: RecallResult = field(default_factory=RecallResult)
    base_turn: int = 0


class Recaller:
    """One agent's recall."""

    def __init__(self, service: HonchoService, settings: HonchoSettings) -> None:
        self._service = service
        self._names: Names = service.names
        self._settings = settings
        self._dialectic = Dialectic(service, settings)
        self._sessions: dict[str, _Progress] = {}
        # Recall and warm-up run on different workers of the host.
        self._lock = threading.Lock()
        #: Until when no turn waits; 0.0 if the last answers came in time.
        self._rests_until = 0.0

    def forget(self, session_id: str) -> None:
        """Start a new session."""
        with self._lock:
            self._sessions.pop(session_id, None)

    def recall(self, query: str, session_id: str) -> RecallResult:
        """What helps with a message."""
        if self._settings.recall_mode == "tools" or is_trivial(query):
            return RecallResult()
        progress = self._progress(session_id)
        progress.turn += 1
        # Who sets a longer wait gets it, if the host allows it too.
        with self._service.wire.within(max(_BUDGET, self._settings.base_wait)):
            base = self._base(query, session_id, progress)
            hand_over(base.text)  # the dialectic may take longer than a turn waits
            answer = "" if self._rests else self._dialectic.answer(query)
        texts = [base.text, f"## Honcho's answer\n{answer}" if answer else ""]
        limit = self._settings.context_tokens * _CHARS_PER_TOKEN
        text = clipped("\n\n".join(filter(None, texts)), limit)
        return RecallResult(text, base.count + bool(answer))

    def warm(self, query: str, session_id: str) -> None:
        """Fetch what the next message of a session needs, whatever it is."""
        if self._settings.recall_mode == "tools" or not self._settings.base_wait:
            return
        with self._service.wire.within(self._settings.base_wait):
            if self._rests_until:
                self._try_again(query)
            self._progress(session_id).facts = self._session_facts(session_id)
            self._service.sessions()

    def _try_again(self, query: str) -> None:
        """Ask a server that was too slow what a turn asks. Here no turn waits for it."""
        # Summary and sessions prove nothing: they need no embeddings, which may be what is slow.
        try:
            self._service.portrait(self._names.user, query)
            self._service.search(query, self._names.user, _EXCERPTS, refresh=False)
        except HonchoError as error:
            self._rest_after(error, _LONG_REST)
            raise
        self._rests_until = 0.0

    def summary(self, session_id: str) -> str:
        """Honcho's summary of a session, as it was after the last turn. Nothing is asked."""
        return (self._progress(session_id).facts or SessionBackground()).summary

    def _progress(self, session_id: str) -> _Progress:
        with self._lock:
            return self._sessions.setdefault(session_id, _Progress())

    def _base(self, query: str, session_id: str, progress: _Progress) -> RecallResult:
        """What is known, with regard to the message; asked as often as the settings say."""
        settings = self._settings
        first = progress.base_turn == 0
        if not settings.base_wait or (not first and settings.injection_frequency == "first-turn"):
            return RecallResult()
        # Between two questions the last answer is injected again: the model sees only the current
        # message's block.
        if first or progress.turn - progress.base_turn >= settings.context_cadence:
            with self._service.wire.within(settings.base_wait):
                progress.base = self._asked(query, session_id, progress)
            progress.base_turn = progress.turn
        return progress.base

    def _asked(self, query: str, session_id: str, progress: _Progress) -> RecallResult:
        # Only if something is known already: a new session waits, rather than starting with
        # nothing.
        if self._rests and (progress.facts or progress.card):
            return self._composed(Portrait(card=progress.card), [], query, progress)
        person = self._person(query, progress)
        said = self._in_time(
            lambda: self._service.search(query, self._names.user, _EXCERPTS, refresh=False)
        ) or []  # fmt: skip
        if progress.facts is None:
            progress.facts = self._in_time(lambda: self._session_facts(session_id))
        return self._composed(person, said, query, progress)

    def _composed(
        self, person: Portrait, said: Sequence[FoundMessage], query: str, progress: _Progress
    ) -> RecallResult:
        facts = progress.facts or SessionBackground()
        sections = {
            "User Representation": person.representation,
            "User Peer Card": "\n".join(person.card),
            "Related messages": "\n".join(f"- {self._shown(each, query)}" for each in said),
            "Session Summary": facts.summary,
            "AI Self-Representation": facts.ai.representation,
            "AI Identity Card": "\n".join(facts.ai.card),
        }
        text = "\n\n".join(f"## {title}\n{body}" for title, body in sections.items() if body)
        return RecallResult(text, _counted(person.representation) + len(person.card) + len(said))

    def _person(self, query: str, progress: _Progress) -> Portrait:
        """What is known of the person; from one who is too slow, what was known before."""
        try:
            found = self._service.portrait(self._names.user, query)
        except HonchoError as error:
            # A wrong key or a missing server must be reported; slowness alone is not a reason to
            # recall nothing.
            if error.code != "timeout" or not (progress.facts or progress.card):
                raise
            self._rest_after(error)
            logger.info("honcho: recalled what was known before: %s", error)
            return Portrait(card=progress.card)
        progress.card = found.card
        return found

    @property
    def _rests(self) -> bool:
        """Whether a server was too slow just now. Then no turn waits for it."""
        return time.monotonic() < self._rests_until

    def _rest_after(self, error: HonchoError, seconds: float = _REST_SECONDS) -> None:
        if error.code == "timeout":
            self._rests_until = time.monotonic() + seconds

    def _in_time(self, ask: Callable[[], _T]) -> _T | None:
        """What is only good to have: without it there is still what was found before."""
        try:
            return ask()
        except HonchoError as error:
            self._rest_after(error)
            logger.info("honcho: recalled without a part: %s", error)
            return None

    def _session_facts(self, session_id: str) -> SessionBackground:
        place = self._names.place(session_id)
        return SessionBackground(
            self._service.summary(place.session), self._service.portrait(self._names.ai)
        )

    def _shown(self, found: FoundMessage, query: str) -> str:
        who = "assistant" if found.peer == self._names.ai else found.peer
        return f"[{who}] {around(found.text, query, _EXCERPT)}"


def _counted(representation: str) -> int:
    lines = (line.strip() for line in representation.splitlines())
    return sum(1 for line in lines if line and not line.startswith("#"))
