"""A provider that writes down what reaches it, in a file that outlives its process."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hermes_core import MemoryProvider

_TESTS = Path(__file__).parents[1]

#: A directory plugin of it.
PLUGIN = f"""
import sys
if {str(_TESTS)!r} not in sys.path:
    sys.path.append({str(_TESTS)!r})
from support.journals import Journal

def register(ctx):
    ctx.register_memory_provider(Journal())
"""


class Journal(MemoryProvider):
    """Notes the begin and the end of each write in ``journal.jsonl`` of its home.

    A file ``down`` in the home makes it fail, ``slow`` holds the seconds that a write takes,
    and while ``hold`` is there a write that was stored does not return.
    """

    def __init__(self, name: str = "journal") -> None:
        self._name = name
        self._home = Path()
        self._who: dict[str, Any] = {}

    @property
    def name(self) -> str:
        return self._name

    def is_available(self) -> bool:
        return True

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        return []

    def initialize(self, session_id: str, **kwargs: Any) -> None:
        self._home = Path(kwargs["hermes_home"])
        self._who = {
            "initialised": session_id,
            "user": kwargs.get("user_id"),
            "platform": kwargs.get("platform"),
            "instance": f"{os.getpid()}-{id(self)}",
        }
        self._note("initialize")

    def shutdown(self) -> None:
        if self._who:
            self._note("shutdown")

    def on_session_switch(self, new_session_id: str, **kwargs: Any) -> None:
        self._note("switch", to=new_session_id)
        self._who["initialised"] = new_session_id

    def sync_turn(
        self,
        user_content: str,
        assistant_content: str,
        *,
        session_id: str = "",
        turn_id: str,
        attempt: int,
    ) -> None:
        self._write(turn_id, attempt, "sync_turn", text=user_content, session=session_id)

    def on_session_end(self, messages: Any, *, event_id: str, attempt: int) -> None:
        self._write(event_id, attempt, "on_session_end", text=str(len(messages)))

    def on_memory_write(
        self,
        action: str,
        target: str,
        content: str,
        metadata: Any = None,
        *,
        event_id: str,
        attempt: int,
    ) -> None:
        self._write(event_id, attempt, "on_memory_write", text=content)

    def _write(self, identity: str, attempt: int, hook: str, **what: Any) -> None:
        if (self._home / "down").exists():
            raise ConnectionError("the backend is down")
        self._note("begin", id=identity, attempt=attempt, hook=hook, **what)
        if (self._home / "slow").exists():
            time.sleep(float((self._home / "slow").read_text()))
        end = time.monotonic() + 60
        while (self._home / "hold").exists() and time.monotonic() < end:
            time.sleep(0.005)
        self._note("end", id=identity, attempt=attempt, hook=hook, **what)

    def _note(self, what: str, **more: Any) -> None:
        said = {"what": what, "time": time.monotonic(), **self._who, **more}
        line = json.dumps(said, default=str) + "\n"
        handle = os.open(
            self._home / "journal.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
        )
        try:
            os.write(handle, line.encode())
        finally:
            os.close(handle)


def noted(home: Path, what: str = "") -> list[dict[str, Any]]:
    """What was written down, of one kind or of all."""
    path = home / "journal.jsonl"
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines]
    return [row for row in rows if what in ("", row["what"])]


def texts(home: Path, **having: Any) -> list[str]:
    """The texts of the turns that arrived, each once, as they came first."""
    rows = [row for row in noted(home, "end") if row["hook"] == "sync_turn"]
    kept = {r["id"]: r["text"] for r in rows if all(r.get(k) == v for k, v in having.items())}
    return list(kept.values())


def twice_at_once(rows: Iterable[dict[str, Any]]) -> list[str]:
    """The writes of which one call began while another ran; killed calls run no more."""
    running: dict[str, str] = {}
    found = []
    for row in rows:
        if row["what"] == "begin":
            if row["id"] in running:
                found.append(row["id"])
            running[row["id"]] = row["instance"]
        elif row["what"] == "end":
            running.pop(row["id"], None)
    return found
