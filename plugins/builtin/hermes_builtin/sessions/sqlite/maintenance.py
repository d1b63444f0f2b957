"""Indexing in the background, deleting sessions, rebuilding the index, and statistics."""

from __future__ import annotations

import json
import logging
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from math import inf
from pathlib import Path
from time import monotonic
from typing import Final

from hermes_builtin.sessions.archive import (
    Matches,
    NewMessage,
    Progress,
    Session,
    Stats,
    TextOccurrences,
    facts_of,
    indexed_words,
    marker,
)
from hermes_builtin.sessions.numbers import bounds, session_of
from hermes_builtin.sessions.ranking import Totals
from hermes_builtin.sessions.sqlite.database import checkpoint, json_list
from hermes_builtin.sessions.sqlite.index import BATCH, SMALL, Indexer, is_pending
from hermes_builtin.sessions.sqlite.search import SqliteSource
from hermes_builtin.sessions.sqlite.tables import (
    Sessions,
    checksum,
    extra_text,
    forget_parent,
    name_session,
)
from hermes_builtin.sessions.words import storable
from hermes_core.dispatch.worker import Worker
from hermes_core.errors import DatabaseError
from hermes_core.storage.logger import SafeLogger
from hermes_core.storage.sqlite import SqliteFile
from hermes_core.storage.sqlite_connection import WAIT_SECONDS, is_busy, is_damage, transaction

# -- Maintenance: deleting and counting, the index, and what is left of a damaged file ---------

# Small steps: an agent that stores a turn meanwhile waits for one of them at most.
_STEP: Final = 200
_MERGED_PAGES: Final = 200
_VACUUMED_PAGES: Final = 200
_CHECKPOINTS: Final = 20
_PAUSE: Final = 0.05

#: A larger archive is not rewritten while agents may wait for it: freed pages leave it anyway.
_LARGEST_REWRITTEN: Final = 500_000_000
_SHOWN: Final = 20
_VOCABULARY: Final = (
    "CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab(main, archive_index, row)"
)

Row = tuple[int, str, str | None]


def delete(file: SqliteFile, session: Session) -> int:
    """Delete a session, some messages at a time, so that nobody has to wait."""
    low, high = bounds(session.number)
    gone = 0
    while True:
        with file.transaction() as database:
            database.execute("PRAGMA secure_delete = 1")  # what is forgotten is gone
            rows: list[Row] = database.execute(
                "SELECT id, content, extra FROM archive_messages WHERE id BETWEEN ? AND ? LIMIT ?",
                (low, high, _STEP),
            ).fetchall()
            if not rows:
                _delete_empty(database, session)
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


def _delete_empty(database: sqlite3.Connection, session: Session) -> None:
    """Delete a session that has no messages any more."""
    database.execute("DELETE FROM archive_sessions WHERE number = ?", (session.number,))
    database.execute("DELETE FROM archive_imports WHERE session = ?", (session.id,))
    forget_parent(database, session)


def remove(file: SqliteFile, session: Session, numbers: Sequence[int]) -> None:
    """Delete some messages of a session, and the session if none is left."""
    low, high = bounds(session.number)
    wanted = [each for each in numbers if low <= each <= high]
    for start in range(0, len(wanted) or 1, _STEP):
        with file.transaction() as database:
            database.execute("PRAGMA secure_delete = 1")
            doomed = wanted[start : start + _STEP]
            rows = _texts_of(database, doomed)
            # A message that is not in the index yet can't be taken out of it.
            _unindex(database, [row for row in rows if not _is_unindexed(database, row[0])])
            gone = database.execute(
                "DELETE FROM archive_messages WHERE id IN (SELECT value FROM json_each(?))",
                (json_list(doomed),),
            ).rowcount
            database.execute(
                "UPDATE archive_sessions SET messages = messages - ? WHERE number = ?",
                (gone, session.number),
            )
            query = "SELECT 1 FROM archive_messages WHERE id BETWEEN ? AND ? LIMIT 1"
            if database.execute(query, (low, high)).fetchone() is None:
                _delete_empty(database, session)


def _texts_of(database: sqlite3.Connection, numbers: Sequence[int]) -> list[Row]:
    query = (
        "SELECT id, content, extra FROM archive_messages"
        " WHERE id IN (SELECT value FROM json_each(?)) AND typeof(content) = 'text'"
    )
    return database.execute(query, (json_list(numbers),)).fetchall()


def replace_message(file: SqliteFile, number: int, message: NewMessage) -> None:
    """Put another text in the place of a message."""
    with file.transaction() as database:
        database.execute("PRAGMA secure_delete = 1")
        _store_again(database, {number: (storable(message.content), extra_text(message))})


def replace_texts(
    file: SqliteFile, matches: Matches, progress: Progress | None = None
) -> TextOccurrences:
    """Put a marker in the place of every message that matches, and remove titles that do."""
    found = find_texts(file, matches)
    for start in range(0, len(found.messages), _STEP):
        with file.transaction() as database:
            database.execute("PRAGMA secure_delete = 1")
            _replace(database, found.messages[start : start + _STEP], matches)
        if progress is not None:
            progress(start, len(found.messages))
    with file.transaction() as database:
        database.execute("PRAGMA secure_delete = 1")
        for number in found.titles:
            name_session(database, number, "")
    return found


def find_texts(file: SqliteFile, matches: Matches) -> TextOccurrences:
    """The messages and titles that match."""
    messages: list[int] = []
    previews: list[str] = []
    after = -1
    while True:
        # Some at a time: a reader that takes long would keep the WAL from being emptied.
        with file.reading() as database:
            rows = database.execute(
                "SELECT id, content, extra FROM archive_messages WHERE id > ? ORDER BY id LIMIT ?",
                (after, _STEP),
            ).fetchall()
        if not rows or rows[-1][0] <= after:
            break
        for number, content, extra in rows:
            if any(isinstance(each, str) and matches(each) for each in (content, extra)):
                messages.append(number)
                previews.append(content)
        after = rows[-1][0]
    with file.reading() as database:
        titles = [number for number, title in Sessions(database).titles() if matches(title)]
    return TextOccurrences(messages, titles, previews[:_SHOWN])


def _replace(database: sqlite3.Connection, numbers: list[int], matches: Matches) -> None:
    forgotten = marker(matches)
    replaced: dict[int, tuple[str, str | None]] = {}
    for number, content, extra in _texts_of(database, numbers):
        text = forgotten if matches(content) else content
        # A tool's call is dropped as a whole: its arguments without the text would be another call.
        kept = {
            key: each
            for key, each in facts_of(extra).items()
            if not matches(json.dumps({key: each}))
        }
        facts = json.dumps(kept, ensure_ascii=False) if kept else None
        # Without a text, it was nothing but a call of a tool.
        replaced[number] = (text or forgotten, facts)
    _store_again(database, replaced)


def _store_again(database: sqlite3.Connection, texts: Mapping[int, tuple[str, str | None]]) -> None:
    """Give messages other texts, and have them found by these."""
    rows = _texts_of(database, list(texts))
    # A message that is not in the index yet can't be taken out of it.
    indexed = [row for row in rows if not _is_unindexed(database, row[0])]
    _unindex(database, indexed)
    for number, *_ in rows:
        text, facts = texts[number]
        (at,) = database.execute(
            "SELECT at FROM archive_messages WHERE id = ?", (number,)
        ).fetchone()
        database.execute(
            "UPDATE archive_messages SET content = ?, size = ?, extra = ?, checksum = ?"
            " WHERE id = ?",
            (text, len(text), facts, checksum(number, at, text, facts), number),
        )
    again = json_list(row[0] for row in indexed)
    Indexer().add(
        database,
        database.execute(
            "SELECT id, checksum, content, extra FROM archive_messages"
            " WHERE id IN (SELECT value FROM json_each(?))",
            (again,),
        ).fetchall(),
    )


def _is_unindexed(database: sqlite3.Connection, number: int) -> bool:
    query = "SELECT 1 FROM archive_unindexed WHERE session = ? AND first <= ?"
    return database.execute(query, (session_of(number), number)).fetchone() is not None


def erase_deleted(file: SqliteFile) -> bool:
    """Leave nothing of deleted messages in the file: words, free pages and the WAL.

    Returns whether all of it could be done: a process that reads keeps the WAL.
    """
    if not file.path.exists():
        return True
    tidy(file)
    with file.transaction() as database:
        database.execute(_VOCABULARY)
        # What no message has any more: a process that ended between two steps left it.
        database.execute(
            "DELETE FROM archive_terms WHERE term NOT IN (SELECT term FROM temp.vocabulary)"
        )
        unknown = database.execute(
            "SELECT term FROM temp.vocabulary WHERE term NOT IN (SELECT term FROM archive_terms)"
        ).fetchall()
        database.execute("DROP TABLE temp.vocabulary")
        # A running agent that takes a word for known does not count it: then it is in a message.
        source = SqliteSource(database)
        is_left = any(not source.newest(((word,),), 1) for (word,) in unknown)
        if not is_left:
            database.executemany("INSERT OR IGNORE INTO archive_terms VALUES (?, 0)", unknown)
    if is_left:
        rebuild(file)
    return file.erase_free_space(largest=_LARGEST_REWRITTEN)


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
    source = SqliteSource(database)
    unused = [(word,) for word in words if not source.newest(((word,),), 1)]
    database.executemany("DELETE FROM archive_terms WHERE term = ?", unused)


def tidy(file: SqliteFile) -> None:
    """Free the space of what was deleted, in small steps, and leave no trace of it."""
    pages = -_MERGED_PAGES
    while True:
        with file.transaction() as database:
            before = database.total_changes
            database.execute(
                # A negative number first starts a merge of all segments; positive ones continue it.
                # Only merging removes deleted words from the file. Fewer than two changes mean that
                # nothing is left to merge (FTS5's documentation).
                "INSERT INTO archive_index (archive_index, rank) VALUES ('merge', ?)",
                (pages,),
            )
            if database.total_changes - before < 2:  # noqa: PLR2004 - nothing is left to merge
                break
        pages = _MERGED_PAGES
    with file.writing() as database:
        while database.execute("PRAGMA freelist_count").fetchone()[0]:
            left = database.execute("PRAGMA freelist_count").fetchone()[0]
            # It frees one page per step, and only a script is stepped to its end.
            database.executescript(f"PRAGMA incremental_vacuum({_VACUUMED_PAGES})")
            if database.execute("PRAGMA freelist_count").fetchone()[0] >= left:
                break
    # Whoever reads just now must not keep all writers waiting.
    with file.hurried(0) as database:
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


# -- the index ----------------------------------------------------------------------------------


def mark_index(database: sqlite3.Connection) -> None:
    """Record that messages are missing in the index."""
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


def rebuild_if_small(file: SqliteFile) -> None:
    """Rebuild the index if that takes seconds; otherwise raise an error that asks a person to."""
    with file.reading() as database:
        count = database.execute("SELECT total(messages) FROM archive_sessions").fetchone()[0]
    if count > SMALL:
        raise DatabaseError(
            "the index of the archive is damaged; the conversations are whole",
            where=str(file.path),
            hint="run: hermes-plugins sessions repair",
        )
    rebuild(file)


def rebuild(file: SqliteFile, progress: Progress | None = None) -> int:
    """Rebuild the index from the messages in one transaction; return how many there are."""
    try:
        with file.transaction() as database:
            database.execute("DELETE FROM archive_terms")
            database.execute("INSERT INTO archive_index (archive_index) VALUES ('delete-all')")
            return _fill(database, progress)
    except DatabaseError as error:
        if not is_damage(error):
            raise
    try:
        _cut_out(file)
    except sqlite3.Error as error:
        what = f"{file.schema.name} can't be used: {error}"
        raise DatabaseError(what, where=str(file.path)) from error
    with file.transaction() as database:
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


def _cut_out(file: SqliteFile) -> None:
    """Take an index out of the file that is too damaged to be emptied, and make a new one.

    Its pages can't be walked through to be freed, so it is taken out of the schema; VACUUM
    then leaves its pages behind.
    """
    file.close()
    with closing(sqlite3.connect(file.path, timeout=30, isolation_level=None)) as database:
        definitions = database.execute(
            "SELECT sql FROM sqlite_master WHERE name IN ('archive_index', 'archive_terms')"
        ).fetchall()
        database.execute("PRAGMA writable_schema = ON")
        database.execute(
            "DELETE FROM sqlite_master WHERE name LIKE 'archive!_index%' ESCAPE '!'"
            " OR tbl_name = 'archive_terms'"
        )
        # RESET also makes SQLite read the schema again, without the index.
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


# -- messages that are stored and not indexed yet -----------------------------------------------
# They are indexed in a quiet moment, when somebody searches, or when the archive is closed.

logger = SafeLogger(logging.getLogger("hermes_builtin"), {})

#: How long nothing must have been stored. A model takes longer than this to answer; turns
#: without a model come faster.
_QUIET_SECONDS: Final = 0.25
#: So many messages may wait for a quiet moment to be indexed; the first search pays for them.
_MOST_PENDING: Final = 16 * BATCH
#: Background work waits for no other process for longer than this.
_BRIEFLY: Final = 0.5
#: So long may the index hold up the end; what is left, the next search pays for.
_CLOSING_SECONDS: Final = 1.0


class SqliteIdleIndexer:
    """Indexes messages in a quiet moment, when somebody searches, or at the end."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._indexer = Indexer()
        self._pending = 0
        self._counted = False
        self._last_write = 0.0
        self._worker = Worker("hermes-index", step=self._work_if_quiet, linger=0)

    def before_write(self) -> None:
        """Let a write wait for one step of the worker at most."""
        self._last_write = monotonic()
        if not self._counted and self._file.path.exists():
            self._counted = True  # an earlier process may have left much, see `_index_again`
            # If it can't be read, the write that follows says so, or starts it again.
            with suppress(DatabaseError), self._file.reading() as database:
                self._pending += BATCH if is_pending(database) else 0

    def add(self, messages: int) -> None:
        """Count messages that were stored, and have them indexed when there are many."""
        self._pending += messages
        if self._pending >= _MOST_PENDING:
            self._index_briefly()
        self._last_write = monotonic()
        if self._pending >= BATCH and not self._worker.alive:
            self._worker.wake()

    def index_all(self, step: Callable[[], object] | None = None) -> DatabaseError | None:
        """Index all that is not yet; why not, if it can't be done.

        What is stored is safe whatever becomes of the index.
        """
        try:
            with self._file.reading() as database:
                more = is_pending(database)
            while more:
                more = self._index_some(WAIT_SECONDS)
                if step is not None:
                    step()
        except DatabaseError as error:
            return error
        return None

    def forget(self) -> None:
        """Words may have left the table of terms."""
        self._indexer.forget()

    def stop(self) -> None:
        """Stop the worker after the step that it is taking."""
        self._worker.stop(inf)

    def close(self) -> None:
        """Stop, and index what can be indexed soon."""
        self.stop()
        end = monotonic() + _CLOSING_SECONDS
        more = self._pending > 0
        while more and monotonic() < end:
            more = self._index_briefly()

    def _work_if_quiet(self) -> float | None:
        """Do some work that a turn should not wait for; return when to go on, or None."""
        noise = self._last_write + _QUIET_SECONDS - monotonic()
        if noise > 0:
            return noise
        if self._index_briefly():
            return 0
        with suppress(DatabaseError):  # then the next turn that finds the WAL too long does it
            checkpoint(self._file)
        return None

    def _index_briefly(self) -> bool:
        """Index some messages, if that can be done now; return whether there are more."""
        try:
            return self._index_some(_BRIEFLY)
        except DatabaseError as error:
            self._pending = max(self._pending - BATCH, 0)  # not with every turn again
            # Another process writes: nothing is wrong, and the next search indexes what is left.
            log = logger.debug if is_busy(error) else logger.warning
            log("sessions: the index is behind: %s", error)
            return False

    def _index_some(self, seconds: float) -> bool:
        """Index some messages; whether there are more."""
        try:
            with self._file.hurried(seconds) as database:
                indexed, more = self._indexed(database)
        except DatabaseError as error:
            # Nothing in the index can be in the way of a message that is not in it yet.
            if is_damage(error) or isinstance(error.__cause__, sqlite3.IntegrityError):
                with suppress(DatabaseError), self._file.transaction() as database:
                    mark_index(database)
            raise
        self._pending = max(self._pending - indexed, 0)
        return more

    def _indexed(self, database: sqlite3.Connection) -> tuple[int, bool]:
        try:
            with transaction(database):
                return self._indexer.some_pending(database)
        except BaseException:  # before anybody else writes
            self._indexer.forget()
            raise
