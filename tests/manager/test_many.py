"""A gateway's day: hundreds of managers, several threads, two homes, nothing left behind."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.providers import DRIVE, Recorder, eventually, memory_threads, running
from support.sites import add_directory, provider_source

from hermes_core import MemoryManager

#: At full size in `make stress`.
STRESS = bool(os.environ.get("HERMES_STRESS"))
MANAGERS = 200 if STRESS else 40
AT_ONCE = 100 if STRESS else 25
THREADS = 8

KEEPER = """
import asyncio
from pathlib import Path

class Keeper(Provider):
    def initialize(self, session_id, *, hermes_home, **kwargs):
        self.session = session_id
        self.file = Path(hermes_home) / "turns" / session_id
        self.file.parent.mkdir(exist_ok=True)

    def get_tool_schemas(self):
        return [{"name": "keeper_home"}]

    def handle_tool_call(self, tool_name, args, **kwargs):
        return '"' + self.file.parent.parent.name + '"'

    async def prefetch(self, query, *, session_id=""):
        await asyncio.sleep(0)
        return f"{self.session} {session_id} {query}"

    def sync_turn(self, user_content, assistant_content, *, session_id=""):
        with self.file.open("a") as file:
            file.write(f"{session_id} {user_content}\\n")

def register(ctx):
    ctx.register_memory_provider(Keeper())
"""


def _open_files() -> Counter[str] | None:
    """What each of our file descriptors is, where the system can say."""
    folder = Path("/proc/self/fd")
    if not folder.is_dir():
        return None
    found: Counter[str] = Counter()
    for each in folder.iterdir():
        try:
            found[str(each.readlink()).partition(":")[0]] += 1
        except OSError:  # the one that lists the folder
            continue
    return found


def _day(home: Path, number: int) -> list[str]:
    """One conversation; what was wrong with it."""
    session = f"session{number}"
    manager = MemoryManager.from_config(home)
    try:
        if manager.problems:
            return list(map(str, manager.problems))
        manager.initialize_all(session)
        wrong = []
        for turn in range(3):
            manager.on_turn_start(turn, "m")
            expected = f"{session} {session} q{turn}"
            if expected not in (found := manager.prefetch_all(f"q{turn}")):
                wrong.append(found)
            manager.sync_all(f"turn{turn}", "a")
            manager.queue_prefetch_all("q")
        if manager.handle_tool_call("keeper_home", {}) != f'"{home.name}"':
            wrong.append("another home's tool")
        manager.on_session_end([])
        return wrong
    finally:
        manager.shutdown_all()


@pytest.fixture
def homes(tmp_path: Path) -> list[Path]:
    folders = [tmp_path / "home1", tmp_path / "home2"]
    for each in folders:
        add_directory(each, "keeper", provider_source("keeper") + KEEPER)
        (each / "config.yaml").write_text("memory: {provider: keeper}\n")
    return folders


@pytest.mark.stress
def test_many_managers_behave_and_leave_nothing_behind(homes: list[Path]) -> None:
    assert _day(homes[0], 1000) == []  # what is imported once stays
    assert eventually(lambda: not _named("keeper"))
    before, files = set(threading.enumerate()), _open_files()
    with ThreadPoolExecutor(THREADS) as pool:
        results = list(pool.map(lambda n: _day(homes[n % 2], n), range(MANAGERS)))
    assert [each for each in results if each] == []
    for index, home in enumerate(homes):
        written = {path.name: path.read_text() for path in (home / "turns").iterdir()}
        written.pop("session1000", None)
        assert written == {
            f"session{n}": "".join(f"session{n} turn{turn}\n" for turn in range(3))
            for n in range(index, MANAGERS, 2)
        }
    assert eventually(lambda: set(threading.enumerate()) <= before)
    assert eventually(lambda: _open_files() == files)


def _named(text: str) -> set[threading.Thread]:
    return {each for each in memory_threads() if text in each.name}


@pytest.mark.scaled
def test_many_managers_at_once_have_three_threads_each_at_most() -> None:
    before = memory_threads()
    managers = []
    for _ in range(AT_ONCE):
        manager = MemoryManager()
        manager.add_provider(Recorder())
        managers.append(manager)
    for drive in DRIVE.values():
        for manager in managers:
            drive(manager)
    assert len(memory_threads() - before) <= 3 * AT_ONCE + 1  # and one for the outbox of them all
    for manager in managers:
        manager.shutdown_all()
    assert eventually(lambda: memory_threads() <= before)


def test_a_manager_that_fails_does_not_touch_another() -> None:
    def fail(*args: object, **kwargs: object) -> str:
        raise SystemExit(1)

    answers: dict[str, Callable[..., str]] = dict.fromkeys(DRIVE, fail)
    with running(Recorder(**answers)) as broken, running(Recorder(prefetch="fine")) as other:
        for drive in DRIVE.values():
            drive(broken)
        assert other.prefetch_all("q") == "fine"
        assert all(each.failures == 0 for each in other.health()["ext"].values())
