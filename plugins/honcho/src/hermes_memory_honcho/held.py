"""Turns that wait to be sent together: in a file below the home, until Honcho has them.

``writeFrequency`` says how many are sent at once. What waits survives the process; whoever sends
it takes it first, so that two processes don't send it twice.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from sqlite3 import Connection
from typing import Any, Final, NamedTuple

from hermes_memory_honcho.local import opened
from hermes_memory_honcho.naming import Place, Said

_TABLE: Final = """
CREATE TABLE IF NOT EXISTS held (
    n INTEGER PRIMARY KEY, key TEXT UNIQUE, session TEXT, user TEXT, ai TEXT, workspace TEXT,
    content TEXT, since REAL, taken REAL NOT NULL DEFAULT 0, tries INTEGER NOT NULL DEFAULT 0)
"""
_SEND_SECONDS: Final = 300.0  # whoever took turns and has not sent them by then, has failed


class HeldTurn(NamedTuple):
    """A turn that waits.

    Attributes:
        key: Its identity.
        place: Where it belongs.
        said: By whom, and what.
        facts: What is kept with it.
        again: It was taken before, and may have been sent.
    """

    key: str
    place: Place
    said: list[Said]
    facts: dict[str, Any]
    again: bool = False


class Held:
    """The turns of one workspace that wait."""

    def __init__(self, home: Path, workspace: str) -> None:
        self._path = home / "honcho" / "held.db"
        self._workspace = workspace

    def put(self, turn: HeldTurn) -> int:
        """Keep a turn; gives how many of its session wait."""
        content = json.dumps([turn.said, turn.facts])
        with self._open() as db:
            db.execute(
                "INSERT OR IGNORE INTO held (key, session, user, ai, workspace, content, since)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (turn.key, *turn.place, self._workspace, content, time.time()),
            )
            counted = db.execute(
                "SELECT count(*) FROM held WHERE (session, user, ai, workspace) = (?, ?, ?, ?)",
                (*turn.place, self._workspace),
            )
            return int(counted.fetchone()[0])

    def take(self, place: Place | None = None, *, older: float = 0.0) -> list[HeldTurn]:
        """Take what waits, of one session or of all, to send it now."""
        if not self._path.exists():
            return []
        now = time.time()
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            rows = db.execute(
                "SELECT n, key, session, user, ai, content, tries FROM held"
                " WHERE workspace = ? AND taken < ? AND since <= ?"
                " AND (? OR (session, user, ai) = (?, ?, ?)) ORDER BY n",
                (self._workspace, now - _SEND_SECONDS, now - older,
                 place is None, *(place or Place("", "", ""))),
            ).fetchall()  # fmt: skip
            taken = [(now, row[0]) for row in rows]
            db.executemany("UPDATE held SET taken = ?, tries = tries + 1 WHERE n = ?", taken)
        return [_read(row) for row in rows]

    def sent(self, turns: Sequence[HeldTurn]) -> None:
        """Honcho has them."""
        with self._open() as db:
            db.executemany("DELETE FROM held WHERE key = ?", [(each.key,) for each in turns])

    def give_back(self, turns: Sequence[HeldTurn]) -> None:
        """They could not be sent, and wait again."""
        keys = [(each.key,) for each in turns]
        with self._open() as db:
            db.executemany("UPDATE held SET taken = 0 WHERE key = ?", keys)

    def _open(self) -> AbstractContextManager[Connection]:
        return opened(self._path, _TABLE)


def _read(row: tuple[Any, ...]) -> HeldTurn:
    _, key, session, user, ai, content, tries = row
    said, facts = json.loads(content)
    return HeldTurn(key, Place(session, user, ai), [Said(*each) for each in said], facts, tries > 0)
