"""What `health` says, and the breaker that leaves a failing provider alone for a while."""

from __future__ import annotations

import os
import sys
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.providers import DRIVE, Clock, Recorder, eventually, raising, running

from hermes_core import HookHealth
from hermes_core.dispatch.health import Breaker, CallStatistics, HookStats

ROUNDS = 40 if os.environ.get("HERMES_STRESS") else 8


def test_health_has_the_fields_of_the_contract() -> None:
    assert HookHealth._fields == (
        "calls",
        "failures",
        "last_error",
        "last_seconds",
        "p95_seconds",
        "breaker",
    )


def test_health_is_told_for_each_provider_and_hook() -> None:
    external = Recorder(prefetch=raising(RuntimeError("boom")))
    with running(Recorder("builtin"), external) as manager:
        for _ in range(2):
            manager.prefetch_all("q")
        manager.build_system_prompt()
        health = manager.health()
    assert list(health) == ["builtin", "ext"]
    assert health["ext"]["prefetch"][:3] == (2, 2, "RuntimeError: boom")
    assert health["builtin"]["prefetch"][:3] == (2, 0, "")
    assert health["ext"]["system_prompt_block"].breaker == "closed"
    assert health["ext"]["prefetch"].last_seconds >= 0


def test_the_last_error_stays_after_a_success_and_the_counts_go_on() -> None:
    external = Recorder(system_prompt_block=raising(RuntimeError("boom")))
    with running(external) as manager:
        manager.build_system_prompt()
        external.answers["system_prompt_block"] = "fine"
        manager.build_system_prompt()
        health = manager.health()["ext"]["system_prompt_block"]
    assert (health.calls, health.failures, health.last_error) == (2, 1, "RuntimeError: boom")


def test_writes_are_counted_when_they_were_made() -> None:
    with running(Recorder()) as manager:
        for _ in range(3):
            manager.sync_all("u", "a")
        manager.flush_pending(5)
        assert manager.health()["ext"]["sync_turn"].calls == 3


def test_health_of_a_manager_without_providers_is_empty() -> None:
    with running() as manager:
        assert manager.health() == {}


def test_health_is_a_picture_of_its_moment() -> None:
    with running(Recorder()) as manager:
        before = manager.health()
        manager.prefetch_all("q")
        assert "prefetch" not in before["ext"]


def test_times_are_measured() -> None:
    stats = HookStats()
    for number in range(100):
        stats.record(number / 100)
    health = stats.health("closed")
    assert health.calls == 100
    assert health.last_seconds == 0.99
    assert health.p95_seconds == pytest.approx(0.95, abs=0.011)


@settings(deadline=None)
@given(st.lists(st.floats(0, 100), min_size=1, max_size=300))
def test_p95_is_one_of_the_recent_times_and_few_are_above_it(times: list[float]) -> None:
    stats = HookStats()
    for each in times:
        stats.record(each)
    recent = times[-128:]
    p95 = stats.health("closed").p95_seconds
    assert p95 in recent
    assert sum(each > p95 for each in recent) <= 0.05 * len(recent)


def test_the_breaker_opens_after_a_row_of_failures_and_closes_after_a_success() -> None:
    clock = Clock()
    breaker = Breaker(clock=clock)
    for _ in range(Breaker.THRESHOLD - 1):
        breaker.failed()
    assert breaker.state == "closed"
    breaker.failed()
    assert breaker.state == "open"
    clock.now += Breaker.COOLDOWN - 0.1
    assert breaker.state == "open"
    clock.now += 0.2
    assert breaker.state == "half-open"
    breaker.succeeded()
    assert breaker.state == "closed"


def test_a_success_in_between_starts_the_count_anew() -> None:
    breaker = Breaker(clock=Clock())
    for _ in range(3 * Breaker.THRESHOLD):
        breaker.failed()
        breaker.succeeded()
    assert breaker.state == "closed"


def test_one_failure_after_the_cooldown_opens_it_again() -> None:
    clock = Clock()
    breaker = Breaker(clock=clock)
    breaker.trip()
    clock.now += Breaker.COOLDOWN
    assert breaker.state == "half-open"
    breaker.failed()
    assert breaker.state == "open"


def test_a_half_open_breaker_lets_one_call_through_at_a_time() -> None:
    clock = Clock()
    breaker = Breaker(clock=clock)
    assert all(breaker.admits() for _ in range(3))
    breaker.trip()
    assert not breaker.admits()
    clock.now += Breaker.COOLDOWN
    assert [breaker.admits() for _ in range(3)] == [True, False, False]
    breaker.failed()
    clock.now += Breaker.COOLDOWN
    assert [breaker.admits() for _ in range(3)] == [True, False, False]
    clock.now += Breaker.COOLDOWN  # nobody said what became of it
    assert [breaker.admits() for _ in range(3)] == [True, False, False]
    breaker.succeeded()
    assert all(breaker.admits() for _ in range(3))


def test_an_error_with_a_number_in_it_is_forgotten_some_day(caplog) -> None:
    statistics = CallStatistics("acme")
    for number in range(3_000):
        statistics.record("prefetch", 0.0, ConnectionError(), f"request {number} failed")
    assert len(statistics._warned) <= 1_000
    assert len(caplog.records) == 3_000


def test_a_hang_opens_it_at_once() -> None:
    breaker = Breaker(clock=Clock())
    breaker.trip()
    assert breaker.state == "open"


@settings(deadline=None)
@given(st.lists(st.sampled_from(["fail", "succeed", "trip", "wait"]), max_size=60))
def test_the_breaker_is_open_only_within_the_cooldown_of_a_failure(steps: list[str]) -> None:
    clock = Clock()
    breaker = Breaker(clock=clock)
    last_bad = float("-inf")
    for step in steps:
        if step == "wait":
            clock.now += Breaker.COOLDOWN / 2
        elif step == "succeed":
            breaker.succeeded()
            assert breaker.state == "closed"
        else:
            last_bad = clock.now
            breaker.trip() if step == "trip" else breaker.failed()
        if breaker.state == "open":
            assert clock.now - last_bad < Breaker.COOLDOWN
    clock.now += Breaker.COOLDOWN
    assert breaker.state != "open"


def test_recall_that_keeps_failing_is_left_alone_for_a_while() -> None:
    clock = Clock()
    external = Recorder(prefetch=raising(ConnectionError("down")))
    with running(external) as manager:
        breakers = manager._external._statistics._breakers  # type: ignore[union-attr]
        for lane in breakers:
            breakers[lane] = Breaker(clock=clock)
        for _ in range(Breaker.THRESHOLD + 3):
            assert manager.prefetch_all("q") == ""
        assert len(external.of("prefetch")) == Breaker.THRESHOLD
        assert manager.health()["ext"]["prefetch"].breaker == "open"
        external.answers["prefetch"] = "back"
        clock.now += Breaker.COOLDOWN
        assert manager.prefetch_all("q") == "back"
        assert manager.health()["ext"]["prefetch"].breaker == "closed"


def test_a_pause_of_recall_is_no_pause_of_tools_and_writes() -> None:
    external = Recorder(prefetch=raising(ConnectionError("down")), tools=[{"name": "ext_tool"}])
    with running(external) as manager:
        for _ in range(Breaker.THRESHOLD + 1):
            manager.prefetch_all("q")
        assert manager.handle_tool_call("ext_tool", {}) == "{}"
        manager.sync_all("u", "a")
        assert manager.flush_pending(60)
        assert external.of("sync_turn")


def test_a_tool_may_fail_as_often_as_it_likes() -> None:
    # A tool's error is an answer that the model can act on.
    external = Recorder(handle_tool_call=raising(ValueError("bad")), tools=[{"name": "ext_tool"}])
    with running(external) as manager:
        for _ in range(3 * Breaker.THRESHOLD):
            assert "bad" in manager.handle_tool_call("ext_tool", {})
        assert len(external.of("handle_tool_call")) == 3 * Breaker.THRESHOLD


@pytest.mark.scaled
def test_health_can_be_asked_while_calls_are_under_way() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        problems = [error for _ in range(ROUNDS) for error in _watched_turns()]
    finally:
        sys.setswitchinterval(interval)
    assert problems == []


def _watched_turns() -> list[RuntimeError]:
    """What `health` raised while a manager went through its first turns."""
    problems: list[RuntimeError] = []
    stop = threading.Event()
    with running(Recorder("builtin"), Recorder()) as manager:

        def watch() -> None:
            while not stop.is_set():
                try:
                    manager.health()
                except RuntimeError as error:
                    problems.append(error)

        watcher = threading.Thread(target=watch)
        watcher.start()
        for drive in DRIVE.values():
            drive(manager)
        manager.flush_pending(10)
        stop.set()
        watcher.join()
    return problems


def test_no_call_is_missed_in_the_counts() -> None:
    with running(Recorder("builtin"), Recorder()) as manager:
        for number in range(50):
            manager.on_turn_start(number, "m")
            manager.prefetch_all("q")
            manager.sync_all("u", "a")
            manager.queue_prefetch_all("q")
        assert manager.flush_pending(10)
        assert eventually(lambda: manager.health()["ext"]["on_turn_start"].calls == 50)
        health = manager.health()
    hooks = ("prefetch", "sync_turn", "queue_prefetch")
    assert {health[name][hook].calls for name in health for hook in hooks} == {50}
