"""Agents that remember with Honcho, and what a server of theirs has kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hermes_core import MemoryManager
from hermes_memory_honcho.provider import HonchoProvider
from support.honcho_server import HonchoServer


class Agent:
    """A provider that is called as our host calls it: with the identity of each write."""

    def __init__(self, home: Path, session: str = "s1", /, **facts: Any) -> None:
        self.provider = HonchoProvider()
        self.session = session
        known = {"agent_context": "primary", "agent_identity": "default", "platform": "cli"}
        self.provider.initialize(session, hermes_home=str(home), **(known | facts))
        self._writes = 0

    def say(self, user: str, assistant: str = "Noted.", *, again: str = "", **more: Any) -> str:
        """A turn; ``again`` repeats one by its id. Gives its id."""
        self._writes += 1
        key = again or f"turn-{self.session}-{self._writes}"
        attempt = 2 if again else 1
        more = {"session_id": self.session, "turn_id": key, "attempt": attempt} | more
        self.provider.sync_turn(user, assistant, **more)
        return key

    def note(self, action: str, content: str, old: str = "", **more: Any) -> None:
        """A change of the notes."""
        self._writes += 1
        facts = {"old_text": old} if old else {}
        more = {"event_id": f"note-{self._writes}"} | more
        self.provider.on_memory_write(action, "user", content, facts, **more)

    def recall(self, query: str) -> str:
        """What is recalled for a message."""
        return self.provider.prefetch(query, session_id=self.session)

    def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """What a tool answers."""
        answer: dict[str, Any] = json.loads(self.provider.handle_tool_call(tool, arguments))
        return answer

    def end(self) -> None:
        """The session is over."""
        self.provider.on_session_end([], event_id=f"end-{self.session}")


def said(server: HonchoServer, workspace: str = "hermes") -> list[str]:
    """What all messages say that a server has."""
    return [each["content"] for each in server.store.messages(workspace)]


def facts(server: HonchoServer, workspace: str = "hermes") -> list[str]:
    """What was concluded without a deriver."""
    known = [each["content"] for each in server.store.conclusions(workspace)]
    return [each for each in known if " said: " not in each]


def manager(home: Path, session: str = "s1", /, **known: Any) -> MemoryManager:
    """An agent's manager, with its outbox, on a home."""
    made = MemoryManager(home=home)
    made.add_provider(HonchoProvider())
    made.initialize_all(session, **known)
    return made
