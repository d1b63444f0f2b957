"""Who may deliver a stream: leases that run out, processes that end, and rows that stay."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.outboxes import database_class, open_store
from support.providers import Clock

from hermes_core.outbox import OutboxFull, OutboxStore, StreamKey, Write

#: Over PostgreSQL in `make test`, too.
FAST = True
pytestmark = pytest.mark.usefixtures("both_storages")

ORIGIN = StreamKey("p", "", "s", "{}")


@pytest.fixture
def clock() -> Clock:
    return Clock(1_000_000.0)


@pytest.fixture
def stores(tmp_path: Path, clock: Clock) -> Iterator[tuple[OutboxStore, OutboxStore]]:
    """Two stores of one file, as two processes would have them."""
    made = [open_store(tmp_path) for _ in range(2)]
    for each in made:
        each.clock = clock
    yield made[0], made[1]
    for each in made:
        each.close()


def as_process(monkeypatch: pytest.MonkeyPatch, name: str, *alive: str) -> None:
    monkeypatch.setattr(database_class(), "this_process", lambda _: name)
    monkeypatch.setattr(database_class(), "is_alive", lambda _, process: process in (name, *alive))


def put(store: OutboxStore, name: str, *, claim: bool = True) -> tuple[int, bool]:
    return store.put(ORIGIN, store.find_stream(ORIGIN), (name, "sync_turn", "{}"), claim=claim)


def next_of(store: OutboxStore, stream: int) -> Write:
    found = store.next_waiting(stream)
    assert found is not None
    return found


def test_who_lost_its_claim_while_it_was_stopped_delivers_nothing_more(
    stores: tuple[OutboxStore, OutboxStore], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = stores
    as_process(monkeypatch, "ours", "theirs")
    stream, _ = put(ours, "a")
    put(ours, "b", claim=False)
    assert ours.keep_claim(stream)
    clock.now += 301
    as_process(monkeypatch, "theirs", "ours")
    assert theirs.claim(stream)
    as_process(monkeypatch, "ours", "theirs")
    assert not ours.keep_claim(stream)
    ours.remove_delivered(stream, [next_of(ours, stream)], release=True)
    as_process(monkeypatch, "theirs", "ours")
    assert theirs.keep_claim(stream)
    assert next_of(theirs, stream).event_id == "b"


def test_a_claim_that_ran_out_and_that_nobody_took_is_ours_again(
    stores: tuple[OutboxStore, OutboxStore], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = stores
    as_process(monkeypatch, "ours", "theirs")
    stream, _ = put(ours, "a")
    clock.now += 301
    assert ours.keep_claim(stream)
    as_process(monkeypatch, "theirs", "ours")
    assert not theirs.claim(stream)
    assert next_of(theirs, stream).attempts == 0


def test_a_dead_process_s_claim_is_taken_at_once_and_its_writes_are_second_attempts(
    stores: tuple[OutboxStore, OutboxStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = stores
    as_process(monkeypatch, "ours")
    stream, _ = put(ours, "a")
    as_process(monkeypatch, "theirs")
    assert theirs.claim(stream)
    assert next_of(theirs, stream).attempts == 1
    assert "ended before there was an answer" in next_of(theirs, stream).error


def test_a_write_is_never_put_where_no_stream_is(
    stores: tuple[OutboxStore, OutboxStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = stores
    stream, _ = put(ours, "a", claim=False)
    theirs.remove_delivered(stream, [next_of(theirs, stream)], release=True)
    theirs.compact()
    assert theirs.find_stream(ORIGIN) == 0
    put_again, _ = ours.put(ORIGIN, stream, ("b", "sync_turn", "{}"), claim=False)
    assert [each.id for each in theirs.waiting_streams()] == [put_again]


@pytest.mark.files_only
def test_only_the_write_that_was_delivered_is_removed_not_one_that_has_its_number(
    stores: tuple[OutboxStore, OutboxStore], tmp_path: Path
) -> None:
    ours, theirs = stores
    stream, _ = put(ours, "a")
    delivered = next_of(ours, stream)
    ours.close()
    for path in tmp_path.glob("outbox.db*"):
        path.unlink()
    stream, _ = put(theirs, "b", claim=False)
    assert next_of(theirs, stream).id == delivered.id
    theirs.mark_failed(delivered, "?", 0, permanently=True)
    theirs.remove_delivered(stream, [delivered], release=True)
    assert next_of(theirs, stream).event_id == "b"


def test_turns_don_t_use_the_room_that_is_kept_for_notes(tmp_path: Path) -> None:
    store = open_store(tmp_path, max_mb=1)
    turn = ("t", "sync_turn", "x" * 10_000)
    for _ in range(200):
        with suppress(OutboxFull):
            store.put(ORIGIN, store.find_stream(ORIGIN), turn, claim=False)
    for _ in range(5):
        store.put(
            ORIGIN, store.find_stream(ORIGIN), ("n", "on_memory_write", "a note"), claim=False
        )
        with pytest.raises(OutboxFull):
            store.put(ORIGIN, store.find_stream(ORIGIN), turn, claim=False)
    store.close()


def test_a_full_outbox_says_so_and_remembers_what_it_missed(tmp_path: Path) -> None:
    store = open_store(tmp_path, max_mb=1)
    event = ("big", "sync_turn", "x" * 2_000_000)
    with pytest.raises(OutboxFull, match="backfill"):
        store.put(ORIGIN, 0, event, claim=True)
    store.put(ORIGIN, store.find_stream(ORIGIN), ("small", "sync_turn", "x"), claim=True)
    rows = store.database.read(
        lambda database: database.execute("SELECT event_id, state, payload FROM writes").fetchall()
    )
    assert rows == [("big", "missed", ""), ("small", "waiting", "x")]
    store.close()
