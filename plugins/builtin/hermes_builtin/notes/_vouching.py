"""What the guard has refused, and what a person has allowed all the same."""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from hermes_builtin.notes._database import NotesDatabase
from hermes_builtin.notes._errors import NotesError
from hermes_builtin.notes._format import entry_id, text_hash

_BLOCKED_KEPT: Final = 100


class Blocked(NamedTuple):
    """A write that the guard refused."""

    id: str
    at: float
    target: str
    text: str
    reason: str


class Vouching:
    """The texts that a person vouches for, and those that wait for one who does."""

    def __init__(self, file: NotesDatabase) -> None:
        self._file = file

    def allow(self, text: str) -> None:
        """A person vouches for a text."""
        with self._file.transaction() as database:
            database.execute(
                "INSERT OR IGNORE INTO allowed VALUES (?, ?)", (text_hash(text), time.time())
            )
            database.execute("DELETE FROM blocked WHERE id = ?", (entry_id(text),))

    def is_allowed(self, text: str) -> bool:
        """Whether a person has vouched for exactly this text."""
        if not self._file.path.exists():
            return False
        try:
            with self._file.opened() as database:
                found = database.execute("SELECT 1 FROM allowed WHERE hash = ?", (text_hash(text),))
                return found.fetchone() is not None
        except NotesError:  # nobody can tell, so it is not
            return False

    def block(self, target: str, text: str, reason: str) -> str:
        """Remember a refused write, so that a person can allow it; gives its id."""
        with self._file.transaction() as database:
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
        if not self._file.path.exists():
            return []
        with self._file.opened() as database:
            rows = database.execute("SELECT * FROM blocked ORDER BY at DESC").fetchall()
        return [Blocked(*row) for row in rows]
