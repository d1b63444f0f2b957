"""A provider's values run the provider's code only on its own threads, and are never too large."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.providers import DRIVE, QUICK, TOOL, Recorder, running, sample_arguments

from hermes_core import MemoryManager, RecallStatus, hand_over
from hermes_core.dispatch import ProviderAdapter, SingleProvider
from hermes_core.errors import WrongReturnType
from hermes_core.hookspecs import HOOKS
from hermes_core.provider import ProbeResult

#: What a caller may do to a value, in passing.
TOUCHED = (
    *("__len__", "__eq__", "__ne__", "__str__", "__repr__", "__iter__", "__bool__", "__hash__"),
    *("__contains__", "__getitem__", "__format__", "__lt__", "__index__", "__int__", "__float__"),
    *("__add__", "__radd__", "__mod__", "keys", "items", "get", "values", "strip", "encode"),
    *("splitlines", "replace", "startswith", "join", "append", "copy", "__del__", "__reduce_ex__"),
)
BASES: dict[str, tuple[type, Any]] = {
    "object": (object, None),
    "str": (str, "tea"),
    "dict": (dict, {"name": "ext_tool"}),
    "list": (list, [TOOL]),
    "tuple": (tuple, (TOOL,)),
    "int": (int, 1),
    "float": (float, 0.5),
    "set": (set, {"a"}),
    "bytes": (bytes, b"x"),
}
EXTERNAL = [hook for hook, rule in HOOKS.items() if not rule.interactive]


class Touches:
    """Which threads ran code of a value's."""

    def __init__(self) -> None:
        self.threads: set[str] = set()

    def note(self) -> None:
        self.threads.add(threading.current_thread().name)

    def foreign(self) -> set[str]:
        return {name for name in self.threads if not name.startswith("memory-ext-")}


def touchy(base: str, note: Callable[[], None], *, raises: bool = False) -> Any:
    """A value that notes who touches it, and then raises if it is asked to."""
    kind, content = BASES[base]

    def method(name: str) -> Callable[..., Any]:
        def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
            note()
            if raises:
                raise RuntimeError(f"{name} fails")
            return getattr(kind, name)(self, *args, **kwargs)

        return noted

    def claimed(_self: Any) -> type:
        note()
        if raises:
            raise RuntimeError("__class__ fails")
        return kind

    body: dict[str, Any] = {name: method(name) for name in TOUCHED if hasattr(kind, name)}
    body |= {"__class__": property(claimed), "__del__": lambda _self: note()}
    body |= {name: property(claimed) for name in ("provider_label", "count", "ok", "detail")}
    if kind is object:
        body["__eq__"] = body["__bool__"] = method("__eq__")
        body["__str__"] = lambda _self: (note(), "object")[1]
    made = type("Touchy", (kind,), body)
    return made() if content is None else made(content)


@pytest.mark.parametrize("raises", [False, True], ids=["quiet", "raising"])
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("hook", EXTERNAL)
def test_only_its_worker_touches_what_a_hook_returns(hook: str, base: str, raises: bool) -> None:
    touches = Touches()
    answers = {hook: lambda *_, **__: touchy(base, touches.note, raises=raises)}
    adapter = ProviderAdapter(Recorder(**answers), "ext")
    adapter.tools = frozenset({"ext_tool"})
    outcome = getattr(adapter, hook)(**sample_arguments(hook))
    repr(outcome.value)
    adapter.error_text(outcome.error or ValueError())
    adapter.close(5)
    assert type(outcome.value) in (str, bool, list, tuple, dict, type(None), *SHAPES)
    assert touches.foreign() == set()


SHAPES = (RecallStatus, ProbeResult)


@pytest.mark.parametrize("base", BASES)
def test_only_its_workers_touch_what_is_within_lists_and_mappings(base: str) -> None:
    touches = Touches()

    def value() -> Any:
        return touchy(base, touches.note)

    provider = Recorder(
        get_tool_schemas=lambda: [{**TOOL, "parameters": {"type": "object", "x": value()}}],
        get_config_schema=lambda: [{"key": "a", "default": value(), "choices": [value()]}],
        backup_paths=lambda: [value()],
        own_settings=lambda *_: [(value(), {"a": value()})],
        get_status_config=lambda *_: {"a": value()},
        handle_tool_call=lambda *_, **__: {"a": value(), "b": [value()]},
    )
    with SingleProvider(provider, "ext") as single:
        for hook in ("get_tool_schemas", "get_config_schema", "backup_paths", "own_settings"):
            repr(single.call(hook, **sample_arguments(hook)).value)
        for hook in ("get_status_config", "handle_tool_call"):
            repr(single.call(hook, **sample_arguments(hook)).value)
    assert touches.foreign() == set()


@pytest.mark.parametrize("base", BASES)
def test_a_whole_life_runs_none_of_its_code_on_the_host_s_thread(base: str) -> None:
    touches = Touches()
    answers = dict.fromkeys(EXTERNAL, lambda *_, **__: touchy(base, touches.note))
    provider = Recorder(**answers | {"get_tool_schemas": [TOOL], "is_available": True})
    with running(provider, log_calls=False) as manager:
        for drive in DRIVE.values():
            drive(manager)
        manager.recall_block("q")
        manager.describe_recall()
        manager.flush_pending(60)
        manager.health()
    assert touches.foreign() == set()


class Stuck(str):
    """Text that never says how long it is."""

    __slots__ = ()

    def _hang(self, *_: Any) -> Any:
        threading.Event().wait()

    __len__ = __eq__ = __str__ = __iter__ = __bool__ = __hash__ = strip = _hang  # type: ignore[assignment]


def test_text_whose_methods_hang_is_used_as_it_is() -> None:
    with running(Recorder(prefetch=lambda *_, **__: Stuck("likes tea"))) as manager:
        assert manager.prefetch_all("q") == "likes tea"


class StuckList(list):  # type: ignore[type-arg]
    """A list that never ends."""

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield TOOL


def test_a_list_that_never_ends_is_a_failure() -> None:
    with SingleProvider(Recorder(backup_paths=StuckList), "ext") as single:
        assert isinstance(single.call("backup_paths").error, WrongReturnType)


def test_a_value_that_hangs_when_it_is_walked_costs_no_more_than_its_deadline() -> None:
    held = threading.Event()

    class Slow(list):  # type: ignore[type-arg]
        def __iter__(self) -> Iterator[Any]:
            held.wait()
            return iter(())

    with SingleProvider(Recorder(backup_paths=Slow), "ext", deadlines=QUICK) as single:
        error = single.call("backup_paths").error
        held.set()
    assert "no answer within" in str(error)


@pytest.mark.parametrize("hook", ["prefetch", "system_prompt_block", "on_pre_compress"])
def test_a_huge_text_is_cut_on_the_worker(hook: str) -> None:
    huge = "x" * 30_000_000
    with SingleProvider(Recorder(**{hook: lambda *_, **__: huge}), "ext") as single:
        outcome = single.call(hook, **sample_arguments(hook))
    assert len(outcome.value) == 1_000_000


def test_a_huge_recall_leaves_the_rest_of_the_turn_alone() -> None:
    def answer(*_: Any, **__: Any) -> str:
        return "- tea\n" * 5_000_000

    with running(Recorder(prefetch=answer)) as manager:
        block = manager.recall("q")
    assert len(block.text) <= 8_000
    assert "- tea" in block.text


@pytest.mark.parametrize("value", ["x" * 10_000_001, ["x"] * 200_001], ids=["text", "list"])
def test_a_huge_tool_result_is_an_error_and_not_half_a_result(value: Any) -> None:
    provider = Recorder(tools=[TOOL], handle_tool_call=lambda *_, **__: value)
    with running(provider) as manager:
        answer = json.loads(manager.handle_tool_call("ext_tool", {}))
    assert "returned too much" in answer["error"]


def test_what_a_hook_without_an_answer_returns_is_dropped_on_the_worker() -> None:
    touches = Touches()
    provider = Recorder(sync_turn=lambda *_, **__: touchy("str", touches.note))
    with running(provider) as manager:
        manager.sync_all("u", "a")
        assert manager.flush_pending(60)
    assert touches.foreign() == set()


def test_an_early_part_of_a_recall_is_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    touches = Touches()

    def answer(*_: Any, **__: Any) -> str:
        hand_over(touchy("str", touches.note))
        raise RuntimeError("the rest does not come")

    with running(Recorder(prefetch=answer)) as manager:
        assert manager.prefetch_all("q") == "tea"
    assert touches.foreign() == set()


@pytest.mark.parametrize("kind", [Exception, BaseException, OSError, KeyError])
@pytest.mark.parametrize("hook", ["prefetch", "handle_tool_call", "sync_turn", "recall_status"])
def test_the_text_of_an_error_is_asked_for_on_the_worker(hook: str, kind: type) -> None:
    touches = Touches()

    class Odd(kind):  # type: ignore[misc]
        def __str__(self) -> str:
            touches.note()
            return "odd"

        __repr__ = __str__

    def fail(*_: Any, **__: Any) -> None:
        raise Odd("x")

    with running(Recorder(tools=[TOOL], **{hook: fail})) as manager:
        drive: Callable[[MemoryManager], Any] = DRIVE[hook]
        drive(manager)
        manager.flush_pending(0.2)
        assert "odd" in json.dumps(manager.health()["ext"][hook])
    assert touches.threads
    assert touches.foreign() == set()
