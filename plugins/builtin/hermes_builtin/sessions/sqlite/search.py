"""The archive's SQLite file as a search sees it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from hermes_builtin.sessions.archive import Scope, SearchOptions, Session
from hermes_builtin.sessions.numbers import OTHER, SESSION_BITS, bounds, role_code, session_of
from hermes_builtin.sessions.query import Phrase, Query
from hermes_builtin.sessions.source import Group, Match
from hermes_builtin.sessions.sqlite.database import json_list
from hermes_builtin.sessions.sqlite.tables import Sessions

_EVER: Final = 1e18
#: Matches that are read at once, of sessions that follow each other.
_PER_RUN: Final = 4000


class SqliteSource:
    """The index and the messages, as one connection sees them.

    Args:
        database: The connection.
        roles: Only messages of these are looked for; of any, if empty.
        excluded: What must not be in a message. Phrases of several words are not looked at here.
    """

    def __init__(
        self,
        database: sqlite3.Connection,
        roles: frozenset[str] = frozenset(),
        excluded: Sequence[Phrase] = (),
    ) -> None:
        self._database = database
        self._sessions = Sessions(database)
        codes = sorted({role_code(role) for role in roles})
        self._condition = (
            f" AND (rowid & {OTHER}) IN ({', '.join(map(str, codes))})"
            if codes and len(codes) <= OTHER
            else ""
        )
        lone = [phrase.words[0] for phrase in excluded if len(phrase.words) == 1]
        self._without = f" NOT ({_any_of(lone)})" if lone else ""

    @classmethod
    def of(cls, database: sqlite3.Connection, query: Query, options: SearchOptions) -> SqliteSource:
        """The source for one search."""
        return cls(database, query.roles or options.roles, query.excluded)

    # -- words ----------------------------------------------------------------------------

    def counts(self, words: Iterable[str]) -> dict[str, int]:
        """In about how many messages words are; those that are in none are left out."""
        wanted = list(words)
        marks = ", ".join("?" * len(wanted))
        return dict(
            self._database.execute(
                f"SELECT term, CAST(count AS INTEGER) FROM archive_terms WHERE term IN ({marks})",  # noqa: S608
                wanted,
            ).fetchall()
        )

    def terms(self, prefix: str, limit: int) -> list[tuple[str, int]]:
        """Words that begin like this, and in about how many messages they are."""
        return self._database.execute(
            "SELECT term, CAST(count AS INTEGER) FROM archive_terms"
            " WHERE term >= ? AND term < ? AND typeof(term) = 'text' LIMIT ?",
            # A range of the primary key; LIKE would not use it. The last code point comes after
            # every word.
            (prefix, prefix + "\U0010ffff", limit),
        ).fetchall()

    def newest(self, match: Match, limit: int, below: int | None = None) -> list[int]:
        """The messages that match, at most so many, those with the largest numbers."""
        order = " ORDER BY rowid DESC LIMIT ?"
        if below is None:
            return self._rows(match, order, limit)
        return self._rows(match, f" AND rowid < ?{order}", below, limit)

    def spread(self, groups: Sequence[Group], most: int) -> None:
        """Nothing: `newest` returns the messages of all people."""

    def within(
        self, groups: Sequence[Group], sessions: Sequence[int], limit: int | None
    ) -> list[list[int]]:
        """For each group the messages of these sessions, the first so many of each session."""
        return [self._in_sessions(group, sessions, limit) for group in groups]

    def _in_sessions(self, group: Group, sessions: Sequence[int], limit: int | None) -> list[int]:
        found: dict[int, list[int]] = {}
        for run in _runs(sessions):
            # One query for sessions that follow each other: each has to find every form of a word.
            # Where they have too many matches, the limit of each saves more.
            numbers = self._between(group, run[0], run[-1], _PER_RUN) if len(run) > 1 else []
            if 0 < len(numbers) < _PER_RUN:
                for number in numbers:
                    found.setdefault(session_of(number), []).append(number)
            elif numbers or len(run) == 1:
                most = -1 if limit is None else limit
                found |= {each: self._between(group, each, each, most) for each in run}
        return [number for each in sessions for number in found.get(each, [])[:limit]]

    def _between(self, group: Group, first: int, last: int, limit: int) -> list[int]:
        tail = " AND rowid BETWEEN ? AND ? LIMIT ?"
        return self._rows((group,), tail, bounds(first)[0], bounds(last)[1], limit)

    def sessions_with(self, group: Group) -> list[int]:
        """The sessions that have a message that matches. Takes time where there are many."""
        rows = self._database.execute(
            f"SELECT DISTINCT rowid >> {SESSION_BITS} FROM archive_index"  # noqa: S608
            f" WHERE archive_index MATCH ?{self._condition}",
            (self._expression((group,)),),
        )
        return [number for (number,) in rows]

    def has(self, number: int, words: Iterable[str]) -> bool:
        """Whether the index has a message with all of these words."""
        match = [(word,) for word in words]
        return bool(self._rows(match, " AND rowid = ? LIMIT 1", number))

    def _rows(self, match: Match, tail: str, *values: int) -> list[int]:
        rows = self._database.execute(
            f"SELECT rowid FROM archive_index WHERE archive_index MATCH ?{self._condition}{tail}",  # noqa: S608
            (self._expression(match), *values),
        )
        return [number for (number,) in rows]

    def _expression(self, match: Match) -> str:
        """An FTS5 expression."""
        groups = " AND ".join(f"({_any_of(group)})" for group in match)
        return f"({groups}){self._without}"

    # -- messages -------------------------------------------------------------------------

    def containing(self, text: str, sessions: Sequence[int], limit: int) -> list[int]:
        """The last messages of each of these sessions that have a text in them as it stands."""
        condition = self._condition.replace("rowid", "id")
        query = (
            "SELECT id FROM archive_messages WHERE id BETWEEN ? AND ? AND instr(content, ?)"  # noqa: S608
            f"{condition} ORDER BY id DESC LIMIT ?"
        )
        return [
            number
            for session in sessions
            for (number,) in self._database.execute(query, (*bounds(session), text, limit))
        ]

    def texts(self, numbers: Iterable[int]) -> Iterable[tuple[int, str, str | None]]:
        """Numbers, contents and extras of messages."""
        return self._database.execute(
            "SELECT id, content, extra FROM archive_messages"
            " WHERE id IN (SELECT value FROM json_each(?))",
            (json_list(numbers),),
        )

    def sizes(self, numbers: Iterable[int]) -> dict[int, int]:
        """The lengths of messages."""
        rows = self._database.execute(
            "SELECT id, size FROM archive_messages WHERE id IN (SELECT value FROM json_each(?))"
            " AND typeof(size) = 'integer'",
            (json_list(numbers),),
        )
        return dict(rows.fetchall())

    def in_time(
        self, numbers: Iterable[int], after: float | None, before: float | None
    ) -> set[int]:
        """Those messages that are not older than one time, and older than the other."""
        rows = self._database.execute(
            "SELECT id FROM archive_messages WHERE id IN (SELECT value FROM json_each(?))"
            " AND at >= ? AND at < ?",
            (
                json_list(numbers),
                -_EVER if after is None else after,
                _EVER if before is None else before,
            ),
        )
        return {number for (number,) in rows}

    # -- sessions -------------------------------------------------------------------------

    def by_number(self, numbers: Iterable[int]) -> Iterator[Session]:
        """Sessions by their numbers, the largest first."""
        return self._sessions.by_number(numbers)

    def named(self, name: str) -> Iterator[Session]:
        """The session of this id, then those that hosts call so, the last active first."""
        return self._sessions.named(name)

    def parents(self, sessions: Sequence[Session]) -> list[Iterator[Session]]:
        """For each session those that its ``parent`` names, as in `named`."""
        return self._sessions.parents(sessions)

    def newest_sessions(
        self,
        scope: Scope,
        limit: int,
        *,
        oldest: bool = False,
        after: float | None = None,
        before: float | None = None,
    ) -> Iterator[Session]:
        """The sessions that may be seen, those with the newest messages first, or the oldest."""
        return self._sessions.newest(scope, limit, oldest=oldest, after=after, before=before)

    def in_times(self, times: Iterable[tuple[float, float]], limit: int) -> Iterator[Session]:
        """Sessions that were going on in one of these times, at most so many of each."""
        return self._sessions.in_times(times, limit)

    def titles(self) -> Iterator[tuple[int, str]]:
        """The title of each session that has one, by its number."""
        return self._sessions.titles()

    def times(self, numbers: Iterable[int]) -> Iterator[tuple[int, float]]:
        """When sessions had their last message."""
        return self._sessions.times(numbers)


def _runs(sessions: Iterable[int]) -> list[list[int]]:
    """Numbers, in runs of those that follow each other."""
    runs: list[list[int]] = []
    for number in sorted(sessions):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return runs


def _any_of(words: Iterable[str]) -> str:
    """An FTS5 expression of words, of which a message has one. Index words hold no quotes."""
    return " OR ".join(f'"{word[:-1]}"*' if word[-1:] == "*" else f'"{word}"' for word in words)
