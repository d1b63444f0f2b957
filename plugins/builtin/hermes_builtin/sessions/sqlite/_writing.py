"""Putting messages into the tables: one transaction, all or nothing. The index follows."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Any, Final
from zlib import crc32

from hermes_builtin.sessions._model import NewMessage, SessionFacts
from hermes_builtin.sessions._words import storable
from hermes_builtin.sessions.sqlite._schema import (
    MOST_MESSAGES,
    OTHER,
    message_id,
    role_code,
    session_of,
)
from hermes_core.errors import DatabaseError

_ODD: Final = 2000


def checksum(number: int, at: float, content: str, extra: str | None) -> int:
    """What tells whether a message is still what was stored."""
    return crc32(f"{number}\0{at!r}\0{content}\0{extra or ''}".encode("utf-8", "replace"))


def session_checksum(*facts: object) -> int:
    """The same for a session: id, source, user, chat, profile, title, parent, and its start."""
    return crc32("\0".join(map(str, facts)).encode("utf-8", "replace"))


def insert(
    database: sqlite3.Connection, session: int, start: int, messages: Iterable[NewMessage]
) -> list[int]:
    """Insert messages from a place on."""
    rows = []
    for place, message in enumerate(messages, start):
        content = storable(message.content)
        extra: dict[str, Any] = dict(message.extra or {})
        if role_code(message.role) == OTHER:
            extra["role"] = message.role
        text = storable(_json(extra)) if extra else None
        number = message_id(session, place, message.role)
        at = float(message.at) if isfinite(message.at) else time.time()
        check = checksum(number, at, content, text)
        rows.append((number, at, len(content), check, content, text))
    database.executemany("INSERT INTO archive_messages VALUES (?, ?, ?, ?, ?, ?)", rows)
    return [row[0] for row in rows]


def _json(extra: dict[str, Any]) -> str:
    """What else is known of a message, whatever it is made of."""
    try:
        return json.dumps(extra, ensure_ascii=False, default=str, skipkeys=True)
    except (ValueError, RecursionError):  # it holds itself
        return json.dumps({key: str(value)[:_ODD] for key, value in extra.items()})


def append(
    database: sqlite3.Connection, facts: SessionFacts, messages: Sequence[NewMessage]
) -> list[int]:
    """Append to a session, which is begun if it is new."""
    number, start = _session(database, facts, messages)
    if start + len(messages) > MOST_MESSAGES:
        raise DatabaseError(
            f"a conversation can have {MOST_MESSAGES:,} messages, and this one is full",
            where=facts.id,
            hint="begin a new session",
        )
    numbers = insert(database, number, start, messages)
    if messages:
        database.execute(
            "INSERT OR IGNORE INTO archive_unindexed VALUES (?, ?)", (number, numbers[0])
        )
        times = [message.at for message in messages if isfinite(message.at)]
        _count(database, numbers, max(times, default=time.time()))
    return numbers


def _count(database: sqlite3.Connection, numbers: list[int], at: float) -> None:
    """Count messages in their session, if they are found again: on a damaged page they may not."""
    updated = database.execute(
        "UPDATE archive_sessions SET next = next + ?1, messages = messages + ?1,"
        " active = max(active, ?2), ended = CASE WHEN ended < ?2 THEN NULL ELSE ended END"
        " WHERE number = ?3"
        " AND ?1 = (SELECT count(*) FROM archive_messages WHERE id BETWEEN ?4 AND ?5)",
        (len(numbers), at, session_of(numbers[0]), numbers[0], numbers[-1]),
    )
    if updated.rowcount != 1:
        raise DatabaseError(
            "the archive is damaged: what is stored in it is not found again",
            hint="run: hermes-plugins sessions repair",
        )


def _session(
    database: sqlite3.Connection, facts: SessionFacts, messages: Sequence[NewMessage]
) -> tuple[int, int]:
    """The number of a session, and the place of its next message."""
    texts = list(map(storable, facts[:7]))
    owner = tuple(texts[2:5])
    row = _known(database, texts[0], owner)
    if row is not None and not row[3]:
        # The same name for a conversation of somebody else: theirs stays theirs.
        texts[0] = alias(texts[0], owner)
        row = _known(database, texts[0], owner)
    if row is not None:
        number, following, is_nameless, _ = row
        if facts.title and is_nameless:
            name_session(database, int(number), storable(facts.title))
        return int(number), int(following)
    started = facts.started or (messages[0].at if messages else 0.0)
    started = started if isfinite(started) else time.time()
    inserted = database.execute(
        "INSERT INTO archive_sessions"
        " (id, source, user_id, chat_id, profile, title, parent, started, ended, active,"
        " messages, next, checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, ?)",
        (*texts, started, facts.ended, started, session_checksum(*texts, started)),
    )
    return int(inserted.lastrowid or 0), 0


def alias(name: str, owner: tuple[str, ...]) -> str:
    """What a session is called whose name somebody else's has already."""
    return f"{name}@{session_checksum(*owner):08x}"


def _known(
    database: sqlite3.Connection, name: str, owner: tuple[str, ...]
) -> tuple[Any, ...] | None:
    """A session's number, its next place, whether it has no title, and whether it is theirs."""
    row: tuple[Any, ...] | None = database.execute(
        "SELECT number, next, title = '', user_id = ? AND chat_id = ? AND profile = ?"
        " FROM archive_sessions WHERE id = ?",
        (*owner, name),
    ).fetchone()
    return row


def name_session(database: sqlite3.Connection, number: int, title: str) -> None:
    """Give a session its title."""
    row = database.execute(
        "SELECT id, source, user_id, chat_id, profile, parent, started FROM archive_sessions"
        " WHERE number = ?",
        (number,),
    ).fetchone()
    database.execute(
        "UPDATE archive_sessions SET title = ?, checksum = ? WHERE number = ?",
        (title, session_checksum(*row[:5], title, *row[5:]), number),
    )
