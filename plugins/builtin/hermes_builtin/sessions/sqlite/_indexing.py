"""Putting words into the index, many messages at a time: one by one costs five times as much.

A message is stored first, and in the same transaction it is noted from which message on a
session is not in the index. Before anything is looked up, what is pending is indexed.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from hermes_builtin.sessions._content import searchable
from hermes_builtin.sessions._words import words
from hermes_builtin.sessions.sqlite._schema import SAMPLE, SESSION_BITS, session_of

#: So many messages are indexed in one transaction.
BATCH: Final = 512
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
    return database.execute("SELECT 1 FROM archive_unindexed LIMIT 1").fetchone() is not None


class Indexer:
    """Puts words into the index, and counts them."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def some_pending(self, database: sqlite3.Connection) -> int:
        """Index some of the messages that are pending; gives how many."""
        rows = database.execute(
            "SELECT id, checksum, content, extra FROM archive_unindexed CROSS JOIN archive_messages"  # noqa: S608
            f" ON id BETWEEN first AND ((session + 1) << {SESSION_BITS}) - 1"
            " ORDER BY session, id LIMIT ?",
            (BATCH,),
        ).fetchall()
        self.add(database, rows)
        if len(rows) < BATCH:
            database.execute("DELETE FROM archive_unindexed")
            return len(rows)
        last = rows[-1][0]
        session = session_of(last)
        database.execute("DELETE FROM archive_unindexed WHERE session < ?", (session,))
        database.execute(
            "UPDATE archive_unindexed SET first = ? WHERE session = ?", (last + 1, session)
        )
        return len(rows)

    def add(self, database: sqlite3.Connection, rows: Sequence[Row]) -> None:
        """Put messages into the index; those that are sampled also into the counts."""
        counts: Counter[str] = Counter()
        seen: set[str] = set()
        entries = []
        for number, mark, content, extra in rows:
            found = indexed_words(content, extra)
            entries.append((number, " ".join(found)))
            seen.update(found)
            if mark % SAMPLE == 0:
                counts.update(set(found))
        database.executemany("INSERT INTO archive_index (rowid, words) VALUES (?, ?)", entries)
        # In the order of the table, so that each of its pages is looked up once.
        database.executemany(
            "INSERT INTO archive_terms VALUES (?, ?)"
            " ON CONFLICT DO UPDATE SET count = count + excluded.count",
            [(word, SAMPLE * count) for word, count in sorted(counts.items())],
        )
        unknown = seen - counts.keys() - self._known
        database.executemany(
            "INSERT OR IGNORE INTO archive_terms VALUES (?, 0)",
            [(word,) for word in sorted(unknown)],
        )
        if len(self._known) > _KNOWN_TERMS:
            self._known.clear()
        self._known |= seen

    def forget(self) -> None:
        """A transaction failed: the table of terms may not have what we think."""
        self._known.clear()
