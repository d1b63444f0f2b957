"""The clock jumps: a year ahead, ten years back, to 1970. Nothing is lost, dead or out of order."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.outboxes import database_class, open_store, outbox_of, rows, session, settled
from support.providers import Clock, Recorder, eventually

from hermes_core.outbox import OutboxStore, StreamKey, WriteState

pytestmark = pytest.mark.usefixtures("both_storages")

NOW = 1_795_000_000.0
YEAR = 365 * 86_400.0
JUMPS = [
    pytest.param(NOW + YEAR, id="a year ahead"),
    pytest.param(NOW - 10 * YEAR, id="ten years back"),
    pytest.param(1.0, id="1970"),
]
KEY = StreamKey("ext", "", "s1", "{}")


def opened(home: Path, clock: Clock) -> OutboxStore:
    store = open_store(home, max_mb=1)
    store.clock = clock
    return store


def said(provider: Recorder) -> list[str]:
    return [call.args[0] for call in provider.of("sync_turn")]


@pytest.mark.parametrize("then", JUMPS)
def test_what_waits_for_another_attempt_is_delivered_in_order(home: Path, then: float) -> None:
    clock = Clock(NOW)
    down = [True]

    def answer(*_: Any, **__: Any) -> None:
        if down[0]:
            raise ConnectionError("down")

    provider = Recorder(sync_turn=answer)
    with session(home, provider, clock=clock) as manager:
        manager.sync_all("first", "answer")
        manager.sync_all("second", "answer")
        assert settled(manager)
        down[0] = False
        provider.calls.clear()
        clock.now = then
        manager.sync_all("third", "answer")
        outbox_of(manager).wake()
        assert eventually(lambda: rows(manager) == [])
    assert said(provider) == ["first", "second", "third"]


@pytest.mark.parametrize("then", JUMPS)
def test_a_write_that_was_skipped_a_minute_ago_is_not_given_up(home: Path, then: float) -> None:
    clock = Clock(NOW)

    def answer(user: str, *_: Any, **__: Any) -> None:
        if user == "bad":
            raise KeyError("no such field")

    provider = Recorder(sync_turn=answer)
    with session(home, provider, clock=clock) as manager:
        manager.sync_all("bad", "answer")
        manager.sync_all("good", "answer")
        for _ in range(4):
            assert settled(manager)
            clock.now += 100
            outbox_of(manager).wake()
        assert settled(manager)
        assert rows(manager, "state") == [(WriteState.SKIPPED,)]
        attempts = said(provider).count("bad")
        clock.now = then
        outbox_of(manager).wake()
        assert eventually(lambda: said(provider).count("bad") > attempts)
        assert settled(manager)
        assert rows(manager, "state") == [(WriteState.SKIPPED,)]


def test_a_process_that_starts_after_the_clock_went_back_waits_for_nothing(home: Path) -> None:
    clock = Clock(NOW + YEAR)
    provider = Recorder(sync_turn=lambda *_, **__: (_ for _ in ()).throw(ConnectionError("down")))
    with session(home, provider, clock=clock, shutdown=0.5) as manager:
        manager.sync_all("first", "answer")
        assert settled(manager)
    provider = Recorder()
    with session(home, provider) as manager:
        manager.sync_all("second", "answer")
        assert manager.flush_pending(30)
    assert said(provider) == ["first", "second"]


def test_a_process_that_starts_leaves_a_service_alone_that_asked_for_hours(home: Path) -> None:
    clock = Clock(NOW)
    error = ConnectionError("busy")
    error.retry_after = 8 * 3600.0  # type: ignore[attr-defined]

    def busy(*_: Any, **__: Any) -> None:
        raise error

    with session(home, Recorder(sync_turn=busy), clock=clock, shutdown=0.5) as manager:
        manager.sync_all("turn", "answer")
        assert settled(manager)
    with session(home, Recorder(), clock=clock) as manager:
        outbox_of(manager)._deliver_due()  # the first look of a process corrects times
        assert outbox_of(manager).store.open_streams()[0].due == NOW + 8 * 3600


def test_a_claim_from_the_future_of_another_machine_does_not_last_for_years(home: Path) -> None:
    clock = Clock(NOW)
    with closing(opened(home, clock)) as store:
        stream, _ = store.put(KEY, 0, ("one", "sync_turn", "{}"), claim=False)

        def claimed_until(holder: str, expires: float) -> None:
            store.database.change(
                lambda database: database.execute(
                    "UPDATE streams SET holder = ?, expires = ?", (holder, expires)
                )
            )

        claimed_until("elsewhere/1/1", NOW + 200)
        assert not store.claim(stream)
        claimed_until("elsewhere/1/1", NOW + YEAR)
        assert store.claim(stream)


def test_a_claim_of_a_living_process_of_this_machine_is_kept(home: Path, monkeypatch) -> None:
    clock = Clock(NOW)
    with closing(opened(home, clock)) as store:
        stream, claimed = store.put(KEY, 0, ("one", "sync_turn", "{}"), claim=True)
        assert claimed
        other = f"{store.database.this_process().rpartition('/')[0]}/other"
        monkeypatch.setattr(database_class(), "this_process", lambda _: other)
        clock.now -= YEAR
        with closing(opened(home, clock)) as theirs:
            assert not theirs.claim(stream)


def test_a_write_that_fails_while_times_are_corrected_keeps_its_time(home: Path) -> None:
    clock = Clock(NOW)
    with closing(opened(home, clock)) as store:
        file = store.database
        stream, _ = store.put(KEY, 0, ("one", "sync_turn", "{}"), claim=False)
        write = store.next_waiting(stream)
        assert write is not None
        change = file.change

        def changed(work: Any) -> Any:
            file.change = change  # type: ignore[method-assign]
            clock.now += 1
            store.mark_failed(write, "down", NOW + 2)
            return change(work)

        file.change = changed  # type: ignore[method-assign,assignment]
        store.correct_times(latest=NOW + YEAR)
        after = store.next_waiting(stream)
        assert after is not None
        assert after.failing_since == NOW + 1
