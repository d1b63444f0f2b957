"""Where memories are kept: one SQLite file with a full-text index."""

from __future__ import annotations

import os
import re
import sqlite3
import threading
from pathlib import Path

_BUSY_SECONDS = 5.0


class Store:
    """The memories of one home. Safe to use from several threads and processes."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # SQLite gives its other files the mode of this one.
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        self._lock = threading.Lock()
        # A host writes and recalls on different threads.
        self._db = sqlite3.connect(path, timeout=_BUSY_SECONDS, check_same_thread=False)
        with self._lock, self._db:
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute(
                "CREATE VIRTUAL TABLE IF NOT EXISTS memories USING fts5("
                "text, kind UNINDEXED, owner UNINDEXED, session UNINDEXED)"
            )

    def add(self, text: str, kind: str, owner: str, session: str) -> None:
        """Store a text."""
        with self._lock, self._db:
            self._db.execute(
                "INSERT INTO memories (text, kind, owner, session) VALUES (?, ?, ?, ?)",
                (text, kind, owner, session),
            )

    def remove(self, text: str, kind: str, owner: str) -> None:
        """Forget a text."""
        with self._lock, self._db:
            self._db.execute(
                "DELETE FROM memories WHERE text = ? AND kind = ? AND owner = ?",
                (text, kind, owner),
            )

    def search(self, query: str, owner: str, limit: int) -> list[str]:
        """The texts that fit best; of this owner only."""
        words = list(dict.fromkeys(re.findall(r"\w+", query)))[:50]
        if not words:
            return []
        match = " OR ".join(f'"{word}"' for word in words)
        with self._lock:
            rows = self._db.execute(
                "SELECT text FROM memories WHERE memories MATCH ? AND owner = ? "
                "ORDER BY rank LIMIT ?",
                (match, owner, limit),
            ).fetchall()
        return [row[0] for row in rows]

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._db.close()
