"""Recall: what the providers are asked, and the text that goes into the user's message."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

from hermes_core.dispatch import HookCalls, LateAnswer, Outcome
from hermes_core.errors import describe
from hermes_core.manager.prompts import user_instruction
from hermes_core.privacy.origin import of_provider
from hermes_core.provider import BUILTIN, BuiltinMethods

logger = logging.getLogger("hermes_core")

#: How many characters of recalled text a turn may have, with the frame around it. About 3,000
#: tokens: enough for a few dozen memories, small beside any current model's context window.
CONTEXT_MAX_CHARS: Final = 12_000


class Recollection(NamedTuple):
    """What recall injects for a question, every provider's answer, and what was left out."""

    text: str
    outcomes: tuple[Outcome, ...]
    left_out: tuple[str, ...]


class Recall:
    """Asks the providers of one manager.

    Args:
        hooks: Calls the providers.
        max_chars: How many characters the text of a turn may have.
    """

    def __init__(self, hooks: HookCalls, max_chars: int) -> None:
        self._hooks = hooks
        self._max_chars = max_chars
        #: Whether the last question was blank, so that no provider was asked.
        self.skipped = False

    def ask(self, query: str, session_id: str, builtin: BuiltinMethods | None) -> list[Outcome]:
        """Return the providers' answers; none for a blank query or a skill without instruction.

        Args:
            query: What the user said.
            session_id: The session.
            builtin: Has to know what was recalled, to judge where later notes come from.
        """
        asked = user_instruction(query)
        self.skipped = not asked
        if not asked:
            return []
        outcomes = self._hooks.call("prefetch", query=asked, session_id=session_id)
        for each in outcomes:
            if builtin is not None and each.provider != BUILTIN and _has_text(each.value):
                builtin.read_external(each.value, of_provider(each.provider), session_id)
        return outcomes

    def recollect(
        self, query: str, session_id: str, builtin: BuiltinMethods | None
    ) -> Recollection:
        """Return the providers' answers, and their texts in a fence.

        Args:
            query: What the user said.
            session_id: The session.
            builtin: Its guard of the notes also marks recalled text: a service may return what a
                stranger wrote.
        """
        with suppress(ImportError, OSError):  # before a provider can keep files from being opened
            import hermes_core.fence  # noqa: F401, PLC0415 - hosts may do without
        outcomes = self.ask(query, session_id, builtin)
        try:
            return self._fenced(outcomes, builtin)
        # A plugin in this process may break what this needs. The turn goes on without the text.
        except Exception as error:  # noqa: BLE001
            logger.warning("memory: recalled text is left out: %s", describe(error))
            return Recollection("", tuple(outcomes), (f"everything: {describe(error)}",))

    def _fenced(self, outcomes: Sequence[Outcome], builtin: BuiltinMethods | None) -> Recollection:
        from hermes_core.fence import RecalledText, build_block  # noqa: PLC0415 - hosts may do without

        parts = [
            RecalledText(
                each.provider,
                each.value,
                getattr(each.value, "question", ""),
                of_provider(each.provider),
            )
            for each in outcomes
            if isinstance(each.value, str)
        ]
        scan = None if builtin is None else partial(_objections, builtin)
        block = build_block(parts, max_chars=self._max_chars, scan=scan)
        return Recollection(block.text, tuple(outcomes), block.left_out)


def _objections(builtin: BuiltinMethods, text: str) -> list[str]:
    """What the guard finds in a text; a text that can't be checked is marked."""
    try:
        return builtin.objections(text)
    except Exception as error:  # noqa: BLE001 - the turn goes on
        logger.warning("memory: recalled text could not be checked: %s", describe(error))
        return ["not checked"]


def joined(outcomes: Iterable[Outcome]) -> str:
    """Return the texts that providers returned, joined by blank lines."""
    return "\n\n".join(_labelled(each.value) for each in outcomes if _has_text(each.value))


def _labelled(value: str) -> str:
    """Return a text, with a label if it answers an earlier question."""
    if isinstance(value, LateAnswer):
        return f"[recalled for the earlier question: {value.question}]\n{value}"
    return value


def _has_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def budget(seconds: float | str) -> float:
    """Return the seconds that recall may take; a setting may be text."""
    given = float(seconds)
    # Not `given < 0`: that would accept NaN.
    if not given >= 0:
        raise ValueError(f"external_prefetch_timeout must not be negative: {seconds}")
    return given
