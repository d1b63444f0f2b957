"""Several processes of one home, some of which are killed, stopped, or other users'."""

from __future__ import annotations

import os
import random
import signal
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.agents import AT_ONCE, SHUT_DOWN, STAY, agent, kill_after
from support.journals import noted, texts, twice_at_once
from support.outboxes import open_store
from support.providers import eventually
from support.storages import scaled

from hermes_core import MemoryManager

pytestmark = [
    pytest.mark.usefixtures("both_storages"),
    pytest.mark.scaled,
    pytest.mark.skipif(os.name != "posix", reason="signals are POSIX"),
]


def left(home: Path) -> int:
    store = open_store(home)
    try:
        return sum(stream.writes for stream in store.waiting_streams())
    finally:
        store.close()


def drained(home: Path, seconds: float = 60) -> bool:
    return eventually(lambda: left(home) == 0, seconds)


def by_session(home: Path) -> dict[str, list[int]]:
    """The numbers of the turns that arrived, per session, each once."""
    found: dict[str, list[int]] = defaultdict(list)
    for text in texts(home):
        session, _, number = text.rpartition(" ")
        found[session].append(int(number))
    return found


@pytest.mark.parametrize("plugin", [True, False], ids=["plugin", "hand-added"])
def test_every_turn_that_was_acknowledged_before_a_kill_arrives_in_order(
    plugin: bool, home: Path, request: pytest.FixtureRequest, begun: Callable[..., MemoryManager]
) -> None:
    if plugin:
        request.getfixturevalue("plugged")
    kills = scaled(200, 4)
    chance = random.Random(kills)
    acknowledged = {}
    for number in range(kills // 2):
        process = agent(home, f"s{number}", "anna", plugin=plugin)
        acknowledged[f"s{number} anna"] = kill_after(process, chance.randrange(1, 60))
    begun("after", user_id="anna")
    assert drained(home)
    arrived = by_session(home)
    for session, count in acknowledged.items():
        assert arrived[session][:count] == list(range(count)), session
        assert arrived[session] in (list(range(count)), list(range(count + 1)))
    assert arrived.keys() == acknowledged.keys()
    for row in noted(home, "end"):
        assert row["user"] == "anna"
        if plugin:
            assert row["initialised"] == row["session"]


def leftovers(home: Path, *whose: tuple[str, str], **options: Any) -> None:
    """Have agents end with turns that wait."""
    (home / "down").touch()
    for session, user in whose:
        process = agent(home, session, user, count=5, ending=AT_ONCE, **options)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    (home / "down").unlink()


def test_what_another_user_left_goes_through_an_instance_of_that_user_s(
    plugged: Path, begun: Callable[..., MemoryManager]
) -> None:
    leftovers(plugged, ("s-a", "anna"), ("s-a2", "anna"), plugin=True)
    ours = begun("s-b", user_id="bert")
    ours.sync_all("s-b bert 0", "answer")
    assert drained(plugged)
    assert eventually(lambda: len(noted(plugged, "shutdown")) == 2)
    rows = noted(plugged, "end")
    assert {(row["user"], row["initialised"], row["text"].split()[0]) for row in rows} == {
        ("anna", "s-a", "s-a"),
        ("anna", "s-a2", "s-a2"),
        ("bert", "s-b", "s-b"),
    }
    assert len({row["instance"] for row in rows}) == 3
    ended = [(row["user"], row["initialised"]) for row in noted(plugged, "shutdown")]
    assert sorted(ended) == [("anna", "s-a"), ("anna", "s-a2")]
    assert by_session(plugged)["s-a anna"] == list(range(5))


def test_without_a_way_to_make_an_instance_another_user_s_turns_wait(
    home: Path, begun: Callable[..., MemoryManager]
) -> None:
    leftovers(home, ("s-a", "anna"), ("s-b", "bert"))
    ours = begun("s-new", user_id="bert")
    ours.sync_all("s-new bert 0", "answer")
    assert eventually(lambda: left(home) == 5)
    assert not eventually(lambda: left(home) < 5, 0.5)
    assert by_session(home) == {"s-b bert": list(range(5)), "s-new bert": [0]}


def test_another_platform_s_turns_are_not_mixed_with_ours(
    plugged: Path, begun: Callable[..., MemoryManager]
) -> None:
    (plugged / "down").touch()
    other = begun("s1", platform="telegram", user_id="anna", callback=object())
    other.sync_all("s1 anna 0", "answer")
    other.shutdown_all()
    (plugged / "down").unlink()
    ours = begun("s1", platform="cli", user_id="anna")
    ours.sync_all("s1 anna 1", "answer")
    assert drained(plugged)
    rows = {row["text"]: row["platform"] for row in noted(plugged, "end")}
    assert rows == {"s1 anna 0": "telegram", "s1 anna 1": "cli"}


def test_two_live_processes_of_one_session_never_deliver_one_turn_at_once(
    home: Path,
) -> None:
    (home / "slow").write_text("0.001")
    count = scaled(400, 30)
    processes = [agent(home, "s1", f"u{n % 1}", count=count) for n in range(3)]
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    last = agent(home, "s1", "u0", count=1, ending=f"manager.flush_pending(60)\n{SHUT_DOWN}")
    last.communicate(timeout=90)
    assert left(home) == 0
    rows = noted(home)
    assert twice_at_once(rows) == []
    assert len({row["id"] for row in rows if row["what"] == "end"}) == 3 * count + 1


def test_a_process_takes_over_what_one_beside_it_left_when_it_was_killed(home: Path) -> None:
    (home / "slow").write_text("0.002")
    chance = random.Random(3)
    for round_number in range(scaled(10, 1)):
        beside = agent(home, f"r{round_number}", "u", count=200)
        kill_after(agent(home, f"r{round_number}", "u"), chance.randrange(5, 80))
        _, errors = beside.communicate(timeout=120)
        assert beside.returncode == 0, errors
    end = agent(home, "r-end", "u", count=1, ending="manager.flush_pending(20)\n" + STAY)
    try:
        assert drained(home)
    finally:
        end.kill()
        end.communicate(timeout=20)
    assert twice_at_once_but_for_kills(noted(home)) == []


def twice_at_once_but_for_kills(rows: list[dict[str, Any]]) -> list[str]:
    """Like `twice_at_once`: what a killed process had begun ended with it."""
    ended = {(row["id"], row["instance"]) for row in rows if row["what"] == "end"}
    return twice_at_once(
        row for row in rows if row["what"] != "begin" or (row["id"], row["instance"]) in ended
    )


def test_a_stopped_process_that_comes_back_delivers_nothing_that_is_another_s_by_then(
    home: Path,
) -> None:
    (home / "hold").touch()
    stopped = agent(home, "s1", "u", count=20, ending=STAY)
    try:
        assert eventually(lambda: len(noted(home, "begin")) == 1, 30)
        assert stopped.stdout is not None
        for _ in range(21):
            stopped.stdout.readline()
        stopped.send_signal(signal.SIGSTOP)
        os.waitpid(stopped.pid, os.WUNTRACED)  # it has stopped, and takes no lock any more
        store = open_store(home)
        store.database.change(lambda database: database.execute("UPDATE streams SET expires = 1"))
        store.close()
        (home / "hold").unlink()
        other = agent(home, "s1", "u", count=1)
        _, errors = other.communicate(timeout=60)
        assert other.returncode == 0, errors
        assert drained(home)
        before = len(noted(home, "begin"))
        stopped.send_signal(signal.SIGCONT)
        assert eventually(lambda: len(noted(home, "end")) == before, 20)
    finally:
        stopped.kill()
        stopped.communicate(timeout=20)
    assert len(noted(home, "begin")) == before
    assert by_session(home) == {"s1 u": [*range(20), 0]}
