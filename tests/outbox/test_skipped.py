"""Which write is skipped, which is only suspect, and who may pass it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.outboxes import outbox_of, rounds, rows, session, settled
from support.providers import Clock, Recorder, eventually, raising

from hermes_core.outbox import WriteState, admin
from hermes_core.outbox import delivery as delivery_module

pytestmark = pytest.mark.usefixtures("both_storages")

DOWN = ConnectionError("down")


class ServerError(Exception):
    status_code = 500


def said(provider: Recorder) -> list[str]:
    return [call.args[0] for call in provider.of("sync_turn")]


def failing_for(*bad: str, error: Exception) -> Callable[..., None]:
    def answer(user: str, *_: Any, **__: Any) -> None:
        if user in bad:
            raise error

    return answer


def test_after_an_outage_a_bad_write_does_not_hold_up_those_that_failed_as_often(
    home: Path,
) -> None:
    clock = Clock(1_000_000.0)
    provider = Recorder(sync_turn=raising(DOWN))
    with session(home, provider, clock=clock) as manager:
        for text in ("bad", "second", "third"):
            manager.sync_all(text, "answer")
        rounds(manager, clock, 35)
        assert {attempts >= 10 for (attempts,) in rows(manager, "attempts")} == {True}
        provider.answers["sync_turn"] = failing_for("bad", error=KeyError("x"))
        provider.calls.clear()
        rounds(manager, clock, 3)
        assert rows(manager, "state") == [(WriteState.SKIPPED,)]
    assert sorted(set(said(provider)) - {"bad"}) == ["second", "third"]


def test_a_backend_that_recovers_in_the_middle_of_a_round_makes_no_write_a_skipped_one(
    home: Path,
) -> None:
    clock = Clock(1_000_000.0)
    provider = Recorder(sync_turn=raising(DOWN))
    with session(home, provider, clock=clock) as manager:
        for text in ("first", "second", "third", "fourth"):
            manager.sync_all(text, "answer")
        rounds(manager, clock, 20)
        assert [attempts >= 10 for (attempts,) in rows(manager, "attempts")] == [True] * 2 + [
            False
        ] * 2
        provider.calls.clear()
        provider.answers["sync_turn"] = lambda *_, **__: (
            None if len(said(provider)) > 1 else raising(DOWN)()
        )
        rounds(manager, clock, 1)
        assert rows(manager, "state") == []
    # The third was tried in place of the first. Then the others arrive in their order.
    assert said(provider) == ["first", "third", "first", "second", "fourth"]


def test_a_success_of_the_same_moment_does_not_make_a_write_a_bad_one(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery_module, "back_off", lambda *_: 0.0)
    provider = Recorder()
    with session(
        home, provider, clock=Clock(1_000_000.0), shutdown=0.5
    ) as manager:  # its time stands still
        manager.sync_all("good", "answer")
        assert settled(manager)
        provider.answers["sync_turn"] = raising(KeyError("the plugin is broken"))
        manager.sync_all("second", "answer")
        manager.sync_all("third", "answer")
        assert eventually(lambda: len(said(provider)) > 20)
        assert rows(manager, "state") == [(WriteState.WAITING,)] * 2


def test_a_skipped_write_that_gets_a_server_error_is_retried_less_and_less_often(
    home: Path,
) -> None:
    clock = Clock(1_000_000.0)
    provider = Recorder(sync_turn=failing_for("bad", error=ServerError("500")))
    with session(home, provider, clock=clock) as manager:
        for text in ("bad", "good"):
            manager.sync_all(text, "answer")
        rounds(manager, clock, 9)
        waits = []
        for _ in range(8):
            ((state, due),) = rows(manager, "state, due")
            assert state == WriteState.SKIPPED
            waits.append(round((due - clock.now) / 60))
            clock.now = due
            assert settled(manager)
        assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


def test_a_retry_that_a_person_asks_for_during_an_attempt_is_not_forgotten(home: Path) -> None:
    clock = Clock(1_000_000.0)
    provider = Recorder(sync_turn=failing_for("bad", error=KeyError("x")))
    with session(home, provider, clock=clock) as manager:
        for text in ("bad", "good"):
            manager.sync_all(text, "answer")
        rounds(manager, clock, 2)
        assert rows(manager, "state") == [(WriteState.SKIPPED,)]

        def asked(*_: Any, **__: Any) -> None:
            admin.retry(outbox_of(manager).store)
            raise KeyError("x")

        provider.answers["sync_turn"] = asked
        rounds(manager, clock, 1)
        assert rows(manager, "state") == [(WriteState.WAITING,)]


def test_only_one_write_passes_those_that_failed_often(home: Path) -> None:
    clock = Clock(1_000_000.0)
    provider = Recorder(sync_turn=raising(KeyError("the plugin is broken")))
    with session(home, provider, clock=clock) as manager:
        for text in ("bad", "second", "third", "fourth"):
            manager.sync_all(text, "answer")
        rounds(manager, clock, 6)
        assert [faults >= 3 for (faults,) in rows(manager, "faults")] == [True] * 2 + [False] * 2
        provider.calls.clear()
        # It raises another error when it is tried again: one that is not its own fault.
        errors = [KeyError("x"), DOWN]
        provider.answers["sync_turn"] = lambda user, *_, **__: (
            raising(errors.pop(0) if errors else DOWN)() if user == "bad" else None
        )
        rounds(manager, clock, 1)
        assert rows(manager, "state") == [(WriteState.SKIPPED,)]
    assert said(provider) == ["bad", "third", "bad", "second", "fourth"]


def noted(provider: Recorder) -> list[str]:
    return [call.args[2] for call in provider.of("on_memory_write")]


@pytest.mark.parametrize("error", [KeyError("x"), ServerError("500")], ids=["unclear", "500"])
def test_notes_and_the_end_of_a_session_don_t_wait_for_a_bad_turn_for_ever(
    home: Path, error: Exception
) -> None:
    clock = Clock(1_000_000.0)
    provider = Recorder(sync_turn=raising(error))
    with session(home, provider, clock=clock) as manager:
        for text in ("bad", "worse"):
            manager.sync_all(text, "answer")
        for number in range(3):
            manager.on_memory_write("add", "memory", f"note {number}")
        manager.on_session_end([])
        rounds(manager, clock, 2)
        assert noted(provider) == []
        rounds(manager, clock, 22)
        assert noted(provider) == ["note 0", "note 1", "note 2"]
        assert len(provider.of("on_session_end")) == 1
        # No turn arrived, so the plugin may be broken for all of them: they wait, in order.
        assert rows(manager, "state") == [(WriteState.WAITING,)] * 2
        provider.answers["sync_turn"] = None
        provider.calls.clear()
        rounds(manager, clock, 1)
    assert said(provider) == ["bad", "worse"]


def test_after_an_outage_notes_still_come_after_the_turns_before_them(home: Path) -> None:
    clock = Clock(1_000_000.0)
    provider = Recorder(sync_turn=raising(DOWN), on_memory_write=raising(DOWN))
    with session(home, provider, clock=clock) as manager:
        for text in ("first", "second"):
            manager.sync_all(text, "answer")
        for number in range(2):
            manager.on_memory_write("add", "memory", f"note {number}")
        rounds(manager, clock, 30)
        provider.answers.clear()
        provider.calls.clear()
        rounds(manager, clock, 1)
    assert provider.hooks()[:4] == ["sync_turn"] * 2 + ["on_memory_write"] * 2
    assert noted(provider) == ["note 0", "note 1"]
