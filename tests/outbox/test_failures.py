"""What a provider does with a write, and what becomes of it: again, given up, or behind others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.outboxes import open_store, outbox_of, session
from support.providers import Gate, Recorder, eventually, raising

from hermes_core import Deadlines, MemoryManager, MemoryProvider, WriteRefused
from hermes_core.hookspecs import Lane as LaneName
from hermes_core.outbox import OutboxStore, StreamKey, WriteState
from hermes_core.outbox import delivery as delivery_module

pytestmark = pytest.mark.usefixtures("both_storages")


def rows(store: OutboxStore, what: str = "event_id, state, attempts, error") -> list[Any]:
    return store.database.read(
        lambda database: database.execute(f"SELECT {what} FROM writes ORDER BY id").fetchall()
    )


def said(provider: Recorder) -> list[str]:
    return [call.args[0] for call in provider.of("sync_turn")]


@pytest.mark.parametrize("error", [WriteRefused("no"), NotImplementedError("not yet")])
def test_what_no_retry_mends_is_given_up_at_once_and_the_next_goes_on(
    home: Path, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(user: str, *_: Any, **__: Any) -> None:
        if user == "bad":
            raise error

    provider = Recorder(sync_turn=answer)
    with session(home, provider) as manager:
        for text in ("bad", "good"):
            manager.sync_all(text, "answer")
        assert manager.flush_pending(10)
        ((_, state, attempts, told),) = rows(outbox_of(manager).store)
        assert (state, attempts) == (WriteState.FAILED, 1)
        assert str(error) in told
        assert "failed permanently" in caplog.text
    assert said(provider) == ["bad", "good"]


def test_a_write_that_was_set_aside_is_given_up_after_a_day_and_no_moment_less(home: Path) -> None:
    def answer(user: str, *_: Any, **__: Any) -> None:
        if user == "bad":
            raise KeyError("no such field")

    provider = Recorder(sync_turn=answer)
    with session(home, provider) as manager:
        outbox = outbox_of(manager)
        now = [1_000_000.0]
        outbox.store.clock = lambda: now[0]
        manager.sync_all("bad", "answer")
        manager.sync_all("good", "answer")
        states = []
        for later in (0, 2, 4, *[3_600] * 6, 61_000, 3_700, 3_700):
            now[0] += later
            attempts = said(provider).count("bad")
            outbox.wake()
            wanted = attempts + 1 if later else 1
            assert eventually(lambda n=wanted: said(provider).count("bad") >= n)
            assert eventually(lambda: not any(route.busy for route in outbox._sessions))
            states.append(rows(outbox.store, "state")[0][0])
        assert states == ["waiting"] * 2 + ["aside"] * 9 + [WriteState.FAILED]
        assert rows(outbox.store, "payload") != [("",)]


def test_a_backend_that_is_away_for_a_week_gets_every_turn_in_order(home: Path) -> None:
    provider = Recorder(sync_turn=raising(ConnectionError("down")))
    turns = [f"turn {number}" for number in range(20)]
    with session(home, provider) as manager:
        outbox = outbox_of(manager)
        now = [1_000_000.0]
        outbox.store.clock = lambda: now[0]
        for turn in turns:
            manager.sync_all(turn, "answer")
        for _ in range(60):
            assert eventually(lambda: not any(route.busy for route in outbox._sessions))
            before = len(provider.calls)
            now[0] += 10_000
            outbox.wake()
            assert eventually(lambda n=before: len(provider.calls) > n)
        # The round may still try one turn behind the first, which would be accepted from now on.
        assert eventually(lambda: not any(route.busy for route in outbox._sessions))
        assert {row[0] for row in rows(outbox.store, "state")} == {"waiting"}
        provider.calls.clear()
        provider.answers["sync_turn"] = None
        assert manager.flush_pending(10)
    assert said(provider) == turns


def test_a_row_that_can_t_be_read_blocks_nothing_behind_it(home: Path) -> None:
    provider = Recorder()
    with session(home, provider) as manager:
        box = manager._writes._current  # type: ignore[union-attr]
        assert box is not None
        for broken in ("not json", "[]", '{"user_content": "u", "what": 1}', "{}", "null"):
            box.put("sync_turn", f"broken {broken}", broken)
        box.put("no_such_hook", "broken hook", "{}")
        manager.sync_all("good", "answer")
        assert manager.flush_pending(10)
        assert {row[1] for row in rows(outbox_of(manager).store)} == {WriteState.FAILED}
        assert len(rows(outbox_of(manager).store)) == 6
    assert said(provider) == ["good"]


class Odd:
    """What a host may have among its messages."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def circle() -> list[Any]:
    ring: list[Any] = []
    ring.append(ring)
    return ring


def deep() -> list[Any]:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    return nested


@pytest.mark.parametrize(
    "content",
    [{("a", 1): 2}, circle(), Odd(), {1, 2}, b"\xff", "\ud800", float("nan"), deep()],
    ids=["keys", "circle", "odd", "set", "bytes", "surrogate", "nan", "deep"],
)
def test_messages_that_are_no_json_cost_the_turn_nothing_but_themselves(
    home: Path, content: Any
) -> None:
    provider = Recorder()
    with session(home, provider) as manager:
        manager.sync_all("turn 0", "answer", messages=[{"role": "user", "content": content}])
        manager.on_delegation("task", "result", extra_thing=content)
        manager.sync_all("turn 1", "answer")
        manager.on_session_end([{"role": "user", "content": content}])
        assert manager.flush_pending(10)
    assert said(provider) == ["turn 0", "turn 1"]
    assert len(provider.of("on_delegation")) == 1
    assert len(provider.of("on_session_end")) == 1


def test_a_failed_start_is_tried_again_for_the_session_that_runs_by_then(home: Path) -> None:
    down = [True]

    def start(*_: Any, **__: Any) -> None:
        if down[0]:
            raise ConnectionError("down")

    provider = Recorder(initialize=start)
    with session(home, provider) as manager:
        manager.sync_all("old", "answer")
        manager.on_session_switch("s2", parent_session_id="s1")
        manager.sync_all("new", "answer")
        assert eventually(lambda: provider.of("initialize")[1:])
        down[0] = False
        assert eventually(lambda: manager.flush_pending(0.2) or "new" in said(provider))
        landed = []
        current = ""
        for call in provider.calls:
            if call.hook in {"initialize", "on_session_switch"}:
                current = call.args[0]
            elif call.hook == "sync_turn":
                landed.append((call.args[0], call.kwargs["session_id"], current))
        assert ("new", "s2", "s2") in landed
        assert all(session_id == at for text, session_id, at in landed if text == "new")


@pytest.mark.parametrize("first", ["fails", "hangs"])
def test_turns_wait_for_a_start_that_fails_or_hangs_at_first(home: Path, first: str) -> None:
    with Gate() as gate:
        failing = raising(ConnectionError("down"))
        provider = Recorder(initialize=failing if first == "fails" else gate)
        with session(home, provider, initialize=0.2) as manager:
            for number in range(5):
                manager.sync_all(f"turn {number}", "answer")
            assert not manager.flush_pending(0.3)
            assert said(provider) == []
            provider.answers["initialize"] = None
            gate.open()
            assert manager.flush_pending(10)
    assert said(provider) == [f"turn {number}" for number in range(5)]


def test_a_start_that_keeps_failing_is_tried_less_and_less_often(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[int] = []

    def back_off(attempts: int) -> float:
        waits.append(attempts)
        return 0.01

    monkeypatch.setattr(delivery_module, "back_off", back_off)
    provider = Recorder(initialize=raising(ConnectionError("away")))
    with session(home, provider) as manager:
        manager.sync_all("turn", "answer")
        assert eventually(lambda: len(waits) >= 5)
        assert waits[:5] == [1, 2, 3, 4, 5]
        del provider.answers["initialize"]
        assert manager.flush_pending(20)
    assert said(provider) == ["turn"]


def test_a_backend_that_stores_and_then_times_out_gets_one_copy(home: Path) -> None:
    stored: dict[str, str] = {}
    attempts: list[int] = []
    with Gate() as gate:

        class Backend(MemoryProvider):
            name = "backend"

            def is_available(self) -> bool:
                return True

            def initialize(self, session_id: str, **kwargs: Any) -> None:
                pass

            def get_tool_schemas(self) -> list[dict[str, Any]]:
                return []

            def sync_turn(  # type: ignore[override]
                self, user_content: str, assistant_content: str, *, turn_id: str, attempt: int
            ) -> None:
                stored[turn_id] = user_content
                attempts.append(attempt)
                if attempt == 1:
                    gate()
                    raise TimeoutError("no answer")

        with session(home, Backend(), write=0.2) as manager:
            manager.sync_all("turn", "answer")
            assert not manager.flush_pending(1.5)
            assert attempts == [1]
            assert manager.health()["backend"]["sync_turn"].failures >= 1
            gate.open()
            assert eventually(lambda: manager.flush_pending(1))
    assert list(stored.values()) == ["turn"]
    assert attempts == [1, 2]


def test_a_backend_that_was_down_for_a_thousand_turns_gets_them_all_in_order(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery_module, "back_off", lambda *_: 0.05)
    provider = Recorder(sync_turn=raising(ConnectionError("down")))
    with session(home, provider) as manager:
        for number in range(1000):
            manager.sync_all(f"turn {number}", "answer " * 20)
        store = outbox_of(manager).store
        assert store.database.read(store.database.used_bytes) < 2_000_000
        assert manager._external._workers[LaneName.WRITE].pending() <= 2  # type: ignore[union-attr]
        provider.calls.clear()
        provider.answers["sync_turn"] = None
        assert eventually(lambda: not outbox_of(manager).store.waiting_streams(), 30)
    delivered = list(dict.fromkeys(said(provider)))
    assert delivered == [f"turn {number}" for number in range(1000)]


def test_a_close_beside_a_call_that_hangs_leaves_no_claim_behind(home: Path) -> None:
    with Gate() as gate:
        provider = Recorder(on_session_switch=gate)
        with session(home, provider, shutdown=0.4) as manager:
            manager.on_session_switch("s2")
            manager.sync_all("turn", "answer")
            store = outbox_of(manager).store
        assert [(each.holder, each.writes) for each in store.waiting_streams()] == [("", 1)]
        assert store.claimed == set()
        store.close()


def test_a_stand_in_that_never_came_to_its_turn_leaves_no_claim_behind(home: Path) -> None:
    down = Recorder(sync_turn=raising(ConnectionError("down")))
    with session(home, down, shutdown=0.4) as manager:
        manager.sync_all("turn", "answer")
    # Before there is a worker: on a busy machine, the next attempt may be due by now.
    store = open_store(home)
    (stream,) = store.waiting_streams()
    waiting = store.next_waiting(stream.id)
    assert waiting is not None
    store.postpone(waiting, store.clock() + 1000)
    store.close()
    with Gate() as gate:
        manager = MemoryManager(home=home, deadlines=Deadlines(shutdown=0.4))
        assert manager.add_provider(Recorder(on_session_switch=gate))
        manager.initialize_all("s2")
        outbox = outbox_of(manager)
        manager.on_session_switch("s3")
        outbox.store.make_due()
        outbox.wake()
        assert eventually(lambda: outbox.store.claimed)
        manager.shutdown_all()
        # The worker of the outbox may be about to start it: then that worker ends it, too.
        assert eventually(lambda: not outbox.store.claimed)
        assert [(each.holder, each.writes) for each in outbox.store.waiting_streams()] == [("", 1)]
        outbox.store.close()


def test_a_claim_that_is_lost_during_a_call_is_noticed_before_the_next_one(home: Path) -> None:
    def answer(*_: Any, **__: Any) -> None:
        now[0] += 400
        store.database.change(
            lambda database: database.execute(
                "UPDATE streams SET holder = ?, expires = ?", (f"elsewhere/1/{now[0]}", now[0] + 99)
            )
        )

    provider = Recorder(sync_turn=raising(ConnectionError("down")))
    with session(home, provider, shutdown=0.5) as manager:
        outbox = outbox_of(manager)
        store = outbox.store
        now = [1_000_000.0]
        store.clock = lambda: now[0]
        for number in range(5):
            manager.sync_all(f"turn {number}", "answer")
        # The first attempt has been made: otherwise it could come between the next two lines.
        assert eventually(
            lambda: said(provider) and not any(route.busy for route in outbox._sessions)
        )
        provider.calls.clear()
        provider.answers["sync_turn"] = answer
        assert not manager.flush_pending(0.5)
        assert eventually(lambda: [each.writes for each in store.waiting_streams()] == [4])
        assert said(provider) == ["turn 0"]


def test_leftovers_whose_keywords_are_unreadable_wait_and_hold_nobody_up(
    home: Path, begun: Callable[..., MemoryManager], plugged: Path
) -> None:
    manager = begun("s1")
    store = outbox_of(manager).store
    owner = manager._writes._settings.owner  # type: ignore[union-attr]
    store.put(StreamKey("journal", owner, "x", "{broken"), 0, ("e", "sync_turn", "{}"), claim=False)
    outbox_of(manager).wake()
    assert eventually(lambda: "keywords" in rows(store)[0][3])
    manager.sync_all("turn", "answer")
    assert eventually(lambda: len(rows(store)) == 1)
    assert [(each.holder, each.writes) for each in store.waiting_streams()] == [("", 1)]


def test_what_is_queued_survives_as_text_that_others_can_read(home: Path) -> None:
    provider = Recorder(sync_turn=raising(ConnectionError("down")))
    with session(home, provider) as manager:
        manager.sync_all("naïve ☃ \x00", "answer")
        ((payload,),) = rows(outbox_of(manager).store, "payload")
        assert json.loads(payload)["user_content"] == "naïve ☃ \x00"
