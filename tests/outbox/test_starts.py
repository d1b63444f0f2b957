"""Writes of an earlier session for which no instance of the provider can be started."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.outboxes import is_busy, outbox_of, rounds, rows, settled
from support.providers import Clock, Recorder, eventually, raising

from hermes_core import MemoryManager
from hermes_core.dispatch import ProviderAdapter
from hermes_core.outbox import FreshProvider, StreamKey, WriteState
from hermes_core.outbox.writer import OutboxSettings


class Sessions:
    """Managers of one provider, and the instances that were made for inherited streams."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.clock = Clock(1_000_000.0)
        self.made: list[Recorder] = []
        self.answers: dict[str, Any] = {}

    def fresh(self, key: StreamKey) -> FreshProvider:
        self.made.append(Recorder(**self.answers))
        return FreshProvider(ProviderAdapter(self.made[-1], key.provider), lambda: None)

    @contextmanager
    def session(self, name: str, **answers: Any) -> Iterator[MemoryManager]:
        manager = MemoryManager(home=self.home)
        manager._outbox_settings = OutboxSettings(make_provider=self.fresh)
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
