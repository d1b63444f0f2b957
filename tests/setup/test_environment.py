"""A provider's variables are set while its code runs, and are not in the agent's environment."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
from support.fielded import add_plugin

from hermes_core.config.environment import Lease
from hermes_core.errors import ProviderConflictError

NAME = "ACME_API_KEY"
KEY = {"key": "api_key", "secret": True}
CHOSEN = "memory: {provider: acme"
METHODS = """
def initialize(self, session_id, **kwargs):
    self.seen = {"initialize": KEY()}
    self.config = kwargs["provider_config"]
    self.turns = []

def get_tool_schemas(self):
    return [{"name": "look", "description": "Look.", "parameters": {"type": "object"}}]

def handle_tool_call(self, tool_name, args, **kwargs):
    self.seen["tool"] = KEY()
    return "{}"

def sync_turn(self, user_content, assistant_content, *, session_id="", messages=None):
    self.seen["sync_turn"] = KEY()

async def prefetch(self, query, *, session_id=""):
    self.seen["prefetch"] = KEY()
    return ""

def shutdown(self):
    self.seen["shutdown"] = KEY()
"""
MODULE = f"def KEY():\n    return os.environ.get({NAME!r})\n"


def provider_of(manager):
    (found,) = [each for each in manager.providers if each.name == "acme"]
    return found


def inherited() -> str:
    """What a child process that the agent starts has."""
    code = f"import os; print(os.environ.get({NAME!r}, ''))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def acme(home):
    add_plugin(home, (KEY,), METHODS, MODULE)
    (home / "config.yaml").write_text(f"{CHOSEN}}}\n")
    (home / ".env").write_text(f"{NAME}=canary\n")
    return home


def test_each_call_finds_it_and_a_child_process_of_the_agent_does_not(acme, configured):
    manager = configured()
    assert inherited() == ""
    provider = provider_of(manager)
    manager.initialize_all("s")
    assert provider.config["api_key"] == "canary"
    assert inherited() == ""
    manager.handle_tool_call("look", {})
    manager.recall_block("question", session_id="s")
    manager.sync_all("hello", "hi", session_id="s")
    assert manager.flush_pending(timeout=30)
    assert NAME not in os.environ
    manager.shutdown_all()
    calls = ("initialize", "tool", "prefetch", "sync_turn", "shutdown")
    assert provider.seen == dict.fromkeys(calls, "canary")
    assert NAME not in os.environ


def test_what_a_person_lists_stays_set_for_plugins_that_start_threads_and_programs(
    acme, configured
):
    (acme / "config.yaml").write_text(f"{CHOSEN}, acme: {{env: [{NAME}]}}}}\n")
    manager = configured()
    assert inherited() == "canary"
    manager.shutdown_all()
    assert inherited() == ""


def test_a_provider_without_weak_references_finds_it_too(acme, configured):
    slots = "\nclass Slim:\n    __slots__ = ('seen', 'config', 'turns')\n    name = 'acme'\n"
    methods = ("is_available", "get_config_schema", "initialize", "get_tool_schemas", "prefetch",
               "handle_tool_call", "sync_turn", "shutdown")  # fmt: skip
    copies = "".join(f"    {each} = Provider.{each}\n" for each in methods)
    register = "\ndef register(ctx):\n    ctx.register_memory_provider(Slim())\n"
    add_plugin(acme, (KEY,), METHODS, MODULE + slots + copies + register)
    manager = configured()
    assert manager.problems == ()
    manager.initialize_all("s")
    assert provider_of(manager).seen == {"initialize": "canary"}
    manager.shutdown_all()
    assert NAME not in os.environ


def test_calls_overlap_and_the_last_one_removes_it():
    lease = Lease()
    lease.set({NAME: "x"}, "acme")
    inside, done = threading.Event(), threading.Event()

    def call():
        with lease.applied():
            inside.set()
            done.wait(30)

    thread = threading.Thread(target=call)
    with lease.applied():
        thread.start()
        assert inside.wait(30)
    assert os.environ[NAME] == "x"
    done.set()
    thread.join(30)
    assert NAME not in os.environ
    lease.release()


def test_a_call_that_hangs_does_not_keep_it_after_the_end():
    lease = Lease()
    lease.set({NAME: "x"}, "acme")
    with lease.applied():
        assert os.environ[NAME] == "x"
        lease.release()
        assert NAME not in os.environ
    assert NAME not in os.environ


def test_a_value_that_is_named_during_a_call_is_set_for_it():
    lease = Lease()
    with lease.applied():
        lease.set({NAME: "x"}, "acme")
        assert os.environ[NAME] == "x"
        lease.set({NAME: "y"}, "acme")
        assert os.environ[NAME] == "y"
    assert NAME not in os.environ
    lease.release()


def test_two_leases_of_one_value_share_it_and_of_two_values_conflict_between_calls():
    first, second = Lease(), Lease()
    first.set({NAME: "x"}, "one")
    with pytest.raises(ProviderConflictError):
        second.set({NAME: "y"}, "two")
    second.set({NAME: "x"}, "two")
    with first.applied(), second.applied():
        first.release()
        assert os.environ[NAME] == "x"
    assert NAME not in os.environ
    second.release()


def test_what_somebody_exports_meanwhile_is_theirs(monkeypatch):
    lease = Lease()
    lease.set({NAME: "x"}, "acme")
    monkeypatch.setenv(NAME, "theirs")
    with lease.applied():
        assert os.environ[NAME] == "theirs"
    assert os.environ[NAME] == "theirs"
    lease.release()
    assert os.environ[NAME] == "theirs"
