"""``memories/history.db``: what it holds, and the one connection to it."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

from hermes_builtin.notes.entries import NotesError, split, text_hash
from hermes_core.errors import DatabaseError
from hermes_core.privacy.origin import ASSISTANT, PERSON
from hermes_core.storage.logger import SafeLogger
from hermes_core.storage.migration import why_file_is_frozen
from hermes_core.storage.sql import Connection
from hermes_core.storage.sqlite import SqliteFile
from hermes_core.storage.sqlite_connection import Schema

FILE_EDIT: Final = "file edit"
FOUND: Final = "found"

#: Where the words of those who change notes come from, unless it was judged. A file that was there
#: before us may have been written by another agent.
_BY_AUTHOR: Final = {"command": PERSON, FILE_EDIT: PERSON}


def _add_origins(database: sqlite3.Connection) -> None:
    """Keep where each note comes from, by its hash; for older notes, who made them says it.

    The version stays the same: a process of an older version goes on with this file. What it
    writes has no row, and counts as the assistant's.
    """
    database.execute("CREATE TABLE origins (hash TEXT PRIMARY KEY, origin TEXT NOT NULL)")
    try:
        changes = database.execute("SELECT who, action, after, entries FROM changes ORDER BY id")
        for who, action, after, seen in changes.fetchall():
            entries = split(after) if seen is None else json.loads(seen)
            origin = ASSISTANT if action == FOUND else _BY_AUTHOR.get(who, ASSISTANT)
            database.executemany(
                "INSERT OR IGNORE INTO origins VALUES (?, ?)",
                [(text_hash(entry), origin) for entry in entries],
            )
    except (ValueError, TypeError) as error:  # an odd row must not keep the history from opening
        logger.warning("notes: the origins of older notes are not known: %s", error)


logger = SafeLogger(logging.getLogger("hermes_builtin"), {})

_SCHEMA: Final = Schema(
    "the history",
    application_id=0x48504E31,  # "HPN1"
    migrations=(
        """
CREATE TABLE texts (id INTEGER PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE changes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    target TEXT NOT NULL,
    done INTEGER NOT NULL,
    inode INTEGER NOT NULL,
    at REAL NOT NULL,
    who TEXT NOT NULL,
    action TEXT NOT NULL,
    session TEXT NOT NULL,
    before INTEGER NOT NULL REFERENCES texts,
    after INTEGER NOT NULL REFERENCES texts,
    entries TEXT
);
CREATE TABLE allowed (hash TEXT PRIMARY KEY, at REAL NOT NULL);
CREATE TABLE blocked (
    id TEXT PRIMARY KEY, at REAL NOT NULL, target TEXT NOT NULL, text TEXT NOT NULL,
    reason TEXT NOT NULL
);
""",
        # One row for a change, written once: one commit instead of two.
        """
-- temporary: the file that had the new text; while it is there, the change was not made.
-- inode: the file's, to tell an appended text from a new file.
-- before: NULL if it is what the change before it left.
-- entries: what we saw in a text that somebody else wrote, as JSON.
CREATE TABLE noted (
    id INTEGER PRIMARY KEY,
    target TEXT NOT NULL,
    at REAL NOT NULL,
    who TEXT NOT NULL,
    action TEXT NOT NULL,
    session TEXT NOT NULL,
    temporary TEXT NOT NULL,
    inode INTEGER NOT NULL,
    before TEXT,
    after TEXT NOT NULL,
    entries TEXT
);
INSERT INTO noted
    SELECT changes.id, target, at, who, action, session, '', inode, old.text, new.text, entries
    FROM changes JOIN texts old ON old.id = before JOIN texts new ON new.id = after
    WHERE done = 1;
DROP TABLE changes;
DROP TABLE texts;
ALTER TABLE noted RENAME TO changes;
CREATE INDEX changes_of ON changes (target);
""",
    ),
    additions={"origins.hash": _add_origins},
)

Matches = Callable[[str], bool]

_UNTOUCHED: Final = "the notes themselves are untouched; move the file away to start with a new one"


class NotesDatabase(Protocol):
    """Where the history and the decisions are: in history.db, or in PostgreSQL.

    Every method raises `NotesError` if it can't be used.

    Attributes:
        order: The column that says in which order rows of ``blocked`` were stored.
    """

    order: str

    @property
    def exists(self) -> bool:
        """Whether anything was ever stored."""

    def transaction(self) -> AbstractContextManager[Connection]:
        """Commit everything done inside, or nothing. A nested one is part of the outer one."""

    def opened(self) -> AbstractContextManager[Connection]:
        """The connection, for this thread alone; each statement is a transaction."""

    def reading(self) -> AbstractContextManager[Connection]:
        """A connection to look something up, also where nothing can be written."""

    def of_home(self, table: str) -> str:
        """The condition for the rows of this home."""

    def overwrite_deleted(self, connection: Connection) -> None:
        """Have what this transaction deletes overwritten, where we can decide that."""

    def erase_free_space(self) -> bool:
        """Leave nothing of what was deleted; returns whether that could be done."""

    def insert(self, connection: Connection, statement: str, values: Sequence[Any]) -> int:
        """Insert a row, and return its number."""

    def put_origin(self, connection: Connection, target: str, hashed: str, origin: str) -> None:
        """Record where a text of a notebook comes from, whatever was recorded before."""

    def put_allowed(self, connection: Connection, target: str, hashed: str, at: float) -> None:
        """Record that a person vouches for a text of a notebook, unless that is recorded."""

    def check(self) -> None:
        """Raise `NotesError` unless there is no damage."""

    def close(self) -> None:
        """Close it; the next use opens it again."""


class HistoryFile:
    """The file history.db. Its errors say that the notes themselves are untouched."""

    order = "rowid"

    def __init__(self, path: Path) -> None:
        self.path = path
        # Not set aside when damaged: `undo` and the list of allowed texts can't be made again.
        self._file = SqliteFile(path, _SCHEMA, damage_hint=_UNTOUCHED)

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        self._file.close()

    @property
    def exists(self) -> bool:
        """Whether anything was ever stored."""
        return self.path.exists()

    def of_home(self, table: str) -> str:  # noqa: ARG002 - the file has no other rows
        """The condition for the rows of this home."""
        return "TRUE"

    def insert(self, connection: Connection, statement: str, values: Sequence[Any]) -> int:
        """Insert a row, and return its number."""
        connection.execute(statement, values)
        return int(connection.execute("SELECT last_insert_rowid()").fetchone()[0])

    def put_origin(self, connection: Connection, target: str, hashed: str, origin: str) -> None:  # noqa: ARG002 - whoever reads the file reads all of it
        """Record where a text comes from, in whichever notebook it is."""
        connection.execute(
            "INSERT OR REPLACE INTO origins (hash, origin) VALUES (?, ?)", (hashed, origin)
        )

    def put_allowed(self, connection: Connection, target: str, hashed: str, at: float) -> None:  # noqa: ARG002
        """Record that a person vouches for a text, for whichever notebook."""
        connection.execute(
            "INSERT INTO allowed (hash, at) VALUES (?, ?) ON CONFLICT DO NOTHING", (hashed, at)
        )

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Commit everything done inside, or nothing. A nested one is part of the outer one."""
        with _as_notes_errors(), self._file.transaction() as database:
            yield database

    @contextmanager
    def opened(self) -> Iterator[Connection]:
        """The connection, for this thread alone; each statement is a transaction."""
        with _as_notes_errors(), self._file.writing() as database:
            yield database

    def copy_as(self, migration: str) -> None:
        """Store to what is frozen, for the migration with this id. "" ends that."""
        self._file.copy_as(migration)

    def overwrite_deleted(self, connection: Connection) -> None:
        """Have what is deleted overwritten."""
        connection.execute("PRAGMA secure_delete = 1")

    def erase_free_space(self) -> bool:
        """Leave nothing of what was deleted in the file; returns whether that could be done."""
        with _as_notes_errors():
            return self._file.erase_free_space()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection to look something up, also where nothing can be written."""
        with _as_notes_errors(), self._file.reading() as database:
            yield database

    def frozen(self) -> str:
        """Why changes are refused: where the notes have moved; "" if they are not."""
        if not self.exists:
            return ""
        with self.reading() as database:
            return why_file_is_frozen(database, "changes")

    def check(self) -> None:
        """Raise `NotesError` unless the file has no damage."""
        with self.reading() as database:
            (found,) = database.execute("PRAGMA integrity_check(1)").fetchone()
        if found != "ok":
            raise NotesError(
                f"the history is damaged: {found}", where=str(self.path), hint=_UNTOUCHED
            )


@contextmanager
def _as_notes_errors() -> Iterator[None]:
    try:
        yield
    except DatabaseError as error:
        hint = error.hint or _UNTOUCHED
        raise NotesError(error.what, where=error.where, hint=hint) from error
