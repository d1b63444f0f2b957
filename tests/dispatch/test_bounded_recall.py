"""Recall keeps to its budget, whatever the provider does, and late answers serve once."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.providers import Gate, Recorder, eventually, raising

from hermes_core import Deadlines, MemoryManager
from hermes_core.dispatch._health import Breaker

STRESS = bool(os.environ.get("HERMES_STRESS"))
BUDGET = 4.0 if STRESS else 0.4
#: What the rest of a turn and a loaded machine may add.
SLACK = 0.6


@contextmanager
def recalling(answer: Any, budget: float = BUDGET) -> Iterator[tuple[MemoryManager, Recorder]]:
    provider = Recorder(prefetch=answer)
    manager = MemoryManager(
        external_prefetch_timeout=budget, deadlines=Deadlines(hook=budget or 0.4, shutdown=0.5)
    )
    assert manager.add_provider(provider)
    manager.initialize_all("s1")
    try:
        yield manager, provider
    finally:
        manager.shutdown_all()


def after(seconds: float, answer: Any = "recalled") -> Any:
    def prefetch(*_: Any, **__: Any) -> Any:
        time.sleep(seconds)
        return answer

    return prefetch


def state(manager: MemoryManager) -> str:
    return manager.health()["ext"]["prefetch"].breaker


@pytest.mark.parametrize("block", [False, True], ids=["prefetch_all", "recall_block"])
@pytest.mark.parametrize(
    ("answer", "found"),
    [
        pytest.param("recalled", True, id="at-once"),
        pytest.param(after(BUDGET * 0.125), True, id="soon"),
        pytest.param(after(BUDGET * 0.9 - 0.1), True, id="just-in-time"),
        pytest.param(after(BUDGET * 1.1), False, id="just-too-late"),
        pytest.param(after(BUDGET * 3), False, id="hanging"),
        pytest.param(raising(ConnectionError("down")), False, id="raising"),
        pytest.param(raising(SystemExit(3)), False, id="exiting"),
        pytest.param(after(0, None), False, id="none"),
        pytest.param(after(0, b"bytes"), False, id="bytes"),
        pytest.param(after(0, ["a", "list"]), False, id="list"),
        pytest.param(after(0, "word " * 2_000_000), True, id="ten-megabytes"),
    ],
)
def test_recall_returns_within_its_budget(answer: Any, found: bool, block: bool) -> None:
    with recalling(answer) as (manager, _):
        ask = manager.recall_block if block else manager.prefetch_all
        begin = time.monotonic()
        recalled = ask("q")
        assert time.monotonic() - begin < BUDGET + SLACK
        assert bool(recalled) == found
        assert not block or len(recalled) <= 12_000


def test_a_late_answer_serves_the_next_turn_of_its_session_once_and_names_its_question() -> None:
    with recalling(after(0.3, "late text"), 0.15) as (manager, provider):
        assert manager.prefetch_all("first question") == ""
        time.sleep(0.25)
        provider.answers["prefetch"] = ""
        served = manager.recall_block("second question")
        assert "late text" in served
        assert "first question" in served
        assert manager.recall_block("third question") == ""


def test_a_late_answer_does_not_serve_beside_one_that_came_in_time() -> None:
    with recalling(after(0.3, "late text"), 0.15) as (manager, provider):
        assert manager.prefetch_all("first") == ""
        time.sleep(0.25)
        provider.answers["prefetch"] = "fresh"
        assert manager.prefetch_all("second") == "fresh"
        provider.answers["prefetch"] = ""
        assert manager.prefetch_all("third") == ""


@pytest.mark.parametrize("how", ["other session", "switched"])
def test_a_late_answer_never_serves_another_session(how: str) -> None:
    with recalling(after(0.3, "late text"), 0.15) as (manager, provider):
        assert manager.prefetch_all("first") == ""
        time.sleep(0.25)
        provider.answers["prefetch"] = ""
        if how == "switched":
            manager.on_session_switch("s2")
            assert manager.prefetch_all("second") == ""
        else:
            assert manager.prefetch_all("second", session_id="s2") == ""


def test_answers_that_are_only_late_never_open_the_breaker() -> None:
    with recalling(after(0.2), 0.13) as (manager, _):
        for _ in range(8):
            manager.prefetch_all("q")
            time.sleep(0.12)
        assert state(manager) == "closed"


def test_errors_that_come_late_count_as_errors(caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: Any, **__: Any) -> None:
        time.sleep(0.15)
        raise ConnectionError("no answer from the backend")

    with recalling(fail, 0.1) as (manager, _):
        for _ in range(8):
            manager.prefetch_all("q")
            time.sleep(0.08)
        assert state(manager) == "open"
        assert "no answer from the backend" in caplog.text


def test_five_errors_open_the_breaker_and_it_closes_again_without_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Breaker, "COOLDOWN", 0.2)
    with recalling(raising(ConnectionError("down")), 0.5) as (manager, provider):
        for expected in ["closed"] * 4 + ["open"]:
            manager.prefetch_all("q")
            assert state(manager) == expected
        asked = len(provider.of("prefetch"))
        assert manager.prefetch_all("q") == ""
        assert len(provider.of("prefetch")) == asked
        provider.answers["prefetch"] = "back"
        assert eventually(lambda: manager.prefetch_all("q") == "back", 3)
        assert state(manager) == "closed"


def test_a_call_that_runs_at_twice_the_budget_opens_the_breaker_and_recovery_needs_no_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Breaker, "COOLDOWN", 0.2)
    with Gate() as gate, recalling(gate, 0.1) as (manager, provider):
        assert manager.prefetch_all("q") == ""
        assert state(manager) == "closed"
        assert eventually(lambda: state(manager) == "open", 3)
        provider.answers["prefetch"] = "back"
        assert eventually(lambda: manager.prefetch_all("q") == "back", 3)


def test_a_budget_of_nothing_gives_only_what_is_ready() -> None:
    with recalling("ready", 0) as (manager, provider):
        assert eventually(lambda: manager.prefetch_all("q") == "ready", 3)
        provider.answers["prefetch"] = after(0.15, "slow")
        begin = time.monotonic()
        assert manager.prefetch_all("question") == ""
        assert time.monotonic() - begin < 0.1
        time.sleep(0.25)
        provider.answers["prefetch"] = ""
        assert "slow" in manager.prefetch_all("next")


def test_recall_recovers_by_itself_from_a_call_that_never_returns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Breaker, "COOLDOWN", 0.2)
    with Gate() as gate, recalling(gate, budget=0.1) as (manager, provider):
        assert manager.prefetch_all("it hangs") == ""
        time.sleep(0.25)  # it is past its time when the next one asks
        provider.answers["prefetch"] = "recalled"
        assert eventually(lambda: manager.prefetch_all("and now") == "recalled", 5)
