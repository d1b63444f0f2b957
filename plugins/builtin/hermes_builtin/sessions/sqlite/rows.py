"""Rows of the archive's file as they are, for a copy in another storage."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

from hermes_builtin.sessions.archive import COPIED, INCOMPLETE, Message, Session, StoredTurn
from hermes_builtin.sessions.numbers import OTHER, message_id, place_of, role_code
from hermes_builtin.sessions.sqlite.database import archive_file
from hermes_builtin.sessions.sqlite.tables import checksum, session_checksum
from hermes_core.storage.migration import (
    Tables,
    freeze_file,
    incomplete_copy,
    thaw_file,
    why_file_is_frozen,
)

# A search puts messages into the index, which changes another column of their session.
_TABLES: Final[Tables] = {
    "archive_messages": "",
    "archive_sessions": "messages, ended, title",
    "archive_imports": "",
}
#: Of a file that is a copy which is not complete, the id of the migration.


class SqliteRows:
    """The rows of one file; see `ArchiveRows`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = archive_file(path)

    def restore(self, session: Session, messages: Sequence[Message]) -> None:
        """Store a session as it is, and more messages of it at their places."""
        with self._file.transaction() as database:
            number = self._number(database, session)
            is_copy = _next_of(database, number) == _copied_of(database, number)
            stored = _insert(database, number, messages)
            facts = (session.title, session.parent, session.started)
            check = session_checksum(*session[1:6], *facts)
            following = max((place_of(each.id) + 1 for each in messages), default=0)
            database.execute(
                "UPDATE archive_sessions SET title = ?, parent = ?, started = ?, ended = ?,"
                " active = ?, checksum = ?, messages = messages + ?, next = max(next, ?)"
                " WHERE number = ?",
                (*facts, session.ended, session.active, check, stored, following, number),
            )
            if is_copy:
                row = (f"{COPIED}{number}", str(_next_of(database, number)))
                database.execute("INSERT OR REPLACE INTO archive_meta VALUES (?, ?)", row)

    def copied(self) -> dict[int, int]:
        """Up to which place the sessions are a copy and nothing else, by their numbers."""
        query = "SELECT substr(key, ?), value FROM archive_meta WHERE key GLOB ?"
        with self._file.reading() as database:
            rows = database.execute(query, (len(COPIED) + 1, f"{COPIED}*"))
            return {int(number): int(place) for number, place in rows}

    def forget_copied(self) -> None:
        """Forget which sessions are a copy: from now on, all of this is as good as any other."""
        with self._file.transaction() as database:
            database.execute("DELETE FROM archive_meta WHERE key GLOB ?", (f"{COPIED}*",))

    def turns(self) -> Iterator[list[StoredTurn]]:
        """The turns whose keys are known, some at a time."""
        with self._file.reading() as database:
            query = "SELECT 1 FROM sqlite_master WHERE name = 'archive_turns'"
            if database.execute(query).fetchone() is None:  # nobody has written to it lately
                return
            rows = database.execute("SELECT key, at, ids FROM archive_turns").fetchall()
        yield [StoredTurn(UUID(key), at, json.loads(ids)) for key, at, ids in rows]

    def restore_turns(self, turns: Iterable[StoredTurn]) -> None:
        """Remember the keys of turns, so that the spool does not store them again."""
        rows = [(each.key.hex, each.at, json.dumps(each.ids)) for each in turns]
        with self._file.transaction() as database:
            database.executemany("INSERT OR IGNORE INTO archive_turns VALUES (?, ?, ?)", rows)

    @staticmethod
    def _number(database: sqlite3.Connection, session: Session) -> int:
        query = "SELECT number FROM archive_sessions WHERE id = ?"
        row = database.execute(query, (session.id,)).fetchone()
        if row is not None:
            return int(row[0])
        made = database.execute(
            "INSERT INTO archive_sessions (id, source, user_id, chat_id, profile, title, parent,"
            " started, ended, active, messages, next, checksum, platform, name)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 0, ?, ?)",
            (*session[1:11], session.platform, session.name),
        )
        return int(made.lastrowid or 0)

    def imports(self) -> list[tuple[str, str, int]]:
        """Up to where sessions of others were taken over: origin, session, position."""
        query = "SELECT origin, session, position FROM archive_imports ORDER BY 1, 2"
        with self._file.reading() as database:
            return database.execute(query).fetchall()

    def restore_imports(self, rows: Iterable[tuple[str, str, int]]) -> None:
        """Store these positions."""
        with self._file.transaction() as database:
            database.executemany("INSERT OR REPLACE INTO archive_imports VALUES (?, ?, ?)", rows)

    def marks(self) -> list[str]:
        """What was said once."""
        query = "SELECT key FROM archive_meta WHERE value = 'yes' AND key != ? ORDER BY key"
        with self._file.reading() as database:
            return [key for (key,) in database.execute(query, (INCOMPLETE,))]

    def set_marks(self, added: Iterable[str] = (), removed: Iterable[str] = ()) -> None:
        """Note that something was said once, or that it was not."""
        with self._file.transaction() as database:
            rows = [(each,) for each in added]
            database.executemany("INSERT OR REPLACE INTO archive_meta VALUES (?, 'yes')", rows)
            gone = [(each,) for each in removed]
            database.executemany("DELETE FROM archive_meta WHERE key = ?", gone)

    def freeze(self, why: str, copy: str = "") -> None:
        """Refuse changes from now on, of all processes."""
        with self._file.transaction() as database:
            self._refuse_other(database, copy)
            freeze_file(database, _TABLES, why, copy)
            if copy:
                row = (INCOMPLETE, copy)
                database.execute("INSERT OR REPLACE INTO archive_meta VALUES (?, ?)", row)

    def thaw(self, copy: str = "") -> None:
        """Allow changes again."""
        if self._path.exists():
            with self._file.transaction() as database:
                self._refuse_other(database, copy)
                thaw_file(database, _TABLES)
                database.execute("DELETE FROM archive_meta WHERE key = ?", (INCOMPLETE,))

    def _refuse_other(self, database: sqlite3.Connection, copy: str) -> None:
        if _copier(database) not in ("", copy):
            raise incomplete_copy(str(self._path))

    def copier(self) -> str:
        """The id of the migration that copies to here; "" if none does."""
        if not self._path.exists():
            return ""
        with self._file.reading() as database:
            return _copier(database)

    def copy_as(self, migration: str) -> None:
        """Store to what is frozen, for the migration with this id. "" ends that."""
        self._file.copy_as(migration)

    def frozen(self) -> str:
        """Why changes are refused; "" if they are not."""
        if not self._path.exists():
            return ""
        with self._file.reading() as database:
            return why_file_is_frozen(database, "archive_messages")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def is_known_turn(database: sqlite3.Connection, key: UUID) -> bool:
    """Whether a turn was stored under this key, where these messages were before."""
    query = "SELECT 1 FROM archive_turns WHERE key = ?"
    return database.execute(query, (key.hex,)).fetchone() is not None


def _copier(database: sqlite3.Connection) -> str:
    """The id of the migration that copies to a file."""
    query = "SELECT 1 FROM sqlite_master WHERE name = 'archive_meta'"
    if database.execute(query).fetchone() is None:
        return ""
    # Of a copy by version 0.2.0, nobody knows whose it is: it counts as content like any other.
    query = "SELECT value FROM archive_meta WHERE key = ? AND value != 'yes'"
    row = database.execute(query, (INCOMPLETE,)).fetchone()
    return str(row[0]) if row else ""


def _next_of(database: sqlite3.Connection, number: int) -> int:
    """The place of the next message of a session."""
    query = "SELECT next FROM archive_sessions WHERE number = ?"
    return int(database.execute(query, (number,)).fetchone()[0])


def _copied_of(database: sqlite3.Connection, number: int) -> int:
    """Up to which place a session is a copy; 0 for one that was just begun."""
    query = "SELECT value FROM archive_meta WHERE key = ?"
    row = database.execute(query, (f"{COPIED}{number}",)).fetchone()
    return int(row[0]) if row else 0


def _insert(database: sqlite3.Connection, session: int, messages: Sequence[Message]) -> int:
    """Insert messages that are not there yet; returns how many."""
    rows = []
    for each in messages:
        extra = dict(each.extra)
        if role_code(each.role) == OTHER:
            extra["role"] = each.role
        text = json.dumps(extra, ensure_ascii=False) if extra else None
        number = message_id(session, place_of(each.id), each.role)
        check = checksum(number, each.at, each.content, text)
        rows.append((number, each.at, len(each.content), check, each.content, text))
    if not rows:
        return 0
    insert = "INSERT OR IGNORE INTO archive_messages VALUES (?, ?, ?, ?, ?, ?)"
    stored = database.executemany(insert, rows).rowcount
    # They enter the index when it is quiet, or before the first search.
    database.execute("INSERT OR IGNORE INTO archive_unindexed VALUES (?, ?)", (session, rows[0][0]))
    return stored
