"""Putting words into the index, many messages at a time: one by one costs five times as much.

A message is stored first, and its number is noted as pending in the same transaction. Before
anything is looked up, what is pending is indexed.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from hermes_builtin.sessions._content import searchable
from hermes_builtin.sessions._words import words
from hermes_builtin.sessions.sqlite._schema import SAMPLE

#: So many messages are indexed in one transaction.
BATCH: Final = 256
_KNOWN_TERMS: Final = 200_000

Row = tuple[int, int, str, str | None]


def indexed_words(content: str, extra: str | None) -> list[str]:
    """The words by which a message can be found, in order."""
    return words(searchable(content, facts_of(extra)) if extra else content)


def facts_of(extra: str | None) -> dict[str, Any]:
    """What else is known of a message; {} if it is no longer what was stored."""
    try:
        facts = json.loads(extra) if extra else {}
    except (ValueError, TypeError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


def is_pending(database: sqlite3.Connection) -> bool:
    """Whether there are messages that are not in the index yet."""
    return database.execute("SELECT 1 FROM archive_pending LIMIT 1").fetchone() is not None


class Indexer:
    """Puts words into the index, and counts them."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def some_pending(self, database: sqlite3.Connection) -> int:
        """Index some of the messages that are pending; gives how many."""
        found = database.execute("SELECT id FROM archive_pending LIMIT ?", (BATCH,)).fetchall()
        numbers = f"[{','.join(str(number) for (number,) in found)}]"
        rows = database.execute(
            "SELECT id, checksum, content, extra FROM archive_messages"
            " WHERE id IN (SELECT value FROM json_each(?))",
            (numbers,),
        ).fetchall()
        self.add(database, rows)
        database.execute(
            "DELETE FROM archive_pending WHERE id IN (SELECT value FROM json_each(?))", (numbers,)
        )
        return len(found)

    def add(self, database: sqlite3.Connection, rows: Sequence[Row]) -> None:
        """Put messages into the index; those that are sampled also into the counts."""
        counts: Counter[str] = Counter()
        seen: set[str] = set()
        entries = []
        for number, mark, content, extra in rows:
            different = set(indexed_words(content, extra))
            entries.append((number, " ".join(different)))
            seen |= different
            if mark % SAMPLE == 0:
                counts.update(different)
        database.executemany("INSERT INTO archive_index (rowid, words) VALUES (?, ?)", entries)
        database.executemany(
            "INSERT INTO archive_terms VALUES (?, ?)"
            " ON CONFLICT DO UPDATE SET count = count + excluded.count",
            [(word, SAMPLE * count) for word, count in counts.items()],
        )
        unknown = seen - counts.keys() - self._known
        database.executemany(
            "INSERT OR IGNORE INTO archive_terms VALUES (?, 0)", [(word,) for word in unknown]
        )
        if len(self._known) > _KNOWN_TERMS:
            self._known.clear()
        self._known |= seen

    def forget(self) -> None:
        """A transaction failed: the table of terms may not have what we think."""
        self._known.clear()
