"""Recall that fails or hangs costs two turns their time, and later turns next to nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.providers import Clock, Gate, Recorder, eventually, raising, running

from hermes_core import Deadlines, MemoryManager, RecallStatus
from hermes_core.dispatch.health import SLOW_SECONDS, Breaker
from hermes_core.errors import AnswerLate, ProviderPaused
from hermes_core.hookspecs import Lane
from hermes_core.service import hand_over

TURNS = 24
#: Longer than a turn waits for a recall that keeps failing.
BUDGET = 2 * SLOW_SECONDS


def a_turn(manager: MemoryManager) -> BaseException | None:
    """What went wrong in the recall of a turn."""
    outcomes = manager.recall("q").outcomes
    manager.sync_all("u", "a")
    manager.queue_prefetch_all("q")
    return outcomes[-1].error


@contextmanager
def timed(seconds: float, **answers: Any) -> Iterator[tuple[MemoryManager, Recorder, Clock]]:
    """A provider whose recall fails after so many seconds of a clock that we turn."""
    clock = Clock()

    def fail(*_: Any, **__: Any) -> None:
        clock.now += seconds
        raise ConnectionError("no answer in time")

    external = Recorder(prefetch=fail, **answers)
    with running(external) as manager:
        adapter = manager._external
        assert adapter is not None
        # The workers measure by the real clock: what fails late by ours is not to count as hanging.
        adapter._clock = clock
        breakers = adapter._statistics._breakers
        for key in breakers:
            breakers[key] = Breaker(clock=clock)
        yield manager, external, clock


def test_two_slow_failures_end_the_waiting_although_every_warm_up_succeeds() -> None:
    with timed(3.0) as (manager, external, _):
        for _ in range(TURNS):
            a_turn(manager)
            manager.flush_pending(5)
        assert len(external.of("prefetch")) == 2
        health = manager.health()["ext"]
        assert health["prefetch"].breaker == "open"
        assert health["queue_prefetch"].breaker == "closed"


def test_failures_that_come_at_once_open_the_breaker_although_every_warm_up_succeeds() -> None:
    with timed(0.001) as (manager, external, _):
        for _ in range(TURNS):
            a_turn(manager)
            manager.flush_pending(5)
        assert len(external.of("prefetch")) == Breaker.THRESHOLD
        assert external.of("queue_prefetch")


def test_after_the_pause_one_call_decides() -> None:
    with timed(3.0) as (manager, external, clock):
        for _ in range(4):
            a_turn(manager)
        clock.now += Breaker.COOLDOWN
        for _ in range(4):
            a_turn(manager)
        assert len(external.of("prefetch")) == 3
        clock.now += Breaker.COOLDOWN
        external.answers["prefetch"] = "back"
        assert manager.prefetch_all("q") == "back"
        assert manager.health()["ext"]["prefetch"].breaker == "closed"


def test_warm_ups_that_fail_do_not_stop_recall() -> None:
    external = Recorder(prefetch="recalled", queue_prefetch=raising(ConnectionError("down")))
    with running(external) as manager:
        for _ in range(2 * Breaker.THRESHOLD):
            assert manager.prefetch_all("q") == "recalled"
            manager.queue_prefetch_all("q")
            manager.flush_pending(5)
        assert manager.health()["ext"]["queue_prefetch"].breaker == "open"


@contextmanager
def frozen(budget: float = BUDGET) -> Iterator[tuple[MemoryManager, Recorder, Gate]]:
    """A provider whose recall does not come back until the gate is opened."""
    external = Recorder()
    deadlines = Deadlines(hook=30.0, shutdown=0.5)
    with Gate() as gate:
        external.answers["prefetch"] = gate
        manager = MemoryManager(external_prefetch_timeout=budget, deadlines=deadlines)
        manager.add_provider(external)
        manager.initialize_all("s1")
        # It must not count as hanging however slow this machine is.
        manager._external._recall._patience = 60.0  # type: ignore[union-attr]
        try:
            yield manager, external, gate
        finally:
            gate.open()
            manager.shutdown_all()


def is_idle(manager: MemoryManager) -> bool:
    """Whether no recall runs."""
    return not manager._external._workers[Lane.RECALL].pending()  # type: ignore[union-attr]


def waited(error: BaseException | None, seconds: float) -> bool:
    return isinstance(error, AnswerLate) and f"no answer within {seconds:g} s" in str(error)


def test_a_frozen_recall_makes_one_turn_wait_and_those_behind_it_wait_shorter() -> None:
    with frozen() as (manager, external, _):
        errors = [a_turn(manager) for _ in range(TURNS)]
        assert waited(errors[0], BUDGET)
        assert "hermes-plugins config set memory.prefetch_budget" in str(errors[0])
        # The second is behind the first, and the others do not even wait for their turn.
        assert all(isinstance(each, ProviderPaused) for each in errors[2:])
        assert len(external.of("prefetch")) == 1


def test_a_recall_that_is_always_late_is_waited_for_twice_and_then_briefly() -> None:
    with frozen() as (manager, external, _):
        errors = []
        for _ in range(4):
            external.answers["prefetch"] = gate = Gate()
            errors.append(a_turn(manager))
            gate.open()
            assert eventually(lambda: is_idle(manager), 30)
            # Only what took longer than the whole budget keeps it short.
            manager._external._recall._running[0].seconds = 2 * BUDGET  # type: ignore[union-attr, index]
        assert [waited(each, BUDGET) for each in errors] == [True, True, False, False]
        assert [waited(each, SLOW_SECONDS) for each in errors] == [False, False, True, True]


def test_a_late_answer_within_the_budget_restores_the_whole_budget() -> None:
    with frozen() as (manager, external, gate):
        recall = manager._external._recall  # type: ignore[union-attr]
        a_turn(manager)
        a_turn(manager)
        assert recall.budget == SLOW_SECONDS
        gate.open()
        assert eventually(lambda: is_idle(manager), 30)
        recall._running[0].seconds = BUDGET / 2
        external.answers["prefetch"] = ""
        manager.prefetch_all("q")
        assert recall.budget == BUDGET


def test_a_status_is_not_waited_for_while_a_recall_is_late() -> None:
    with frozen() as (manager, external, _):
        external.answers["recall_status"] = RecallStatus("Ext", 3)
        a_turn(manager)
        assert manager.recall_status_all() == []
        assert external.of("recall_status") == []


# -- parts of an answer -------------------------------------------------------------------------


def handing_over(*parts: str, then: Callable[[], str]) -> Callable[..., str]:
    def prefetch(*_: Any, **__: Any) -> str:
        for each in parts:
            hand_over(each)
        return then()

    return prefetch


def test_a_recall_that_is_late_gives_the_parts_that_it_has() -> None:
    done = threading.Event()

    def rest() -> str:
        done.wait(60)
        return "card, summary and answer"

    with frozen() as (manager, external, _):
        external.answers["prefetch"] = handing_over("the card", " ", "the summary", then=rest)
        outcome = manager.recall("q").outcomes[-1]
        assert outcome.value == "the card\n\nthe summary"
        assert isinstance(outcome.error, AnswerLate)
        done.set()
        external.answers["prefetch"] = ""
        assert eventually(lambda: is_idle(manager), 30)
        assert "card, summary and answer" in manager.prefetch_all("next")


def test_a_recall_that_fails_half_way_gives_the_parts_that_it_has() -> None:
    def rest() -> str:
        raise ConnectionError("down")

    with running(Recorder(prefetch=handing_over("the card", then=rest))) as manager:
        outcome = manager.recall("q").outcomes[-1]
        assert (outcome.value, str(outcome.error)) == ("the card", "down")


def test_a_recall_whose_rest_keeps_failing_gives_its_parts_in_every_turn() -> None:
    with timed(3.0) as (manager, external, clock):
        recall = manager._external._recall  # type: ignore[union-attr]
        recall._clock = clock
        fail = external.answers["prefetch"]
        external.answers["prefetch"] = handing_over("the card", then=fail)
        assert [manager.prefetch_all("q") for _ in range(TURNS)] == ["the card"] * TURNS
        assert recall.budget == SLOW_SECONDS


def test_a_recall_in_time_gives_what_it_returns_and_nothing_twice() -> None:
    whole = handing_over("the card", then=lambda: "the card and the answer")
    with running(Recorder(prefetch=whole)) as manager:
        assert manager.prefetch_all("q") == "the card and the answer"


def test_the_parts_of_one_turn_are_not_served_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    def rest() -> str:
        raise ConnectionError("down")

    with running(Recorder(prefetch=handing_over("the card", then=rest))) as manager:
        assert manager.prefetch_all("q") == "the card"
        monkeypatch.setattr(manager._external._statistics, "is_paused", lambda _: True)
        assert manager.prefetch_all("q") == ""


def test_outside_of_a_recall_there_is_nobody_to_hand_over_to() -> None:
    hand_over("the card")
