"""What a process that was killed left is part of the next one's flush and shutdown."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.agents import STAY, agent, kill_after
from support.journals import noted
from support.outboxes import outbox_of, stored
from support.providers import eventually
from support.storages import scaled

from hermes_core import FakeProvider, MemoryManager
from hermes_core.outbox.records import Stream

STRESS = bool(os.environ.get("HERMES_STRESS"))
TURNS = 30 if STRESS else 10

#: The next process: it says whether everything was delivered.
FLUSH = "print(manager.flush_pending(timeout=100), flush=True); manager.shutdown_all()"
#: One that does not flush, and has little time.
SHUT_DOWN = "manager.shutdown_all()"

pytestmark = [
    pytest.mark.usefixtures("both_storages"),
    pytest.mark.scaled,
    pytest.mark.skipif(os.name != "posix", reason="signals are POSIX"),
]


def kept(home: Path) -> int:
    return len(stored(home))


def leave_turns(home: Path, session: str, *, plugin: bool) -> None:
    """Have a process killed with turns that wait."""
    (home / "down").touch()
    process = agent(home, session, "anna", plugin=plugin, count=TURNS, ending=STAY)
    assert kill_after(process, TURNS) == TURNS
    (home / "down").unlink()


def run(home: Path, ending: str, *, plugin: bool) -> str:
    out, errors = agent(home, "next", "anna", plugin=plugin, count=0, ending=ending).communicate(
        timeout=120
    )
    assert "Traceback" not in errors
    return out.removeprefix("ready\n").strip()


def arrived(home: Path) -> list[str]:
    return [row["text"] for row in noted(home, "end") if row["hook"] == "sync_turn"]


@pytest.mark.parametrize("plugin", [True, False], ids=["plugin", "hand-added"])
def test_the_next_process_delivers_what_a_killed_one_left_once_and_says_so(
    home: Path, plugin: bool, request: pytest.FixtureRequest
) -> None:
    if plugin:
        request.getfixturevalue("plugged")
    for number in range(scaled(50, 1)):
        leave_turns(home, f"s{number}", plugin=plugin)
        assert run(home, FLUSH, plugin=plugin) == "True"
        expected = [f"s{number} anna {turn}" for turn in range(TURNS)]
        assert arrived(home)[-TURNS:] == expected
        assert len(arrived(home)) == TURNS * (number + 1)
        assert kept(home) == 0


@pytest.mark.parametrize(
    "plugin",
    [True, pytest.param(False, marks=pytest.mark.stress)],
    ids=["plugin", "hand-added"],
)
def test_a_shutdown_without_time_for_all_keeps_nothing_that_was_delivered(
    home: Path, plugin: bool, request: pytest.FixtureRequest
) -> None:
    if plugin:
        request.getfixturevalue("plugged")
        with (home / "config.yaml").open("a") as file:
            file.write("  deadlines: {shutdown: 1}\n")
    leave_turns(home, "s", plugin=plugin)
    (home / "slow").write_text("0.15" if STRESS else "0.3")
    for _ in range(20):
        run(home, SHUT_DOWN, plugin=plugin)
        assert len(arrived(home)) == TURNS - kept(home)
        if not kept(home):
            break
    assert arrived(home) == [f"s anna {turn}" for turn in range(TURNS)]


def test_a_flush_is_not_true_before_the_leftovers_have_arrived(
    plugged: Path, begun: Callable[..., MemoryManager]
) -> None:
    leave_turns(plugged, "s", plugin=True)
    (plugged / "hold").touch()
    manager = begun("next", user_id="anna")
    assert eventually(lambda: noted(plugged, "begin"))
    assert not manager.flush_pending(0.1)
    (plugged / "hold").unlink()
    assert manager.flush_pending(30)
    assert len(arrived(plugged)) == TURNS


def test_no_instance_is_made_for_a_stream_that_was_delivered_after_the_worker_read_it(
    plugged: Path, begun: Callable[..., MemoryManager], monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_turns(plugged, "s", plugin=True)
    (plugged / "hold").touch()
    outbox = outbox_of(begun("next", user_id="bert"))
    assert eventually(lambda: noted(plugged, "begin"), 30)
    read, looks = outbox.store.open_streams, []

    def read_before_the_delivery_ends(only: int | None = None) -> list[Stream]:
        found = read(only)
        if only is None:
            looks.append(found)
            assert eventually(lambda: not outbox._delivers_inherited(), 30)
        return found

    monkeypatch.setattr(outbox.store, "open_streams", read_before_the_delivery_ends)
    outbox.wake()
    assert eventually(lambda: looks, 30)
    (plugged / "hold").unlink()
    assert eventually(lambda: len(looks) > 2 and not looks[-1], 30)
    assert len(arrived(plugged)) == TURNS
    assert len(noted(plugged, "shutdown")) == 1


def test_a_flush_leaves_what_a_live_process_delivers_to_it(
    plugged: Path, begun: Callable[..., MemoryManager]
) -> None:
    (plugged / "hold").touch()
    other = agent(plugged, "s", "anna", plugin=True, count=5, ending=STAY)
    try:
        assert eventually(lambda: noted(plugged, "begin"), 30)
        manager = begun("next", user_id="anna")
        assert manager.flush_pending(10)
        assert len(noted(plugged, "begin")) == 1
    finally:
        (plugged / "hold").unlink()
        other.kill()
        other.communicate(timeout=20)


@pytest.mark.parametrize("where", ["before the turns", "behind the turns"])
def test_what_only_its_own_session_can_deliver_holds_up_nothing_else(
    begun: Callable[..., MemoryManager], where: str
) -> None:
    provider = FakeProvider()
    provider.go_down()
    first = begun("first", provider)
    if where == "before the turns":
        first.on_delegation("a task", "its result")
    for number in range(TURNS):
        first.sync_all(f"turn {number}", "an answer")
    if where == "behind the turns":
        first.on_delegation("a task", "its result")
    first.on_memory_write("add", "memory", "a note")
    first.shutdown_all()

    later = FakeProvider()
    assert begun("next", later).flush_pending(30)
    assert [turn.user for turn in later.turns] == [f"turn {number}" for number in range(TURNS)]
    assert {turn.session_id for turn in later.turns} == {"first"}
    assert len(later.of("on_memory_write")) == 1
    assert not later.of("on_delegation")

    again = FakeProvider()
    assert begun("first", again).flush_pending(30)
    assert len(again.of("on_delegation")) == 1
    assert not again.turns
