"""Is the archive whole? Asked of SQLite, of the messages, and by the tool's own queries."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from typing import Any, Final

from hermes_builtin.sessions._model import EVERYBODY, ROLES
from hermes_builtin.sessions._query import Query, Term
from hermes_builtin.sessions.archive import Problem, Progress, SearchOptions
from hermes_builtin.sessions.sqlite._care import index_is_marked, totals_of
from hermes_builtin.sessions.sqlite._connections import Connections
from hermes_builtin.sessions.sqlite._index import Index, quoted
from hermes_builtin.sessions.sqlite._indexing import indexed_words
from hermes_builtin.sessions.sqlite._schema import bounds, session_of
from hermes_builtin.sessions.sqlite._search import Search
from hermes_builtin.sessions.sqlite._sessions import Sessions
from hermes_builtin.sessions.sqlite._writing import checksum, session_checksum
from hermes_core.errors import DatabaseError

_TABLES: Final = ("archive_sessions", "archive_messages", "archive_imports", "archive_meta")
_STEP: Final = 500
_MOST_NAMED: Final = 20
_SEARCHED: Final = 20
_MOST_WORDS: Final = 200


def check(connections: Connections, progress: Progress | None = None) -> list[Problem]:
    """What is wrong; nothing if all is well."""
    if not connections.path.exists():
        return []
    problems = _step(connections, _tables, index_only=False)
    problems += _step(connections, lambda database: _messages(database, progress), index_only=False)
    problems += _step(connections, _sessions, index_only=False)
    if not problems:
        problems += _step(connections, _whole_file, index_only=True)
        problems += _index(connections)
        problems += _step(connections, _all_words, index_only=True)
        problems += _step(connections, _searches, index_only=True)
    return _shortened(problems)


def _step(
    connections: Connections,
    look: Callable[[sqlite3.Connection], Iterator[Problem]],
    *,
    index_only: bool,
) -> list[Problem]:
    found: list[Problem] = []
    try:
        with connections.reading() as database:
            for problem in look(database):
                found.append(problem)
                if len(found) > 10 * _MOST_NAMED:
                    break
    except DatabaseError as error:
        found.append(Problem(error.what, index_only))
    except (TypeError, ValueError, OverflowError) as error:  # a value that was never stored
        found.append(Problem(f"holds what was never stored: {error}", index_only))
    return found


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


def pages(database: sqlite3.Connection, columns: str) -> Iterator[list[tuple[Any, ...]]]:
    """The messages, some at a time, in the order of their numbers.

    Raises:
        ValueError: They are not in order, which a damaged page may make of them.
    """
    after = -1
    while rows := database.execute(
        f"SELECT id, {columns} FROM archive_messages WHERE id > ? ORDER BY id LIMIT ?",  # noqa: S608
        (after, _STEP),
    ).fetchall():
        if rows[-1][0] <= after:
            raise ValueError("messages are not in order")
        yield rows
        after = rows[-1][0]


def _messages(database: sqlite3.Connection, progress: Progress | None) -> Iterator[Problem]:
    """Whether each message is what was stored."""
    total = database.execute("SELECT count(*) FROM archive_messages").fetchone()[0]
    done = 0
    for rows in pages(database, "at, size, checksum, content, extra"):
        for number, at, size, stored, content, extra in rows:
            if stored != checksum(number, at, content, extra) or size != len(content):
                yield Problem(f"message {number}: it is not what was stored")
        done += len(rows)
        if progress is not None:
            progress(done, total)


def _sessions(database: sqlite3.Connection) -> Iterator[Problem]:
    counts: dict[int, int] = {}
    for rows in pages(database, "1"):
        for number, _ in rows:
            counts[session_of(number)] = counts.get(session_of(number), 0) + 1
    for number, messages, stored, *facts in database.execute(
        "SELECT number, messages, checksum, id, source, user_id, chat_id, profile, title, parent,"
        " started FROM archive_sessions"
    ):
        there = counts.pop(number, 0)
        if stored != session_checksum(*facts):
            yield Problem(f"session {facts[0]}: what is said of it is not what was stored")
        if there != messages:
            yield Problem(f"session {facts[0]}: {there} messages are there, {messages} were stored")
    for number, there in counts.items():
        yield Problem(f"{there} messages belong to session number {number}, which is not there")


def _all_words(database: sqlite3.Connection) -> Iterator[Problem]:
    """Whether each message can be found by each of its words."""
    index = Index(database)
    for rows in pages(database, "content, extra"):
        for number, content, extra in rows:
            words = list(dict.fromkeys(indexed_words(content, extra)))
            for at in range(0, len(words), _MOST_WORDS):
                every = quoted(words[at : at + _MOST_WORDS], " AND ")
                if not index.within(every, number, number, 1):
                    yield Problem(f"index: message {number} is missing in it", index_only=True)
                    break


def _searches(database: sqlite3.Connection) -> Iterator[Problem]:
    """The tool's own queries, for words that are there."""
    for session in list(Sessions(database).newest(EVERYBODY, _SEARCHED)):
        row = database.execute(
            "SELECT content, extra FROM archive_messages WHERE id BETWEEN ? AND ? LIMIT 1",
            bounds(session.number),
        ).fetchone()
        found = indexed_words(*row) if row else []
        if not found:
            continue
        options = SearchOptions(EVERYBODY, frozenset((*ROLES, "")), limit=1, hidden=True)
        answer = Search(database, Query((Term(found[0]),)), options, totals_of(database)).found()
        if not answer.hits:
            yield Problem(f"a search for {found[0]!r} finds nothing", index_only=True)


def _shortened(problems: list[Problem]) -> list[Problem]:
    if len(problems) <= _MOST_NAMED:
        return problems
    rest = problems[_MOST_NAMED:]
    only = all(problem.index_only for problem in rest)
    return [*problems[:_MOST_NAMED], Problem(f"and {len(rest):,} more", index_only=only)]
