"""Whatever a provider raises or returns costs one answer, and `health` says so."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from support.providers import (
    DRIVE,
    TOOL,
    Minimal,
    Recorder,
    eventually,
    raising,
    running,
    sample_arguments,
)

from hermes_core import Outcome
from hermes_core.dispatch import ProviderAdapter
from hermes_core.hookspecs import HOOKS

ERRORS = {
    "exception": RuntimeError("boom"),
    "empty exception": ValueError(),
    "system exit": SystemExit(3),
    "interrupt": KeyboardInterrupt(),
    "generator exit": GeneratorExit(),
    "stop iteration": StopIteration(),
}

#: Hooks that run behind the caller's back, on the lane that they were queued on.


def _adapted(provider: Any) -> ProviderAdapter:
    adapter = ProviderAdapter(provider, "ext")
    adapter.tools = frozenset({"ext_tool"})
    return adapter


def _called(adapter: ProviderAdapter, hook: str) -> Outcome:
    try:
        outcome = getattr(adapter, hook)(**sample_arguments(hook))
    finally:
        adapter.close(5)
    assert isinstance(outcome, Outcome)
    return outcome


def _raising_everywhere(error: BaseException) -> Recorder:
    answers = dict.fromkeys(HOOKS, raising(error))
    answers["get_tool_schemas"] = [TOOL]
    return Recorder(**answers)


@pytest.mark.parametrize(
    ("hook", "error"),
    [
        *((hook, ERRORS["exception"]) for hook in HOOKS),
        *(("prefetch", error) for error in ERRORS.values()),
        *(("sync_turn", error) for error in ERRORS.values()),
        ("post_setup", ERRORS["system exit"]),
    ],
)
def test_whatever_a_method_raises_becomes_an_outcome(hook: str, error: BaseException) -> None:
    outcome = _called(_adapted(Recorder(**{hook: raising(error)})), hook)
    assert (outcome.provider, outcome.hook) == ("ext", hook)
    assert outcome.value == HOOKS[hook].neutral
    assert isinstance(outcome.error, Exception)
    assert type(error).__name__ in repr(outcome.error)
    assert outcome.seconds >= 0


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS.keys())
def test_a_whole_life_goes_on_beside_a_provider_that_only_raises(error: BaseException) -> None:
    builtin = Recorder("builtin", system_prompt_block="notes", prefetch="recalled")
    external = _raising_everywhere(error)
    with running(builtin, external) as manager:
        assert manager.build_system_prompt() == "notes"
        assert manager.prefetch_all("q") == "recalled"
        for drive in DRIVE.values():
            drive(manager)
        manager.flush_pending(0.1)
        assert external.of("sync_turn") == []  # its initialize failed: it gets no turns
        assert "ext: receives no turns, because its initialize failed" in manager.warnings[0]
        manager.shutdown_all()
    assert builtin.hooks()[-1] == "shutdown"
    assert {each.hook for each in builtin.calls} >= set(DRIVE) - {
        "on_memory_write",
        "handle_tool_call",
    }


def test_a_provider_that_starts_at_the_second_attempt_gets_its_turns() -> None:
    external = Recorder(initialize=raising(RuntimeError("not yet")))
    with running(external) as manager:
        manager.sync_all("it waits", "a")
        assert not manager.flush_pending(0.1)
        external.answers["initialize"] = None
        manager.initialize_all("s2")
        assert manager.warnings == ()
        manager.sync_all("u", "a")
        assert manager.flush_pending(60)
    turns = {(each.args[0], each.kwargs["session_id"]) for each in external.of("sync_turn")}
    assert turns == {("it waits", "s1"), ("u", "s2")}


@pytest.mark.parametrize("hook", DRIVE)
def test_a_failure_is_counted_and_named(hook: str) -> None:
    external = Recorder(tools=[TOOL], **{hook: raising(RuntimeError("boom"))})
    with running(external) as manager:
        before = manager.health()["ext"].get(hook)
        DRIVE[hook](manager)
        assert eventually(
            lambda: hook in (found := manager.health()["ext"]) and found[hook] != before
        )
        health = manager.health()["ext"][hook]
    assert health.failures == health.calls >= 1
    assert health.last_error == "RuntimeError: boom"


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=["exit", "interrupt"])
@pytest.mark.parametrize("hook", DRIVE)
def test_an_exit_is_counted_like_any_failure(hook: str, error: BaseException) -> None:
    external = Recorder(tools=[TOOL], **{hook: raising(error)})
    with running(external) as manager:
        DRIVE[hook](manager)
        assert eventually(
            lambda: (found := manager.health()["ext"].get(hook)) and found.failures >= 1
        )
        assert type(error).__name__ in manager.health()["ext"][hook].last_error


def test_an_error_that_can_not_be_printed_is_an_error_like_any_other() -> None:
    class UnprintableError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

        __repr__ = __str__

    external = Recorder(prefetch=raising(UnprintableError()), tools=[TOOL])
    external.answers["handle_tool_call"] = raising(UnprintableError())
    with running(external) as manager:
        assert manager.prefetch_all("q") == ""
        assert "UnprintableError" in manager.health()["ext"]["prefetch"].last_error
        assert "error" in manager.handle_tool_call("ext_tool", {})


def test_a_failure_is_logged_once_with_the_provider_the_hook_and_the_cause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    external = Recorder(system_prompt_block=raising(RuntimeError("boom")))
    with caplog.at_level(logging.WARNING, "hermes_core"), running(external) as manager:
        for _ in range(3):
            manager.build_system_prompt()
        assert manager.health()["ext"]["system_prompt_block"].failures == 3
    (record,) = [each for each in caplog.records if "boom" in each.getMessage()]
    assert "ext" in record.getMessage()
    assert "system_prompt_block" in record.getMessage()


def test_an_error_is_told_in_one_line() -> None:
    external = Recorder(prefetch=raising(RuntimeError("first\nsecond\n")))
    with running(external) as manager:
        manager.prefetch_all("q")
        assert manager.health()["ext"]["prefetch"].last_error == "RuntimeError: first second"


def test_a_base_class_method_costs_no_call() -> None:
    with running(Minimal()) as manager:
        manager.on_turn_start(1, "m")
        manager.prefetch_all("q")
        manager.sync_all("u", "a")
        assert set(manager.health()["ext"]) <= {"initialize", "get_tool_schemas"}
