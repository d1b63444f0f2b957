"""The provider: what a Hermes agent calls.

It works as it is, with a local SQLite file. Replace `Store` by your backend, and run the
tests: they say what a host relies on.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
from pathlib import Path
from typing import Any

from hermes_core import MemoryProvider, RecallStatus

from .store import Store

logger = logging.getLogger(__name__)

#: What is recalled is cut: a memory may be a whole log file.
_SHOWN = 500

_SEARCH = {
    "name": "acme_search",
    "description": "Search what was said in earlier conversations. Use it when the user refers "
    "to something that is not in this conversation.",
    "parameters": {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "Words to look for."},
            "limit": {"type": "integer", "minimum": 1, "maximum": 20, "description": "How many."},
        },
        "required": ["query"],
    },
}


class AcmeProvider(MemoryProvider):
    """Remembers every turn, and recalls those that fit."""

    def __init__(self) -> None:
        self._store: Store | None = None
        self._owner = ""
        self._session = ""
        self._writes = False
        self._limit = 5
        self._heading = ""
        self._recalled = 0

    # -- who it is, and whether it can work -----------------------------------------------

    @property
    def name(self) -> str:
        """The name of the entry point."""
        return "acme"

    def is_available(self) -> bool:
        """Look at settings and packages only: no network, no files."""
        return True

    def unavailable_reason(self) -> str:
        """What a person has to do, if it is not available."""
        return ""

    # -- settings ---------------------------------------------------------------------------

    def get_config_schema(self) -> list[dict[str, Any]]:
        """What `hermes-plugins setup acme` asks. Mark credentials with ``secret: True``."""
        return [
            {
                "key": "recall_limit",
                "description": "How many memories are recalled for a message",
                "type": "integer",
                "default": 5,
                "minimum": 1,
                "maximum": 20,
            },
            {
                "key": "heading",
                "description": "The line above what is recalled",
                "default": "What was said before:",
            },
        ]

    def save_config(self, values: dict[str, Any], hermes_home: str) -> None:
        """Store the answers: the whole file or nothing, for its owner alone."""
        folder = Path(hermes_home) / "acme"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder)  # with mode 0600
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(values, file, indent=2)
        Path(temporary).replace(folder / "config.json")

    # -- a session --------------------------------------------------------------------------

    def initialize(self, session_id: str, **kwargs: Any) -> None:
        """Open the store of this home. It may be called again: for the next session."""
        self.shutdown()
        home = Path(kwargs["hermes_home"])
        config = {**_own_config(home), **(kwargs.get("provider_config") or {})}
        self._limit = int(config.get("recall_limit") or 5)
        self._heading = str(config.get("heading") or "What was said before:")
        self._session = session_id
        self._owner = str(kwargs.get("user_id") or "")
        # Turns of cron jobs and subagents are not the person's memories.
        self._writes = kwargs.get("agent_context", "primary") == "primary"
        self._store = Store(home / "acme" / "memories.db")

    def on_session_switch(self, new_session_id: str, **kwargs: Any) -> None:
        """From now on, turns belong to another session."""
        self._session = new_session_id

    def shutdown(self) -> None:
        """Close. It may be called twice, and without `initialize`."""
        store, self._store = self._store, None
        if store is not None:
            store.close()

    # -- turns ------------------------------------------------------------------------------

    def sync_turn(
        self,
        user_content: str,
        assistant_content: str,
        *,
        session_id: str = "",
        messages: list[dict[str, Any]] | None = None,
    ) -> None:
        """Store a turn. If it raises, the host tries again."""
        if not self._writes:
            return
        if self._store is None:
            raise RuntimeError("acme has not been initialised")
        text = f"User: {user_content}\nAssistant: {assistant_content}"
        self._store.add(text, "turn", self._owner, session_id or self._session)

    def prefetch(self, query: str, *, session_id: str = "") -> str:
        """Recall what fits; '' if there is nothing."""
        found = self._search(query, self._limit)
        self._recalled = len(found)
        return "\n".join([self._heading, *(f"- {text}" for text in found)]) if found else ""

    def recall_status(self) -> RecallStatus | None:
        """What the host may show beside the answer."""
        return RecallStatus("acme", self._recalled, "🧠") if self._recalled else None

    def on_memory_write(
        self, action: str, target: str, content: str, metadata: dict[str, Any] | None = None
    ) -> None:
        """The agent's own notes changed: follow."""
        if self._store is None or not self._writes:
            return
        old = (metadata or {}).get("old_text") or (content if action == "remove" else "")
        if action in ("replace", "remove") and old:
            self._store.remove(old, target, self._owner)
        if action in ("add", "replace"):
            self._store.add(content, target, self._owner, self._session)

    # -- tools ------------------------------------------------------------------------------

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """What the model may call; the same at any time."""
        return [_SEARCH]

    def handle_tool_call(self, tool_name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Answer with JSON, whatever the model sends."""
        if tool_name != _SEARCH["name"]:
            return json.dumps({"error": f"unknown tool {tool_name}"})
        query, limit = args.get("query"), args.get("limit") or self._limit
        if not isinstance(query, str) or not isinstance(limit, int):
            return json.dumps({"error": "query must be a text, and limit a number"})
        try:
            found = self._search(query, min(max(limit, 1), 20))
        except Exception as error:
            logger.warning("acme_search failed", exc_info=True)
            return json.dumps({"error": str(error)})
        return json.dumps({"memories": found}, ensure_ascii=False)

    def _search(self, query: str, limit: int) -> list[str]:
        if self._store is None:
            return []
        return [_cut(text) for text in self._store.search(query, self._owner, limit)]


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _own_config(home: Path) -> dict[str, Any]:
    try:
        data = json.loads((home / "acme" / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}
