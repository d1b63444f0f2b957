"""Recall keeps to its budget, whatever the provider does, and late answers serve once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.providers import Clock, Gate, Recorder, eventually, raising

from hermes_core import Deadlines, MemoryManager
from hermes_core.dispatch.health import Breaker

BUDGET = 4.0
#: Longer than the budget, and not so long that the call counts as one that hangs.
LATE = 1.1 * BUDGET


@contextmanager
def recalling(answer: Any, budget: float = BUDGET) -> Iterator[tuple[MemoryManager, Recorder]]:
    provider = Recorder(prefetch=answer)
    manager = MemoryManager(
        external_prefetch_timeout=budget, deadlines=Deadlines(hook=BUDGET, shutdown=0.5)
    )
    assert manager.add_provider(provider)
    manager.initialize_all("s1")
    try:
        yield manager, provider
    finally:
        manager.shutdown_all()


def after(clock: Clock, seconds: float, answer: Any = "recalled") -> Callable[..., Any]:
    """A recall that answers when so many seconds have passed."""

    def prefetch(*_: Any, **__: Any) -> Any:
        clock.now += seconds
        return answer

    return prefetch


def behind(gate: Gate, answer: Any = "late text") -> Callable[..., Any]:
    """A recall that answers, or raises, when the gate is opened."""

    def prefetch(*_: Any, **__: Any) -> Any:
        gate()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return prefetch


def late_turn(manager: MemoryManager, provider: Recorder, clock: Clock, answer: Any) -> None:
    """A turn that its answer comes too late for. When this returns, the provider can answer."""
    with Gate(clock, LATE) as gate:
        provider.answers["prefetch"] = behind(gate, answer)
        assert manager.prefetch_all("first question") == ""


def state(manager: MemoryManager) -> str:
    return manager.health()["ext"]["prefetch"].breaker


@pytest.mark.parametrize("block", [False, True], ids=["prefetch_all", "recall_block"])
@pytest.mark.parametrize(
    ("seconds", "answer"),
    [
        pytest.param(0, "recalled", id="at-once"),
        pytest.param(BUDGET * 0.125, "recalled", id="soon"),
        pytest.param(BUDGET * 0.99, "recalled", id="just-in-time"),
        pytest.param(0, "word " * 2_000_000, id="ten-megabytes"),
    ],
)
def test_an_answer_within_the_budget_is_used(
    clock: Clock, seconds: float, answer: str, block: bool
) -> None:
    with recalling(after(clock, seconds, answer)) as (manager, _):
        recalled = (manager.recall_block if block else manager.prefetch_all)("q")
        assert recalled
        assert not block or len(recalled) <= 12_000


@pytest.mark.parametrize("block", [False, True], ids=["prefetch_all", "recall_block"])
@pytest.mark.parametrize("seconds", [LATE, 3 * BUDGET], ids=["just-too-late", "hanging"])
def test_recall_returns_at_its_budget(clock: Clock, seconds: float, block: bool) -> None:
    with Gate(clock, seconds) as gate, recalling(gate) as (manager, _):
        assert (manager.recall_block if block else manager.prefetch_all)("q") == ""
        gate.open()


@pytest.mark.parametrize("block", [False, True], ids=["prefetch_all", "recall_block"])
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(raising(ConnectionError("down")), id="raising"),
        pytest.param(raising(SystemExit(3)), id="exiting"),
        pytest.param(None, id="none"),
        pytest.param(b"bytes", id="bytes"),
        pytest.param(["a", "list"], id="list"),
    ],
)
def test_an_answer_that_is_no_text_costs_only_itself(
    clock: Clock, answer: Any, block: bool
) -> None:
    with recalling(answer) as (manager, _):
        assert (manager.recall_block if block else manager.prefetch_all)("q") == ""


def test_a_late_answer_serves_the_next_turn_of_its_session_once_and_names_its_question(
    clock: Clock,
) -> None:
    with recalling("") as (manager, provider):
        late_turn(manager, provider, clock, "late text")
        provider.answers["prefetch"] = ""
        served = manager.recall_block("second question")
        assert "late text" in served
        assert "first question" in served
        assert manager.recall_block("third question") == ""


def test_a_late_answer_does_not_serve_beside_one_that_came_in_time(clock: Clock) -> None:
    with recalling("") as (manager, provider):
        late_turn(manager, provider, clock, "late text")
        provider.answers["prefetch"] = "fresh"
        assert manager.prefetch_all("second") == "fresh"
        provider.answers["prefetch"] = ""
        assert manager.prefetch_all("third") == ""


@pytest.mark.parametrize("how", ["other session", "switched", "another user"])
def test_a_late_answer_never_serves_another_session(clock: Clock, how: str) -> None:
    with recalling("") as (manager, provider):
        late_turn(manager, provider, clock, "late text")
        provider.answers["prefetch"] = ""
        if how == "switched":
            manager.on_session_switch("s2")
            assert manager.prefetch_all("second") == ""
        elif how == "another user":  # whose session has the same name
            manager.on_session_switch("s1", user_id="bob")
            assert manager.prefetch_all("second", session_id="s1") == ""
        else:
            assert manager.prefetch_all("second", session_id="s2") == ""


def late_turns(manager: MemoryManager, provider: Recorder, clock: Clock, answer: Any) -> None:
    """Eight turns, each with an answer that comes when the turn is over."""
    for _ in range(8):
        with Gate(clock, LATE) as gate:
            provider.answers["prefetch"] = behind(gate, answer)
            manager.prefetch_all("q")
        recall = manager._external._recall  # type: ignore[union-attr]
        assert eventually(lambda: not recall.is_late)  # noqa: B023 - called at once


def test_answers_that_are_only_late_never_open_the_breaker(clock: Clock) -> None:
    with recalling("") as (manager, provider):
        late_turns(manager, provider, clock, "late text")
        assert state(manager) == "closed"


def test_errors_that_come_late_count_as_errors(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with recalling("") as (manager, provider):
        late_turns(manager, provider, clock, ConnectionError("no answer from the backend"))
        assert state(manager) == "open"
        assert "no answer from the backend" in caplog.text


def test_five_errors_open_the_breaker_and_it_closes_again_without_a_restart(clock: Clock) -> None:
    with recalling(raising(ConnectionError("down"))) as (manager, provider):
        for expected in ["closed"] * 4 + ["open"]:
            manager.prefetch_all("q")
            assert state(manager) == expected
        asked = len(provider.of("prefetch"))
        assert manager.prefetch_all("q") == ""
        assert len(provider.of("prefetch")) == asked
        provider.answers["prefetch"] = "back"
        clock.now += Breaker.COOLDOWN
        assert manager.prefetch_all("q") == "back"
        assert state(manager) == "closed"


def test_a_call_that_runs_at_twice_the_budget_opens_the_breaker_and_recovery_needs_no_restart(
    clock: Clock,
) -> None:
    with Gate(clock, LATE) as gate, recalling(gate) as (manager, provider):
        assert manager.prefetch_all("it hangs") == ""
        assert state(manager) == "closed"
        clock.now += BUDGET
        assert state(manager) == "open"
        provider.answers["prefetch"] = "back"
        assert manager.prefetch_all("it is paused") == ""
        clock.now += Breaker.COOLDOWN
        assert manager.prefetch_all("and now") == "back"
        gate.open()


def test_a_budget_of_nothing_gives_only_what_is_ready(clock: Clock) -> None:
    with recalling("ready", 0) as (manager, provider):
        assert manager.prefetch_all("q") == "ready"
        with Gate(clock, 0.1) as gate:
            provider.answers["prefetch"] = behind(gate, "slow")
            assert manager.prefetch_all("question") == ""
        provider.answers["prefetch"] = ""
        assert "slow" in manager.prefetch_all("next")
