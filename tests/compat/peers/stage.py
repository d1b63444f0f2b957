"""What the scenarios share: a provider that records its calls, and managers that are closed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from peers.host import MemoryManager, MemoryProvider

#: Longer than anything here takes, also on a loaded machine.
PATIENCE = 30.0


class Scenario(NamedTuple):
    """A function that does something with a manager and returns what can be seen of it."""

    member: str
    run: Callable[[Stage], Any]


SCENARIOS: dict[str, Scenario] = {}


def scenario(member: str) -> Callable[[Callable[[Stage], Any]], Callable[[Stage], Any]]:
    """Register a scenario, under its function's name, as one of ``member``."""

    def register(run: Callable[[Stage], Any]) -> Callable[[Stage], Any]:
        assert run.__name__ not in SCENARIOS, run.__name__
        SCENARIOS[run.__name__] = Scenario(member, run)
        return run

    return register


class Recorder(MemoryProvider):
    """Records every call. A keyword names a method: its value is returned, or called.

    An exception is raised.
    """

    def __init__(self, name: str = "ext", *, tools: Any = (), **answers: Any) -> None:
        self._name = name
        self.calls: list[list[Any]] = []
        self.threads: dict[str, int] = {}
        self.answers: dict[str, Any] = {"get_tool_schemas": list(tools), **answers}

    def _note(self, hook: str, *args: Any, **kwargs: Any) -> Any:
        self.calls.append([hook, list(args), kwargs])
        self.threads[hook] = threading.get_ident()
        answer = self.answers.get(hook)
        if isinstance(answer, BaseException):
            raise answer
        return answer(*args, **kwargs) if callable(answer) else answer

    def of(self, *hooks: str) -> list[list[Any]]:
        """The calls of these methods, in order: name, arguments, keywords."""
        return [each for each in self.calls if each[0] in hooks]

    def order(self) -> list[str]:
        """The names of the methods that were called between start and end, in order."""
        return [each[0] for each in self.calls if each[0] not in ("initialize", "shutdown")]

    @property
    def name(self):
        return self._name

    def is_available(self):
        return True

    def initialize(self, session_id, **kwargs):
        return self._note("initialize", session_id, **kwargs)

    def get_tool_schemas(self):
        answer = self.answers["get_tool_schemas"]
        if isinstance(answer, BaseException):
            raise answer
        return answer() if callable(answer) else answer

    def system_prompt_block(self):
        return self._note("system_prompt_block")

    def prefetch(self, query, *, session_id=""):
        return self._note("prefetch", query, session_id=session_id)

    def queue_prefetch(self, query, *, session_id=""):
        return self._note("queue_prefetch", query, session_id=session_id)

    def recall_status(self):
        return self._note("recall_status")

    def sync_turn(self, user_content, assistant_content, **kwargs):
        return self._note("sync_turn", user_content, assistant_content, **kwargs)

    def handle_tool_call(self, tool_name, args, **kwargs):
        return self._note("handle_tool_call", tool_name, args, **kwargs)

    def on_turn_start(self, turn_number, message, **kwargs):
        return self._note("on_turn_start", turn_number, message, **kwargs)

    def on_session_end(self, messages):
        return self._note("on_session_end", messages)

    def on_session_switch(self, new_session_id, **kwargs):
        return self._note("on_session_switch", new_session_id, **kwargs)

    def on_pre_compress(self, messages, **kwargs):
        return self._note("on_pre_compress", messages, **kwargs)

    def on_memory_write(self, action, target, content, metadata=None):
        return self._note("on_memory_write", action, target, content, metadata)

    def on_delegation(self, task, result, **kwargs):
        return self._note("on_delegation", task, result, **kwargs)

    def shutdown(self):
        return self._note("shutdown")


class Stage:
    """One scenario's managers and gates; all are closed at its end."""

    def __init__(self) -> None:
        self._managers: list[MemoryManager] = []
        self._gates: list[threading.Event] = []

    def manager(self, *providers: Any, start: str = "s1", **options: Any) -> MemoryManager:
        """A manager with these providers, in the session ``start`` ("" for none yet)."""
        return self.with_providers(MemoryManager(**options), *providers, start=start)

    def with_providers(
        self, manager: MemoryManager, *providers: Any, start: str = "s1"
    ) -> MemoryManager:
        """The same for a manager that was made elsewhere."""
        self._managers.append(manager)
        for each in providers:
            manager.add_provider(each)
        if start:
            manager.initialize_all(start, platform="cli")
        return manager

    def gate(self) -> threading.Event:
        """Something to wait for; opened at the end."""
        self._gates.append(threading.Event())
        return self._gates[-1]

    def close(self) -> None:
        for gate in self._gates:
            gate.set()
        for manager in self._managers:
            manager.shutdown_all()


def flushed(manager: MemoryManager) -> MemoryManager:
    """The manager, after all that it was given has arrived."""
    assert manager.flush_pending(PATIENCE), "not delivered"
    return manager


def raised(call: Callable[[], Any]) -> str:
    """The name of the exception that a call raises; "" if it raises none."""
    try:
        call()
    except Exception as error:
        return type(error).__name__
    return ""
