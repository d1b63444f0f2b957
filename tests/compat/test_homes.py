"""Whose home it is: in calls, in threads that plugins start, and elsewhere."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.providers import Recorder
from support.sites import add_directory
from support.theirs import their_source

from hermes_core import HomeError, MemoryManager, load_provider
from hermes_core.dispatch.caller import current_home

METHODS = """
def initialize(self, session_id, **kwargs):
    from hermes_constants import get_hermes_home
    from agent.memory_provider import spawn_context_thread
    from contextvars import copy_context
    import threading
    self.seen = {"call": get_hermes_home()}
    def look(where):
        try:
            self.seen[where] = get_hermes_home()
        except Exception as error:
            self.seen[where] = error
    for thread in (threading.Thread(target=look, args=("thread",), daemon=True),
                   threading.Thread(target=copy_context().run, args=(look, "copied context")),
                   spawn_context_thread(look, name="theirs", args=("context thread",))):
        thread.start()
        thread.join()

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


def test_each_of_two_managers_has_its_own_home_in_every_call(tmp_path, started):
    for home in (tmp_path / "one", tmp_path / "two"):
        manager, provider = started(home)
        assert str(home) in manager.prefetch_all("where?")
        manager.queue_prefetch_all("where?")
        manager.flush_pending(5)
        provider.seen.pop("thread")
        places = {"call", "copied context", "context thread", "coroutine"}
        assert provider.seen == dict.fromkeys(places, home)


def test_a_plain_thread_of_a_plugin_gets_the_only_home_or_a_clear_error(tmp_path, started):
    _, provider = started(tmp_path / "one")
    assert provider.seen["thread"] == tmp_path / "one"
    _, provider = started(tmp_path / "two")
    error = provider.seen["thread"]
    assert isinstance(error, HomeError)
    assert "copy_context" in error.hint


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


def test_a_manager_that_is_dropped_no_longer_uses_its_home(tmp_path: Path) -> None:
    manager = MemoryManager(home=tmp_path)
    assert manager.add_provider(Recorder())
    assert current_home() == tmp_path
    del manager
    gc.collect()
    assert current_home() != tmp_path
