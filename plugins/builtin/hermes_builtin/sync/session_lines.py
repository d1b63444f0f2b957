"""Lines about sessions in a log: what they have, and what they change in the state."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Final

from hermes_builtin.sessions.archive import NewMessage
from hermes_builtin.sync.log import Line, MachineLog, Record
from hermes_builtin.sync.state import Tag

SESSION: Final = "session"
MESSAGE: Final = "message"
REPLACE: Final = "replace"
DELETE: Final = "delete"
KINDS: Final = frozenset((SESSION, MESSAGE, REPLACE, DELETE))
#: Which machine a message came from, in what is known of it.
MACHINE: Final = "machine"


class FactsMissingError(Exception):
    """The part of a log that says whose a session is has not been transferred."""


def session_line(log: MachineLog, key: str) -> Record:
    """The facts of a session, from a part of a log that was read before."""
    found = None
    for line in log.lines(0):
        if line.kind == SESSION and line.record["session"] == key:
            found = line.record
    if found is None:
        raise FactsMissingError
    return found


def read_message(record: Record, machine: str) -> NewMessage:
    """A message of a log, and from which machine it came."""
    extra = dict(record.get("extra") or {})
    if machine:
        extra.setdefault(MACHINE, machine)
    return NewMessage(str(record["role"]), str(record["content"]), float(record["at"]), extra)


def check_session(line: Line) -> None:
    """Raise `ValueError`, or what its fields raise, unless a line about a session can be used."""
    record = line.record
    names = {SESSION: ["id"], MESSAGE: ["id"], REPLACE: ["old"], DELETE: []}[line.kind]
    if not all(isinstance(record[each], str) for each in ("session", *names)):
        raise ValueError("a name is not a text")
    if line.kind == DELETE:
        _ = {str(machine): int(seq) for machine, seq in record["seen"].items()}
    elif line.kind == SESSION:
        _ = [float(record.get(each) or 0) for each in ("started", "stamp", "ended")]
    elif line.kind == MESSAGE or "role" in record:
        hash(record["id"])
        read_message(record, "")


def fold_message(database: sqlite3.Connection, key: str, name: str, moment: str, tag: Tag) -> None:
    """Record in the state which log has a message."""
    database.execute(
        "INSERT OR IGNORE INTO messages VALUES (?, ?, ?, ?, ?)", (key, name, *tag, moment)
    )


def fold_replacement(database: sqlite3.Connection, key: str, old: str) -> None:
    """Record in the state that a message was replaced, so that it never comes back."""
    database.execute("INSERT OR IGNORE INTO forgotten VALUES (?, ?)", (key, old))
    database.execute("DELETE FROM messages WHERE session = ? AND id = ?", (key, old))


def fold_deletion(database: sqlite3.Connection, key: str, seen: Mapping[str, int]) -> None:
    """Record in the state up to where a session is deleted in each log."""
    for machine, seq in seen.items():
        database.execute(
            "INSERT INTO deleted VALUES (?, ?, ?) ON CONFLICT (session, machine)"
            " DO UPDATE SET seq = max(seq, excluded.seq)",
            (key, machine, seq),
        )
        database.execute(
            "DELETE FROM messages WHERE session = ? AND machine = ? AND seq <= ?",
            (key, machine, seq),
        )
    database.execute("DELETE FROM sessions WHERE session = ?", (key,))
