"""A home with a past, and a provider to switch to, whose backend is a file."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

from hermes_builtin.sessions.archive import NewMessage, SessionFacts
from hermes_core.config import load_config
from hermes_core.outbox import StreamKey, admin
from hermes_core.outbox.admin import NewWrite
from hermes_core.session import SessionContext
from support.archives import open_archive
from support.commands import Machine
from support.storages import Storage

#: It looks a turn up if it may have it. Files beside beta.jsonl say how it behaves.
PLUGIN = """
import json, pathlib
from hermes_core import MemoryProvider, ProbeResult, WriteRefused

class Provider(MemoryProvider):
    name = "beta"
    confirms_delivery = True
    def is_available(self):
        return True
    def initialize(self, session_id, **kwargs):
        self.home = pathlib.Path(kwargs["hermes_home"])
        self.file = self.home / "beta.jsonl"
        self.user = kwargs.get("user_id")
        self.platform = kwargs["platform"]
        self.session = session_id
    def get_tool_schemas(self):
        return []
    def _rows(self):
        return [json.loads(l) for l in self.file.read_text().splitlines()] if self.file.exists() else []
    def _limit(self):
        limit = self.home / "limit"
        return int(limit.read_text()) if limit.exists() else 10**9
    def _keep(self, kind, event, attempt, **row):
        with (self.home / "calls").open("a") as file:
            file.write(f"{attempt}\\n")
        if "refused" in str(row):
            raise WriteRefused("not like this")
        if attempt > 1 or self._limit() < 10**9:
            rows = self._rows()
            looks_up = attempt > 1 and not (self.home / "blind").exists()
            if looks_up and any(each["id"] == event for each in rows):
                return
            if len(rows) >= self._limit():
                raise ConnectionError("beta is down")
        row = {"kind": kind, "id": event, "user": self.user, "platform": self.platform, **row}
        with self.file.open("a") as file:
            file.write(json.dumps(row) + "\\n")
            file.flush()
    def sync_turn(self, user_content, assistant_content, *, session_id="", messages=None, turn_id="", attempt=1, said_at=0.0):
        self._keep("turn", turn_id, attempt, session=session_id, said=user_content, answered=assistant_content, at=said_at)
    def on_memory_write(self, action, target, content, metadata=None, *, event_id="", attempt=1, said_at=0.0):
        self._keep("note", event_id, attempt, session=self.session, said=content, at=said_at, target=target, action=action)
    def prefetch(self, query, *, session_id=""):
        if (self.home / "deaf").exists():
            return ""
        if (self.home / "answer").exists():
            return (self.home / "answer").read_text().replace("QUERY", query)
        found = [each for each in self._rows() if each["said"].startswith(query)]
        return "\\n".join(f"{each['said']} {each.get('answered')}" for each in found)
    def probe(self, write):
        broken = self.home / "broken"
        return ProbeResult(not broken.exists(), "beta.jsonl is there" if not broken.exists() else "no disk")

def register(ctx):
    ctx.register_memory_provider(Provider())
"""  # noqa: E501


class Past:
    """A machine with conversations, notes, and the providers alpha (active) and beta."""

    def __init__(self, machine: Machine, sessions: int = 4, turns: int = 3) -> None:
        self.machine = machine
        self.home = machine.home
        machine.add_directory("beta", PLUGIN)
        machine.add_directory("alpha", PLUGIN.replace("beta", "alpha"))
        self.configure()
        self.said: list[str] = []
        for number in range(sessions):
            # The odd ones began earlier: the order is by time, not by the number.
            start = 1_700_000_000.0 + (number if number % 2 else 100 + number) * 1000
            self.talk(f"s{number}", turns, start=start)

    def configure(self, **memory: Any) -> None:
        """Write config.yaml, with alpha as the provider."""
        known = {"provider": "alpha", **Storage.current.settings, **memory}
        self.machine.write_config(json.dumps({"memory": known}))

    def talk(
        self,
        session: str,
        turns: int,
        start: float,
        *,
        source: str = "cli",
        said: str = "",
        answer: str = "",
        **facts: Any,
    ) -> None:
        """A conversation that is in the archive, and that no provider got."""
        archive = open_archive(self.home)
        known = SessionFacts(session, source, profile="default", started=start, **facts)
        for at in range(turns):
            text = said or f"question{at} of {session}"
            moment = start + 10 * at
            answered = answer or f"answer{at} to {session}x{at}"
            messages = [
                NewMessage("user", text, moment),
                NewMessage("assistant", answered, moment + 1),
            ]
            archive.append(known, messages)
            if source == "cli":
                self.said.append(text)
        archive.close()

    def append(self, session: str, *said: tuple[str, str, float]) -> None:
        """Messages that come later to a conversation: each a role, a text and a time."""
        archive = open_archive(self.home)
        facts = SessionFacts(session, "cli", profile="default", started=said[0][2])
        archive.append(facts, [NewMessage(*each) for each in said])
        archive.close()

    def delete(self, session: str) -> None:
        """Delete a conversation."""
        self.machine.run("sessions", "delete", session, "--yes").done()

    def note(self, *texts: str) -> None:
        for text in texts:
            self.machine.run("memory", "add", text).done()

    def fill_outbox(self, provider: str, *, failed: bool = False) -> None:
        """Store writes for a provider until there is no room for another."""
        store = admin.open_store(load_config(self.home), set_aside=True)
        live = SessionContext.from_keywords("live", {"platform": "cli"})
        key = StreamKey.of(provider, "directory", live)
        payload = json.dumps({"user_content": "q", "assistant_content": "x" * 3000})
        for number in count():
            if not admin.add_write(store, NewWrite(key, str(number), payload, 1.0)):
                break
        for each in admin.entries(store) if failed else ():
            write = store.next_waiting(each.stream)
            assert write is not None
            store.mark_failed(write, "not like this", 0.0, permanently=True)
        store.close()

    def limit(self, rows: int | None) -> None:
        """From so many rows on, beta is down; None for never."""
        if rows is None:
            (self.home / "limit").unlink()
        else:
            (self.home / "limit").write_text(str(rows))

    def rows(self, kind: str = "turn", name: str = "beta") -> list[dict[str, Any]]:
        """What has arrived."""
        file = Path(self.home, f"{name}.jsonl")
        lines = file.read_text().splitlines() if file.exists() else []
        return [each for each in map(json.loads, lines) if each["kind"] == kind]

    def arrived(self) -> list[str]:
        """What users said in turns that have arrived."""
        return [each["said"] for each in self.rows()]

    def attempts(self) -> list[int]:
        """The number of the attempt of each call."""
        file = self.home / "calls"
        return [int(each) for each in file.read_text().split()] if file.exists() else []

    @property
    def active(self) -> str:
        listed = self.machine.providers()
        return next((name for name in ("alpha", "beta") if listed[name]["active"]), "")
