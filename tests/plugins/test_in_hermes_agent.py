"""Our plugins in the real hermes-agent 0.19.0: found through a bridge, driven by its manager."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from support.commands import Machine
from support.hermes_agent import PEER, needs_hermes_agent
from support.hindsight_server import HindsightServer
from support.honcho_server import HonchoServer
from support.mem0_servers import Mem0Server
from support.our_plugins import PLUGINS, install_plugin

ROOT = PLUGINS.parent
#: hermes-agent's own packages come first: what it does not have is taken from ours.
DRIVE = """
import json, sys
sys.path += {paths!r}
from agent.memory_manager import MemoryManager
from plugins.memory import load_memory_provider

def manager(session):
    made = MemoryManager()
    made.add_provider(load_memory_provider("hermes-{name}"))
    made.initialize_all(session, platform="cli", agent_context="primary", user_id="ann")
    return made

first = manager("s1")
first.on_turn_start(1, "hello")
first.sync_all("My tortoise is called Mangosteen.", "A fine name.", session_id="s1")
first.flush_pending(20)
first.shutdown_all()
second = manager("s2")
recalled = second.prefetch_all("What is my tortoise called?", session_id="s2")
tools = sorted(second.get_all_tool_names())
second.shutdown_all()
print(json.dumps({{"recalled": recalled, "tools": tools}}))
"""


class Service(NamedTuple):
    url: str
    variables: dict[str, str]
    settings: dict[str, dict[str, str]]


@contextmanager
def honcho() -> Iterator[Service]:
    server = HonchoServer().start()
    try:
        yield Service(server.url, {"HONCHO_BASE_URL": server.url}, {})
    finally:
        server.stop()


@contextmanager
def mem0() -> Iterator[Service]:
    with Mem0Server() as server:
        yield Service(server.url, {"MEM0_HOST": server.url, "MEM0_API_KEY": "k"}, {})


@contextmanager
def hindsight() -> Iterator[Service]:
    with HindsightServer() as server:
        settings = {"mode": "local_external", "api_url": server.url}
        yield Service(server.url, {}, {"hindsight/config.json": settings})


@needs_hermes_agent
@pytest.mark.parametrize(
    "served", [honcho, mem0, pytest.param(hindsight, marks=pytest.mark.stress)]
)
def test_hermes_agent_stores_a_turn_and_recalls_it_in_the_next_session(tmp_path: Path, served):
    machine, name = Machine(tmp_path / "machine", in_process=True), served.__name__
    install_plugin(name, machine.site.folder)
    machine.run("bridge", name, "--as", f"hermes-{name}").done()
    with served() as service:
        for path, settings in service.settings.items():
            (machine.home / path).parent.mkdir(exist_ok=True)
            (machine.home / path).write_text(json.dumps(settings))
        told = _driven(machine.home, name, service.variables)
    assert "Mangosteen" in told["recalled"]
    assert told["tools"]
    assert all(tool.startswith(f"{name}_") for tool in told["tools"])


def _driven(home: Path, name: str, variables: dict[str, str]) -> dict[str, object]:
    paths = [ROOT, PLUGINS / "builtin", PLUGINS / name / "src", sysconfig.get_path("purelib")]
    user = home.parent / "their-user"
    user.mkdir()
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        [PEER, "-P", "-c", DRIVE.format(paths=[str(each) for each in paths], name=name)],
        env={**kept, **variables, "HERMES_HOME": str(home), "HOME": str(user)},
        cwd=user,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found
