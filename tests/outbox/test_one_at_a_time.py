"""No write is under way twice at once, whoever wants to deliver it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from support.journals import Journal, noted, texts, twice_at_once
from support.outboxes import open_store, outbox_of, session, settled
from support.providers import Clock, Recorder, eventually, raising

from hermes_core import Deadlines, MemoryManager
from hermes_core.outbox import Outbox, StreamKey, worker

pytestmark = pytest.mark.usefixtures("both_storages")


def test_two_managers_of_one_session_never_deliver_one_turn_twice(
    home: Path, begun: Callable[..., MemoryManager]
) -> None:
    (home / "slow").write_text("0.005")
    managers = [begun("s1"), begun("s1")]
    for number in range(40):
        managers[number % 2].sync_all(f"turn {number}", "answer")
    assert all(each.flush_pending(20) for each in managers)
    assert texts(home) == [f"turn {number}" for number in range(40)]
    assert [row["attempt"] for row in noted(home, "begin")] == [1] * 40
    assert twice_at_once(noted(home)) == []


def test_a_session_that_comes_back_waits_for_what_is_under_way_for_it(
    plugged: Path, begun: Callable[..., MemoryManager]
) -> None:
    (plugged / "down").touch()
    first = begun("s1")
    first.sync_all("turn 0", "answer")
    first.shutdown_all()
    (plugged / "down").unlink()
    (plugged / "hold").touch()
    begun("s2")
    assert eventually(lambda: noted(plugged, "begin"))
    again = begun("s1")
    again.sync_all("turn 1", "answer")
    assert not again.flush_pending(0.5)
    assert [row["text"] for row in noted(plugged, "begin")] == ["turn 0"]
    (plugged / "hold").unlink()
    assert again.flush_pending(20)
    assert texts(plugged) == ["turn 0", "turn 1"]


def test_a_turn_that_hangs_in_an_instance_for_leftovers_is_not_tried_in_another(
    plugged: Path, begun: Callable[..., MemoryManager]
) -> None:
    config = plugged / "config.yaml"
    config.write_text(config.read_text() + "  deadlines:\n    write: 0.2\n    shutdown: 0.2\n")
    (plugged / "down").touch()
    first = begun("s1")
    first.sync_all("turn 0", "answer")
    first.shutdown_all()
    (plugged / "down").unlink()
    (plugged / "hold").touch()
    second = begun("s2")
    assert eventually(lambda: [r for r in noted(plugged, "shutdown") if r["initialised"] == "s1"])
    outbox = second._writes._outbox
    for _ in range(20):
        outbox.store.make_due()
        outbox.wake()
    assert not eventually(lambda: len(noted(plugged, "begin")) > 1, 1.5)
    (plugged / "hold").unlink()
    assert eventually(lambda: texts(plugged) == ["turn 0"])
    assert eventually(lambda: not outbox.store.waiting_streams())
    assert twice_at_once(noted(plugged)) == []


def test_a_stand_in_s_turn_that_hangs_is_not_tried_again_beside_it(
    home: Path, begun: Callable[..., MemoryManager]
) -> None:
    (home / "down").touch()
    first = begun("s1")
    first.sync_all("turn 0", "answer")
    first.shutdown_all()
    (home / "down").unlink()
    (home / "hold").touch()
    second = MemoryManager(home=home, deadlines=Deadlines(write=0.2, shutdown=0.2))
    second.add_provider(Journal())
    second.initialize_all("s2")
    outbox: Any = second._writes._outbox
    assert eventually(lambda: noted(home, "begin"))
    for _ in range(20):
        outbox.store.make_due()
        outbox.wake()
    assert not eventually(lambda: len(noted(home, "begin")) > 1, 1.5)
    (home / "hold").unlink()
    assert eventually(lambda: not outbox.store.waiting_streams())
    second.shutdown_all()
    assert texts(home) == ["turn 0"]
    assert twice_at_once(noted(home)) == []


def test_what_hangs_here_is_kept_from_other_processes_however_long(home: Path) -> None:
    now = [1000.0]
    outbox = Outbox(home)
    outbox.store.clock = lambda: now[0]
    _, held = outbox.store.put(
        StreamKey("p", "", "s", "{}"), 0, ("e", "sync_turn", "{}"), claim=True
    )
    assert held
    for _ in range(10):
        now[0] += 200
        outbox._deliver_due()
    assert outbox.store.waiting_streams()[0].expires > now[0]
    outbox.store.close()


def test_a_session_that_begins_while_the_worker_looks_delivers_its_own_turns(
    home: Path, begun: Callable[..., MemoryManager], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun("other").sync_all("of the other", "answer")
    outbox = worker._SHARED.outboxes[home]
    look = outbox.store.open_streams
    this_thread = threading.current_thread()

    def look_late() -> list[Any]:
        """A session begins, and its first turn is delivered between look and action."""
        if threading.current_thread() is not this_thread:  # the outbox's own worker looks, too
            return look()
        monkeypatch.setattr(outbox.store, "open_streams", look)
        (home / "hold").touch()
        session = begun("s1")
        session.sync_all("turn 0", "answer")
        found = list(look())
        (home / "hold").unlink()
        assert session.flush_pending(20)
        return found

    monkeypatch.setattr(outbox.store, "open_streams", look_late)
    outbox._deliver_due()
    assert not outbox._substitutes


def test_a_claim_ends_with_the_removal_also_after_the_worker_has_delivered(home: Path) -> None:
    provider = Recorder(sync_turn=raising(ConnectionError("down")))
    with session(home, provider, clock=Clock(1_000_000.0)) as manager:
        manager.sync_all("turn 0", "answer")
        assert settled(manager)
        provider.answers["sync_turn"] = None
        assert manager.flush_pending(20)  # as the worker does, for all kinds of writes
        with patch.object(outbox_of(manager).store, "release") as another_commit:
            for number in range(1, 4):
                manager.sync_all(f"turn {number}", "answer")
                assert settled(manager)
        assert not another_commit.called


def test_what_another_process_stores_during_a_delivery_is_delivered_in_the_same_round(
    home: Path,
) -> None:
    def store_once(*_: Any, **__: Any) -> None:
        provider.answers["sync_turn"] = None
        stored = stream.outbox.store.next_waiting(stream.stream)
        assert stored is not None
        payload = stored.payload.replace("turn 0", "turn 1")
        elsewhere.put(stream.key, 0, ("elsewhere", "sync_turn", payload), claim=False)

    provider = Recorder(sync_turn=store_once)
    elsewhere = open_store(home)
    with session(home, provider) as manager:
        stream = manager._writes._current
        with patch.object(stream.outbox, "wake"):  # nobody looks but the round itself
            manager.sync_all("turn 0", "answer")
            assert eventually(lambda: len(provider.of("sync_turn")) == 2)
            assert eventually(lambda: not stream.busy)
    elsewhere.close()
    assert [each.args[0] for each in provider.of("sync_turn")] == ["turn 0", "turn 1"]


def test_a_round_for_one_turn_reads_it_once(home: Path) -> None:
    with session(home, Recorder()) as manager:
        store = outbox_of(manager).store
        for number in range(3):
            with patch.object(store, "next_waiting", wraps=store.next_waiting) as reads:
                manager.sync_all(f"turn {number}", "answer")
                assert eventually(lambda: not manager._writes._current.busy)
            assert reads.call_count == 1
