"""`sessions check` and `sessions repair`: finds damage, and saves what can be read."""

from __future__ import annotations

import json
import os
import shlex
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from hermes_builtin.sessions.archive import (
    EVERYBODY,
    ROLES,
    ArchiveProblem,
    Progress,
    SearchOptions,
    facts_of,
    indexed_words,
)
from hermes_builtin.sessions.numbers import (
    MOST_MESSAGES,
    ROLE_BITS,
    SESSION_BITS,
    bounds,
    session_of,
)
from hermes_builtin.sessions.query import Query, Term
from hermes_builtin.sessions.search import Search
from hermes_builtin.sessions.sqlite.database import ARCHIVE, archive_file
from hermes_builtin.sessions.sqlite.maintenance import copy_of, index_is_marked, rebuild, totals_of
from hermes_builtin.sessions.sqlite.search import SqliteSource
from hermes_builtin.sessions.sqlite.tables import Sessions, checksum, session_checksum
from hermes_core.errors import DatabaseError
from hermes_core.storage.files import sync_folder
from hermes_core.storage.sqlite import SqliteFile
from hermes_core.storage.sqlite_connection import (
    is_damage,
    is_not_a_database,
    is_unwritable,
    open_database,
)

# -- Is the archive whole? Asked of SQLite, of the messages, and by the tool's own queries ------

_TABLES: Final = ("archive_sessions", "archive_messages", "archive_imports", "archive_meta")
_STEP: Final = 500
_MOST_NAMED: Final = 20
_SEARCHED: Final = 20
# FTS5 limits the depth of an expression.
_MOST_WORDS: Final = 200


def check(
    file: SqliteFile,
    progress: Progress | None = None,
    newest: int | None = None,
    *,
    is_behind: bool = False,
) -> list[ArchiveProblem]:
    """What is wrong; nothing if all is well. ``newest``: see `Archive.check`.

    ``is_behind``: messages are not in the index, because nothing can be written. That is no
    damage.
    """
    if not file.path.exists():
        return []
    with file.reading():
        pass  # raises if it can't even be opened: there is nothing to look at
    problems = _step(file, _tables, index_only=False)
    problems += _step(file, _messages, index_only=False)
    problems += _step(file, _sessions, index_only=False)
    if not problems:
        # Only if the messages are whole: otherwise every problem of the index is a consequence, and
        # the repair is a salvage in any case.
        problems += _step(file, _whole_file, index_only=True)
        problems += _index(file)
    if not problems and not is_behind:
        look = partial(_all_words, progress=progress, newest=newest)
        problems += _step(file, look, index_only=True)
        problems += _step(file, _searches, index_only=True)
    return _shortened(problems)


def _step(
    file: SqliteFile,
    look: Callable[[sqlite3.Connection], Iterator[ArchiveProblem]],
    *,
    index_only: bool,
) -> list[ArchiveProblem]:
    found: list[ArchiveProblem] = []
    try:
        with file.reading() as database:
            for problem in look(database):
                found.append(problem)
                if len(found) > 10 * _MOST_NAMED:
                    break
    except DatabaseError as error:
        found.append(ArchiveProblem(error.what, index_only))
    except (TypeError, ValueError, OverflowError) as error:  # a value that was never stored
        found.append(ArchiveProblem(f"holds what was never stored: {error}", index_only))
    return found


def _tables(database: sqlite3.Connection) -> Iterator[ArchiveProblem]:
    for table in _TABLES:
        # Table by table: `integrity_check` of the whole file stops after 100 problems, which may
        # all be in the index.
        for (line,) in database.execute(f"PRAGMA integrity_check({table})"):
            if line != "ok":
                yield ArchiveProblem(f"{table}: {line}")


def _whole_file(database: sqlite3.Connection) -> Iterator[ArchiveProblem]:
    """What is wrong outside of our tables is in the index, which can be rebuilt."""
    for (line,) in database.execute("PRAGMA integrity_check"):
        if line != "ok":
            yield ArchiveProblem(f"index: {line}", index_only=True)


def _index(file: SqliteFile) -> Iterator[ArchiveProblem]:
    try:
        with file.transaction() as database:
            if index_is_marked(database):
                yield ArchiveProblem("index: messages are missing in it", index_only=True)
            # FTS5's own check; it needs a transaction because it is written as an INSERT.
            database.execute("INSERT INTO archive_index (archive_index) VALUES ('integrity-check')")
    except DatabaseError as error:
        if not is_unwritable(error):
            yield ArchiveProblem(f"index: {error.what}", index_only=True)


def pages(
    database: sqlite3.Connection, columns: str, after: int = -1
) -> Iterator[list[tuple[Any, ...]]]:
    """The messages after a number, some at a time, in the order of their numbers.

    Raises:
        ValueError: They are not in order, which a damaged page may make of them.
    """
    while rows := database.execute(
        f"SELECT id, {columns} FROM archive_messages WHERE id > ? ORDER BY id LIMIT ?",  # noqa: S608
        (after, _STEP),
    ).fetchall():
        if rows[-1][0] <= after:
            raise ValueError("messages are not in order")
        yield rows
        after = rows[-1][0]


def _messages(database: sqlite3.Connection) -> Iterator[ArchiveProblem]:
    """Whether each message is what was stored."""
    for rows in pages(database, "at, size, checksum, content, extra"):
        for number, at, size, stored, content, extra in rows:
            # SQLite notices damage to its structure, not to the text itself. The checksum does.
            if stored != checksum(number, at, content, extra) or size != len(content):
                yield ArchiveProblem(f"message {number}: it is not what was stored")


def _sessions(database: sqlite3.Connection) -> Iterator[ArchiveProblem]:
    counts: dict[int, int] = {}
    for rows in pages(database, "1"):
        for number, _ in rows:
            counts[session_of(number)] = counts.get(session_of(number), 0) + 1
    for number, messages, stored, types, *facts in database.execute(
        "SELECT number, messages, checksum, typeof(platform) || typeof(name), id, source, user_id,"
        " chat_id, profile, title, parent, started FROM archive_sessions"
    ):
        there = counts.pop(number, 0)
        # The checksum is that of 0.1.0, without these two. An empty blob in place of an empty text
        # hides the conversation from its owner.
        if types != "texttext" or stored != session_checksum(*facts):
            yield ArchiveProblem(f"session {facts[0]}: what is said of it is not what was stored")
        if there != messages:
            yield ArchiveProblem(
                f"session {facts[0]}: {there} messages are there, {messages} were stored"
            )
    for number, there in counts.items():
        yield ArchiveProblem(
            f"{there} messages belong to session number {number}, which is not there"
        )


def _all_words(
    database: sqlite3.Connection, *, progress: Progress | None, newest: int | None
) -> Iterator[ArchiveProblem]:
    """Whether each message can be found by each of its words; by far the longest step."""
    source = SqliteSource(database)
    total = database.execute("SELECT count(*) FROM archive_messages").fetchone()[0]
    after = -1
    if newest is not None and newest < total:
        query = "SELECT id FROM archive_messages ORDER BY id DESC LIMIT 1 OFFSET ?"
        (after,) = database.execute(query, (newest,)).fetchone()
        total = newest
    done = 0
    for rows in pages(database, "content, extra", after):
        if progress is not None:
            progress(done, total)
        done += len(rows)
        for number, content, extra in rows:
            words = list(dict.fromkeys(indexed_words(content, extra)))
            for at in range(0, len(words), _MOST_WORDS):
                if not source.has(number, words[at : at + _MOST_WORDS]):
                    yield ArchiveProblem(
                        f"index: message {number} is missing in it", index_only=True
                    )
                    break


def _searches(database: sqlite3.Connection) -> Iterator[ArchiveProblem]:
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
        query = Query((Term(found[0]),))
        source = SqliteSource.of(database, query, options)
        answer = Search(source, query, options, totals_of(database)).found()
        if not answer.hits:
            yield ArchiveProblem(f"a search for {found[0]!r} finds nothing", index_only=True)


def _shortened(problems: list[ArchiveProblem]) -> list[ArchiveProblem]:
    if len(problems) <= _MOST_NAMED:
        return problems
    rest = problems[_MOST_NAMED:]
    only = all(problem.index_only for problem in rest)
    return [*problems[:_MOST_NAMED], ArchiveProblem(f"and {len(rest):,} more", index_only=only)]


# -- Making a damaged archive whole again, after a copy that was verified -----------------------

# Where the file no longer says how many there are: so many numbers are tried, which takes seconds.
_MOST_SESSIONS: Final = 100_000
_UNKNOWN_PLACES: Final = 4096


def repair(file: SqliteFile, progress: Progress | None = None) -> dict[str, Any]:
    """Make it whole again; says what was done."""
    if not _can_be_opened(file):
        aside = _set_aside(file)
        recover = recover_command(aside)
        return {"problems": 1, "copy": str(aside), "lost": None, "recover": recover}
    problems = check(file)
    if not problems:
        return {"problems": 0, "copy": "", "lost": 0, "recover": ""}
    done: dict[str, Any] = {"problems": len(problems), "recover": ""}
    # Before anything is changed. If the repair fails, or finds less than SQLite's shell would,
    # everything is still there.
    copy = _verified_copy(file)
    done["copy"] = str(copy)
    index_only = all(problem.index_only for problem in problems)
    if index_only and _rebuilt(file, progress):
        done["lost"] = 0
    else:
        done["lost"], is_complete = _salvage(file, progress)
        # SQLite reaches no rows below a damaged inner page. Its shell reads the leaves themselves.
        done["recover"] = "" if is_complete else recover_command(copy)
    # Not trusted: the result is checked like any archive.
    left = check(file)
    if left:
        raise DatabaseError(
            f"could not be repaired: {left[0].what}",
            where=str(file.path),
            hint=f"the copy is {done['copy']}",
        )
    return done


def recover_command(damaged: Path) -> str:
    """The command of SQLite's shell that may read more of a damaged file than we can."""
    source, target = (shlex.quote(str(each)) for each in (damaged, f"{damaged}.recovered"))
    return f"sqlite3 {source} .recover | sqlite3 {target}"


def _can_be_opened(file: SqliteFile) -> bool:
    """Whether there is anything left that SQLite takes for a database.

    Raises:
        ForeignDatabase: There is, and it is somebody else's.
        DatabaseError: It is not damaged, or not a database at all.
    """
    try:
        with file.reading():
            return True
    except DatabaseError as error:
        if not is_damage(error) or is_not_a_database(error):
            raise
        return False


def _set_aside(file: SqliteFile) -> Path:
    """Rename a file that can't be read, or that is replaced, as it is."""
    file.close()
    path = file.path
    aside = copy_of(path, "damaged")
    # SQLite finds a WAL by the name of its database. The database last: a new one must not find
    # the old WAL.
    for suffix in ("-wal", "-shm", ""):
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).replace(aside.with_name(aside.name + suffix))
    return aside


def _rebuilt(file: SqliteFile, progress: Progress | None) -> bool:
    """Rebuild the index in place; return False if the messages are damaged too."""
    try:
        rebuild(file, progress)
    except DatabaseError as error:
        if is_damage(error):
            return False
        raise
    return True


def _verified_copy(file: SqliteFile) -> Path:
    """A copy made by SQLite, with as much of the original as can be read."""
    path = copy_of(file.path, time.strftime("%Y%m%d-%H%M%S.copy"))
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    with file.reading() as original, closing(sqlite3.connect(path)) as copy:
        copy.text_factory = original.text_factory
        # SQLite's own copy includes the WAL; copying the file would miss it.
        original.backup(copy)
        for what in ("archive_messages", "archive_sessions"):
            if _count(original, what) != _count(copy, what):
                todo = "run it again; nothing was changed"
                raise DatabaseError("the copy is not complete", where=str(path), hint=todo)
    return path


def _count(database: sqlite3.Connection, table: str) -> int | None:
    """How many rows a table has; None if that can't be read."""
    with suppress(sqlite3.Error):
        return int(database.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608
    return None


def _salvage(file: SqliteFile, progress: Progress | None) -> tuple[int, bool]:
    """Move all that can be read into a new file, and put it in place.

    Returns how many messages are lost, and whether nothing is, neither messages nor sessions.
    """
    aside = copy_of(file.path, "repaired")
    with file.reading() as original, closing(open_database(aside, ARCHIVE)) as new:
        new.execute("BEGIN IMMEDIATE")
        _save_sessions(original, new)
        _save_messages(original, new)
        for origin, session, position in _imports(original):
            new.execute(
                "INSERT OR IGNORE INTO archive_imports VALUES (?, ?, ?)",
                (origin, session, position),
            )
        with suppress(sqlite3.Error):
            turns = original.execute("SELECT key, at, ids FROM archive_turns").fetchall()
            new.executemany("INSERT OR IGNORE INTO archive_turns VALUES (?, ?, ?)", turns)
        lost, nameless = _recount(new)
        new.execute("COMMIT")
    # Indexed before it takes the place of the old one: a crash leaves the damaged archive as it
    # was.
    with closing(archive_file(aside)) as fresh:
        rebuild(fresh, progress)
    _swap(file, aside)
    return lost, not (lost or nameless)


def _insert(new: sqlite3.Connection, table: str, values: tuple[Any, ...]) -> None:
    """Insert a row unless it is there; one that does not fit is left out."""
    marks = ", ".join("?" * len(values))
    with suppress(sqlite3.Error):
        new.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", values)  # noqa: S608


def _save_sessions(original: sqlite3.Connection, new: sqlite3.Connection) -> None:
    """Copy the sessions."""
    for row in _rows_of(original, "archive_sessions", range(1, _highest(original) + 1)):
        number, *texts = row[:8]
        times = [each if isinstance(each, int | float) else 0.0 for each in row[8:11]]
        facts = [each if isinstance(each, str) else "" for each in texts]
        messages, following = (each if isinstance(each, int) else 0 for each in row[11:13])
        # New checksums for what could be read: the old ones may be damaged themselves.
        check = session_checksum(*facts, times[0])
        # Whose it is must not change: without the last columns, the source is the platform.
        owner = [each if isinstance(each, str) else "" for each in (*row[14:16], "", "")[:2]]
        values = (number, *facts, *times, messages, following, check, *owner)
        _insert(new, "archive_sessions", values)


def _highest(database: sqlite3.Connection) -> int:
    """The largest number that a session can have."""
    for query in (
        "SELECT seq FROM sqlite_sequence WHERE name = 'archive_sessions'",
        "SELECT max(number) FROM archive_sessions",
        f"SELECT max(id) >> {SESSION_BITS} FROM archive_messages",  # noqa: S608
    ):
        with suppress(sqlite3.Error):
            row = database.execute(query).fetchone()
            if row and isinstance(row[0], int) and 0 < row[0] < _MOST_SESSIONS:
                return row[0]
    return _MOST_SESSIONS


def _save_messages(original: sqlite3.Connection, new: sqlite3.Connection) -> None:
    """Copy the messages. One that is not what was stored stays, and is marked as damaged."""
    for session in range(1, _highest(original) + 1):
        if _is_complete(new, session):
            continue
        low, _ = bounds(session)
        places = range(low, low + (_places(original, session) << ROLE_BITS))
        for number, at, _, stored, content, extra in _rows_of(original, "archive_messages", places):
            if not isinstance(content, str) or not isinstance(at, int | float):
                continue
            if stored != checksum(number, at, content, extra):
                # Better than nothing: a person or a model can still read most of it, and sees that
                # it is damaged.
                extra = json.dumps({**facts_of(extra), "damaged": True}, ensure_ascii=False)  # noqa: PLW2901
            check = checksum(number, at, content, extra)
            _insert(new, "archive_messages", (number, at, len(content), check, content, extra))


def _is_complete(new: sqlite3.Connection, session: int) -> bool:
    """Whether a session has all the messages that it should have."""
    row = new.execute(
        "SELECT messages = (SELECT count(*) FROM archive_messages WHERE id BETWEEN ? AND ?)"
        " FROM archive_sessions WHERE number = ?",
        (*bounds(session), session),
    ).fetchone()
    return bool(row and row[0])


def _places(database: sqlite3.Connection, session: int) -> int:
    """How many messages a session can have had."""
    with suppress(sqlite3.Error):
        row = database.execute(
            "SELECT next FROM archive_sessions WHERE number = ?", (session,)
        ).fetchone()
        if row and isinstance(row[0], int) and 0 <= row[0] <= MOST_MESSAGES:
            return row[0]
    return _UNKNOWN_PLACES


def _rows_of(database: sqlite3.Connection, table: str, numbers: range) -> Iterator[tuple[Any, ...]]:
    """The rows with these numbers that can be read: all at once, or else one by one."""
    if not numbers:
        return
    # For one row alone the next one is not looked at, which may be on a damaged page.
    condition = "rowid = ?" if len(numbers) == 1 else "rowid BETWEEN ? AND ?"
    edges = (numbers[0],) if len(numbers) == 1 else (numbers[0], numbers[-1])
    try:
        rows = database.execute(f"SELECT * FROM {table} WHERE {condition}", edges).fetchall()  # noqa: S608
    except sqlite3.Error:
        if len(numbers) == 1:
            return
        # A range that fails is halved until the damaged rows stand alone: few reads if the damage
        # is small.
        middle = len(numbers) // 2
        yield from _rows_of(database, table, numbers[:middle])
        yield from _rows_of(database, table, numbers[middle:])
    else:
        yield from (row for row in rows if row[0] in numbers)


def _imports(database: sqlite3.Connection) -> list[tuple[str, str, int]]:
    with suppress(sqlite3.Error):
        return database.execute("SELECT origin, session, position FROM archive_imports").fetchall()
    return []


def _recount(database: sqlite3.Connection) -> tuple[int, int]:
    """Correct the number of messages in each session.

    Messages whose session is lost get a new one. Returns how many messages are lost, and how many
    sessions.
    """
    expected, saved = database.execute(
        "SELECT (SELECT total(messages) FROM archive_sessions),"
        " (SELECT count(*) FROM archive_messages)"
    ).fetchone()
    nameless = database.execute(
        f"SELECT id >> {SESSION_BITS} AS session, min(at), max(at) FROM archive_messages"  # noqa: S608
        " WHERE session NOT IN (SELECT number FROM archive_sessions) GROUP BY session"
    ).fetchall()
    for number, begin, end in nameless:
        facts = (f"recovered-{number}", "", "", "", "", "", "")
        database.execute(
            f"INSERT INTO archive_sessions VALUES ({', '.join('?' * 16)})",  # noqa: S608
            (number, *facts, begin, None, end, 0, 0, session_checksum(*facts, begin), "", ""),
        )
    # A range of the primary key: looking at all messages for each session would take for ever.
    of_session = f"id BETWEEN number << {SESSION_BITS} AND ((number + 1) << {SESSION_BITS}) - 1"
    database.execute(
        "UPDATE archive_sessions SET messages = (SELECT count(*) FROM archive_messages"  # noqa: S608
        f" WHERE {of_session}), next = max(next, coalesce((SELECT"
        f" ((max(id) - (number << {SESSION_BITS})) >> {ROLE_BITS}) + 1 FROM archive_messages"
        f" WHERE {of_session}), 0))"
    )
    return max(int(expected) - int(saved), 0), len(nameless)


def _swap(file: SqliteFile, aside: Path) -> None:
    path = file.path
    file.close()
    with closing(sqlite3.connect(path, timeout=1)) as database:
        try:
            # Leaving WAL mode needs an exclusive lock, so it fails while another process has the
            # file open.
            alone = database.execute("PRAGMA journal_mode = DELETE").fetchone()[0] == "delete"
        except sqlite3.OperationalError:
            alone = False
        except sqlite3.DatabaseError:  # too damaged for that; nobody else can use it either
            alone = True
    if not alone:
        raise DatabaseError(
            "is in use by another program",
            where=str(path),
            hint=f"end it and try again; what could be saved is in {aside}",
        )
    _set_aside(file)
    aside.rename(path)
    with suppress(OSError):
        sync_folder(path.parent)
