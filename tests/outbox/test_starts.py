"""Writes of an earlier session for which no instance of the provider can be started."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.outboxes import is_busy, limit_changes, outbox_of, rounds, rows, session, settled
from support.providers import Clock, Recorder, eventually, raising

from hermes_core import MemoryManager
from hermes_core.dispatch import ProviderAdapter
from hermes_core.errors import HermesError
from hermes_core.outbox import FreshProvider, StreamKey, WriteState
from hermes_core.outbox.store import LEASE_SECONDS
from hermes_core.outbox.writer import OutboxSettings

pytestmark = pytest.mark.usefixtures("both_storages")


class Sessions:
    """Managers of one provider, and the instances that were made for inherited streams."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.clock = Clock(1_000_000.0)
        self.made: list[Recorder] = []
        self.answers: dict[str, Any] = {}
        #: Why none can be made.
        self.error: Exception | None = None

    def fresh(self, key: StreamKey) -> FreshProvider:
        if self.error is not None:
            raise self.error
        self.made.append(Recorder(**self.answers))
        return FreshProvider(ProviderAdapter(self.made[-1], key.provider), lambda: None)

    @contextmanager
    def session(self, name: str, **answers: Any) -> Iterator[MemoryManager]:
        manager = MemoryManager(home=self.home)
        manager._configure(OutboxSettings(make_provider=self.fresh))
        assert manager.add_provider(Recorder(**answers))
        manager.initialize_all(name)
        outbox_of(manager).store.clock = self.clock
        try:
            yield manager
        finally:
            manager.shutdown_all()


@pytest.fixture
def sessions(home: Path) -> Sessions:
    return Sessions(home)


def test_no_instance_is_made_after_the_other_for_a_skipped_write(sessions: Sessions) -> None:
    bad = {"sync_turn": lambda user, *_, **__: raising(KeyError("x"))() if user == "bad" else None}
    with sessions.session("s1", **bad) as manager:
        manager.sync_all("bad", "answer")
        manager.sync_all("good", "answer")
        rounds(manager, sessions.clock, 2)
        assert rows(manager, "state") == [(WriteState.SKIPPED,)]
    sessions.answers["initialize"] = raising(ConnectionError("down"))
    sessions.clock.now += 3600
    with sessions.session("s2") as manager:
        assert settled(manager)
        assert len(sessions.made) == 1
        assert "down" in rows(manager, "error")[0][0]
        sessions.answers.clear()
        rounds(manager, sessions.clock, 1)
        assert rows(manager, "state") == []


def test_no_instance_is_made_after_the_other_for_a_note_and_a_turn(sessions: Sessions) -> None:
    down = raising(ConnectionError("down"))
    with sessions.session("s1", sync_turn=down, on_memory_write=down) as manager:
        manager.on_memory_write("add", "memory", "a note")
        manager.sync_all("turn", "answer")
    sessions.answers["initialize"] = down
    sessions.clock.now += 3600
    with sessions.session("s2") as manager:
        assert settled(manager)
        assert len(sessions.made) == 1
        sessions.answers.clear()
        rounds(manager, sessions.clock, 1)
        assert rows(manager, "state") == []
    assert len(sessions.made) == 2


def test_none_is_made_when_the_last_session_has_ended(sessions: Sessions) -> None:
    with sessions.session("s1", sync_turn=raising(ConnectionError("down"))) as manager:
        manager.sync_all("turn", "answer")
        outbox = outbox_of(manager)
    (stream,) = outbox.store.waiting_streams()
    assert not outbox._start_inherited(stream, sessions.fresh)  # as its worker might do just now
    assert outbox.store.claimed == set()
    assert sessions.made == []
    outbox.store.close()


def test_an_instance_that_starts_when_the_last_session_ends_delivers_nothing(
    sessions: Sessions,
) -> None:
    with sessions.session("s1", sync_turn=raising(ConnectionError("down"))) as manager:
        manager.sync_all("turn", "answer")
    with sessions.session("s2") as manager:
        outbox = outbox_of(manager)

        def end(*_: Any, **__: Any) -> None:
            outbox.close_session(manager._writes._current)  # type: ignore[union-attr,arg-type]
            outbox.stop_inherited(0)

        sessions.answers["initialize"] = end
        sessions.clock.now += 100
        outbox.wake()
        assert eventually(lambda: sessions.made and not is_busy(outbox))
    assert [call.hook for each in sessions.made for call in each.of("sync_turn")] == []


def test_an_instance_that_can_t_be_made_for_any_reason_leaves_no_claim_behind(
    sessions: Sessions,
) -> None:
    with sessions.session("s1", sync_turn=raising(ConnectionError("down"))) as manager:
        manager.sync_all("turn", "answer")
    sessions.error = RuntimeError("no more files")
    sessions.clock.now += 100
    with sessions.session("s2") as manager:
        assert settled(manager)
        assert "no more files" in rows(manager, "error")[0][0]
        assert outbox_of(manager).store.claimed == set()
    sessions.error = None
    sessions.clock.now += 100
    with sessions.session("s3") as manager:
        assert settled(manager)
        assert rows(manager, "state") == []


def test_a_flush_counts_what_could_not_be_delivered_only_for_a_while(sessions: Sessions) -> None:
    down = raising(ConnectionError("down"))
    with sessions.session("s1", sync_turn=down) as manager:
        manager.sync_all("turn", "answer")
    sessions.error = HermesError("the keyring is locked")
    sessions.answers["sync_turn"] = down
    sessions.clock.now += 100
    with sessions.session("s2") as manager:
        assert settled(manager)
        assert manager.flush_pending(1)  # nobody here can deliver it
        sessions.error = None
        rounds(manager, sessions.clock, 1)
        assert not manager.flush_pending(0.1)


def test_a_start_that_fails_while_the_disk_is_full_leaves_no_claim_behind(
    sessions: Sessions,
) -> None:
    with sessions.session("s1", sync_turn=raising(ConnectionError("down"))) as manager:
        manager.sync_all("turn", "answer")
    with sessions.session("s2") as manager:
        store = outbox_of(manager).store

        def fail(*_: Any, **__: Any) -> None:
            limit_changes(store, lambda number: number < 1)
            sessions.answers.clear()
            raise ConnectionError("down")

        sessions.answers["initialize"] = fail
        sessions.clock.now += 100
        end = sessions.clock.now + LEASE_SECONDS / 2  # a claim would be respected until then

        def is_delivered() -> bool:
            # The failing change may be that of another step; then the write waits a few seconds.
            sessions.clock.now = min(sessions.clock.now + 1, end)
            outbox_of(manager).wake()
            return len(sessions.made) >= 2 and rows(manager, "state") == []

        assert eventually(is_delivered)


def test_a_turn_for_which_no_thread_can_be_started_is_stored_and_delivered_later(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = Recorder()
    with session(home, provider) as manager:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", raising(RuntimeError("no more threads")))
            manager.sync_all("turn", "answer")
        assert [state for (state,) in rows(manager, "state")] == [WriteState.WAITING]
        assert manager.flush_pending(20)
    assert [call.args[0] for call in provider.of("sync_turn")] == ["turn"]


def test_without_a_thread_for_an_instance_no_claim_is_left_and_it_is_tried_again(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sessions.session("s1", sync_turn=raising(ConnectionError("down"))) as manager:
        manager.sync_all("turn", "answer")
    refused = threading.Event()
    start = threading.Thread.start

    def refuse_once(thread: threading.Thread) -> None:
        if thread.name == "memory-inherited" and not refused.is_set():
            refused.set()
            raise RuntimeError("no more threads")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse_once)
    sessions.clock.now += 100
    with sessions.session("s2") as manager:
        assert settled(manager)
        assert refused.is_set()
        assert rows(manager, "state") == []
        assert outbox_of(manager).store.claimed == set()
    assert len(sessions.made) == 1


def test_a_delegation_of_an_earlier_session_holds_no_claim_when_the_disk_is_full(
    home: Path,
) -> None:
    clock = Clock(1_000_000.0)
    down = raising(ConnectionError("down"))
    with session(home, Recorder(on_delegation=down), clock=clock) as manager:
        manager.on_delegation("task", "result")
    manager = MemoryManager(home=home)
    assert manager.add_provider(Recorder())
    manager.initialize_all("s2")
    try:
        store = outbox_of(manager).store
        store.clock = clock
        # The first change claims the stream. The second would let the delegation wait.
        limit_changes(store, lambda number: number == 1)
        clock.now += 100
        outbox_of(manager).wake()
        assert eventually(lambda: rows(manager, "due > 1000100") == [(1,)])
        assert eventually(lambda: store.claimed == set())
    finally:
        manager.shutdown_all()
