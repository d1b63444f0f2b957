"""Questions to Honcho's own model, with the message at hand: as often and as hard as set."""

from __future__ import annotations

import logging
from typing import Final

from hermes_memory_honcho.service import Service
from hermes_memory_honcho.settings import LEVELS, Settings
from hermes_memory_honcho.texts import clipped, shortened
from hermes_memory_honcho.wire import HonchoError

logger = logging.getLogger(__name__)

_LONG: Final = (120, 400)  # characters from which a message deserves more thought
_LONGEST_PAUSE: Final = 8
_ENOUGH: Final = 300
_FIRST: Final = (
    "They now say: {query}\n\nWhat do you know about them that helps to answer this? Answer in a "
    "few sentences, with facts only."
)
_AGAIN: Final = (
    "They now say: {query}\n\nA first answer to what you know about them that helps here was: "
    "{answer}\n\nWhat is missing or wrong in it? Give the whole answer anew."
)


class Dialectic:
    """Asks the model. One that gives nothing in time is asked less and less often."""

    def __init__(self, service: Service, settings: Settings) -> None:
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
            logger.info("honcho: its model gave no answer: %s", error)
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
        usual = {1: [base], 2: [0, base], 3: [0, base, 1]}[depth]
        told = [*settings.dialectic_depth_levels[:depth]]
        return told + [LEVELS[each] for each in usual[len(told) :]]
