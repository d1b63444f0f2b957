"""Is the archive whole? Asked of SQLite, of the messages, and by the tool's own queries."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Final

from hermes_builtin.sessions._model import EVERYBODY, ROLES
from hermes_builtin.sessions._query import Query, Term
from hermes_builtin.sessions.archive import Problem, Progress, SearchOptions
from hermes_builtin.sessions.sqlite._care import index_is_marked, totals_of
from hermes_builtin.sessions.sqlite._connections import Connections
from hermes_builtin.sessions.sqlite._index import Index
from hermes_builtin.sessions.sqlite._indexing import indexed_words
from hermes_builtin.sessions.sqlite._schema import bounds, session_of
from hermes_builtin.sessions.sqlite._search import Search
from hermes_builtin.sessions.sqlite._sessions import Sessions
from hermes_builtin.sessions.sqlite._writing import checksum
from hermes_core.errors import DatabaseError

_TABLES: Final = ("archive_sessions", "archive_messages", "archive_imports", "archive_meta")
_STEP: Final = 500
_MOST_NAMED: Final = 20
_SEARCHED: Final = 20


def check(connections: Connections, progress: Progress | None = None) -> list[Problem]:
    """What is wrong; nothing if all is well."""
    if not connections.path.exists():
        return []
    try:
        with connections.reading() as database:
            problems = list(_tables(database))
            if not problems:
                problems += _whole_file(database)
        problems += _index(connections)
        with connections.reading() as database:
            problems += _messages(database, progress)
            problems += _sessions(database)
            problems += _searches(database)
    except DatabaseError as error:
        problems = [Problem(error.what)]
    return _shortened(problems)


def _tables(database: sqlite3.Connection) -> Iterator[Problem]:
    for table in _TABLES:
        for (line,) in database.execute(f"PRAGMA integrity_check({table})"):
            if line != "ok":
                yield Problem(f"{table}: {line}")


def _whole_file(database: sqlite3.Connection) -> Iterator[Problem]:
    """What is wrong outside of our tables is in the index, which can be made anew."""
    for (line,) in database.execute("PRAGMA integrity_check"):
        if line != "ok":
            yield Problem(f"index: {line}", index_only=True)


def _index(connections: Connections) -> Iterator[Problem]:
    try:
        with connections.writing() as database:
            if index_is_marked(database):
                yield Problem("index: messages are missing in it", index_only=True)
            database.execute("INSERT INTO archive_index (archive_index) VALUES ('integrity-check')")
    except DatabaseError as error:
        yield Problem(f"index: {error.what}", index_only=True)


def _messages(database: sqlite3.Connection, progress: Progress | None) -> Iterator[Problem]:
    """Whether each message is what was stored, and can be found."""
    total = database.execute("SELECT count(*) FROM archive_messages").fetchone()[0]
    index = Index(database)
    after, done = -1, 0
    while rows := database.execute(
        "SELECT id, checksum, content, extra FROM archive_messages WHERE id > ?"
        " ORDER BY id LIMIT ?",
        (after, _STEP),
    ).fetchall():
        for number, stored, content, extra in rows:
            if stored != checksum(content, extra):
                yield Problem(f"message {number}: its text is not what was stored")
                continue
            found = indexed_words(content, extra)
            if found and not index.within(f'"{found[0]}"', number, number, 1):
                yield Problem(f"index: message {number} is missing in it", index_only=True)
        after = rows[-1][0]
        done += len(rows)
        if progress is not None:
            progress(done, total)


def _sessions(database: sqlite3.Connection) -> Iterator[Problem]:
    counts: dict[int, int] = {}
    for (number,) in database.execute("SELECT id FROM archive_messages"):
        counts[session_of(number)] = counts.get(session_of(number), 0) + 1
    for number, name, messages in database.execute(
        "SELECT number, id, messages FROM archive_sessions"
    ):
        there = counts.pop(number, 0)
        if there != messages:
            yield Problem(f"session {name}: {there} messages are there, {messages} were stored")
    for number, there in counts.items():
        yield Problem(f"{there} messages belong to session number {number}, which is not there")


def _searches(database: sqlite3.Connection) -> Iterator[Problem]:
    """The tool's own queries, for words that are there."""
    for session in list(Sessions(database).newest(EVERYBODY, _SEARCHED)):
        row = database.execute(
            "SELECT id, content, extra FROM archive_messages WHERE id >= ? ORDER BY id LIMIT 1",
            (bounds(session.number)[0],),
        ).fetchone()
        found = indexed_words(row[1], row[2]) if row else []
        if not found:
            continue
        options = SearchOptions(EVERYBODY, frozenset(ROLES), limit=1, hidden=True)
        answer = Search(database, Query((Term(found[0]),)), options, totals_of(database)).found()
        if not answer.hits:
            yield Problem(f"a search for {found[0]!r} finds nothing", index_only=True)


def _shortened(problems: list[Problem]) -> list[Problem]:
    if len(problems) <= _MOST_NAMED:
        return problems
    rest = problems[_MOST_NAMED:]
    only = all(problem.index_only for problem in rest)
    return [*problems[:_MOST_NAMED], Problem(f"and {len(rest):,} more", index_only=only)]
