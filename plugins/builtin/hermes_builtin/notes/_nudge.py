"""Reminders: the model forgets to take notes when the work is absorbing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

REMINDER: Final = (
    "[Reminder: it has been a while since you saved anything to memory. If the user has shown a "
    "preference, corrected you, or told you something lasting about themselves or the "
    "environment, save it with the memory tool. If not, go on.]"
)

_REVIEW: Final = (
    "Review the conversation below for what is worth remembering. Save with the memory tool: how "
    "the user wants things, corrections they made, who they are, lasting facts about the "
    "environment and the work. Compare with the notebooks as they are now; replace or remove what "
    "is outdated. Leave out progress on tasks and what is stale in a week. If there is nothing to "
    "save, answer: nothing to save."
)

_RECENT: Final = 24
_SHORT: Final = 200
_LONG: Final = 4000


class NudgeCounter:
    """Counts user turns without a write, for each session on its own."""

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._turns: dict[str, int] = {}

    def turn(self, session: str) -> None:
        """A user turn begins."""
        self._turns[session] = self._turns.get(session, 0) + 1

    def reset(self, session: str) -> None:
        """Something was saved."""
        self._turns[session] = 0

    def due(self, session: str) -> bool:
        """Whether to remind now; asks once per interval."""
        if self._interval <= 0 or self._turns.get(session, 0) < self._interval:
            return False
        self._turns[session] = 0
        return True


def review_prompt(messages: Sequence[Mapping[str, Any]], notebooks: Mapping[str, str]) -> str:
    """What a host sends to a model, with the memory tool at hand, to review a conversation.

    The newest messages are there in full, older ones in short.
    """
    lines = []
    for position, message in enumerate(messages):
        text = _content(message.get("content"))
        if not text:
            continue
        room = _LONG if position >= len(messages) - _RECENT else _SHORT
        lines.append(f"{message.get('role', 'unknown')}: {_cut(text, room)}")
    state = "\n\n".join(f"{name}:\n{text or '(empty)'}" for name, text in notebooks.items())
    conversation = "\n".join(lines)
    return f"{_REVIEW}\n\n# Notebooks now\n\n{state}\n\n# Conversation\n\n{conversation}"


def _content(content: Any) -> str:
    if isinstance(content, str):
        return content.strip()
    if isinstance(content, list):
        parts = (part.get("text", "") for part in content if isinstance(part, dict))
        return "\n".join(part for part in parts if isinstance(part, str)).strip()
    return ""


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[:room]} [... {len(text) - room} more characters]"
