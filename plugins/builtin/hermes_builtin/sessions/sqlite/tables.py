"""Storing messages and reading sessions. The index follows later: see `maintenance`."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from itertools import count

# Bound when this module is imported, which is before any plugin's code runs: what a plugin
# replaces in the standard library does not lose a turn.
from json import dumps
from math import isfinite
from time import time as unix_time
from typing import Any, Final
from zlib import crc32

from hermes_builtin.sessions.archive import NewMessage, Period, Scope, Session, SessionFacts
from hermes_builtin.sessions.numbers import (
    MOST_MESSAGES,
    OTHER,
    message_id,
    role_code,
    session_of,
)
from hermes_builtin.sessions.sqlite.database import NO_PLATFORMS, json_list
from hermes_builtin.sessions.words import storable
from hermes_core.errors import DatabaseError, HermesError
from hermes_core.session import TERMINAL

# -- Putting messages into the tables: one transaction, all or nothing. The index follows -------

# Characters of a value that JSON can't hold, such as an object that contains itself.
_ODD: Final = 2000


def checksum(number: int, at: float, content: str, extra: str | None) -> int:
    """A checksum: whether a message is still what was stored."""
    # The number is included: a row that damage has moved to another place is noticed. A checksum
    # against accidents, not against attackers.
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
        text = extra_text(message)
        number = message_id(session, place, message.role)
        at = float(message.at) if isfinite(message.at) else unix_time()
        check = checksum(number, at, content, text)
        rows.append((number, at, len(content), check, content, text))
    database.executemany("INSERT INTO archive_messages VALUES (?, ?, ?, ?, ?, ?)", rows)
    return [row[0] for row in rows]


def extra_text(message: NewMessage) -> str | None:
    """What else is known of a message, as it is stored."""
    extra: dict[str, Any] = dict(message.extra or {})
    if role_code(message.role) == OTHER:
        # Two bits of the number hold the three usual roles; any other is stored as text.
        extra["role"] = message.role
    return storable(_json(extra)) if extra else None


def _json(extra: dict[str, Any]) -> str:
    """What else is known of a message, whatever it is made of."""
    try:
        return dumps(extra, ensure_ascii=False, default=str, skipkeys=True)
    except (ValueError, RecursionError):  # it holds itself
        return dumps({key: str(value)[:_ODD] for key, value in extra.items()})


def append(
    database: sqlite3.Connection, facts: SessionFacts, messages: Sequence[NewMessage]
) -> list[int]:
    """Append to a session, which is begun if it is new."""
    number, start = _find_or_create(database, facts, messages)
    if start + len(messages) > MOST_MESSAGES:
        raise HermesError(  # not of the database: it would not help to try again
            f"a conversation can have {MOST_MESSAGES:,} messages, and this one is full",
            where=facts.id,
            hint="begin a new session",
        )
    numbers = insert(database, number, start, messages)
    if messages:
        database.execute(
            # IGNORE: an earlier mark of this session begins before these messages and includes
            # them.
            "INSERT OR IGNORE INTO archive_unindexed VALUES (?, ?)",
            (number, numbers[0]),
        )
        times = [message.at for message in messages if isfinite(message.at)]
        _count(database, numbers, max(times, default=unix_time()))
    return numbers


def _count(database: sqlite3.Connection, numbers: list[int], at: float) -> None:
    """Count messages in their session, if they are found again: on a damaged page they may not."""
    updated = database.execute(
        "UPDATE archive_sessions SET next = next + :count, messages = messages + :count,"
        " active = max(active, :at), ended = CASE WHEN ended < :at THEN NULL ELSE ended END"
        " WHERE number = :session"
        # Read back in the same statement: a turn that SQLite wrote to an unreachable page is an
        # error now, not a gap that somebody finds later.
        " AND :count = (SELECT count(*) FROM archive_messages WHERE id BETWEEN :first AND :last)",
        {
            "count": len(numbers),
            "at": at,
            "session": session_of(numbers[0]),
            "first": numbers[0],
            "last": numbers[-1],
        },
    )
    if updated.rowcount != 1:
        raise DatabaseError(
            "the archive is damaged: stored messages can't be read back",
            hint="run: hermes-plugins sessions repair",
        )


# -- Whose a session is -------------------------------------------------------------------------
#
# Two people may give their sessions the same name. The first keeps it as the session's id, the
# other's id gets a hash of the full identity; ``name`` has what the host calls it. A turn goes by
# id or name, and by the identity itself, never by the hash alone: an id can be chosen, by a host
# or by whoever the host lets choose, so that it looks like the one that somebody else would get.

#: The platform of a session. One that an older version wrote has it as its source.
PLATFORM: Final = f"coalesce(nullif(platform, ''), nullif(source, ''), '{TERMINAL}')"
_THEIRS: Final = f"user_id = ? AND chat_id = ? AND profile = ? AND {PLATFORM} = ?"


def _find_or_create(
    database: sqlite3.Connection, facts: SessionFacts, messages: Sequence[NewMessage]
) -> tuple[int, int]:
    """The number of a session, and the place of its next message."""
    texts = list(map(storable, facts[:7]))
    platform, name = map(storable, facts[9:])
    owner = (*texts[2:5], platform or texts[1] or TERMINAL)
    row, is_taken = _known(database, texts[0], owner)
    if row is not None:
        number, following, is_nameless = row
        # Hosts name a session after its first turns. A title is set once, so that a person's own
        # stays.
        if facts.title and is_nameless:
            name_session(database, int(number), storable(facts.title))
        return int(number), int(following)
    if is_taken:
        name = name or texts[0]
        texts[0] = _free_id(database, texts[0], owner)
    started = facts.started or (messages[0].at if messages else 0.0)
    started = started if isfinite(started) else unix_time()
    inserted = database.execute(
        "INSERT INTO archive_sessions"
        " (id, source, user_id, chat_id, profile, title, parent, started, ended, active,"
        " messages, next, checksum, platform, name)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, ?, ?, ?)",
        (*texts, started, facts.ended, started, session_checksum(*texts, started), platform, name),
    )
    return int(inserted.lastrowid or 0), 0


def _known(
    database: sqlite3.Connection, name: str, owner: tuple[str, ...]
) -> tuple[tuple[Any, ...] | None, bool]:
    """A session's number, its next place and whether it has no title; whether its id is taken."""
    row = database.execute(
        f"SELECT {_THEIRS}, number, next, title = '' FROM archive_sessions WHERE id = ?",  # noqa: S608
        (*owner, name),
    ).fetchone()
    if row is not None and row[0]:
        return row[1:], True
    named = database.execute(
        "SELECT number, next, title = '' FROM archive_sessions"  # noqa: S608
        f" WHERE name = ? AND name != '' AND {_THEIRS} ORDER BY number LIMIT 1",
        (name, *owner),
    ).fetchone()
    return named, row is not None


def _free_id(database: sqlite3.Connection, name: str, owner: tuple[str, ...]) -> str:
    """An id for a session whose name is the id of somebody else's."""
    text = "\0".join(f"{len(each)}:{each}" for each in owner)
    wanted = f"{name}@{hashlib.sha256(text.encode()).hexdigest()[:32]}"
    query = "SELECT 1 FROM archive_sessions WHERE id = ?"
    ids = (f"{wanted}-{number}" if number else wanted for number in count())
    return next(each for each in ids if database.execute(query, (each,)).fetchone() is None)


def name_session(database: sqlite3.Connection, number: int, title: str) -> None:
    """Set the title of a session."""
    row = database.execute(
        "SELECT id, source, user_id, chat_id, profile, parent, started FROM archive_sessions"
        " WHERE number = ?",
        (number,),
    ).fetchone()
    database.execute(
        "UPDATE archive_sessions SET title = ?, checksum = ? WHERE number = ?",
        (title, session_checksum(*row[:5], title, *row[5:]), number),
    )


def forget_parent(database: sqlite3.Connection, gone: Session) -> None:
    """Let the sessions that continue one which is deleted be without a parent."""
    rows = database.execute(
        "SELECT number, id, source, user_id, chat_id, profile, title, started FROM archive_sessions"
        " WHERE parent != '' AND (parent = ? OR parent = ? AND user_id = ?)",
        (gone.id, gone.name, gone.user_id),
    ).fetchall()
    for number, *facts, started in rows:
        database.execute(
            "UPDATE archive_sessions SET parent = '', checksum = ? WHERE number = ?",
            (session_checksum(*facts, "", started), number),
        )


# -- Sessions in the tables: which there are, who may see them, where they come from ------------

_COLUMNS: Final = ", ".join(Session._fields)
_LARGEST: Final = 1e15


class Sessions:
    """The sessions as seen through one connection."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def named(self, name: str) -> Iterator[Session]:
        """The session of this id, then those that hosts call so, the last active first."""
        return self._where(
            "id = ? OR name = ? AND name != '' ORDER BY id = ? DESC, active DESC", name, name, name
        )

    def parents(self, sessions: Iterable[Session]) -> list[Iterator[Session]]:
        """For each session those that its ``parent`` names, as in `named`."""
        return [self.named(each.parent) for each in sessions]

    def by_number(self, numbers: Iterable[int]) -> Iterator[Session]:
        """Sessions by their numbers, the largest first."""
        wanted = json_list(numbers)
        return self._where(
            "number IN (SELECT value FROM json_each(?)) ORDER BY number DESC", wanted
        )

    def newest(
        self,
        scope: Scope,
        limit: int,
        *,
        oldest: bool = False,
        after: float | None = None,
        before: float | None = None,
    ) -> Iterator[Session]:
        """The sessions that may be seen, those with the newest messages first, or the oldest.

        With ``after`` and ``before`` only those that were going on in that time.
        """
        given = self._in_scope(scope)
        given |= {} if after is None else {"active >= ?": after}
        given |= {} if before is None else {"started < ?": before}
        where = " AND ".join(given) or "1"
        values = list(given.values())
        order = "active, number" if oldest else "active DESC, number DESC"
        return self._where(f"{where} ORDER BY {order} LIMIT ?", *values, limit)

    def browsed(self, scope: Scope, within: Period) -> Iterator[Session]:
        """The sessions of a period that may be seen, those with the newest messages first."""
        given: dict[str, tuple[object, ...]] = {
            text: (value,) for text, value in self._in_scope(scope).items()
        }
        given |= within.conditions
        values = [value for each in given.values() for value in each]
        where = " AND ".join(given) or "1"
        return self._where(f"{where} ORDER BY active DESC, number DESC", *values)

    @staticmethod
    def _in_scope(scope: Scope) -> dict[str, object]:
        return {
            f"{PLATFORM if name == 'platform' else name} = ?": value
            for name, value in scope._asdict().items()
            if value is not None
        }

    def in_times(self, times: Iterable[tuple[float, float]], limit: int) -> Iterator[Session]:
        """Sessions that were going on in one of these times, at most so many of each."""
        for begin, end in times:
            yield from self._where(
                "active >= ? AND started <= ? ORDER BY active LIMIT ?", begin, end, limit
            )

    def titles(self) -> Iterator[tuple[int, str]]:
        """The title of each session that has one, by its number."""
        rows = self._database.execute(
            "SELECT number, title FROM archive_sessions WHERE title != ''"
        )
        return ((number, title) for number, title in rows if isinstance(title, str))

    def has_profile(self, profiles: Iterable[str]) -> bool:
        """Whether there is a session of one of these profiles."""
        wanted = list(profiles)
        marks = ", ".join("?" * len(wanted))
        query = f"SELECT 1 FROM archive_sessions WHERE profile IN ({marks}) LIMIT 1"  # noqa: S608
        return self._database.execute(query, wanted).fetchone() is not None

    def people(self, user_id: str | None) -> list[tuple[str, str]]:
        """The platform and the id of each user with a conversation, or of those with this id."""
        rows = self._database.execute(
            f"SELECT DISTINCT {PLATFORM}, user_id FROM archive_sessions WHERE user_id != ''"  # noqa: S608
            f" AND user_id = coalesce(?, user_id)"
            f" AND (platform != '' OR source NOT IN {NO_PLATFORMS}) ORDER BY 1, 2",
            (user_id,),
        )
        return rows.fetchall()

    def times(self, numbers: Iterable[int]) -> Iterator[tuple[int, float]]:
        """When sessions had their last message."""
        return self._database.execute(
            "SELECT number, active FROM archive_sessions"
            " WHERE number IN (SELECT value FROM json_each(?))",
            (json_list(numbers),),
        )

    def _where(self, condition: str, *values: object) -> Iterator[Session]:
        rows = self._database.execute(
            f"SELECT {_COLUMNS} FROM archive_sessions WHERE {condition}",  # noqa: S608
            values,
        )
        return map(_session_from, rows)


def _session_from(row: tuple[Any, ...]) -> Session:
    """A session, whatever damage has made of its columns."""
    texts = [text if isinstance(text, str) else "" for text in (*row[1:8], *row[12:])]
    started, ended, active, messages = row[8:12]
    return Session._make(
        (
            row[0],
            *texts[:7],
            _number(started),
            None if ended is None else _number(ended),
            _number(active),
            int(_number(messages)),
            *texts[7:],
        )
    )


def _number(value: Any) -> float:
    is_number = isinstance(value, int | float) and abs(value) < _LARGEST
    return float(value) if is_number else 0.0
