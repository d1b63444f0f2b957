"""Servers of the Mem0 tests as processes that can be killed, and agents beside them."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import yaml

from support.mem0_places import KEY

_HERE = Path(__file__).resolve().parent


def free_port() -> int:
    """A port at which nobody listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Served:
    """What stands behind a mode, in a process of its own: the same again after a kill."""

    def __init__(self, mode: str, folder: Path) -> None:
        self.mode = mode
        self.port = free_port()
        self._state = folder / "state.json"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def settings(self) -> dict[str, str]:
        """What an agent's configuration has."""
        if self.mode == "oss":
            return {"mode": "oss", "llm_url": f"{self.url}/v1"}
        address = "platform_url" if self.mode == "platform" else "host"
        return {"mode": self.mode, address: self.url}

    def start(self) -> None:
        """Start it, and wait until it listens."""
        self._process = subprocess.Popen(self._command())
        for _ in range(400):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                time.sleep(0.025)
            else:
                return
        raise AssertionError("the server does not start")

    def kill(self) -> None:
        """End it as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def problems(self) -> list[str]:
        """What of requests and answers was not as the published API says."""
        if self.mode == "oss":
            with urlopen(f"{self.url}/stats") as answer:
                return ["the model was not understood"] * json.load(answer)["unrecognised"]
        with urlopen(f"{self.url}/problems") as answer:
            found: list[str] = json.load(answer)["problems"]
            return found

    def _command(self) -> list[str]:
        if self.mode == "oss":
            return [sys.executable, str(_HERE / "fake_model.py"), str(self.port)]
        kind = "platform" if self.mode == "platform" else "server"
        return [
            sys.executable, str(_HERE / "mem0_servers.py"), kind, "--key", KEY,
            "--port", str(self.port), "--state", str(self._state),
        ]  # fmt: skip


def configure(home: Path, served: Served) -> None:
    """A home whose agents use Mem0, and wait for it: its first import takes long if many start."""
    settings = {**served.settings, "recall_timeout": 60}
    memory = {"provider": "mem0", "prefetch_budget": 60, "mem0": settings}
    config = {"memory": memory, "secrets": {"backend": "dotenv"}}
    (home / "config.yaml").write_text(yaml.safe_dump(config))
    (home / ".env").write_text(f"MEM0_API_KEY={KEY}\n")
    (home / ".env").chmod(0o600)


AGENT = """
import json, sys
from hermes_core import MemoryManager
home, session, question, *lines = sys.argv[1:]
manager = MemoryManager.from_config(home)
assert not manager.problems, manager.problems
manager.initialize_all(session)
for line in lines:
    manager.sync_all(line, "Noted.")
delivered = manager.flush_pending(60)
recalled = manager.prefetch_all(question)
manager.shutdown_all()
print(json.dumps({"delivered": delivered, "recalled": recalled}))
"""


def agent(home: Path, session: str, question: str, *lines: str) -> subprocess.Popen[str]:
    """A process that says lines, waits until they are delivered, and asks a question."""
    command = [sys.executable, "-c", AGENT, str(home), session, question, *lines]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What an agent has seen."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    told: dict[str, Any] = json.loads(out)
    return told


def facts(number: int) -> list[str]:
    """So many facts, of which no two are alike."""
    return [f"Fact{each:03} says that box{each:03} is open." for each in range(number)]


def once(texts: list[str], wanted: list[str]) -> None:
    """Each is there, and there once."""
    counts = Counter(texts)
    assert {text: counts[text] for text in wanted} == dict.fromkeys(wanted, 1)
