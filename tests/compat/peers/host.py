"""The one place where the scenarios meet a release: hermes-agent's, or ours under its names.

The process that runs them says which with ``HERMES_PEERS_SIDE``. Ours offers hermes-agent's
modules first; from there on every import reads the same.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

OURS = os.environ.get("HERMES_PEERS_SIDE") == "ours"

if OURS:
    from hermes_core.loading.compat import offer_hermes_agent_modules

    offer_hermes_agent_modules()

from agent import memory_manager, memory_provider  # noqa: E402
from agent.memory_manager import MemoryManager  # noqa: E402
from agent.memory_provider import MemoryProvider  # noqa: E402

__all__ = [
    "OURS",
    "MemoryManager",
    "MemoryProvider",
    "archive",
    "memory_manager",
    "memory_provider",
    "notes",
    "quick_shutdown",
]

Call = Callable[..., dict[str, Any]]


def quick_shutdown(seconds: float) -> MemoryManager:
    """A manager that gives up after so many seconds when it shuts down."""
    if OURS:
        from hermes_core import Deadlines

        return MemoryManager(deadlines=Deadlines(shutdown=seconds))
    memory_manager._SYNC_DRAIN_TIMEOUT_S = seconds
    return MemoryManager()


def notes() -> Call:
    """The ``memory`` tool on the current home: a function from its arguments to its answer."""
    if OURS:
        return _our_tool("memory")
    from tools.memory_tool import MemoryStore
    from tools.registry import registry

    store = MemoryStore()
    store.load_from_disk()
    return lambda **args: json.loads(registry.dispatch("memory", args, store=store))


def archive(talks: dict[str, list[str]], titles: dict[str, str], parents: dict[str, str]) -> Call:
    """The ``session_search`` tool on a home with conversations.

    Args:
        talks: The texts of each session; the user and the assistant take turns.
        titles: The titles of some of them.
        parents: The sessions that some of them continue.
    """
    if OURS:
        _our_archive(talks, titles, parents)
        return _our_tool("session_search")
    from hermes_state import SessionDB
    from tools import session_search_tool  # noqa: F401 - it registers itself
    from tools.registry import registry

    database = SessionDB(_home() / "state.db")
    for number, (session, texts) in enumerate(talks.items()):
        database.create_session(session, "cli", parent_session_id=parents.get(session))
        for at, text in enumerate(texts):
            database.append_message(session, _role(at), text, timestamp=_time(number, at))
        if session in titles:
            database.set_session_title(session, titles[session])
        database.end_session(session, "compression" if session in parents.values() else "done")
    return lambda **args: json.loads(registry.dispatch("session_search", args, db=database))


def _our_tool(name: str) -> Call:
    from hermes_core import MemoryManager as Ours

    manager = Ours.from_config(_home())
    manager.initialize_all("now", platform="cli")
    return lambda **args: json.loads(manager.handle_tool_call(name, args))


def _our_archive(
    talks: dict[str, list[str]], titles: dict[str, str], parents: dict[str, str]
) -> None:
    from hermes_builtin.sessions.archive import NewMessage, SessionFacts
    from hermes_builtin.sessions.sqlite import SqliteArchive

    written = SqliteArchive(_home() / "state.db")
    for number, (session, texts) in enumerate(talks.items()):
        facts = SessionFacts(
            session,
            "cli",
            profile="default",
            title=titles.get(session, ""),
            parent=parents.get(session, ""),
            started=_time(number, 0),
        )
        messages = [NewMessage(_role(at), text, _time(number, at)) for at, text in enumerate(texts)]
        written.append(facts, messages)
    written.close()


def _home() -> Path:
    return Path(os.environ["HERMES_HOME"])


def _role(at: int) -> str:
    return ("user", "assistant")[at % 2]


def _time(session: int, message: int) -> float:
    return 1.7e9 + session * 86_400 + message
