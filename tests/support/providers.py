"""Providers that record what they are given, and managers that run them."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from types import TracebackType
from typing import Any, NamedTuple, Self

from hermes_core import Deadlines, ForgetRequest, MemoryManager, MemoryProvider
from hermes_core.hookspecs import HOOKS, MemoryHooks

TOOL = {"name": "ext_tool", "description": "A tool.", "parameters": {"type": "object"}}

#: Short enough to wait for, in tests whose provider hangs once it is started.
QUICK = Deadlines(
    load=60.0,
    available=60.0,
    initialize=60.0,
    prefetch=0.25,
    tool=0.25,
    hook=0.25,
    write=0.25,
    shutdown=0.25,
)

#: What a loaded machine may take on top of a deadline.
SLACK = 3.0


class Minimal(MemoryProvider):
    """Only what the class demands."""

    def __init__(self, name: str = "ext") -> None:
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    def is_available(self) -> bool:
        return True

    def initialize(self, session_id: str, **kwargs: Any) -> None:
        pass

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        return []


class Call(NamedTuple):
    """One call as it arrived at a provider."""

    hook: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    thread: threading.Thread


class Recorder(MemoryProvider):
    """Implements every method of the contract and keeps each call.

    A keyword names a hook: its value is given back, or called with the hook's arguments.
    """

    def __init__(self, name: str = "ext", *, tools: Any = (), **answers: Any) -> None:
        self._name = name
        self.calls: list[Call] = []
        self.answers: dict[str, Any] = {
            "is_available": True,
            "get_tool_schemas": list(tools),
            "handle_tool_call": "{}",
            **answers,
        }

    def of(self, hook: str) -> list[Call]:
        return [each for each in self.calls if each.hook == hook]

    def hooks(self) -> list[str]:
        return [each.hook for each in self.calls]

    def threads(self, *hooks: str) -> set[threading.Thread]:
        return {each.thread for each in self.calls if each.hook in hooks}

    def _note(self, hook: str, *args: Any, **kwargs: Any) -> Any:
        self.calls.append(Call(hook, args, kwargs, threading.current_thread()))
        answer = self.answers.get(hook, HOOKS[hook].neutral)
        return answer(*args, **kwargs) if callable(answer) else answer

    @property
    def name(self) -> str:
        return self._name

    def is_available(self):
        return self._note("is_available")

    def unavailable_reason(self):
        return self._note("unavailable_reason")

    def initialize(self, session_id, **kwargs):
        return self._note("initialize", session_id, **kwargs)

    def initialize_for_inspection(self, session_id, **kwargs):
        return self._note("initialize_for_inspection", session_id, **kwargs)

    def system_prompt_block(self):
        return self._note("system_prompt_block")

    def prefetch(self, query, *, session_id=""):
        return self._note("prefetch", query, session_id=session_id)

    def queue_prefetch(self, query, *, session_id=""):
        return self._note("queue_prefetch", query, session_id=session_id)

    def recall_status(self):
        return self._note("recall_status")

    def sync_turn(self, user_content, assistant_content, *, session_id="", messages=None):
        return self._note(
            "sync_turn", user_content, assistant_content, session_id=session_id, messages=messages
        )

    def get_tool_schemas(self):
        return self._note("get_tool_schemas")

    def handle_tool_call(self, tool_name, args, **kwargs):
        return self._note("handle_tool_call", tool_name, args, **kwargs)

    def shutdown(self):
        return self._note("shutdown")

    def on_turn_start(self, turn_number, message, **kwargs):
        return self._note("on_turn_start", turn_number, message, **kwargs)

    def on_session_end(self, messages):
        return self._note("on_session_end", messages)

    def on_session_switch(self, new_session_id, **kwargs):
        return self._note("on_session_switch", new_session_id, **kwargs)

    def on_pre_compress(self, messages):
        return self._note("on_pre_compress", messages)

    def on_delegation(self, task, result, *, child_session_id="", **kwargs):
        return self._note(
            "on_delegation", task, result, child_session_id=child_session_id, **kwargs
        )

    def on_memory_write(self, action, target, content, metadata=None):
        return self._note("on_memory_write", action, target, content, metadata=metadata)

    def get_config_schema(self):
        return self._note("get_config_schema")

    def save_config(self, values, hermes_home):
        return self._note("save_config", values, hermes_home)

    def backup_paths(self):
        return self._note("backup_paths")

    def probe(self, write):
        return self._note("probe", write)

    def own_settings(self, hermes_home):
        return self._note("own_settings", hermes_home)

    def get_status_config(self, provider_config):
        return self._note("get_status_config", provider_config)

    def post_setup(self, hermes_home, config):
        return self._note("post_setup", hermes_home, config)

    def forget(self, request):
        return self._note("forget", request)

    def list_memories(self, cursor):
        return self._note("list_memories", cursor)


#: How a host makes each hook happen.
DRIVE: dict[str, Callable[[MemoryManager], Any]] = {
    "initialize": lambda m: m.initialize_all("s1"),
    "initialize_for_inspection": lambda m: m.initialize_all_for_inspection("s1"),
    "system_prompt_block": lambda m: m.build_system_prompt(),
    "prefetch": lambda m: m.prefetch_all("q"),
    "queue_prefetch": lambda m: m.queue_prefetch_all("q"),
    "recall_status": lambda m: m.recall_status_all(),
    "sync_turn": lambda m: m.sync_all("u", "a"),
    "handle_tool_call": lambda m: m.handle_tool_call("ext_tool", {}),
    "on_turn_start": lambda m: m.on_turn_start(1, "hello"),
    "on_session_end": lambda m: m.on_session_end([]),
    "on_session_switch": lambda m: m.on_session_switch("s2"),
    "on_pre_compress": lambda m: m.on_pre_compress([]),
    "on_delegation": lambda m: m.on_delegation("t", "r"),
    "on_memory_write": lambda m: m.on_memory_write("add", "memory", "x"),
}

_SAMPLES: dict[str, Any] = {
    "action": "add",
    "args": {},
    "assistant_content": "a",
    "child_session_id": "child",
    "config": {},
    "content": "x",
    "cursor": "",
    "extra": {},
    "hermes_home": "home",
    "message": "hello",
    "messages": [],
    "metadata": None,
    "new_session_id": "s2",
    "parent_session_id": "s1",
    "provider_config": {},
    "query": "q",
    "request": ForgetRequest("home", text="x"),
    "reset": False,
    "result": "r",
    "rewound": False,
    "session_id": "s1",
    "target": "memory",
    "task": "t",
    "turn_author": None,
    "tool_name": "ext_tool",
    "turn_number": 1,
    "user_content": "u",
    "values": {},
    "write": False,
}


def spec_parameters(hook: str) -> list[str]:
    """The names of a hookspec's parameters."""
    return list(inspect.signature(getattr(MemoryHooks, hook)).parameters)[1:]


def sample_arguments(hook: str) -> dict[str, Any]:
    """Something for each parameter of a hookspec."""
    return {name: _SAMPLES[name] for name in spec_parameters(hook)}


@contextmanager
def running(*providers: Any, start: bool = True, **options: Any) -> Iterator[MemoryManager]:
    """A manager of these providers, initialised unless told otherwise, shut down at the end."""
    manager = MemoryManager(**options)
    try:
        for provider in providers:
            assert manager.add_provider(provider)
        if start:
            manager.initialize_all("s1")
        yield manager
    finally:
        manager.shutdown_all()


class Clock:
    """A clock that stands still unless a test, or a call that takes its time, moves it."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Gate:
    """What a provider hangs in until the test is over.

    The test fails if a call got through because nobody opened the gate for a minute: then its
    caller waited for it, and was not back at its deadline.

    Args:
        clock: Moved by ``seconds`` as soon as a call hangs.
        seconds: How long a call hangs, by that clock.
    """

    def __init__(self, clock: Clock | None = None, seconds: float = 0.0) -> None:
        self._open = threading.Event()
        self._waited_out = False
        self._clock = clock or Clock()
        self._seconds = seconds

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        if not self._open.is_set():
            self._clock.now += self._seconds
        if not self._open.wait(60):
            self._waited_out = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.open()
        assert not self._waited_out

    def open(self) -> None:
        self._open.set()


def raising(error: BaseException) -> Callable[..., Any]:
    """Something that raises, whatever it is given."""

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise error

    return fail


def eventually(condition: Callable[[], Any], seconds: float = 10.0) -> bool:
    """Whether a condition becomes true before long."""
    end = monotonic() + seconds
    while not condition():
        if monotonic() > end:
            return False
        sleep(0.005)
    return True


def memory_threads() -> set[threading.Thread]:
    """The threads of this process that serve a provider or an observer."""
    return {each for each in threading.enumerate() if each.name.startswith("memory-")}
