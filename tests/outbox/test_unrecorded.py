"""What arrived while the file could not be changed: it is not sent again as if it were new."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Event
from typing import Any
from unittest.mock import patch

import pytest
from support.outboxes import (
    as_process,
    kill,
    limit_changes,
    open_store,
    outbox_of,
    rounds,
    rows,
    session,
    settled,
)
from support.providers import Clock, Minimal, eventually, raising

from hermes_core import MemoryManager
from hermes_core.errors import DatabaseError
from hermes_core.outbox import OutboxStore
from hermes_core.outbox.worker import open_outbox

#: Over PostgreSQL in `make test`, too.
FAST = True
pytestmark = pytest.mark.usefixtures("both_storages")


class Counting(Minimal):
    """Keeps the text and the number of each attempt; fails for what is in ``bad``."""

    def __init__(self) -> None:
        super().__init__()
        self.bad: set[str] = set()
        self.tried: list[tuple[str, int]] = []

    def sync_turn(  # type: ignore[override]
        self, user_content: str, assistant_content: str, *, attempt: int
    ) -> None:
        self.tried.append((user_content, attempt))
        if user_content in self.bad:
            raise KeyError("x")


@pytest.mark.parametrize("failing", [1, 2, 3, 4])
def test_the_next_process_sends_it_as_another_attempt_or_not_at_all(
    home: Path, failing: int
) -> None:
    clock, provider = Clock(1_000_000.0), Counting()
    process = ["first"]
    with as_process(lambda: f"host/{process[0]}/1"):
        manager = MemoryManager(home=home)
        manager.add_provider(provider)
        manager.initialize_all("s1")
        outbox_of(manager).store.clock = clock
        limit_changes(outbox_of(manager).store, lambda number: number < failing)
        manager.sync_all("turn", "answer")
        assert eventually(lambda: provider.tried)
        assert settled(manager)
        kill(manager)
        process[0] = "second"
        with session(home, provider, clock=clock) as after:
            clock.now += 100
            assert settled(after)
            assert rows(after, "*") == []
    assert provider.tried in ([("turn", 1)], [("turn", 1), ("turn", 2)])


@pytest.mark.parametrize("last", [2, 3, 4])
def test_a_skipped_write_that_arrived_is_not_sent_again(home: Path, last: int) -> None:
    clock, provider = Clock(1_000_000.0), Counting()
    provider.bad.add("bad")
    with session(home, provider, clock=clock) as manager:
        manager.sync_all("bad", "answer")
        manager.sync_all("good", "answer")
        rounds(manager, clock, 2)
        provider.bad.clear()
        provider.tried.clear()
        # The first change claims the stream. The next ones would remove what arrived.
        limit_changes(outbox_of(manager).store, lambda number: 1 <= number <= last)
        for _ in range(3):
            clock.now += 3600
            assert settled(manager)
        assert rows(manager, "*") == []
    assert [text for text, _ in provider.tried] == ["bad"]


def test_an_attempt_that_failed_and_could_not_be_recorded_is_counted(home: Path) -> None:
    clock, provider = Clock(1_000_000.0), Counting()
    provider.bad.add("turn")
    with session(home, provider, clock=clock) as manager:
        limit_changes(outbox_of(manager).store, lambda number: number < 2)
        manager.sync_all("turn", "answer")
        rounds(manager, clock, 2)
        provider.bad.clear()
        rounds(manager, clock, 1)
        assert rows(manager, "*") == []
    numbers = [attempt for _, attempt in provider.tried]
    assert numbers == sorted(set(numbers))


def test_a_session_that_ends_meanwhile_leaves_no_first_attempt_to_the_next(home: Path) -> None:
    provider = Counting()
    with session(home, provider, shutdown=0.5) as manager:
        store = outbox_of(manager).store
        limit_changes(store, lambda _: True)
        manager.sync_all("turn", "answer")
        assert eventually(lambda: provider.tried)
        store.database.change = raising(DatabaseError("full"))  # type: ignore[method-assign]
    with session(home, provider) as manager:
        assert manager.flush_pending(20)
    assert provider.tried == [("turn", 1), ("turn", 2)]


def test_a_delivered_write_that_can_t_be_removed_keeps_its_stream_claimed(home: Path) -> None:
    provider = Counting()
    with session(home, provider, clock=Clock(1_000_000.0)) as manager:
        store = outbox_of(manager).store
        limit_changes(store, lambda _: True)
        manager.sync_all("turn", "answer")
        assert settled(manager)
        assert [bool(each.holder) for each in store.waiting_streams()] == [True]
        limit_changes(store, lambda _: False)
    assert store.waiting_streams() == []
    store.close()


class SlowNotes(Counting):
    """Notes wait until they may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = Event()

    def on_memory_write(  # type: ignore[override]
        self, action: str, target: str, content: str
    ) -> None:
        assert self.go_on.wait(60)


def test_a_turn_that_starts_the_delivery_beside_a_slow_note_counts_the_failed_attempt(
    home: Path,
) -> None:
    clock, provider = Clock(1_000_000.0), SlowNotes()
    provider.bad.add("one")
    with session(home, provider, clock=clock) as manager:
        manager.on_memory_write("add", "memory", "slow")
        store = outbox_of(manager).store
        limit_changes(store, lambda _: True)
        manager.sync_all("one", "answer")
        (stream,) = outbox_of(manager)._sessions
        assert eventually(lambda: provider.tried and not stream.turns.active)
        limit_changes(store, lambda _: False)
        provider.bad.clear()
        clock.now += 100
        manager.sync_all("two", "answer")
        assert eventually(lambda: len(provider.tried) == 3)
        assert stream.others.active  # all of it under one claim
        provider.go_on.set()
        assert settled(manager)
        assert rows(manager, "*") == []
    assert provider.tried == [("one", 1), ("one", 2), ("two", 1)]


def test_a_session_that_is_being_opened_delivers_nothing_without_a_claim(home: Path) -> None:
    provider, process, opened = Counting(), ["first"], Event()
    find_stream, next_waiting = OutboxStore.find_stream, OutboxStore.next_waiting

    def found(store: OutboxStore, key: Any) -> int:
        outbox = open_outbox(home)
        outbox._deliver_due()  # as if the worker took a step at this moment
        outbox.release()
        return find_stream(store, key)

    def waited(*args: Any, **keywords: Any) -> Any:
        assert opened.wait(60)
        return next_waiting(*args, **keywords)

    with as_process(lambda: f"host/{process[0]}/1"):
        before = MemoryManager(home=home)
        before.add_provider(provider)
        before.initialize_all("s1")
        limit_changes(outbox_of(before).store, lambda _: True)
        before.sync_all("turn", "answer")
        assert eventually(lambda: provider.tried)
        kill(before)
        process[0] = "second"
        with (
            patch.object(OutboxStore, "find_stream", found),
            patch.object(OutboxStore, "next_waiting", waited),
            session(home, provider) as after,
        ):
            opened.set()
            assert after.flush_pending(30)
    assert provider.tried == [("turn", 1), ("turn", 2)]


def test_an_open_session_delivers_what_another_process_stored_for_it_and_left(home: Path) -> None:
    provider, process = Counting(), ["first"]
    with as_process(lambda: f"host/{process[0]}/1"), session(home, provider) as manager:
        (stream,) = outbox_of(manager)._sessions
        turn = {"user_content": "turn", "assistant_content": "answer"}
        payload = json.dumps({**turn, "session_id": "s1", "messages": None})
        process[0] = "second"
        theirs = open_store(home)
        theirs.put(stream.key, 0, ("event", "sync_turn", payload), claim=True)
        theirs.close()
        process[0] = "first"
        assert manager.flush_pending(30)
        assert rows(manager, "*") == []
    assert provider.tried == [("turn", 2)]
