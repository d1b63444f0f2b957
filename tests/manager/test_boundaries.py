"""From one session to the next, and to the end: in order, without waiting, told as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.providers import QUICK, Gate, Recorder, eventually, running

from hermes_core import MemoryManager
from hermes_core.testing import FakeProvider

MESSAGES = [{"role": "user", "content": "u"}]


def test_the_old_session_ends_before_the_new_one_begins() -> None:
    builtin, external = Recorder("builtin"), FakeProvider()
    with running(builtin, external) as manager:
        manager.sync_all("old", "a")
        manager.commit_session_boundary_async(
            MESSAGES, new_session_id="s2", parent_session_id="s1", reason="reset"
        )
        manager.sync_all("new", "a")
        assert manager.flush_pending(10)
    order = ["sync_turn", "on_session_end", "on_session_switch", "sync_turn"]
    assert [each.hook for each in external.calls if each.hook in order] == order
    assert [each for each in builtin.hooks() if each in order] == order
    assert external.of("on_session_end")[0].arguments["messages"] == MESSAGES
    switch = external.of("on_session_switch")[0].arguments
    assert switch["new_session_id"] == "s2"
    assert (switch["parent_session_id"], switch["reset"]) == ("s1", True)
    assert switch["reason"] == "reset"
    assert [each.session_id for each in external.turns] == ["s1", "s2"]


def test_a_boundary_does_not_wait_for_the_provider() -> None:
    external = FakeProvider()
    with running(external) as manager:
        external.hang("on_session_end")
        manager.commit_session_boundary_async(MESSAGES, new_session_id="s2")
        assert external.of("on_session_switch") == []  # we are here already
        external.release()
        assert external.wait_for("on_session_switch", 1, 30)
    assert external.of("on_session_switch")[0].arguments["reason"] == "new_session"


def test_a_boundary_without_providers_or_messages_does_nothing() -> None:
    with running() as manager:
        manager.commit_session_boundary_async(None, new_session_id="s2")  # type: ignore[arg-type]


NOTHING = {"abandoned_writes": 0, "abandoned_prefetches": 0, "active_tasks": 0, "waiting_writes": 0}


def test_an_orderly_end_is_told() -> None:
    with running(FakeProvider()) as manager:
        assert manager.shutdown_drain_state == {"status": "not_started", **NOTHING}
        manager.sync_all("u", "a")
        manager.shutdown_all()
        assert manager.shutdown_drain_state == {"status": "drained", **NOTHING}


def test_writes_that_wait_in_the_outbox_are_told_and_not_called_abandoned(tmp_path: Path) -> None:
    provider = FakeProvider()
    provider.go_down()
    manager = MemoryManager(home=tmp_path)
    assert manager.add_provider(provider)
    manager.initialize_all("s1")
    for number in range(3):
        manager.sync_all(f"u{number}", "a")
    manager.shutdown_all()
    expected: dict[str, Any] = {"status": "timed_out", **NOTHING, "waiting_writes": 3}
    assert manager.shutdown_drain_state == expected


def test_a_prefetch_that_did_not_return_is_told() -> None:
    with Gate() as gate:
        external = Recorder(queue_prefetch=gate)
        with running(external, deadlines=QUICK) as manager:
            manager.queue_prefetch_all("q")
            assert eventually(lambda: bool(external.of("queue_prefetch")))
            manager.shutdown_all()
            state = manager.shutdown_drain_state
        gate.open()
    assert state == {"status": "timed_out", **NOTHING, "abandoned_prefetches": 1}


def test_what_is_told_is_the_host_s_to_change() -> None:
    with running() as manager:
        manager.shutdown_drain_state["status"] = "mine"
        assert manager.shutdown_drain_state["status"] == "not_started"
