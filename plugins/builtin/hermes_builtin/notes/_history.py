"""Every change to the notes, for those who want to know or to take it back."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from hermes_builtin.notes._errors import NotesError
from hermes_builtin.notes._format import Known, parse, split

KEPT: Final = 5000

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS changes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    target TEXT NOT NULL,
    who TEXT NOT NULL,
    action TEXT NOT NULL,
    session TEXT NOT NULL,
    before TEXT NOT NULL,
    after TEXT NOT NULL,
    entries TEXT, -- what we saw in a text that somebody else wrote, as JSON
    inode INTEGER NOT NULL, -- the file's, to tell an appended text from a new file
    done INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS changes_target ON changes (target, id);
CREATE TABLE IF NOT EXISTS allowed (hash TEXT PRIMARY KEY, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS blocked (
    id TEXT PRIMARY KEY, at REAL NOT NULL, target TEXT NOT NULL, text TEXT NOT NULL,
    reason TEXT NOT NULL
);
PRAGMA user_version = 1;
"""

FILE_EDIT: Final = "file edit"
FOUND: Final = "found"

logger = logging.getLogger("hermes_builtin")


class Change(NamedTuple):
    """One change: who made it, when, and the file's text before and after.

    ``seen`` are the entries in a text that somebody else wrote, as JSON.
    """

    target: str
    who: str
    action: str
    session: str
    before: str
    after: str
    seen: str | None = None
    inode: int = 0
    id: int = 0
    at: float = 0.0
    done: bool = True

    @property
    def known(self) -> Known:
        """The state that it left."""
        entries = split(self.after) if self.seen is None else json.loads(self.seen)
        return Known(self.after, entries, self.inode)


class Blocked(NamedTuple):
    """A write that the guard refused."""

    id: str
    at: float
    target: str
    text: str
    reason: str


def entry_id(text: str) -> str:
    """A short name for an entry, the same wherever it is shown."""
    return _hash(text)[:8]


def _hash(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class History:
    """``memories/history.db``. Opened when first needed; callers hold the notebook's lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._mutex = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._pid = 0
        self._inode = 0

    def close(self) -> None:
        """Let go of the file."""
        with self._mutex:
            connection, self._connection = self._connection, None
            if connection is not None and self._pid == os.getpid():
                connection.close()

    # -- changes --------------------------------------------------------------------------

    def begin(self, change: Change) -> int:
        """Note a change before it is made; gives its number."""
        with self._open() as database:
            number = self._insert(database, change, done=False)
            if number % 100 == 0:
                database.execute(
                    "DELETE FROM changes WHERE id <= ? AND id NOT IN"
                    " (SELECT max(id) FROM changes WHERE done = 1 GROUP BY target)",
                    (number - KEPT,),
                )
            return number

    def finish(self, number: int, inode: int = 0) -> None:
        """The change was made, and the file is this one now."""
        with self._open(write=False) as database:
            database.execute("UPDATE changes SET done = 1, inode = ? WHERE id = ?", (inode, number))

    def separated(self, target: str, text: str, inode: int) -> bool:
        """Note that an edit of others now has its separators; False if there is none."""
        last = self.last(target)
        if last is None or last.who != FILE_EDIT:
            return False
        with self._open(write=False) as database:
            database.execute(
                "UPDATE changes SET after = ?, entries = NULL, inode = ? WHERE id = ?",
                (text, inode, last.id),
            )
        return True

    def forget(self, number: int) -> None:
        """The change was not made."""
        with self._open(write=False) as database:
            database.execute("DELETE FROM changes WHERE id = ?", (number,))

    def catch_up(self, target: str, text: str, inode: int = 0) -> list[str]:
        """Make the record agree with the file; gives the entries that are in it.

        A change that was noted but not finished was made if the file has its text. A text
        that nobody noted is somebody's edit of the file; what was there before we first
        looked is nobody's.
        """
        with self._open(write=False):
            newest = self._newest(target)
            if newest is not None and newest.done and newest.after == text:
                return newest.known.entries
        with self._open() as database:
            for change in self._rows("target = ? AND done = 0", target):
                if change.after == text:
                    self.finish(change.id, inode)
                else:
                    self.forget(change.id)
            last = self.last(target)
            entries = parse(text, last.known if last else None, inode)
            before = last.after if last else text
            if text and (last is None or text != before):
                seen = json.dumps(entries, ensure_ascii=False)
                action = FOUND if last is None else "edit"
                edit = Change(target, FILE_EDIT, action, "", before, text, seen, inode)
                self._insert(database, edit, done=True)
            elif text != before:
                self._insert(database, Change(target, FILE_EDIT, "edit", "", before, ""), done=True)
            return entries

    @staticmethod
    def _insert(database: sqlite3.Connection, change: Change, *, done: bool) -> int:
        row = database.execute(
            "INSERT INTO changes"
            " (target, who, action, session, before, after, entries, inode, at, done)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*change[:8], time.time(), done),
        )
        return int(row.lastrowid or 0)

    def entries(self, target: str, text: str, inode: int = 0) -> list[str]:
        """The entries that are in a file, without noting anything.

        Notes can be read whatever has become of their history.
        """
        try:
            last = self._newest(target) if self.path.exists() else None
            if last is not None and not last.done and last.after != text:
                last = self.last(target)
        except (NotesError, OSError) as error:
            logger.warning("notes: %s", error)
            last = None
        return parse(text, last.known if last else None, inode)

    def _newest(self, target: str) -> Change | None:
        """The newest change that was noted, made or not."""
        return next(self._rows("target = ?", target, limit=1), None)

    def before(self, change: Change) -> list[str]:
        """The entries that there were before a change."""
        earlier = next(
            self._rows("target = ? AND done = 1 AND id < ?", change.target, change.id, limit=1),
            None,
        )
        return parse(change.before, earlier.known if earlier else None)

    def last(self, target: str) -> Change | None:
        """The newest change of a notebook."""
        return next(self._rows("target = ? AND done = 1", target, limit=1), None)

    def changes(self, target: str | None = None, limit: int = 50) -> list[Change]:
        """The newest changes first."""
        where = "done = 1" if target is None else "target = ? AND done = 1"
        return list(self._rows(where, *(() if target is None else (target,)), limit=limit))

    def newest(self) -> Change | None:
        """The newest change of all, but for what was there before us."""
        return next(self._rows("done = 1 AND action != ?", FOUND, limit=1), None)

    def change(self, number: int) -> Change | None:
        """One change."""
        if not 0 < number < 2**63:
            return None
        return next(self._rows("id = ? AND done = 1", number, limit=1), None)

    def _rows(self, where: str, *values: object, limit: int = -1) -> Iterator[Change]:
        with self._open(write=False) as database:
            rows = database.execute(
                "SELECT target, who, action, session, before, after, entries, inode, id, at, done"  # noqa: S608
                f" FROM changes WHERE {where} ORDER BY id DESC LIMIT ?",
                (*values, limit),
            ).fetchall()
        return (Change(*row) for row in rows)

    # -- what a person has allowed --------------------------------------------------------

    def allow(self, text: str) -> None:
        """A person vouches for a text."""
        with self._open() as database:
            database.execute(
                "INSERT OR IGNORE INTO allowed VALUES (?, ?)", (_hash(text), time.time())
            )
            database.execute("DELETE FROM blocked WHERE id = ?", (entry_id(text),))

    def is_allowed(self, text: str) -> bool:
        """Whether a person has vouched for exactly this text."""
        if not self.path.exists():
            return False
        try:
            with self._open(write=False) as database:
                found = database.execute("SELECT 1 FROM allowed WHERE hash = ?", (_hash(text),))
                return found.fetchone() is not None
        except NotesError:  # nobody can tell, so it is not
            return False

    def block(self, target: str, text: str, reason: str) -> str:
        """Remember a refused write, so that a person can allow it; gives its id."""
        with self._open() as database:
            database.execute(
                "INSERT OR REPLACE INTO blocked VALUES (?, ?, ?, ?, ?)",
                (entry_id(text), time.time(), target, text, reason),
            )
        return entry_id(text)

    def blocked(self) -> list[Blocked]:
        """The refused writes that nobody has allowed, newest first."""
        with self._open(write=False) as database:
            rows = database.execute("SELECT * FROM blocked ORDER BY at DESC LIMIT 100").fetchall()
        return [Blocked(*row) for row in rows]

    # -- the file -------------------------------------------------------------------------

    @contextmanager
    def _open(self, *, write: bool = True) -> Iterator[sqlite3.Connection]:
        """A transaction; nested ones are part of the outermost."""
        with self._mutex:
            try:
                database = self._connected()
                if database.in_transaction or not write:
                    yield database
                    return
                database.execute("BEGIN IMMEDIATE")
                try:
                    yield database
                    database.execute("COMMIT")
                except BaseException:
                    with suppress(sqlite3.Error):
                        database.execute("ROLLBACK")
                    raise
            except (sqlite3.Error, OSError) as error:
                raise NotesError(
                    f"the history can't be used: {error}",
                    where=str(self.path),
                    hint="the notes themselves are untouched; move the file away to start anew",
                ) from error

    def _connected(self) -> sqlite3.Connection:
        if self._connection is not None and self._is_current():
            return self._connection
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            # Made with its mode, before SQLite makes it with everybody's.
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        connection = sqlite3.connect(
            self.path, timeout=10, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
                connection.executescript(_SCHEMA)
        except BaseException:
            connection.close()
            raise
        self._connection, self._pid = connection, os.getpid()
        self._inode = self.path.stat().st_ino
        return connection

    def _is_current(self) -> bool:
        """Whether the connection is ours, and its file still the one in place."""
        if self._pid != os.getpid():
            return False
        try:
            return self.path.stat().st_ino == self._inode
        except FileNotFoundError:  # moved away: a new one begins
            return False
