"""Managers that come and go, beside each other and one after the other, in one process."""

from __future__ import annotations

import os
import random
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from support.providers import Recorder, eventually, memory_threads

from hermes_core import MemoryManager
from hermes_core.outbox import worker

pytestmark = pytest.mark.scaled

STRESS = bool(os.environ.get("HERMES_STRESS"))
COUNT = 100 if STRESS else 25


def begin(home: Path, session: str, provider: Recorder, **keywords: Any) -> MemoryManager:
    manager = MemoryManager(home=home, log_calls=True)
    assert manager.add_provider(provider)
    manager.initialize_all(session, **keywords)
    return manager


def open_files() -> list[str]:
    folder = Path("/proc/self/fd")
    if not folder.exists():
        return []
    found = []
    for each in folder.iterdir():
        try:
            found.append(str(each.readlink()))
        except OSError:
            continue
    return sorted(each for each in found if not each.startswith(str(folder.parent)))


@pytest.mark.parametrize("homes", ["one home", "many homes"])
def test_managers_that_were_shut_down_leave_no_thread_file_or_socket(
    tmp_path: Path, homes: str
) -> None:
    threads, files = memory_threads(), open_files()
    for number in range(COUNT):
        home = tmp_path / (f"home-{number}" if homes == "many homes" else "home")
        manager = begin(home, f"s{number}", Recorder())
        manager.prefetch_all("q")
        manager.sync_all("turn", "answer")
        manager.on_session_switch(f"s{number}-b")
        manager.sync_all("turn", "answer")
        manager.shutdown_all()
    assert eventually(lambda: memory_threads() <= threads)
    assert eventually(lambda: open_files() == files), open_files()
    assert not worker._SHARED.outboxes


def test_a_hundred_users_of_one_home_at_once_are_never_mixed_up(tmp_path: Path) -> None:
    providers = [Recorder() for _ in range(COUNT)]
    managers = [
        begin(tmp_path / "home", f"s{number}", provider, user_id=f"u{number}")
        for number, provider in enumerate(providers)
    ]
    turns = [(number, turn) for turn in range(10) for number in range(COUNT)]
    chance = random.Random(5)
    lots: list[list[tuple[int, int]]] = [[] for _ in range(4)]
    for pair in turns:
        lots[pair[0] % 4].append(pair)

    def talk(mine: list[tuple[int, int]]) -> None:
        for number, turn in mine:
            managers[number].sync_all(f"u{number} {turn}", "answer")

    talkers = [threading.Thread(target=talk, args=(lot,)) for lot in lots]
    for each in talkers:
        each.start()
    for each in talkers:
        each.join()
    chance.shuffle(managers)
    assert all(manager.flush_pending(60) for manager in managers)
    for manager in managers:
        manager.shutdown_all()
    for number, provider in enumerate(providers):
        said = [call.args[0] for call in provider.of("sync_turn")]
        assert said == [f"u{number} {turn}" for turn in range(10)]


@pytest.mark.skipif(sys.platform == "win32", reason="clocks are coarse there")
def test_a_manager_that_ends_while_another_begins_does_not_close_its_outbox(
    tmp_path: Path,
) -> None:
    stop = threading.Event()

    def come_and_go() -> None:
        number = 0
        while not stop.is_set():
            manager = begin(tmp_path / "home", f"other-{number}", Recorder())
            manager.sync_all("turn", "answer")
            manager.shutdown_all()
            number += 1

    others = [threading.Thread(target=come_and_go) for _ in range(2)]
    for each in others:
        each.start()
    try:
        for number in range(COUNT):
            provider = Recorder()
            manager = begin(tmp_path / "home", f"s{number}", provider)
            for turn in range(5):
                manager.sync_all(f"turn {turn}", "answer")
            assert manager.flush_pending(20)
            manager.shutdown_all()
            said = [call.args[0] for call in provider.of("sync_turn")]
            assert said[-5:] == [f"turn {turn}" for turn in range(5)]
    finally:
        stop.set()
        for each in others:
            each.join()
    assert eventually(lambda: not worker._SHARED.outboxes)
