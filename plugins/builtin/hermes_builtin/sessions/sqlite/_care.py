"""Care of the file: deleting and counting, the index, and what is left of a damaged one."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Final

from hermes_builtin.sessions._model import Session
from hermes_builtin.sessions.archive import Progress, Stats
from hermes_builtin.sessions.sqlite._connections import Connections
from hermes_builtin.sessions.sqlite._indexing import Indexer, indexed_words
from hermes_builtin.sessions.sqlite._ranking import Totals
from hermes_builtin.sessions.sqlite._schema import bounds
from hermes_core.errors import DatabaseError

#: So many messages are indexed anew while somebody waits for a search.
_SMALL: Final = 50_000
_STEP: Final = 200
_MERGED_PAGES: Final = 200
_VACUUMED_PAGES: Final = 200

Row = tuple[int, str, str | None]


def delete(connections: Connections, session: Session) -> int:
    """Forget a session, some messages at a time, so that nobody has to wait."""
    low, high = bounds(session.number)
    gone = 0
    while True:
        with connections.writing() as database:
            database.execute("PRAGMA secure_delete = 1")  # what is forgotten is gone
            rows: list[Row] = database.execute(
                "SELECT id, content, extra FROM archive_messages WHERE id BETWEEN ? AND ? LIMIT ?",
                (low, high, _STEP),
            ).fetchall()
            if not rows:
                database.execute("DELETE FROM archive_sessions WHERE number = ?", (session.number,))
                database.execute("DELETE FROM archive_imports WHERE session = ?", (session.id,))
                return gone
            _unindex(database, rows)
            database.execute(
                "DELETE FROM archive_messages WHERE id BETWEEN ? AND ?", (rows[0][0], rows[-1][0])
            )
            gone += len(rows)


def _unindex(database: sqlite3.Connection, rows: list[Row]) -> None:
    for number, content, extra in rows:
        found = " ".join(set(indexed_words(content, extra)))
        database.execute(
            "INSERT INTO archive_index (archive_index, rowid, words) VALUES ('delete', ?, ?)",
            (number, found),
        )


def tidy(connections: Connections) -> None:
    """Give back the room of what was deleted, in small steps, and leave no trace of it."""
    pages = -_MERGED_PAGES
    while True:
        with connections.writing() as database:
            before = database.total_changes
            database.execute(
                "INSERT INTO archive_index (archive_index, rank) VALUES ('merge', ?)", (pages,)
            )
            if database.total_changes - before < 2:  # noqa: PLR2004 - nothing is left to merge
                break
        pages = _MERGED_PAGES
    with connections.plain() as database:
        while database.execute("PRAGMA freelist_count").fetchone()[0]:
            left = database.execute("PRAGMA freelist_count").fetchone()[0]
            database.execute(f"PRAGMA incremental_vacuum({_VACUUMED_PAGES})").fetchall()
            if database.execute("PRAGMA freelist_count").fetchone()[0] >= left:
                break
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def totals_of(database: sqlite3.Connection) -> Totals:
    """How many messages and sessions there are."""
    messages, sessions = database.execute(
        "SELECT total(messages), count(*) FROM archive_sessions"
    ).fetchone()
    return Totals(int(messages), int(sessions))


def stats(database: sqlite3.Connection) -> Stats:
    """How much there is."""
    sessions, messages, oldest, newest = database.execute(
        "SELECT count(*), total(messages), min(started), max(active) FROM archive_sessions"
    ).fetchone()
    pages = database.execute("PRAGMA page_count").fetchone()[0]
    size = database.execute("PRAGMA page_size").fetchone()[0]
    sources = database.execute(
        "SELECT source, count(*) FROM archive_sessions GROUP BY source ORDER BY 2 DESC"
    )
    return Stats(sessions, int(messages), oldest, newest, pages * size, dict(sources.fetchall()))


# -- the index -------------------------------------------------------------------------------


def mark_index(database: sqlite3.Connection) -> None:
    """Note that messages are missing in the index."""
    database.execute("INSERT OR REPLACE INTO archive_meta VALUES ('index', 'damaged')")


def index_is_marked(database: sqlite3.Connection) -> bool:
    """Whether messages are missing in the index."""
    query = "SELECT 1 FROM archive_meta WHERE key = 'index'"
    return database.execute(query).fetchone() is not None


def rebuild_if_small(connections: Connections) -> None:
    """Make the index anew if that takes seconds; else ask a person to."""
    with connections.reading() as database:
        count = database.execute("SELECT total(messages) FROM archive_sessions").fetchone()[0]
    if count > _SMALL:
        raise DatabaseError(
            "the index of the archive is damaged; the conversations are whole",
            where=str(connections.path),
            hint="run: hermes-plugins sessions repair",
        )
    rebuild(connections)


def rebuild(connections: Connections, progress: Progress | None = None) -> int:
    """Make the index anew from the messages, in one transaction; gives how many there are."""
    with connections.writing() as database:
        total = database.execute("SELECT count(*) FROM archive_messages").fetchone()[0]
        _empty_index(database)
        indexer = Indexer()
        after, done = -1, 0
        while rows := database.execute(
            "SELECT id, checksum, content, extra FROM archive_messages WHERE id > ?"
            " ORDER BY id LIMIT ?",
            (after, _STEP),
        ).fetchall():
            indexer.add(database, rows)
            after, done = rows[-1][0], done + len(rows)
            if progress is not None:
                progress(done, total)
        database.execute("DELETE FROM archive_pending")
        database.execute("DELETE FROM archive_meta WHERE key = 'index'")
    return done


def _empty_index(database: sqlite3.Connection) -> None:
    database.execute("DELETE FROM archive_terms")
    try:
        database.execute("INSERT INTO archive_index (archive_index) VALUES ('delete-all')")
    except sqlite3.DatabaseError:
        # Not even that is possible: take the tables behind it away, and make it anew.
        definition = database.execute(
            "SELECT sql FROM sqlite_master WHERE name = 'archive_index'"
        ).fetchone()[0]
        with suppress(sqlite3.DatabaseError):
            database.execute("DROP TABLE archive_index")
        database.execute(definition)


def copy_of(path: Path, name: str) -> Path:
    """Where a copy of the archive is put: beside it, under a name that is free."""
    candidate = path.with_name(f"{path.name}.{name}")
    number = 2
    while candidate.exists():
        candidate = path.with_name(f"{path.name}.{name}-{number}")
        number += 1
    return candidate
