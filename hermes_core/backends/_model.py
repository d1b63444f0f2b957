"""What travels between a host, `ServiceProvider` and a plugin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple


class Start(NamedTuple):
    """What ``initialize`` was told. ``config`` is empty where the host reads no settings."""

    session_id: str
    home: Path
    platform: str = "cli"
    context: str = "primary"
    profile: str = "default"
    workspace: str = "hermes"
    user_id: str = ""
    user_id_alt: str = ""
    user_name: str = ""
    chat_id: str = ""
    thread_id: str = ""
    session_title: str = ""
    parent_session_id: str = ""
    gateway_session_key: str = ""
    config: Mapping[str, Any] = MappingProxyType({})


class Turn(NamedTuple):
    """A completed turn. ``id`` is the same in every attempt, ``attempt`` counts from 1."""

    id: str
    attempt: int
    session_id: str
    user: str
    assistant: str
    messages: list[dict[str, Any]] | None = None


class Note(NamedTuple):
    """A change of the built-in notes; ``old_text`` is what a replace or remove took away.

    A host without an outbox, such as hermes-agent, may tell a part of it: then ``old_is_whole``
    is False, and the part is in one note only.
    """

    id: str
    attempt: int
    session_id: str
    action: str
    target: str
    content: str
    old_text: str
    metadata: Mapping[str, Any]
    old_is_whole: bool = True


class Delegation(NamedTuple):
    """What a subagent was asked, and what it answered."""

    id: str
    attempt: int
    session_id: str
    task: str
    result: str
    child_session_id: str


class Ending(NamedTuple):
    """The end of a session, with its whole conversation."""

    id: str
    attempt: int
    session_id: str
    messages: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Recalled:
    """What was found for a message, and how many memories that is."""

    text: str = ""
    count: int = 0


class ProbeResult(NamedTuple):
    """Whether a service works, in one line."""

    ok: bool
    detail: str


class Tool(NamedTuple):
    """A tool for the model.

    Attributes:
        schema: What the model is told.
        run: Gets checked arguments, gives the answer.
        writes: It is for the agent itself alone, not for a cron job or a subagent.
    """

    schema: dict[str, Any]
    run: Callable[[dict[str, Any]], dict[str, Any]]
    writes: bool = False

    def problem(self, given: dict[str, Any]) -> str:
        """What is wrong with arguments; "" if nothing is."""
        from jsonschema import Draft202012Validator  # noqa: PLC0415 - slow, only where it is used

        validator = Draft202012Validator(self.schema["parameters"])
        return "; ".join(
            f"{'.'.join(map(str, error.path))}: {error.message}" if error.path else error.message
            for error in validator.iter_errors(given)
        )
