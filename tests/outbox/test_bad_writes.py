"""One bad write holds nobody up; a backend that is away keeps everybody in order."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.journals import texts
from support.outboxes import open_store, outbox_of, rows, session, settled
from support.providers import Clock, Recorder, eventually, raising

from hermes_core import MemoryManager, MemoryProvider, WriteRefused
from hermes_core.outbox import WriteState
from hermes_core.outbox import delivery as delivery_module

pytestmark = pytest.mark.usefixtures("both_storages")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses to speak of between attempts."""
    monkeypatch.setattr(delivery_module, "back_off", lambda *_: 0.01)


def said(provider: Recorder) -> list[str]:
    return [call.args[0] for call in provider.of("sync_turn")]


def failing_for(*bad: str, error: Exception) -> Callable[..., None]:
    def answer(user: str, *_: Any, **__: Any) -> None:
        if user in bad:
            raise error

    return answer


@pytest.mark.parametrize("error", [KeyError("x"), ValueError("x"), TypeError("x")])
@pytest.mark.usefixtures("quick")
def test_a_turn_that_fails_three_times_and_again_after_another_succeeded_is_skipped(
    home: Path, error: Exception
) -> None:
    provider = Recorder(sync_turn=failing_for("bad", error=error))
    with session(home, provider) as manager:
        for text in ("first", "bad", "good", "better"):
            manager.sync_all(text, "answer")
        assert manager.flush_pending(20)
        ((hook, state, attempts, told),) = rows(manager)
        assert (hook, state, attempts) == ("sync_turn", WriteState.SKIPPED, 4)
        assert type(error).__name__ in told
    assert said(provider) == ["first", "bad", "bad", "bad", "good", "bad", "better"]


@pytest.mark.usefixtures("quick")
def test_an_error_that_quotes_half_a_character_is_one_like_any_other(home: Path) -> None:
    provider = Recorder(sync_turn=failing_for("bad", error=ValueError("can't store \ud83d")))
    with session(home, provider) as manager:
        for text in ("bad", "good"):
            manager.sync_all(text, "answer")
        assert manager.flush_pending(20)
        assert rows(manager) == [("sync_turn", WriteState.SKIPPED, 4, "ValueError: can't store ?")]
    assert said(provider) == ["bad", "bad", "bad", "good", "bad"]


def test_an_error_that_quotes_a_whole_book_is_kept_and_shown_in_part(home: Path) -> None:
    provider = Recorder(sync_turn=raising(WriteRefused("too long: " + "word " * 500_000)))
    with session(home, provider) as manager:
        manager.sync_all("bad", "answer")
        assert manager.flush_pending(20)
        ((_, state, _, error),) = rows(manager)
        assert (state, error[:14]) == (WriteState.FAILED, "too long: word")
        assert len(error) < 2000
        assert len(manager.health()["ext"]["sync_turn"].last_error) < 2000


def test_a_failure_of_ours_while_a_write_is_tried_is_told_and_not_repeated_at_once(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(delivery_module, "fault_of", raising(RuntimeError("unforeseen")))
    provider = Recorder(sync_turn=raising(KeyError("x")))
    with session(home, provider, shutdown=0.5) as manager:
        manager.sync_all("turn", "answer")
        assert eventually(lambda: "unforeseen" in caplog.text)
        route = manager._writes._current  # type: ignore[union-attr]
        assert eventually(lambda: not route.busy)  # type: ignore[union-attr]
        assert outbox_of(manager)._deliver_due() > 1
        # Nor does a worker start it that had read before the failure that the stream is due.
        assert not route.try_start(route.stream)  # type: ignore[union-attr]
        assert said(provider) == ["turn"]


@pytest.mark.usefixtures("quick")
def test_two_bad_turns_in_a_row_are_both_set_aside(home: Path) -> None:
    provider = Recorder(sync_turn=failing_for("bad", "worse", error=KeyError("x")))
    with session(home, provider) as manager:
        for text in ("bad", "worse", "good", "better"):
            manager.sync_all(text, "answer")
        assert manager.flush_pending(20)
        assert [row[1] for row in rows(manager)] == [WriteState.SKIPPED, WriteState.SKIPPED]
    assert [text for text in said(provider) if text in ("good", "better")] == ["good", "better"]


@pytest.mark.usefixtures("quick")
def test_a_note_that_raises_is_set_aside_while_the_turns_arrive(home: Path) -> None:
    provider = Recorder(on_memory_write=raising(KeyError("no such target")))
    with session(home, provider) as manager:
        manager.on_memory_write("add", "memory", "a note")
        assert eventually(lambda: rows(manager)[0][2] > 0)  # it fails first; then turns succeed
        for number in range(5):
            manager.sync_all(f"turn {number}", "answer")
        assert eventually(lambda: len(said(provider)) == 5)
        assert manager.flush_pending(20)
        assert [row[:2] for row in rows(manager)] == [("on_memory_write", WriteState.SKIPPED)]
    assert said(provider) == [f"turn {number}" for number in range(5)]


@pytest.mark.usefixtures("quick")
def test_a_note_that_raises_holds_up_no_other_note_for_long(home: Path) -> None:
    told: list[str] = []

    def answer(_action: str, _target: str, content: str, *_: Any, **__: Any) -> None:
        told.append(content)
        if content == "bad":
            raise KeyError("x")

    with session(home, Recorder(on_memory_write=answer)) as manager:
        for content in ("bad", "good", "better"):
            manager.on_memory_write("add", "memory", content)
        assert manager.flush_pending(20)
        assert [row[1] for row in rows(manager)] == [WriteState.SKIPPED]
    assert told == ["bad", "bad", "bad", "good", "bad", "better"]


@pytest.mark.usefixtures("quick")
def test_while_every_write_fails_nothing_is_reordered(home: Path) -> None:
    provider = Recorder(sync_turn=raising(KeyError("the plugin is broken")))
    turns = [f"turn {number}" for number in range(5)]
    with session(home, provider) as manager:
        for turn in turns:
            manager.sync_all(turn, "answer")
        assert eventually(lambda: len(said(provider)) > 30)
        assert {row[1] for row in rows(manager)} == {WriteState.WAITING}
        provider.calls.clear()  # before it works again: the first success is recorded
        provider.answers["sync_turn"] = None
        assert manager.flush_pending(20)
        assert rows(manager) == []
    assert [text for text in said(provider) if text == "turn 0"]
    assert list(dict.fromkeys(said(provider))) == turns


@pytest.mark.usefixtures("quick")
def test_a_text_to_which_the_server_answers_500_holds_up_no_others_for_long(home: Path) -> None:
    error = RuntimeError("internal server error")
    error.status_code = 500  # type: ignore[attr-defined]
    provider = Recorder(sync_turn=failing_for("bad", error=error))
    with session(home, provider) as manager:
        for text in ("bad", "good"):
            manager.sync_all(text, "answer")
        assert manager.flush_pending(20)
        assert [row[:3] for row in rows(manager)] == [("sync_turn", WriteState.SKIPPED, 11)]
    assert said(provider) == ["bad"] * 10 + ["good", "bad"]


def test_a_refusal_is_final_for_its_write_and_for_no_other(home: Path) -> None:
    refused = RuntimeError("422")
    refused.status_code = 422  # type: ignore[attr-defined]
    for error in (WriteRefused("no special tokens"), refused):
        provider = Recorder(sync_turn=failing_for("bad", error=error))
        with session(home, provider) as manager:
            for text in ("bad", "good"):
                manager.sync_all(text, "answer")
            assert manager.flush_pending(20)
            assert rows(manager)[-1][1:3] == (WriteState.FAILED, 1)
        assert said(provider) == ["bad", "good"]


def test_what_was_set_aside_is_tried_again_later_and_leaves_when_it_arrives(home: Path) -> None:
    provider = Recorder(sync_turn=failing_for("bad", error=KeyError("x")))
    clock = Clock(1_000_000.0)
    with session(home, provider, clock=clock) as manager:
        manager.sync_all("bad", "answer")
        manager.sync_all("good", "answer")
        for _ in range(3):
            assert settled(manager)
            clock.now += 10
        assert settled(manager)
        assert [row[1] for row in rows(manager)] == [WriteState.SKIPPED]
        before = len(said(provider))
        clock.now += 200
        assert settled(manager)
        assert len(said(provider)) == before + 1
        assert [row[2] for row in rows(manager, "state, attempts, due > 1000200")] == [1]
        provider.answers["sync_turn"] = None
        clock.now += 4000
        assert settled(manager)
        assert rows(manager) == []
    assert said(provider)[-1] == "bad"


def test_what_was_set_aside_is_delivered_by_another_process_s_instance(
    plugged: Path, begun: Callable[..., MemoryManager]
) -> None:
    (plugged / "down").touch()
    first = begun("s1")
    first.sync_all("turn", "answer")
    first.shutdown_all()
    (plugged / "down").unlink()
    store = open_store(plugged)
    (stream,) = store.waiting_streams()
    write = store.next_waiting(stream.id)
    assert write is not None
    store.skip(write, 0.0)
    assert store.waiting_streams() == []
    store.close()
    second = begun("s2")
    outbox_of(second).wake()
    assert eventually(lambda: rows(second) == [])
    assert texts(plugged) == ["turn"]


def test_a_flush_tries_once_at_once_and_then_with_back_off(home: Path) -> None:
    provider = Recorder(on_session_end=raising(ConnectionError("down")))
    with session(home, provider) as manager:
        manager.on_session_end([])
        assert eventually(lambda: len(provider.of("on_session_end")) == 1)
        assert not manager.flush_pending(2)
        assert len(provider.of("on_session_end")) <= 5


def test_a_backend_that_says_when_to_come_back_is_left_alone_until_then(home: Path) -> None:
    error = ConnectionError("busy")
    error.retry_after = 500.0  # type: ignore[attr-defined]
    provider = Recorder(sync_turn=raising(error))
    with session(home, provider) as manager:
        outbox = outbox_of(manager)
        now = [1_000_000.0]
        outbox.store.clock = lambda: now[0]
        manager.sync_all("turn", "answer")
        assert eventually(lambda: outbox.store.waiting_streams()[0].due == 1_000_500.0)


def test_a_provider_is_told_when_a_turn_was_said_the_same_in_every_attempt(home: Path) -> None:
    heard: list[tuple[int, float]] = []

    class Clocked(MemoryProvider):
        name = "clocked"

        def is_available(self) -> bool:
            return True

        def initialize(self, session_id: str, **kwargs: Any) -> None:
            pass

        def get_tool_schemas(self) -> list[dict[str, Any]]:
            return []

        def sync_turn(  # type: ignore[override]
            self, user_content: str, assistant_content: str, *, attempt: int, said_at: float
        ) -> None:
            heard.append((attempt, said_at))
            if attempt == 1:
                raise ConnectionError("down")

    before = time.time()
    with session(home, Clocked()) as manager:
        manager.sync_all("turn", "answer")
        assert eventually(lambda: heard)
        after = time.time()
        assert manager.flush_pending(20)
    assert [attempt for attempt, _ in heard] == [1, 2]
    assert len({said_at for _, said_at in heard}) == 1
    assert before - 1 <= heard[0][1] <= after + 1
