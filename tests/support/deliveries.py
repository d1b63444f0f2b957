"""A memory plugin whose backend can be switched off, and agents that talk to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from hermes_core import MemoryManager
from support.commands import Machine
from support.storages import Storage

#: What it takes goes to got.jsonl. Files beside that say how it behaves.
PLUGIN = """
import json, os, pathlib, time
from hermes_core import MemoryProvider, WriteRefused

class Provider(MemoryProvider):
    name = "alpha"
    def is_available(self):
        return True
    def initialize(self, session_id, **kwargs):
        self.home = pathlib.Path(kwargs["hermes_home"])
        self.user = kwargs.get("user_id")
        self.context = kwargs["agent_context"]
        self._hang_while("starting")
        if self._is("unready"):
            raise ConnectionError("no such host")
    def _is(self, state):
        return (self.home / state).exists()
    def _hang_while(self, state):
        while self._is(state):
            time.sleep(0.02)
    def _note(self, *what):
        with open(self.home / "got.jsonl", "a") as file:
            file.write(json.dumps(what) + "\\n")
    def get_tool_schemas(self):
        return []
    def prefetch(self, query, *, session_id=""):
        self._hang_while("slow")
        if self._is("down"):
            raise ConnectionError("backend is down")
        recalled = self.home / "recalled"
        return recalled.read_text() if recalled.exists() else ""
    def sync_turn(self, user_content, assistant_content, *, session_id="", messages=None, turn_id="", attempt=0):
        if self._is("down"):
            raise ConnectionError("backend is down")
        self._hang_while("hanging")
        if self._is("exiting"):
            os._exit(7)
        if "puzzling" in user_content:
            raise KeyError("target")
        if "odd" in user_content:
            raise WriteRefused("no such field")
        self._note("turn", session_id, self.user, user_content, assistant_content, turn_id, attempt)
    def on_session_end(self, messages):
        if self._is("down"):
            raise ConnectionError("backend is down")
        self._note("end", [each["content"] for each in messages])

def register(ctx):
    ctx.register_memory_provider(Provider())
"""  # noqa: E501


class Alpha:
    """A home with that plugin in it, and the installed command on it."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.home = machine.home
        machine.add_directory("alpha", PLUGIN)
        self.configure()

    def configure(self, **keys: Any) -> None:
        where = Storage.current.settings
        self.machine.write_config(
            yaml.safe_dump({"memory": {"provider": "alpha", **where, **keys}})
        )

    def set(self, state: str, text: str = "") -> None:
        (self.home / state).write_text(text, "utf-8")

    def unset(self, state: str) -> None:
        (self.home / state).unlink()

    def talk(self, session: str, *turns: str, end: bool = False, **keywords: Any) -> None:
        """An agent that says something in a session, and ends."""
        manager = MemoryManager.from_config(self.home)
        manager.initialize_all(session, **keywords)
        for turn in turns:
            manager.sync_all(turn, f"answer to {turn}")
        if end:
            manager.on_session_end([{"role": "user", "content": turn} for turn in turns])
        manager.shutdown_all()

    def got(self) -> list[list[Any]]:
        """What has arrived."""
        file = self.home / "got.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def arrived(self) -> list[str]:
        """What users said in the turns that have arrived."""
        return [each[3] for each in self.got() if each[0] == "turn"]

    def writes(self, *arguments: str) -> list[dict[str, Any]]:
        """What `outbox list` has."""
        found: list[dict[str, Any]] = self.machine.json("outbox", "list", *arguments)["writes"]
        return found

    @property
    def outbox(self) -> Path:
        return self.home / "outbox.db"
