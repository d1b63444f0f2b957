"""A whole memory plugin in one file: it keeps turns in a text file below its home."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from hermes_core import MemoryProvider


class SampleProvider(MemoryProvider):
    """Recalls the turns that share a word of four letters or more with the question."""

    confirms_delivery = True  # a turn that can't be written is an error, and comes again

    def __init__(self) -> None:
        self._file: Path | None = None

    @property
    def name(self) -> str:
        """The name under which it is enabled."""
        return "sample"

    def is_available(self) -> bool:
        """It needs neither a server nor a key."""
        return True

    def initialize(self, session_id: str, **kwargs: Any) -> None:  # noqa: ARG002
        """Choose the file."""
        self._file = Path(kwargs["hermes_home"]) / "sample" / "turns.jsonl"
        self._file.parent.mkdir(parents=True, exist_ok=True)

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
        """Append the turn, unless an earlier attempt came as far as that."""
        if self._file is None or (attempt > 1 and turn_id in {t["id"] for t in self._turns()}):
            return
        turn = {
            "id": turn_id,
            "session": session_id,
            "user": user_content,
            "agent": assistant_content,
        }
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(turn, ensure_ascii=False) + "\n")

    def prefetch(self, query: str, *, session_id: str = "") -> str:  # noqa: ARG002
        """Find the turns that fit."""
        words = _words(query)
        turns = [turn for turn in self._turns() if words & _words(turn["user"])]
        return "\n".join(f"- {turn['user']} -> {turn['agent']}" for turn in turns)

    def _turns(self) -> list[dict[str, str]]:
        if self._file is None or not self._file.exists():
            return []
        return [json.loads(line) for line in self._file.read_text("utf-8").splitlines()]


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w{4,}", text.casefold()))


def register(ctx: Any) -> None:
    """Offer the provider."""
    ctx.register_memory_provider(SampleProvider())
