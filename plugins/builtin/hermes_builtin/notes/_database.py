"""``memories/history.db``: what it holds, and the one connection to it."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from hermes_builtin.notes._errors import NotesError
from hermes_core.database import Layout, close_before_forks, open_database, transaction
from hermes_core.errors import DatabaseError

_LAYOUT: Final = Layout(
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
)

_UNTOUCHED: Final = "the notes themselves are untouched; move the file away to start anew"


class NotesDatabase:
    """Opened when first needed, and anew if another file has taken its place."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._name = str(path)
        self._mutex = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._inode = 0
        close_before_forks(self)

    def close(self) -> None:
        """Let go of the file."""
        with self._mutex:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def before_fork(self) -> None:
        """Close the file, and keep it closed until the fork is over."""
        self._mutex.acquire()
        if self._connection is None or not self._connection.in_transaction:
            self.close()

    def after_fork(self) -> None:
        """Go on."""
        self._mutex.release()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All that is done inside, or nothing; one inside another is part of it."""
        with self.opened() as database, transaction(database):
            yield database

    @contextmanager
    def opened(self) -> Iterator[sqlite3.Connection]:
        """The connection, for this thread alone; each statement is a transaction."""
        with self._mutex:
            try:
                yield self._connected()
            except DatabaseError as error:
                raise NotesError(error.what, where=error.where, hint=_UNTOUCHED) from error
            except (sqlite3.Error, OSError) as error:
                raise NotesError(
                    f"the history can't be used: {error}", where=str(self.path), hint=_UNTOUCHED
                ) from error

    def check(self) -> None:
        """Raise `NotesError` unless the file is whole."""
        with self.opened() as database:
            (found,) = database.execute("PRAGMA integrity_check(1)").fetchone()
        if found != "ok":
            raise NotesError(
                f"the history is damaged: {found}", where=str(self.path), hint=_UNTOUCHED
            )

    def _connected(self) -> sqlite3.Connection:
        if self._connection is not None and self._is_current():
            return self._connection
        self._connection = open_database(self.path, _LAYOUT)
        self._inode = os.stat(self._name).st_ino  # noqa: PTH116
        return self._connection

    def _is_current(self) -> bool:
        """Whether the connection's file is still the one in place."""
        try:
            return os.stat(self._name).st_ino == self._inode  # noqa: PTH116 - at every use
        except FileNotFoundError:  # moved away: a new one begins
            return False
