"""Filling the full-text index. `hermes_builtin.sessions.sqlite.search` looks words up in it."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Final

from hermes_builtin.sessions.archive import indexed_words
from hermes_builtin.sessions.numbers import SESSION_BITS, session_of
from hermes_builtin.sessions.sqlite.database import SAMPLE

# -----------------------------------------------------------------------------------------------
# Putting words into the index, many messages at a time: one by one costs five times as much
#
# A message is stored first, and in the same transaction it is noted from which message on a
# session is not in the index. Before anything is looked up, what is pending is indexed.

#: So many messages are indexed in one transaction, or fewer with so many characters: whoever
#: wants to write meanwhile waits for it.
BATCH: Final = 512
_MOST_TEXT: Final = 100_000
_KNOWN_TERMS: Final = 200_000

Row = tuple[int, int, str, str | None]


def is_pending(database: sqlite3.Connection) -> bool:
    """Whether there are messages that are not in the index yet."""
    return database.execute("SELECT 1 FROM archive_unindexed LIMIT 1").fetchone() is not None


# CROSS JOIN fixes the order of the loops: for each unindexed session, a range of the primary key.
_PENDING: Final = (
    "SELECT id, checksum, content, extra FROM archive_unindexed CROSS JOIN archive_messages"  # noqa: S608
    f" ON id BETWEEN first AND ((session + 1) << {SESSION_BITS}) - 1 ORDER BY session, id LIMIT ?"
)
_ALL: Final = "SELECT id, checksum, content, extra FROM archive_messages ORDER BY id LIMIT ?"


def _some(database: sqlite3.Connection) -> tuple[list[Row], bool]:
    """The first messages that are not in the index yet, and whether there may be more."""
    pending = database.execute(_PENDING, (BATCH,))
    rows: list[Row] = []
    size = 0
    with closing(pending):
        for row in pending:
            rows.append(row)
            size += sum(len(text) for text in row[2:] if isinstance(text, str))
            if size >= _MOST_TEXT:
                break
    return rows, len(rows) == BATCH or size >= _MOST_TEXT


class Indexer:
    """Puts words into the index, and counts them."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def some_pending(self, database: sqlite3.Connection) -> tuple[int, bool]:
        """Index some of the messages that are pending; how many, and whether more may be."""
        rows, more = _some(database)
        self.add(database, rows)
        if not more:
            database.execute("DELETE FROM archive_unindexed")
            return len(rows), False
        # Sessions before the last one are complete; in the last one the mark moves behind what was
        # read.
        last = rows[-1][0]
        session = session_of(last)
        database.execute("DELETE FROM archive_unindexed WHERE session < ?", (session,))
        moved = database.execute(
            "UPDATE archive_unindexed SET first = :next WHERE session = :session AND first < :next",
            {"next": last + 1, "session": session},
        )
        if moved.rowcount != 1:  # a damaged page; the same ones would come again for ever
            raise sqlite3.DatabaseError("messages are not in order")
        return len(rows), True

    def add(self, database: sqlite3.Connection, rows: Sequence[Row]) -> None:
        """Put messages into the index; those that are sampled also into the counts."""
        counts: Counter[str] = Counter()
        seen: set[str] = set()
        entries = []
        for number, mark, content, extra in rows:
            found = indexed_words(content, extra) if isinstance(content, str) else []
            entries.append((number, " ".join(found)))
            seen.update(found)
            if isinstance(mark, int) and mark % SAMPLE == 0:  # else damaged: `check` reports it
                counts.update(set(found))
        database.executemany("INSERT INTO archive_index (rowid, words) VALUES (?, ?)", entries)
        # In the order of the table, so that each of its pages is looked up once.
        database.executemany(
            "INSERT INTO archive_terms VALUES (?, ?)"
            " ON CONFLICT DO UPDATE SET count = count + excluded.count",
            [(word, SAMPLE * count) for word, count in sorted(counts.items())],
        )
        # Every word is in the table, with 0 if no sampled message has it: prefixes and misspelt
        # words are looked up there. `_known` saves most of these inserts.
        unknown = seen - counts.keys() - self._known
        database.executemany(
            "INSERT OR IGNORE INTO archive_terms VALUES (?, 0)",
            [(word,) for word in sorted(unknown)],
        )
        # Bounded memory: clearing only costs some inserts that are ignored.
        if len(self._known) > _KNOWN_TERMS:
            self._known.clear()
        self._known |= seen

    def forget(self) -> None:
        """A transaction failed: the table of terms may not have what we think."""
        self._known.clear()


#: At most so many messages are indexed while somebody waits for a search.
SMALL: Final = 50_000


@contextmanager
def index_in_memory(database: sqlite3.Connection, *, everything: bool) -> Iterator[bool]:
    """Have this connection look words up in another index: that of messages that are not indexed.

    For a file that can't be written, or not now. The index is in memory and ends with the block.

    Args:
        database: A connection for reading.
        everything: Index all messages, since the index of the file is damaged.

    Yields:
        Whether it has all of them; there may be too many.
    """
    definitions = database.execute(
        "SELECT sql FROM main.sqlite_master WHERE name IN ('archive_index', 'archive_terms')"
    ).fetchall()
    database.execute("PRAGMA temp_store = MEMORY")
    database.execute("PRAGMA query_only = 0")
    try:
        # SQLite looks for a name among the temporary tables first.
        for (definition,) in definitions:
            database.execute(definition.replace("TABLE archive_", "TABLE temp.archive_", 1))
        rows = database.execute(_ALL if everything else _PENDING, (SMALL + 1,)).fetchall()
        indexer = Indexer()
        for at in range(0, len(rows), BATCH):
            indexer.add(database, rows[at : at + BATCH])
        yield len(rows) <= SMALL
    finally:
        for table in ("archive_index", "archive_terms"):
            database.execute(f"DROP TABLE IF EXISTS temp.{table}")
        database.execute("PRAGMA query_only = 1")
