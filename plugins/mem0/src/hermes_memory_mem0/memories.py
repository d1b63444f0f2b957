"""What the three modes have in common: memories of an owner, that can be asked for and changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

Message = dict[str, str]


class Owner(NamedTuple):
    """Whose memories: every question names the user, every memory its author too."""

    user: str
    agent: str


class Memory(NamedTuple):
    """One fact."""

    id: str
    text: str
    user: str = ""
    score: float = 0.0


class Memories(Protocol):
    """A place where Mem0 keeps memories. Every method raises if it did not answer."""

    #: How a person calls the place: an address or a folder.
    where: str
    #: Whether facts are there when ``add`` returns, or made later.
    extracts_at_once: bool

    def open(self) -> None:
        """Get ready, over the network if need be. May be called again."""

    def add(
        self, owner: Owner, messages: Sequence[Message], marks: Mapping[str, str], *, infer: bool
    ) -> str:
        """Store messages, or the facts in them; gives the id of the event, if there is one.

        Args:
            owner: Whose they are.
            messages: Who said what.
            marks: Goes with each memory, and finds it again.
            infer: Let a model extract facts; else each message is a memory as it stands.
        """

    def search(self, owner: Owner, query: str, limit: int, *, rerank: bool) -> list[Memory]:
        """What fits a question, the best first."""

    def marked(self, owner: Owner, marks: Mapping[str, str], text: str) -> list[Memory]:
        """The memories with these marks; ``text`` is what they are about."""

    def is_underway(self, owner: Owner, marks: Mapping[str, str]) -> bool:
        """Whether memories with these marks are still being made."""

    def get(self, memory_id: str) -> Memory | None:
        """One memory."""

    def update(self, memory_id: str, text: str, marks: Mapping[str, str] | None = None) -> None:
        """Give a memory another text."""

    def delete(self, memory_id: str) -> None:
        """Remove a memory."""

    def forget(self, owner: Owner) -> None:
        """Remove all memories of a user."""

    def close(self) -> None:
        """Let go. May be called twice."""


def memory_of(row: Mapping[str, Any]) -> Memory:
    """A memory as Mem0 tells it, in any of its modes."""
    return Memory(
        str(row.get("id") or ""),
        str(row.get("memory") or ""),
        str(row.get("user_id") or ""),
        float(row.get("score") or 0.0),
    )


def memories_in(answer: Any) -> list[Memory]:
    """The memories of an answer: a list, or an object that has one."""
    rows = answer.get("results") if isinstance(answer, Mapping) else answer
    rows = rows if isinstance(rows, list) else []
    return [memory_of(each) for each in rows if isinstance(each, Mapping) and each.get("memory")]
