"""What a bad plugin does is named, bounded and cleaned up; the agent's turn goes on."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest
from support.modules import waits_for
from support.providers import eventually
from support.sites import add_directory
from support.theirs import their_source

from hermes_core import MemoryManager, ProviderLoadError, load_provider
from hermes_core.hookspecs import HOOKS


@pytest.fixture
def manager(home: Path):
    """A manager of the configuration whose provider is a directory plugin."""
    made = []

    def make(source: str, **deadlines: float) -> MemoryManager:
        add_directory(home, "theirs", source)
        limits = "".join(f", {name}: {value}" for name, value in deadlines.items())
        text = f"memory: {{provider: theirs, deadlines: {{load: 5{limits}}}}}\n"
        (home / "config.yaml").write_text(text, "utf-8")
        made.append(MemoryManager.from_config(home))
        return made[-1]

    yield make
    for each in made:
        each.shutdown_all()


def talks_on(manager: MemoryManager) -> None:
    """A whole turn, which has what the built-in has."""
    manager.on_turn_start(1, "hello")
    manager.recall_block("hello")
    manager.sync_all("hello", "hi")
    manager.queue_prefetch_all("hello")
    assert "memory" in manager.get_all_tool_names()
    assert "success" in manager.handle_tool_call("session_search", {})


def test_one_that_blocks_in_register_is_named_at_the_deadline(home, tmp_path):
    done = tmp_path / "done"
    registers = "\n" + indent(waits_for(done), " " * 4)
    add_directory(home, "theirs", their_source(registers=registers))
    with pytest.raises(ProviderLoadError) as caught:
        load_provider("theirs", home, deadline=0.2)
    done.touch()
    assert "plugin theirs" in str(caught.value)
    assert "register" in str(caught.value)


@pytest.mark.parametrize("when", ["register", "initialize"])
def test_streams_that_are_taken_over_are_put_back(manager, when):
    deed = """
    import io, sys
    sys.stdout = sys.stderr = io.StringIO()
    """
    streams = sys.stdout, sys.stderr
    body = "def initialize(self, session_id, **kwargs):\n" + deed
    source = their_source(registers=deed) if when == "register" else their_source(methods=body)
    made = manager(source)
    made.initialize_all("s")
    # A plugin of another test may still be loading on an abandoned thread.
    assert eventually(lambda: (sys.stdout, sys.stderr) == streams)
    talks_on(made)


def test_a_home_that_a_plugin_puts_into_the_environment_is_not_used(manager, home, monkeypatch):
    """The home of a manager travels with its calls, not through the environment."""
    monkeypatch.setenv("HERMES_HOME", str(home))
    methods = """
    def initialize(self, session_id, **kwargs):
        import os
        from hermes_constants import get_hermes_home
        os.environ["HERMES_HOME"] = "/elsewhere"
        self.seen = get_hermes_home()
    """
    made = manager(their_source(methods=methods))
    made.initialize_all("s")
    assert made.get_provider("theirs").seen == home
    talks_on(made)


def test_one_that_demands_what_is_optional_gets_it_or_is_told_of(manager):
    methods = """
    def initialize(self, session_id, hermes_home, platform, user_id, agent_identity, agent_context,
                   agent_workspace, chat_id, parent_session_id):
        self.started = (session_id, user_id, chat_id)

    def sync_turn(self, user_content, assistant_content, session_id, messages):
        self.turn = (user_content, session_id)

    def on_turn_start(self, turn_number, message, moon_phase):
        raise AssertionError("nobody knows the phase of the moon")
    """
    made = manager(their_source(methods=methods))
    made.initialize_all("s")
    talks_on(made)
    assert made.flush_pending(60)
    provider = made.get_provider("theirs")
    assert provider.started == ("s", "", "")
    assert provider.turn == ("hello", "s")
    assert "moon_phase" in made.health()["theirs"]["on_turn_start"].last_error


def test_one_that_raises_in_every_hook_costs_no_turn(manager):
    raising = "".join(
        f"def {hook}(self, *args, **kwargs):\n    raise RuntimeError('boom in {hook}')\n"
        for hook in HOOKS
        if hook not in ("is_available", "get_config_schema", "own_settings", "save_config")
    )
    made = manager(their_source(methods=raising))
    assert made.problems == ()
    made.initialize_all("s")
    talks_on(made)
    made.on_session_end([])
    health: Any = made.health()["theirs"]
    assert "boom in initialize" in health["initialize"].last_error
    assert any("initialize failed" in each for each in made.warnings)


def test_one_that_hangs_in_initialize_is_left_behind(manager):
    methods = """
    def initialize(self, session_id, **kwargs):
        import time
        time.sleep(30)
    """
    made = manager(their_source(methods=methods), initialize=0.3, shutdown=0.3)
    made.initialize_all("s")
    talks_on(made)
    assert "0.3 s" in made.health()["theirs"]["initialize"].last_error
