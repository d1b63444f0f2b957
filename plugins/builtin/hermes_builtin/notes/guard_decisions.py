"""What the guard refused, and what a person allowed."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from hermes_builtin.notes.entries import NotesError, entry_id, text_hash
from hermes_builtin.notes.history_file import Matches, NotesDatabase
from hermes_core.storage.sql import Connection

# Refused texts may come from an attacker; without a limit they would fill the file.
_BLOCKED_KEPT: Final = 100


class RefusedWrite(NamedTuple):
    """A write that the guard refused."""

    id: str
    at: float
    target: str
    text: str
    reason: str


class GuardDecisions:
    """The texts that a person vouches for, and those that wait for one who does."""

    def __init__(self, file: NotesDatabase, clock: Callable[[], float] = time.time) -> None:
        self._file = file
        self._clock = clock
        self._own = file.of_home("blocked")

    def allow(self, text: str, target: str = "memory") -> None:
        """A person vouches for a text of a notebook."""
        with self._file.transaction() as database:
            # The hash, not the text: what a person allowed may be a secret.
            self._file.put_allowed(database, target, text_hash(text), self._clock())
            self._unblock(database, text)

    def is_allowed(self, text: str) -> bool:
        """Whether a person has vouched for exactly this text."""
        if not self._file.exists:
            return False
        try:
            with self._file.reading() as database:
                found = database.execute(
                    f"SELECT 1 FROM allowed WHERE {self._file.of_home('allowed')} AND hash = ?",  # noqa: S608
                    (text_hash(text),),
                )
                return found.fetchone() is not None
        except NotesError:  # unknown, so it is not
            return False

    def matching(self, matches: Matches) -> list[RefusedWrite]:
        """The refused writes that match."""
        return [each for each in self.blocked() if matches(each.text) or matches(each.reason)]

    def erase(self, blocked: Collection[str], allowed: Collection[str] = ()) -> None:
        """Delete refused writes by their ids, and what is recorded of some texts."""
        if not self._file.exists:
            return
        with self._file.transaction() as database:
            self._file.overwrite_deleted(database)
            names = [(each,) for each in blocked]
            database.executemany(f"DELETE FROM blocked WHERE {self._own} AND id = ?", names)  # noqa: S608
            hashes = [(text_hash(each),) for each in allowed]
            for table in ("allowed", "origins"):
                own = self._file.of_home(table)
                database.executemany(f"DELETE FROM {table} WHERE {own} AND hash = ?", hashes)  # noqa: S608

    def block(self, target: str, text: str, reason: str) -> str:
        """Remember a refused write, so that a person can allow it; returns its id."""
        with self._file.transaction() as database:
            self._unblock(database, text)
            database.execute(
                "INSERT INTO blocked (id, at, target, text, reason) VALUES (?, ?, ?, ?, ?)",
                (entry_id(text), self._clock(), target, text, reason),
            )
            database.execute(
                # By row: with a clock that went back, the newest would be the first to go.
                f"DELETE FROM blocked WHERE {self._own} AND id NOT IN (SELECT id FROM blocked"  # noqa: S608
                f" WHERE {self._own} ORDER BY {self._file.order} DESC LIMIT ?)",
                (_BLOCKED_KEPT,),
            )
        return entry_id(text)

    def _unblock(self, database: Connection, text: str) -> None:
        database.execute(
            f"DELETE FROM blocked WHERE {self._own} AND id = ?",  # noqa: S608
            (entry_id(text),),
        )

    def blocked(self) -> list[RefusedWrite]:
        """The refused writes that nobody has allowed, newest first."""
        if not self._file.exists:
            return []
        with self._file.reading() as database:
            rows = database.execute(
                f"SELECT id, at, target, text, reason FROM blocked WHERE {self._own}"  # noqa: S608
                f" ORDER BY {self._file.order} DESC"
            ).fetchall()
        return [RefusedWrite(*row) for row in rows]
