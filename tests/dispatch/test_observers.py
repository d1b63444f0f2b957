"""Observers: they see and change what hooks give, and can't break a turn."""

from __future__ import annotations

import threading
from types import ModuleType
from typing import Any

import pytest
from support.observers import FULL
from support.providers import DRIVE, TOOL, Recorder, eventually, running

from hermes_core import HermesError, MemoryManager, Outcome, hookimpl
from hermes_core.hookspecs import HOOKS

#: Hooks that are called at one provider after the other.
ONE_BY_ONE = {
    "get_tool_schemas",
    "on_delegation",
    "on_memory_write",
    "on_session_end",
    "on_session_switch",
    "on_turn_start",
    "queue_prefetch",
    "shutdown",
    "sync_turn",
}


def _observed(observer: Any, *providers: Any, name: str = "eye") -> Any:
    """A manager with an observer; by default of one provider, that recalls something."""
    manager = MemoryManager()
    for provider in providers or (Recorder(tools=[TOOL], prefetch="recalled"),):
        assert manager.add_provider(provider)
    manager.add_observer(name, observer)
    return manager


def test_an_observer_sees_the_arguments_that_it_names() -> None:
    seen = []

    class Eye:
        @hookimpl
        def prefetch(self, query: str, session_id: str) -> None:
            seen.append((query, session_id))

    manager = _observed(Eye())
    assert manager.prefetch_all("q", session_id="s7") == "recalled"
    manager.shutdown_all()
    assert seen == [("q", "s7")]


def test_an_observer_may_add_an_answer_of_its_own() -> None:
    class Eye:
        @hookimpl
        def prefetch(self, query: str) -> str:
            return f"note on {query}"

    manager = _observed(Eye(), Recorder("builtin", prefetch="first"), Recorder(prefetch="last"))
    recalled = manager.prefetch_all("q")
    manager.shutdown_all()
    assert recalled.startswith("first")
    assert sorted(recalled.split("\n\n")) == ["first", "last", "note on q"]


def test_a_wrapper_sees_the_outcomes_and_may_change_them() -> None:
    seen: list[Outcome] = []

    class Eye:
        @hookimpl(wrapper=True)
        def prefetch(self, query: str):
            outcomes = yield
            seen.extend(outcomes)
            return [each._replace(value=each.value.upper()) for each in outcomes]

    manager = _observed(Eye(), Recorder("builtin", prefetch="a"), Recorder(prefetch="b"))
    assert manager.prefetch_all("q") == "A\n\nB"
    manager.shutdown_all()
    assert [(each.provider, each.hook, each.value) for each in seen] == [
        ("builtin", "prefetch", "a"),
        ("ext", "prefetch", "b"),
    ]


def test_a_wrapper_may_change_a_tool_s_answer() -> None:
    class Eye:
        @hookimpl(wrapper=True)
        def handle_tool_call(self, tool_name: str):
            outcome = yield
            return outcome._replace(value={"from": tool_name})

    manager = _observed(Eye())
    assert manager.handle_tool_call("ext_tool", {}) == '{"from": "ext_tool"}'
    manager.shutdown_all()


@pytest.mark.parametrize("style", ["implement", "wrap"])
@pytest.mark.parametrize(
    "hook",
    [*DRIVE, "get_tool_schemas", "shutdown"],
)
def test_an_observer_may_implement_or_wrap_any_hook_that_a_host_causes(
    hook: str, style: str
) -> None:
    seen: list[str] = []

    def implement(self: Any) -> None:
        seen.append(hook)

    def wrap(self: Any) -> Any:
        seen.append(hook)
        return (yield)

    function = hookimpl(implement) if style == "implement" else hookimpl(wrap, wrapper=True)
    eye = type("Eye", (), {hook: function})()
    manager = _observed(eye, Recorder("builtin"), Recorder(tools=[TOOL], prefetch="recalled"))
    for drive in DRIVE.values():
        drive(manager)
    assert manager.prefetch_all("q") == "recalled"
    manager.flush_pending(5)
    manager.shutdown_all()
    assert eventually(lambda: seen)


def test_a_module_and_a_class_are_observers_too() -> None:
    seen = []

    class Eye:
        @hookimpl
        def prefetch(self, query: str) -> None:
            seen.append(f"class {query}")

    @hookimpl
    def prefetch(query: str) -> None:
        seen.append(f"module {query}")

    module = ModuleType("eye")
    module.prefetch = prefetch  # type: ignore[attr-defined]
    manager = _observed(Eye, name="one")
    manager.add_observer("two", module)
    manager.prefetch_all("q")
    manager.shutdown_all()
    assert sorted(seen) == ["class q", "module q"]


def test_an_observer_that_raises_is_left_out_of_that_call_and_shown() -> None:
    class Eye:
        @hookimpl
        def prefetch(self, query: str) -> str:
            raise RuntimeError(f"no {query}")

        @hookimpl(wrapper=True)
        def on_pre_compress(self):
            yield
            raise RuntimeError("after")

        @hookimpl(wrapper=True)
        def recall_status(self):
            raise RuntimeError("before")
            yield

    manager = _observed(Eye(), Recorder(prefetch="recalled", on_pre_compress="text"))
    assert manager.prefetch_all("q1") == "recalled"
    assert manager.prefetch_all("q2") == "recalled"
    assert manager.on_pre_compress([]) == "text"
    assert manager.recall_status_all() == []
    health = manager.health()["observer:eye"]
    manager.shutdown_all()
    assert (health["prefetch"].calls, health["prefetch"].failures) == (2, 2)
    assert health["prefetch"].last_error == "RuntimeError: no q2"
    assert health["prefetch"].breaker == "closed"
    assert health["on_pre_compress"].last_error == "RuntimeError: after"
    assert health["recall_status"].last_error == "RuntimeError: before"


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=["exit", "interrupt"])
def test_an_observer_that_exits_ends_nothing(error: BaseException) -> None:
    class Eye:
        @hookimpl
        def prefetch(self) -> str:
            raise error

    manager = _observed(Eye())
    assert manager.prefetch_all("q") == "recalled"
    assert manager.health()["observer:eye"]["prefetch"].failures == 1
    manager.shutdown_all()


@pytest.mark.parametrize(
    "garbage",
    [None, 5, "text", [5], [None], {"a": 1}, object()],
    ids=["none", "int", "text", "ints", "nones", "dict", "object"],
)
def test_a_wrapper_that_gives_back_garbage_changes_nothing(garbage: Any) -> None:
    class Eye:
        @hookimpl(wrapper=True)
        def prefetch(self):
            yield
            return garbage

        @hookimpl(wrapper=True)
        def handle_tool_call(self):
            yield
            return garbage

    manager = _observed(Eye())
    assert manager.prefetch_all("q") == "recalled"
    assert manager.handle_tool_call("ext_tool", {}) == "{}"
    manager.shutdown_all()


def test_a_wrapper_that_never_yields_or_yields_twice_is_left_out() -> None:
    class Eye:
        @hookimpl(wrapper=True)
        def prefetch(self):
            yield
            yield

        @hookimpl(wrapper=True)
        def on_pre_compress(self):
            if False:
                yield

    manager = _observed(Eye(), Recorder(prefetch="recalled", on_pre_compress="text"))
    assert manager.prefetch_all("q") == "recalled"
    assert manager.on_pre_compress([]) == "text"
    health = manager.health()["observer:eye"]
    manager.shutdown_all()
    assert "once" in health["prefetch"].last_error
    assert health["on_pre_compress"].failures == 1


def test_an_old_style_hookwrapper_is_refused_with_what_to_use() -> None:
    eye = type("Eye", (), dict(FULL))()

    class Old(type(eye)):  # type: ignore[misc]
        @hookimpl(hookwrapper=True)
        def prefetch(self):
            yield

    manager = MemoryManager()
    with pytest.raises(HermesError, match=r"observer eye: prefetch .*hookimpl\(wrapper=True\)"):
        manager.add_observer("eye", Old())
    manager.add_provider(Recorder(prefetch="recalled"))
    assert manager.prefetch_all("q") == "recalled"
    manager.shutdown_all()


def test_observers_run_on_a_thread_of_their_own_which_ends_with_the_manager() -> None:
    seen: list[threading.Thread] = []

    class Eye:
        @hookimpl
        def prefetch(self) -> None:
            seen.append(threading.current_thread())

        @hookimpl
        def on_pre_compress(self) -> None:
            seen.append(threading.current_thread())

    external = Recorder()
    manager = _observed(Eye(), external)
    manager.prefetch_all("q")
    manager.on_pre_compress([])
    manager.shutdown_all()
    assert len(set(seen)) == 1
    assert seen[0] not in {threading.current_thread(), *external.threads(*HOOKS)}
    assert eventually(lambda: not seen[0].is_alive())


def test_managers_do_not_share_observers() -> None:
    seen = []

    class Eye:
        @hookimpl
        def prefetch(self) -> None:
            seen.append("seen")

    observed = _observed(Eye())
    with running(Recorder()) as other:
        other.prefetch_all("q")
        assert seen == []
        assert list(other.health()) == ["ext"]
    observed.shutdown_all()


def test_the_built_in_is_first_whatever_an_observer_tries() -> None:
    class Eye:
        @hookimpl(tryfirst=True)
        def prefetch(self) -> str:
            return "note"

    manager = _observed(Eye(), Recorder("builtin", prefetch="first"), Recorder(prefetch="last"))
    recalled = manager.prefetch_all("q")
    manager.shutdown_all()
    assert recalled.startswith("first")
