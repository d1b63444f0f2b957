"""Care of the file: deleting and counting, the index, and what is left of a damaged one."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Final

from hermes_builtin.sessions._model import Session
from hermes_builtin.sessions.archive import Progress, Stats
from hermes_builtin.sessions.sqlite._connections import Connections, is_damage
from hermes_builtin.sessions.sqlite._index import Index
from hermes_builtin.sessions.sqlite._indexing import Indexer, indexed_words
from hermes_builtin.sessions.sqlite._ranking import Totals
from hermes_builtin.sessions.sqlite._schema import bounds
from hermes_core.errors import DatabaseError

#: So many messages are indexed anew while somebody waits for a search.
_SMALL: Final = 50_000
_STEP: Final = 200
_MERGED_PAGES: Final = 200
_VACUUMED_PAGES: Final = 200
_CHECKPOINTS: Final = 20
_PAUSE: Final = 0.05

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
            database.execute(
                "UPDATE archive_sessions SET messages = messages - ? WHERE number = ?",
                (len(rows), session.number),
            )
            gone += len(rows)


def _unindex(database: sqlite3.Connection, rows: list[Row]) -> None:
    """Take messages out of the index, and words out of the vocabulary that nobody uses now."""
    words: set[str] = set()
    for number, content, extra in rows:
        found = set(indexed_words(content, extra))
        words |= found
        database.execute(
            "INSERT INTO archive_index (archive_index, rowid, words) VALUES ('delete', ?, ?)",
            (number, " ".join(found)),
        )
    index = Index(database)
    unused = [(word,) for word in words if not index.newest(f'"{word}"', 1)]
    database.executemany("DELETE FROM archive_terms WHERE term = ?", unused)


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
            # It gives one page for each step, and only a script is stepped to its end.
            database.executescript(f"PRAGMA incremental_vacuum({_VACUUMED_PAGES})")
            if database.execute("PRAGMA freelist_count").fetchone()[0] >= left:
                break
    # Whoever reads just now must not keep all writers waiting.
    with connections.hurried(0) as database:
        for _ in range(_CHECKPOINTS):
            busy = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            if not busy:
                break
            time.sleep(_PAUSE)


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


def state_of_index(database: sqlite3.Connection) -> tuple[bool, bool]:
    """Whether messages are yet to be indexed, and whether some are missing in it."""
    pending, marked = database.execute(
        "SELECT EXISTS (SELECT 1 FROM archive_unindexed),"
        " EXISTS (SELECT 1 FROM archive_meta WHERE key = 'index')"
    ).fetchone()
    return bool(pending), bool(marked)


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
    try:
        with connections.writing() as database:
            database.execute("DELETE FROM archive_terms")
            database.execute("INSERT INTO archive_index (archive_index) VALUES ('delete-all')")
            return _fill(database, progress)
    except DatabaseError as error:
        if not is_damage(error):
            raise
    _cut_out(connections)
    with connections.writing() as database:
        return _fill(database, progress)


def _fill(database: sqlite3.Connection, progress: Progress | None) -> int:
    total = database.execute("SELECT count(*) FROM archive_messages").fetchone()[0]
    indexer = Indexer()
    after, done = -1, 0
    while rows := database.execute(
        "SELECT id, checksum, content, extra FROM archive_messages WHERE id > ?"
        " ORDER BY id LIMIT ?",
        (after, _STEP),
    ).fetchall():
        if rows[-1][0] <= after:
            raise sqlite3.DatabaseError("messages are not in order")
        indexer.add(database, rows)
        after, done = rows[-1][0], done + len(rows)
        if progress is not None:
            progress(done, total)
    database.execute("DELETE FROM archive_unindexed")
    database.execute("DELETE FROM archive_meta WHERE key = 'index'")
    return done


def _cut_out(connections: Connections) -> None:
    """Take an index out of the file that is too damaged to be emptied, and make a new one.

    Its pages can't be walked through to be freed, so it is taken out of the schema; VACUUM
    then leaves its pages behind.
    """
    connections.close()
    with connections.errors, closing(sqlite3.connect(connections.path, timeout=30)) as database:
        database.isolation_level = None
        definitions = database.execute(
            "SELECT sql FROM sqlite_master WHERE name IN ('archive_index', 'archive_terms')"
        ).fetchall()
        database.execute("PRAGMA writable_schema = ON")
        database.execute(
            "DELETE FROM sqlite_master WHERE name LIKE 'archive!_index%' ESCAPE '!'"
            " OR tbl_name = 'archive_terms'"
        )
        database.execute("PRAGMA writable_schema = RESET")
        database.execute("VACUUM")
        for (definition,) in definitions:
            database.execute(definition)


def copy_of(path: Path, name: str) -> Path:
    """Where a copy of the archive is put: beside it, under a name that is free."""
    candidate = path.with_name(f"{path.name}.{name}")
    number = 2
    while candidate.exists():
        candidate = path.with_name(f"{path.name}.{name}-{number}")
        number += 1
    return candidate
