"""What the archive keeps, and what it is asked: plain data, no database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

ROLES: Final = ("user", "assistant", "tool")
TALK: Final = frozenset(("user", "assistant"))

#: Conversations of machines with machines: not shown unless asked for.
HIDDEN_SOURCES: Final = frozenset(("subagent", "tool"))
CRON: Final = "cron"


class Scope(NamedTuple):
    """Whose conversations may be seen: what is given must be equal. "" means any."""

    user_id: str = ""
    chat_id: str = ""
    profile: str = ""

    def __bool__(self) -> bool:
        return any(self)


EVERYBODY: Final = Scope()


class SessionFacts(NamedTuple):
    """What is known of a conversation when it begins."""

    id: str
    source: str = ""
    user_id: str = ""
    chat_id: str = ""
    profile: str = ""
    title: str = ""
    parent: str = ""
    started: float = 0.0
    ended: float | None = None


class Session(NamedTuple):
    """A conversation in the archive. ``number`` is the archive's own name for it."""

    number: int
    id: str
    source: str
    user_id: str
    chat_id: str
    profile: str
    title: str
    parent: str
    started: float
    ended: float | None
    active: float
    messages: int


class NewMessage(NamedTuple):
    """A message to be kept. ``extra`` has the tool's name, its calls, and what else there is."""

    role: str
    content: str
    at: float
    extra: Mapping[str, Any] | None = None


class Message(NamedTuple):
    """A message in the archive."""

    id: int
    role: str
    content: str
    at: float
    extra: Mapping[str, Any]


class Hit(NamedTuple):
    """A conversation that was found, by its best message."""

    session: Session
    message_id: int
    score: float


class Found(NamedTuple):
    """The answer to a search.

    Attributes:
        hits: The best first.
        words: The index words that were looked for, to show them in the texts.
        approximate: A word was so frequent that not all of its messages were looked at.
        behind: Why the newest messages could not be looked at.
    """

    hits: list[Hit]
    words: frozenset[str]
    approximate: bool = False
    behind: str = ""
