"""Every change to the notes, for those who want to know or to take it back."""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from hermes_builtin.notes._errors import NotesError
from hermes_builtin.notes._format import Known, entry_id, parse, split, text_hash
from hermes_core.database import Layout, close_before_forks, open_database, transaction
from hermes_core.errors import DatabaseError

KEPT: Final = 5000
_BLOCKED_KEPT: Final = 100

_LAYOUT: Final = Layout(
    "the history",
    application_id=0x48504E31,  # "HPN1"
    migrations=(
        """
CREATE TABLE texts (id INTEGER PRIMARY KEY, text TEXT NOT NULL);
-- entries: what we saw in a text that somebody else wrote, as JSON.
-- inode: the file's, to tell an appended text from a new file.
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
    ),
)

FILE_EDIT: Final = "file edit"
FOUND: Final = "found"
_UNTOUCHED: Final = "the notes themselves are untouched; move the file away to start anew"

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


class Noted(NamedTuple):
    """A change in the record, and the state that it leaves."""

    id: int
    text_id: int
    known: Known


class History:
    """``memories/history.db``. Opened when first needed; callers hold the notebook's lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._mutex = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._inode = 0
        close_before_forks(self)
        self._latest: dict[str, Noted] = {}

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

    # -- changes --------------------------------------------------------------------------

    def begin(self, change: Change, entries: list[str]) -> Noted:
        """Note a change before it is made, with the entries that there will be."""
        with self._open() as database:
            number, text_id = self._insert(database, change, done=False)
            if number % 100 == 0:
                self._prune(database, number - KEPT)
        return Noted(number, text_id, Known(change.after, entries))

    @staticmethod
    def _prune(database: sqlite3.Connection, oldest: int) -> None:
        database.execute(
            "DELETE FROM changes WHERE id <= ? AND id NOT IN"
            " (SELECT max(id) FROM changes WHERE done = 1 GROUP BY target)",
            (oldest,),
        )
        database.execute(
            "DELETE FROM texts WHERE id NOT IN"
            " (SELECT before FROM changes UNION SELECT after FROM changes)"
        )

    def finish(self, target: str, noted: Noted, inode: int) -> None:
        """The change was made, and the file is this one now."""
        self._done(noted.id, inode)
        self._latest[target] = noted._replace(known=noted.known._replace(inode=inode))

    def _done(self, number: int, inode: int) -> None:
        with self._open(write=False) as database:
            database.execute("UPDATE changes SET done = 1, inode = ? WHERE id = ?", (inode, number))

    def separated(self, target: str, text: str, inode: int) -> bool:
        """Note that an edit of others now has its separators; False if there is none."""
        last = self.last(target)
        if last is None or last.who != FILE_EDIT:
            return False
        with self._open() as database:
            database.execute(
                "UPDATE changes SET after = ?, entries = NULL, inode = ? WHERE id = ?",
                (self._text(database, text), inode, last.id),
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
        known = self._up_to_date(target, text)
        if known is not None:
            return known.entries
        with self._open() as database:
            for change in self._rows("target = ? AND done = 0", target):
                if change.after == text:
                    self._done(change.id, inode)
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

    def _up_to_date(self, target: str, text: str) -> Known | None:
        """What is known of the text, if the newest change left it; else None.

        The texts of the newest change are read only if it is not the one seen last.
        """
        with self._open(write=False) as database:
            row = database.execute(
                "SELECT id, done, after FROM changes WHERE target = ? ORDER BY id DESC LIMIT 1",
                (target,),
            ).fetchone()
            if row is None or not row[1]:
                return None
            latest = self._latest.get(target)
            if latest is None or latest[:2] != (row[0], row[2]):
                newest = self._newest(target)
                if newest is None:
                    return None
                latest = self._latest[target] = Noted(row[0], row[2], newest.known)
            return latest.known if latest.known.text == text else None

    def _insert(
        self, database: sqlite3.Connection, change: Change, *, done: bool
    ) -> tuple[int, int]:
        latest = self._latest.get(change.target)
        if latest is not None and latest.known.text == change.before:
            before = latest.text_id
        else:
            before = self._text(database, change.before)
        after = before if change.after == change.before else self._text(database, change.after)
        row = database.execute(
            "INSERT INTO changes"
            " (target, who, action, session, before, after, entries, inode, at, done)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*change[:4], before, after, *change[6:8], time.time(), done),
        )
        return int(row.lastrowid or 0), after

    @staticmethod
    def _text(database: sqlite3.Connection, text: str) -> int:
        return int(database.execute("INSERT INTO texts (text) VALUES (?)", (text,)).lastrowid or 0)

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
            self._rows(
                "target = ? AND done = 1 AND changes.id < ?", change.target, change.id, limit=1
            ),
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
        return next(self._rows("changes.id = ? AND done = 1", number, limit=1), None)

    def _rows(self, where: str, *values: object, limit: int = -1) -> Iterator[Change]:
        with self._open(write=False) as database:
            rows = database.execute(
                "SELECT target, who, action, session, old.text, new.text, entries, inode,"  # noqa: S608
                " changes.id, at, done FROM changes"
                " JOIN texts old ON old.id = before JOIN texts new ON new.id = after"
                f" WHERE {where} ORDER BY changes.id DESC LIMIT ?",
                (*values, limit),
            ).fetchall()
        return (Change(*row) for row in rows)

    # -- what a person has allowed --------------------------------------------------------

    def allow(self, text: str) -> None:
        """A person vouches for a text."""
        with self._open() as database:
            database.execute(
                "INSERT OR IGNORE INTO allowed VALUES (?, ?)", (text_hash(text), time.time())
            )
            database.execute("DELETE FROM blocked WHERE id = ?", (entry_id(text),))

    def is_allowed(self, text: str) -> bool:
        """Whether a person has vouched for exactly this text."""
        if not self.path.exists():
            return False
        try:
            with self._open(write=False) as database:
                found = database.execute("SELECT 1 FROM allowed WHERE hash = ?", (text_hash(text),))
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
            database.execute(
                "DELETE FROM blocked WHERE id NOT IN"
                " (SELECT id FROM blocked ORDER BY at DESC LIMIT ?)",
                (_BLOCKED_KEPT,),
            )
        return entry_id(text)

    def blocked(self) -> list[Blocked]:
        """The refused writes that nobody has allowed, newest first."""
        with self._open(write=False) as database:
            rows = database.execute("SELECT * FROM blocked ORDER BY at DESC").fetchall()
        return [Blocked(*row) for row in rows]

    def check(self) -> None:
        """Raise `NotesError` unless the file is whole."""
        with self._open(write=False) as database:
            (found,) = database.execute("PRAGMA integrity_check(1)").fetchone()
        if found != "ok":
            raise NotesError(
                f"the history is damaged: {found}", where=str(self.path), hint=_UNTOUCHED
            )

    # -- the file -------------------------------------------------------------------------

    @contextmanager
    def _open(self, *, write: bool = True) -> Iterator[sqlite3.Connection]:
        """A transaction; nested ones are part of the outermost."""
        with self._mutex:
            try:
                database = self._connected()
                if not write:
                    yield database
                    return
                with transaction(database):
                    yield database
            except DatabaseError as error:
                raise NotesError(error.what, where=error.where, hint=_UNTOUCHED) from error
            except (sqlite3.Error, OSError) as error:
                raise NotesError(
                    f"the history can't be used: {error}", where=str(self.path), hint=_UNTOUCHED
                ) from error

    def _connected(self) -> sqlite3.Connection:
        if self._connection is not None and self._is_current():
            return self._connection
        self._connection, self._latest = open_database(self.path, _LAYOUT), {}
        self._inode = self.path.stat().st_ino
        return self._connection

    def _is_current(self) -> bool:
        """Whether the connection's file is still the one in place."""
        try:
            return self.path.stat().st_ino == self._inode
        except FileNotFoundError:  # moved away: a new one begins
            return False
