"""Observers that are wrong in themselves: refused with a reason, or left out of the call."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest
from support.observers import FULL
from support.providers import TOOL, Clock, Gate, Recorder, eventually

from hermes_core import HermesError, MemoryManager, Outcome, hookimpl
from hermes_core.dispatch import observers
from hermes_core.dispatch.observers import Observer
from hermes_core.dispatch.worker import Worker


def _manager(*providers: Any) -> MemoryManager:
    manager = MemoryManager()
    for each in providers or (Recorder(tools=[TOOL], prefetch="recalled"),):
        assert manager.add_provider(each)
    return manager


def _with(**hooks: Any) -> Any:
    """An observer that lacks no hook, with these in place of the empty ones."""
    return type("Eye", (), {**FULL, **hooks})()


def test_a_wrapper_that_forgot_its_yield_does_not_break_the_turn() -> None:
    class Eye:
        @hookimpl(wrapper=True)
        def prefetch(self, query):
            raise RuntimeError("no yield in here")

    manager = _manager()
    try:
        try:
            manager.add_observer("eye", Eye())
        except HermesError:
            return  # refusing it is as good
        assert manager.prefetch_all("q") == "recalled"
    finally:
        manager.shutdown_all()


def test_a_wrapper_that_forgot_its_yield_is_refused() -> None:
    class Eye:
        @hookimpl(wrapper=True)
        def prefetch(self, query):
            pass

    manager = _manager()
    with pytest.raises(HermesError, match="does not yield"):
        manager.add_observer("eye", Eye())
    manager.shutdown_all()


def test_an_observer_with_an_argument_that_no_hook_has_is_refused_by_name() -> None:
    class Eye:
        @hookimpl
        def prefetch(self, qurey):
            return None

    manager = _manager()
    try:
        with pytest.raises(HermesError, match=r"observer eye.*qurey"):
            manager.add_observer("eye", Eye())
        assert manager.prefetch_all("q") == "recalled"
    finally:
        manager.shutdown_all()


@pytest.mark.parametrize("error", [ValueError("boom"), SystemExit(3)], ids=["error", "exit"])
def test_an_observer_that_can_not_be_built_is_refused_by_name(error: BaseException) -> None:
    class Eye:
        def __init__(self) -> None:
            raise error

    manager = _manager()
    try:
        with pytest.raises(HermesError, match="observer eye"):
            manager.add_observer("eye", Eye)
    finally:
        manager.shutdown_all()


def test_two_observers_of_one_name_are_refused_by_name() -> None:
    manager = _manager()
    try:
        manager.add_observer("eye", _with())
        with pytest.raises(HermesError, match="observer eye"):
            manager.add_observer("eye", _with())
    finally:
        manager.shutdown_all()


GARBAGE = {"int": 5, "bytes": b"x", "list": ["a"], "dict": {"a": 1}, "object": object()}

_JOINED = "what an observer gives is joined as if it were text"


@pytest.mark.parametrize("value", GARBAGE.values(), ids=GARBAGE.keys())
def test_an_answer_of_a_wrong_type_is_left_out(value: Any) -> None:
    class Eye:
        @hookimpl
        def prefetch(self):
            return value

        @hookimpl
        def system_prompt_block(self):
            return value

        @hookimpl
        def on_pre_compress(self):
            return value

    manager = _manager()
    manager.add_observer("eye", Eye())
    try:
        assert manager.prefetch_all("q") == "recalled"
        assert manager.build_system_prompt() == ""
        assert manager.on_pre_compress([]) == ""
        assert manager.health()["observer:eye"]["prefetch"].failures == 1
    finally:
        manager.shutdown_all()


@pytest.mark.parametrize("value", GARBAGE.values(), ids=GARBAGE.keys())
def test_an_outcome_with_a_value_of_a_wrong_type_changes_nothing(value: Any) -> None:
    class Eye:
        @hookimpl(wrapper=True)
        def prefetch(self):
            yield
            return [Outcome("ext", "prefetch", value)]

    manager = _manager()
    manager.add_observer("eye", Eye())
    try:
        assert manager.prefetch_all("q") == "recalled"
    finally:
        manager.shutdown_all()


@pytest.mark.parametrize("value", GARBAGE.values(), ids=GARBAGE.keys())
def test_a_tool_answers_in_json_whatever_an_observer_makes_of_it(value: Any) -> None:
    import json

    class Eye:
        @hookimpl(wrapper=True)
        def handle_tool_call(self):
            outcome = yield
            return outcome._replace(value=value)

    manager = _manager()
    manager.add_observer("eye", Eye())
    try:
        json.loads(manager.handle_tool_call("ext_tool", {}))
    finally:
        manager.shutdown_all()


@pytest.mark.parametrize("style", ["add", "empty"])
def test_an_observer_of_the_tools_does_not_keep_a_provider_from_being_added(style: str) -> None:
    class Add:
        @hookimpl
        def get_tool_schemas(self):
            return [{"name": "eye_tool"}]

    class Empty:
        @hookimpl(wrapper=True)
        def get_tool_schemas(self):
            yield
            return []

    manager = MemoryManager()
    manager.add_observer("eye", Add() if style == "add" else Empty())
    try:
        assert manager.add_provider(Recorder(tools=[TOOL], prefetch="recalled"))
        manager.initialize_all("s1")
        assert manager.prefetch_all("q") == "recalled"
        assert manager.has_tool("ext_tool") == (style == "add")
    finally:
        manager.shutdown_all()


@pytest.mark.filterwarnings("ignore:coroutine")
def test_an_asynchronous_observer_does_not_break_the_turn() -> None:
    class Eye:
        @hookimpl
        async def prefetch(self):
            return "note"

    manager = _manager()
    try:
        try:
            manager.add_observer("eye", Eye())
        except HermesError:
            return
        assert "recalled" in manager.prefetch_all("q")
    finally:
        manager.shutdown_all()


def test_two_observers_that_hang_cost_their_time_once() -> None:
    asked: list[str] = []
    with Gate() as gate:

        class Eye:
            def __init__(self, name: str) -> None:
                self.name = name

            @hookimpl
            def prefetch(self):
                asked.append(self.name)
                gate()

        manager = _manager()
        manager.add_observer("one", Eye("one"))
        manager.add_observer("two", Eye("two"))
        assert manager.prefetch_all("q") == "recalled"
        assert manager.prefetch_all("q") == "recalled"
        health = manager.health()
        gate.open()
        manager.shutdown_all()
    assert sorted(asked) == ["one", "two"]
    assert {health[f"observer:{each}"]["prefetch"].breaker for each in ("one", "two")} == {"open"}


def test_an_observer_that_is_asked_several_times_at_once_has_its_time_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Watched(Clock):
        looks = 0

        def __call__(self) -> float:
            self.looks += 1
            return super().__call__()

    clock = Watched()
    callers = 4
    waiting: list[str] = []
    step = Observer._step

    def counted(self: Observer, hook: str, call: Any) -> Any:
        waiting.append(hook)
        return step(self, hook, call)

    class Eye:
        @hookimpl
        def prefetch(self):
            # Each caller is there, and the others wait for this one, before its time passes.
            assert eventually(lambda: len(waiting) == callers)
            clock.now += 0.03
            looks = clock.looks
            assert eventually(lambda: clock.looks > looks + 1)  # whoever waits has noticed

    monkeypatch.setattr(observers, "Worker", partial(Worker, clock=clock))
    monkeypatch.setattr(Observer, "SECONDS", 0.05)
    monkeypatch.setattr(Observer, "_step", counted)
    manager = _manager()
    manager.add_observer("eye", Eye())
    threads = [threading.Thread(target=manager.prefetch_all, args=("q",)) for _ in range(callers)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    health = manager.health()["observer:eye"]["prefetch"]
    manager.shutdown_all()
    assert (health.calls, health.failures, health.breaker) == (callers, 0, "closed")


def test_a_value_that_can_not_be_compared_does_not_break_the_turn() -> None:
    class Odd:
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            raise RuntimeError("not comparable")

    class Eye:
        @hookimpl(wrapper=True)
        def prefetch(self):
            yield
            return [Outcome("ext", "prefetch", Odd())]

    manager = _manager()
    manager.add_observer("eye", Eye())
    try:
        assert manager.prefetch_all("q") == "recalled"
    finally:
        manager.shutdown_all()
