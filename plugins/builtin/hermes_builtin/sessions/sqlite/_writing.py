"""Putting messages into the tables and the index: one transaction, all or nothing."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from zlib import crc32

from hermes_builtin.sessions._model import NewMessage, SessionFacts
from hermes_builtin.sessions._words import storable, words
from hermes_builtin.sessions.sqlite._schema import MOST_MESSAGES, SAMPLE, message_id, role_code
from hermes_core.errors import DatabaseError

_KNOWN_TERMS: Final = 100_000


class Indexer:
    """Puts words into the index, and counts them."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def add(self, database: sqlite3.Connection, number: int, place: int, found: list[str]) -> None:
        """Put the words of one message into the index."""
        different = set(found)
        database.execute(
            "INSERT INTO archive_index (rowid, words) VALUES (?, ?)", (number, " ".join(different))
        )
        if place % SAMPLE == 0:
            database.executemany(
                "INSERT INTO archive_terms VALUES (?, ?)"
                " ON CONFLICT DO UPDATE SET count = count + excluded.count",
                [(word, SAMPLE) for word in different],
            )
        elif unknown := different - self._known:
            database.executemany(
                "INSERT OR IGNORE INTO archive_terms VALUES (?, 0)", [(word,) for word in unknown]
            )
        if len(self._known) > _KNOWN_TERMS:
            self._known.clear()
        self._known |= different

    def forget(self) -> None:
        """A transaction failed: the table of terms may not have what we think."""
        self._known.clear()


def checksum(content: str, extra: str | None) -> int:
    """What tells whether a message is still what was stored."""
    return crc32(f"{content}\0{extra or ''}".encode())


def searchable(content: str, extra: Mapping[str, Any]) -> str:
    """What of a message can be found: what it says, and what tools it calls with what."""
    parts = [content, str(extra.get("tool_name") or "")]
    for call in extra.get("tool_calls") or ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            parts += [str(function.get("name") or ""), str(function.get("arguments") or "")]
        else:
            parts.append(str(call))
    return "\n".join(filter(None, parts))


def insert(
    database: sqlite3.Connection,
    indexer: Indexer | None,
    session: int,
    start: int,
    messages: Iterable[NewMessage],
) -> list[int]:
    """Insert messages from a place on; without an indexer they are not indexed yet."""
    numbers = []
    for place, message in enumerate(messages, start):
        content = storable(message.content)
        extra: dict[str, Any] = dict(message.extra or {})
        if role_code(message.role) == role_code(""):
            extra["role"] = message.role
        text = storable(json.dumps(extra, ensure_ascii=False, default=str)) if extra else None
        number = message_id(session, place, message.role)
        found = words(searchable(content, extra) if extra else content)
        database.execute(
            "INSERT INTO archive_messages VALUES (?, ?, ?, ?, ?, ?)",
            (number, message.at, len(found), checksum(content, text), content, text),
        )
        if indexer is not None:
            indexer.add(database, number, place, found)
        numbers.append(number)
    return numbers


def append(
    database: sqlite3.Connection,
    indexer: Indexer | None,
    facts: SessionFacts,
    messages: Sequence[NewMessage],
) -> list[int]:
    """Append to a session, which is begun if it is new."""
    number, start = _session(database, facts, messages)
    if start + len(messages) > MOST_MESSAGES:
        raise DatabaseError(
            f"a conversation can have {MOST_MESSAGES:,} messages, and this one is full",
            where=facts.id,
            hint="begin a new session",
        )
    numbers = insert(database, indexer, number, start, messages)
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
