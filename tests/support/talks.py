"""Conversations as a host has them: turns that are kept, and the tool that finds them again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from hermes_builtin.sessions.archive import NewMessage, SessionFacts
from hermes_core import MemoryManager
from support.archives import open_archive

Turn = tuple[str, str]
StartTalk = Callable[..., "Talk"]


class Talk:
    """A session of an agent on a home."""

    def __init__(self, home: Path, session: str = "now", **facts: Any) -> None:
        self.session = session
        self.manager = MemoryManager.from_config(home)
        self.manager.initialize_all(session, **facts)

    def say(self, user: str, assistant: str = "All right.", **options: Any) -> None:
        """One turn."""
        self.manager.sync_all(user, assistant, **options)

    def raw(self, **arguments: Any) -> str:
        """What the tool answers, as the model gets it: text that can be sent."""
        answer = self.manager.handle_tool_call("session_search", arguments)
        answer.encode("utf-8")
        return answer

    def ask(self, **arguments: Any) -> dict[str, Any]:
        """What the tool answers, whatever it is."""
        answer: dict[str, Any] = json.loads(self.raw(**arguments), parse_constant=_no_json)
        return answer

    def call(self, **arguments: Any) -> dict[str, Any]:
        """What the tool answers, without an error."""
        answer = self.ask(**arguments)
        assert answer["success"] is True, answer
        return answer

    def search(self, query: str, **arguments: Any) -> dict[str, Any]:
        """The answer to a query."""
        answer = self.call(query=query, **arguments)
        assert answer["mode"] == "discover"
        assert answer["count"] == len(answer["results"])
        return answer

    def found(self, query: str, **arguments: Any) -> list[str]:
        """The sessions that a query finds, the best first."""
        return [each["session_id"] for each in self.search(query, **arguments)["results"]]

    def refused(self, **arguments: Any) -> str:
        """The error that the tool answers with."""
        answer = self.ask(**arguments)
        assert answer["success"] is False, answer
        error: str = answer["error"]
        assert "Traceback" not in error
        assert "failed:" not in error, f"not an answer of the tool: {error}"
        return error

    def close(self) -> None:
        self.manager.shutdown_all()


def _no_json(name: str) -> Any:
    raise AssertionError(f"{name} is no JSON")


def past(home: Path, session: str, turns: Iterable[Turn], **facts: Any) -> None:
    """A conversation that was held and ended."""
    talk = Talk(home, session, **facts)
    for user, assistant in turns:
        talk.say(user, assistant)
    talk.manager.on_session_end([{"role": "user", "content": "bye"}])
    talk.close()


def numbered(count: int, word: str = "topic") -> list[Turn]:
    """So many turns, each with words of its own."""
    return [(f"question{at} on {word}{at}", f"answer{at} to that") for at in range(count)]


def talks(home: Path) -> Iterator[StartTalk]:
    """For a fixture: starts sessions on a home, and ends them with the test."""
    started: list[Talk] = []

    def start(session: str = "now", **facts: Any) -> Talk:
        started.append(Talk(home, session, **facts))
        return started[-1]

    yield start
    for each in started:
        each.close()


def texts(messages: Iterable[dict[str, Any]]) -> list[str]:
    """What messages of an answer say."""
    return [each["content"] for each in messages]


def stored(
    home: Path, session: str, *messages: str | tuple[str, float], role: str = "user"
) -> None:
    """A conversation of messages, each perhaps with its age in days, put into the archive."""
    archive, now = open_archive(home), time.time()
    pairs = [each if isinstance(each, tuple) else (each, 0.0) for each in messages]
    facts = SessionFacts(session, "cli", profile="default", started=now - pairs[0][1] * 86_400.0)
    archive.append(facts, [NewMessage(role, text, now - age * 86_400.0) for text, age in pairs])
    archive.close()
