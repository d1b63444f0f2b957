"""Putting messages into the tables: one transaction, all or nothing. The index follows."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any
from zlib import crc32

from hermes_builtin.sessions._model import NewMessage, SessionFacts
from hermes_builtin.sessions._words import storable
from hermes_builtin.sessions.sqlite._schema import MOST_MESSAGES, OTHER, message_id, role_code
from hermes_core.errors import DatabaseError


def checksum(content: str, extra: str | None) -> int:
    """What tells whether a message is still what was stored."""
    return crc32(f"{content}\0{extra or ''}".encode())


def insert(
    database: sqlite3.Connection, session: int, start: int, messages: Iterable[NewMessage]
) -> list[int]:
    """Insert messages from a place on."""
    numbers = []
    for place, message in enumerate(messages, start):
        content = storable(message.content)
        extra: dict[str, Any] = dict(message.extra or {})
        if role_code(message.role) == OTHER:
            extra["role"] = message.role
        text = storable(json.dumps(extra, ensure_ascii=False, default=str)) if extra else None
        number = message_id(session, place, message.role)
        database.execute(
            "INSERT INTO archive_messages VALUES (?, ?, ?, ?, ?, ?)",
            (number, message.at, len(content), checksum(content, text), content, text),
        )
        database.execute("INSERT INTO archive_pending VALUES (?)", (number,))
        numbers.append(number)
    return numbers


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
            "UPDATE archive_sessions SET next = next + ?, messages = messages + ?,"
            " active = max(active, ?), title = CASE WHEN title = '' THEN ? ELSE title END"
            " WHERE number = ?",
            (
                len(messages),
                len(messages),
                max(message.at for message in messages),
                storable(facts.title),
                number,
            ),
        )
    return numbers


def _session(
    database: sqlite3.Connection, facts: SessionFacts, messages: Sequence[NewMessage]
) -> tuple[int, int]:
    """The number of a session, and the place of its next message."""
    name = storable(facts.id)
    row = database.execute(
        "SELECT number, next FROM archive_sessions WHERE id = ?", (name,)
    ).fetchone()
    if row is not None:
        return int(row[0]), int(row[1])
    started = facts.started or (messages[0].at if messages else 0.0)
    texts = [
        storable(text) for text in (name, facts.source, facts.user_id, facts.chat_id, facts.profile)
    ]
    inserted = database.execute(
        "INSERT INTO archive_sessions"
        " (id, source, user_id, chat_id, profile, title, parent, started, ended, active,"
        " messages, next) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0)",
        (*texts, storable(facts.title), storable(facts.parent), started, facts.ended, started),
    )
    return int(inserted.lastrowid or 0), 0
