"""Whose home it is: in calls, in threads that plugins start, and elsewhere."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from support.sites import add_directory
from support.theirs import their_source

from hermes_core import HomeError, MemoryManager, load_provider
from hermes_core.scope import current_home

METHODS = """
def initialize(self, session_id, **kwargs):
    from hermes_constants import get_hermes_home
    from concurrent.futures import ThreadPoolExecutor
    import threading
    self.seen = {"call": get_hermes_home()}
    def look(where):
        self.seen[where] = get_hermes_home()
    def nest():
        inner = threading.Thread(target=look, args=("thread of a thread",))
        inner.start()
        inner.join()
    for thread in (threading.Thread(target=look, args=("thread",), daemon=True),
                   threading.Timer(0, look, args=("timer",)), threading.Thread(target=nest)):
        thread.start()
        thread.join()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(look, "pool").result()

def prefetch(self, query, *, session_id=""):
    import hermes_constants
    return str(hermes_constants.get_hermes_home())

async def queue_prefetch(self, query, *, session_id=""):
    import hermes_constants
    self.seen["coroutine"] = hermes_constants.get_hermes_home()
"""

Started = Callable[[Path], Any]


@pytest.fixture
def started() -> Iterator[Started]:
    managers = []

    def start(home: Path) -> Any:
        add_directory(home, "theirs", their_source(methods=METHODS))
        manager = MemoryManager(home=home)
        managers.append(manager)
        provider = load_provider("theirs", home)
        assert manager.add_provider(provider)
        manager.initialize_all("s")
        assert manager.warnings == ()
        return manager, provider

    yield start
    for manager in managers:
        manager.shutdown_all()


def test_each_of_two_managers_has_its_own_home_everywhere(tmp_path, started):
    for home in (tmp_path / "one", tmp_path / "two"):
        manager, provider = started(home)
        assert str(home) in manager.prefetch_all("where?")
        manager.queue_prefetch_all("where?")
        manager.flush_pending(5)
        places = {"call", "thread", "timer", "pool", "thread of a thread", "coroutine"}
        assert provider.seen == dict.fromkeys(places, home)


def test_a_thread_of_nobody_has_the_home_of_the_only_manager(tmp_path, started):
    started(tmp_path / "one")
    assert current_home() == tmp_path / "one"


def test_with_two_homes_it_is_an_error_that_names_them(tmp_path, started):
    started(tmp_path / "one")
    started(tmp_path / "two")
    with pytest.raises(HomeError) as caught:
        current_home()
    assert str(tmp_path / "one") in str(caught.value)
    assert str(tmp_path / "two") in str(caught.value)


def methods() -> tuple[Callable[..., Any], ...]:
    return threading.Thread.start, subprocess.Popen.__init__, BaseProcess.start


def test_threads_and_processes_start_as_ever_before_and_after(tmp_path, started):
    before = methods()
    manager, _ = started(tmp_path / "one")
    assert not set(before) & set(methods())
    manager.shutdown_all()
    assert methods() == before


def test_somebody_else_s_change_of_thread_start_is_left_alone(tmp_path, started, monkeypatch):
    manager, _ = started(tmp_path / "one")
    ours = threading.Thread.start

    def theirs(self: threading.Thread) -> None:
        ours(self)

    monkeypatch.setattr(threading.Thread, "start", theirs)
    manager.shutdown_all()
    assert threading.Thread.start is theirs
    _, popen, worker = methods()
    again, _ = started(tmp_path / "three")
    assert threading.Thread.start is theirs  # which leads to ours: not put on twice
    assert popen is not subprocess.Popen.__init__  # these are ours to put on again
    assert worker is not BaseProcess.start
    again.shutdown_all()
    monkeypatch.undo()
    started(tmp_path / "two")[0].shutdown_all()
    assert threading.Thread.start is not ours


def test_the_home_is_that_of_the_manager_while_it_loads(home, tmp_path):
    other = tmp_path / "other"
    source = "from hermes_constants import get_hermes_home\nAT = get_hermes_home()\n"
    methods = "def where(self):\n    return AT\n"
    add_directory(other, "theirs", source + their_source(methods=methods))
    assert load_provider("theirs", other).where() == other


def test_where_hermes_agent_is_installed_its_own_constants_know_the_home(tmp_path, site, started):
    constants = """
    from contextvars import ContextVar
    HOME = ContextVar("home", default="the process's")
    def set_hermes_home_override(path):
        return HOME.set(path)
    def get_hermes_home():
        return HOME.get()
    """
    site.add("hermes-like", files={"hermes_constants.py": constants})
    for home in (tmp_path / "one", tmp_path / "two"):
        manager, provider = started(home)
        assert str(home) in manager.prefetch_all("where?")
        assert provider.seen["call"] == str(home)
    import hermes_constants

    assert hermes_constants.get_hermes_home() == "the process's"
