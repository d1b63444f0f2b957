"""What the Mem0 servers of the tests remember. It can be kept in a file, and read again."""

from __future__ import annotations

import hashlib
import json
import math
import re
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from support.fake_model import facts_in

Row = dict[str, Any]


class Mem0Store:
    """Memories and events. Facts are extracted as the fake model does it.

    Args:
        path: Where it is kept, whole after every change; nowhere if None.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._lock = threading.RLock()
        kept = json.loads(path.read_text("utf-8")) if path and path.exists() else {}
        self.rows: dict[str, Row] = kept.get("rows", {})
        self.events: dict[str, Row] = kept.get("events", {})

    # -- writing --------------------------------------------------------------------------

    def add(self, given: Mapping[str, Any], embeds: Callable[[], bool] = lambda: True) -> list[Row]:
        """Store messages, or the facts in them: none twice.

        Facts are embedded together. If that fails, each on its own; those that fail then, too,
        are left out, and nothing is said of it. That is what mem0ai's engine does.
        """
        with self._lock:
            texts = _facts(given["messages"]) if given.get("infer", True) else _all(given)
            if given.get("infer", True) and texts and not embeds():
                texts = [each for each in texts if embeds()]
            known = {row["hash"] for row in self.of(given) if given.get("infer", True)}
            new = [_row(text, given) for text in texts if _hash(text) not in known]
            self.rows |= {row["id"]: row for row in new}
            self._keep()
            return new

    def queue(self, given: Mapping[str, Any], lag: float) -> Row:
        """Take messages whose facts are extracted after a while."""
        event = {
            "id": str(uuid.uuid4()),
            "event_type": "ADD",
            "status": "PENDING",
            "payload": dict(given),
            "created_at": _now(),
            "updated_at": _now(),
            "due": time.time() + lag,
        }
        with self._lock:
            self.events[event["id"]] = event
            self._keep()
        return event

    def work(self, fails: Callable[[], bool] = lambda: False) -> None:
        """Extract what is due; of some it may be said that it fails."""
        with self._lock:
            for event in self.events.values():
                if event["status"] == "PENDING" and event["due"] <= time.time():
                    if fails():
                        event |= {"status": "FAILED", "error": "embeddings are rate-limited"}
                        continue
                    event["status"] = "SUCCEEDED"
                    self.add(event["payload"])

    def change(self, memory_id: str, given: Mapping[str, Any]) -> Row:
        """Another text, more metadata."""
        with self._lock:
            row = self.rows[memory_id]
            row["memory"] = given.get("text") or row["memory"]
            row["hash"] = _hash(row["memory"])
            row["metadata"] = {**(row["metadata"] or {}), **(given.get("metadata") or {})}
            row["updated_at"] = _now()
            self._keep()
            return row

    def remove(self, ids: Sequence[str]) -> None:
        """Some memories less."""
        with self._lock:
            for each in ids:
                del self.rows[each]
            self._keep()

    def _keep(self) -> None:
        if self._path is None:
            return
        aside = self._path.with_suffix(".new")
        aside.write_text(json.dumps({"rows": self.rows, "events": self.events}), "utf-8")
        aside.replace(self._path)

    # -- reading --------------------------------------------------------------------------

    def of(self, who: Mapping[str, Any], metadata: Mapping[str, Any] | None = None) -> list[Row]:
        """The memories of a user, agent or run that have some metadata."""
        ids = {key: who[key] for key in ("user_id", "agent_id", "run_id") if who.get(key)}
        with self._lock:
            return [
                row
                for row in self.rows.values()
                if all(row.get(key) == value for key, value in ids.items())
                and all((row["metadata"] or {}).get(k) == v for k, v in (metadata or {}).items())
            ]

    @staticmethod
    def ranked(rows: Sequence[Row], query: str, limit: int, threshold: float) -> list[Row]:
        """The rows that are like a question, the best first."""
        scored = [{**row, "score": _likeness(query, row["memory"])} for row in rows]
        found = [row for row in scored if row["score"] >= threshold]
        return sorted(found, key=lambda row: -row["score"])[:limit]


def _facts(messages: Sequence[Mapping[str, str]]) -> list[str]:
    return facts_in("\n".join(each["content"] for each in messages if each["role"] == "user"))


def _all(given: Mapping[str, Any]) -> list[str]:
    return [each["content"] for each in given["messages"] if each["role"] != "system"]


def _row(text: str, given: Mapping[str, Any]) -> Row:
    return {
        "id": str(uuid.uuid4()),
        "memory": text,
        "hash": _hash(text),
        "user_id": given.get("user_id"),
        "agent_id": given.get("agent_id"),
        "run_id": given.get("run_id"),
        # As mem0ai's engine does: a time in the metadata is that of the memory.
        "metadata": {k: v for k, v in (given.get("metadata") or {}).items() if k != "created_at"},
        "created_at": _created(given),
        "updated_at": _now(),
    }


def _hash(text: str) -> str:
    return hashlib.md5(text.encode()).hexdigest()


def _at(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _now() -> str:
    return datetime.now(UTC).isoformat()


def _likeness(one: str, other: str) -> float:
    first, second = (Counter(re.findall(r"\w+", text.casefold())) for text in (one, other))
    lengths = math.sqrt(sum(n * n for n in first.values()) * sum(n * n for n in second.values()))
    shared = sum(count * second[word] for word, count in first.items())
    return min(1.0, shared / lengths) if lengths else 0.0


def _created(given: Mapping[str, Any]) -> str:
    named = (given.get("metadata") or {}).get("created_at")
    return str(named or (_at(given["timestamp"]) if given.get("timestamp") else _now()))
