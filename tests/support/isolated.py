"""Plugins that run what they are told to, isolated or not, and children that answer anything."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

from hermes_core import Deadlines, MemoryManager
from hermes_core.dispatch.isolation import ChildProcess, IsolatedProvider
from support.sites import add_directory

#: Enough on a busy machine; what hangs on purpose is told so by the test.
PATIENT = {"load": 60, "available": 60, "initialize": 60, "hook": 60, "tool": 60, "write": 60}

#: Its tool runs code; so does a turn that begins with "!", once.
RUNS_CODE = """
import json, os, sys, time
from hermes_core import MemoryProvider

{at_import}

class Provider(MemoryProvider):
    name = "acme"
    session = ""

    def is_available(self):
        return True

    def initialize(self, session_id, **kwargs):
        self.session, self.facts = session_id, kwargs

    def get_tool_schemas(self):
        parameters = {{"type": "object", "properties": {{"code": {{"type": "string"}}}}}}
        return [{{"name": "run", "description": "Run code.", "parameters": parameters}}]

    def handle_tool_call(self, tool_name, args, **kwargs):
        scope = {{"self": self, "answer": "", "pid": os.getpid()}}
        exec(args["code"], scope)
        found = {{"session": self.session, "answer": scope["answer"]}}
        return json.dumps({{"pid": os.getpid(), **found}})

    def sync_turn(self, user_content, assistant_content, *, session_id="", turn_id="", attempt=0):
        if user_content.startswith("!") and attempt == 1:
            exec(user_content[1:], {{"self": self}})
        with open(os.path.join(self.facts["hermes_home"], "turns.txt"), "a") as file:
            file.write(f"{{user_content}} {{attempt}}\\n")
"""


def add_plugin(
    home: Path, body: str = "", *, at_import: str = "", isolated: bool = True, more: str = ""
) -> None:
    """Put the plugin acme into a home and enable it; ``body`` goes into its class."""
    source = RUNS_CODE.format(at_import=at_import) + indent(dedent(body), "    ")
    add_directory(home, "acme", source)
    isolation = "process" if isolated else "none"
    (home / "config.yaml").write_text(
        f"memory:\n  provider: acme\n  deadlines: {json.dumps(PATIENT)}\n{more}"
        f"  acme:\n    isolation: {isolation}\n",
        "utf-8",
    )


def started(home: Path, session: str = "s1", **facts: Any) -> MemoryManager:
    """An agent's manager with its session."""
    manager = MemoryManager.from_config(home)
    assert manager.problems == ()
    manager.initialize_all(session, **facts)
    return manager


def run(manager: MemoryManager, code: str = "") -> dict[str, Any]:
    """What the plugin's tool answers when it has run some code."""
    found: dict[str, Any] = json.loads(manager.handle_tool_call("run", {"code": dedent(code)}))
    return found


def turns(home: Path) -> list[str]:
    """The turns that the plugin has stored."""
    file = home / "turns.txt"
    return file.read_text("utf-8").splitlines() if file.exists() else []


# -- children that speak the protocol, and nothing else ------------------------------------------

_CHILD = """
import os, struct, sys, time
def send(data):
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
send({first!r})
while True:
    header = sys.stdin.buffer.read(4)
    if not header:
        break
    sys.stdin.buffer.read(struct.unpack(">I", header)[0])
    {answer}
"""


def message(value: Any) -> bytes:
    """One message, as it is on the pipe."""
    data = json.dumps(value).encode()
    return struct.pack(">I", len(data)) + data


LOADED = {"name": "acme", "methods": {"is_available": [], "backup_paths": []}, "attributes": {}}


class Children:
    """Starts children that do one thing for each request, and counts them."""

    def __init__(self, answer: str, first: bytes = message(LOADED)) -> None:
        self.count = 0
        self._code = _CHILD.format(first=first, answer=answer)

    def __call__(self, variables: Mapping[str, str]) -> ChildProcess:
        self.count += 1
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", self._code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        return ChildProcess(process, "no token")

    def provider(self, clock: Callable[[], float] = lambda: 0.0) -> Any:
        """What the host calls."""
        return IsolatedProvider(
            "acme", self, Deadlines(*[60.0] * 8), {}, lambda *_: None, clock=clock
        )
