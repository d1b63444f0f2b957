"""`hermes-plugins status` with Mem0: a corrected key, a frozen server, turns not confirmed."""

import os
import sys
import time
from functools import partial

import pytest
import yaml
from support.fielded import run_forked
from support.mem0_places import KEY
from support.mem0_servers import Mem0Server

from hermes_core import MemoryManager


@pytest.fixture
def behind():
    with Mem0Server(key=KEY) as server:
        yield server
        assert server.problems == []


@pytest.fixture
def configured(machine, behind):
    def configure(key=KEY):
        memory = {"provider": "mem0", "mem0": {"mode": "self-hosted", "host": behind.url}}
        machine.write_config(yaml.safe_dump({"memory": memory, "secrets": {"backend": "dotenv"}}))
        (machine.home / ".env").write_text(f"MEM0_API_KEY={key}\n")
        (machine.home / ".env").chmod(0o600)
        return machine

    return configure


def _agent(machine, lines):
    """An agent that says something, and ends when the first of it was delivered or failed."""
    sys.path.insert(0, str(machine.site.folder))
    manager = MemoryManager.from_config(machine.home)
    manager.initialize_all("s1")
    for line in lines:
        manager.sync_all(line, "Noted.")
    for _ in range(1200):
        tried = manager.health()["mem0"].get("sync_turn")
        if tried is not None and tried.calls:
            break
        time.sleep(0.05)
    manager.shutdown_all()
    os._exit(0)


def _talk(machine, *lines):
    assert run_forked(partial(_agent, machine, lines), machine.environment, 120) == 0


def test_a_corrected_key_is_recognised_without_a_new_write(configured, behind):
    machine = configured(key="m0-wrong")
    _talk(machine, "I have moved to Lisbon.", "My dog is called Rex.")
    before = machine.run("status")
    assert before.code == 1
    assert "writes to mem0 fail" in before.out
    assert "the key was refused" in before.out
    configured()
    after = machine.run("status")
    assert after.code == 0, after.out
    (line,) = [line for line in after.lines if line.startswith("external:")]
    assert line.endswith("works")
    (warning,) = [line for line in after.lines if "It answers now" in line]
    assert "2 writes still to deliver" in warning
    assert behind.store.rows == {}
    machine.run("outbox", "retry").done()
    assert {row["memory"] for row in behind.store.rows.values()} == {
        "I have moved to Lisbon.",
        "My dog is called Rex.",
    }


def test_turns_that_could_not_be_confirmed_are_counted(configured):
    machine = configured()
    _talk(machine, "Please write four lines about the sea?")
    lines = machine.run("status").done().lines
    (line,) = [line for line in lines if "turns not confirmed" in line]
    assert line.startswith("  turns not confirmed: 1, listed in ")
