"""Lines about sessions in a log: what they have, and what they change in the state."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Final

from hermes_builtin.sessions.archive import NewMessage
from hermes_builtin.sync.log import Line, MachineLog, Record
from hermes_builtin.sync.message_names import MACHINE, message_digest
from hermes_builtin.sync.state import Tag
from hermes_builtin.sync.values import checked_stamp, checked_text, checked_time

SESSION: Final = "session"
MESSAGE: Final = "message"
REPLACE: Final = "replace"
DELETE: Final = "delete"
KINDS: Final = frozenset((SESSION, MESSAGE, REPLACE, DELETE))
#: What a session is known by, apart from its id.
FACTS: Final = ("source", "user_id", "chat_id", "profile", "parent", "platform")


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
    """Raise one of `UNUSABLE` unless a line about a session can be used."""
    record = line.record
    names = {SESSION: ["id"], MESSAGE: ["id"], REPLACE: ["old"], DELETE: []}[line.kind]
    for name in ("session", *names):
        checked_text(record[name])
    if line.kind == DELETE:
        _ = [Tag.read(each) for each in record["seen"].items()]
    elif line.kind == SESSION:
        _check_facts(record)
    elif line.kind == MESSAGE or "role" in record:
        _check_message(record)


def _check_facts(record: Record) -> None:
    for name in (*FACTS, "title", "by"):
        checked_text(record.get(name, ""))
    for name in ("started", "ended"):
        if record.get(name) is not None:
            checked_time(record[name])
    checked_stamp(record.get("stamp", 0))


def _check_message(record: Record) -> None:
    for name in ("id", "role", "content"):
        checked_text(record[name])
    checked_time(record["at"])
    if not isinstance(record.get("extra", {}), dict):
        raise ValueError("extra is not an object")  # noqa: TRY004
    message_digest(read_message(record, ""))


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
