"""A complete memory plugin in one file: it stores turns in a text file below its home."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from hermes_core import MemoryProvider


class SampleProvider(MemoryProvider):
    """Recalls the turns that share a word of four letters or more with the question."""

    confirms_delivery = True  # a turn that can't be written raises, and the host retries it

    def __init__(self) -> None:
        self._file: Path | None = None
        self._session = self._user = ""
        self._writes = False

    @property
    def name(self) -> str:
        """The name under which it is enabled."""
        return "sample"

    def is_available(self) -> bool:
        """It needs neither a server nor a key."""
        return True

    def initialize(self, session_id: str, **kwargs: Any) -> None:
        """Choose the file, and remember who is speaking."""
        file = Path(kwargs["hermes_home"]) / "sample" / "turns.jsonl"
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Created with its mode, before anything is in it: open() would use the umask.
        os.close(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600))
        self._file = file
        self._session, self._user = session_id, str(kwargs.get("user_id") or "")
        # Turns of cron jobs and subagents are not memories of the person.
        self._writes = kwargs.get("agent_context", "primary") == "primary"

    def on_session_switch(self, new_session_id: str, **kwargs: Any) -> None:  # noqa: ARG002
        """Continue in another session."""
        self._session = new_session_id

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """One tool, to ask for a number."""
        return [{"name": "sample_count", "description": "How many turns are remembered."}]

    def handle_tool_call(self, tool_name: str, args: dict[str, Any], **kwargs: Any) -> str:  # noqa: ARG002
        """Answer it."""
        return json.dumps({"turns": len(self._turns())})

    def sync_turn(
        self,
        user_content: str,
        assistant_content: str,
        *,
        session_id: str = "",
        messages: list[dict[str, Any]] | None = None,  # noqa: ARG002
        turn_id: str = "",
        attempt: int = 1,
    ) -> None:
        """Append the turn, unless an earlier attempt has stored it."""
        if self._file is None or not self._writes:
            return
        if attempt > 1 and turn_id in {turn["id"] for turn in self._turns()}:
            return
        turn = {
            "id": turn_id,
            "session": session_id or self._session,
            "user": user_content,
            "agent": assistant_content,
            "of": self._user,
        }
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(turn) + "\n")

    def prefetch(self, query: str, *, session_id: str = "") -> str:  # noqa: ARG002
        """Find the turns that fit."""
        words = _words(query)
        turns = [turn for turn in self._turns() if words & _words(turn["user"])]
        # Ascending, so the best come last, next to the question; 20 bound the length.
        best = sorted(turns, key=lambda turn: len(words & _words(turn["user"])))[-20:]
        return "\n".join(f"- {turn['user']} -> {turn['agent']}"[:500] for turn in best)

    def _turns(self) -> list[dict[str, str]]:
        if self._file is None:
            return []
        turns = [json.loads(line) for line in self._file.read_text("utf-8").splitlines()]
        return [turn for turn in turns if turn.get("of", "") == self._user]


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w{4,}", text.casefold()))


def register(ctx: Any) -> None:
    """Offer the provider."""
    ctx.register_memory_provider(SampleProvider())
