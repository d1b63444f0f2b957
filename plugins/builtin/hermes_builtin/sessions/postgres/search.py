"""The archive in PostgreSQL as a search sees it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import md5
from itertools import chain
from typing import Any, Final
from uuid import UUID

from hermes_builtin.sessions.archive import EVERYBODY, Scope, SearchOptions, Session
from hermes_builtin.sessions.numbers import OTHER, bounds, role_code
from hermes_builtin.sessions.query import Query
from hermes_builtin.sessions.ranking import Spread
from hermes_builtin.sessions.source import Group, Match
from hermes_core.storage.postgres import Connection, from_text, to_text

_COLUMNS: Final = ", ".join(Session._fields)
_FOUND: Final = ", ".join(f"found.{each}" for each in Session._fields)
_MOST_EXPANSIONS: Final = 5000
_EVER: Final = 1e18


def session_from(row: Sequence[Any]) -> Session:
    """A session from its row."""
    return Session._make(from_text(each) if isinstance(each, str) else each for each in row)


class PostgresSource:
    """The index and the messages of a namespace, as one transaction sees them.

    Args:
        database: A connection in a transaction, whose scope limits what is seen.
        query: What is looked for; for its roles, and the words that must not be there.
        options: How.
    """

    def __init__(self, database: Connection, query: Query, options: SearchOptions) -> None:
        self._database = database
        codes = sorted({role_code(role) for role in query.roles or options.roles})
        self._roles = codes if len(codes) <= OTHER else []
        self._sees_all = options.scope == EVERYBODY
        lone = [phrase.words[0] for phrase in query.excluded if len(phrase.words) == 1]
        self._without = " ".join(lone)
        self._expanded: dict[str, list[str]] = {}

    # -- words ----------------------------------------------------------------------------

    def counts(self, words: Iterable[str]) -> dict[str, int]:
        """In about how many messages words are; those that are in none are left out."""
        wanted = list(words)
        if not wanted:
            return {}
        rows = self._rows("SELECT term, count FROM hermes.archive_counts(%s)", wanted)
        return dict(rows)

    def terms(self, prefix: str, limit: int) -> list[tuple[str, int]]:
        """Words that begin like this, and in about how many messages they are."""
        query = "SELECT term, count FROM hermes.archive_beginning(%s, %s)"
        rows = self._rows(query, prefix, limit)
        self._expanded[prefix] = [term for term, _ in rows]
        return [(term, count) for term, count in rows]

    def newest(self, match: Match, limit: int, below: int | None = None) -> list[int]:
        """The messages that match, at most so many, those with the largest numbers."""
        groups = self._groups(match)
        if not all(groups):
            return []
        return self._numbers(
            "SELECT * FROM hermes.archive_find(%s, %s, %s, %s, %s)",
            groups, self._without, self._roles, limit, below,
        )  # fmt: skip

    def spread(self, groups: Sequence[Group], most: int) -> list[Spread | None] | None:
        """In how many messages and sessions of all people the words of each group are.

        The database counts each word alone: a message with two words of a group counts twice.
        """
        if self._sees_all or not groups:
            return None
        words = [list(self._without_prefixes(group)) for group in groups]
        asked = list(dict.fromkeys(chain.from_iterable(words)))
        rows = self._rows(
            "SELECT messages, sessions FROM hermes.archive_spread(%s::text[], %s)", asked, most
        )
        if not rows:
            return []
        counted = dict(zip(asked, rows, strict=True))
        return [_sum_of([counted[word] for word in each]) for each in words]

    def within(
        self, groups: Sequence[Group], sessions: Sequence[int], limit: int | None
    ) -> list[list[int]]:
        """For each group the messages of these sessions, the first so many of each session."""
        found: list[list[int]] = [[] for _ in groups]
        rows = self._rows(
            "SELECT at, id FROM hermes.archive_within(%s, %s, %s, %s, %s)",
            self._groups(groups), list(sessions), self._without, self._roles, limit,
        )  # fmt: skip
        for at, number in rows:
            found[at - 1].append(number)
        return found

    def sessions_with(self, group: Group) -> list[int]:
        """The sessions that have a message that matches. Takes time where there are many."""
        query = "SELECT * FROM hermes.archive_find_sessions(%s, %s, %s)"
        return self._numbers(query, self._groups([group]), self._without, self._roles)

    def _groups(self, match: Match) -> list[str]:
        """Each group as the database takes it: words of the index, with blanks between them."""
        return [" ".join(self._without_prefixes(group)) for group in match]

    def _without_prefixes(self, group: Group) -> Iterator[str]:
        for word in group:
            if word[-1:] != "*":
                yield word
                continue
            if word[:-1] not in self._expanded:
                self.terms(word[:-1], _MOST_EXPANSIONS)
            yield from self._expanded[word[:-1]]

    # -- messages -------------------------------------------------------------------------

    def containing(self, text: str, sessions: Sequence[int], limit: int) -> list[int]:
        """The last messages of each of these sessions that have a text in them as it stands."""
        return self._numbers(
            "SELECT found.id FROM unnest(%s::bigint[], %s::bigint[]) AS session (low, high)"
            " CROSS JOIN LATERAL (SELECT id FROM hermes.archive_messages"
            "  WHERE id >= low AND id <= high AND strpos(content, %s) > 0"
            "  AND (cardinality(%s::int[]) = 0 OR (id & 3) = ANY (%s::int[]))"
            "  ORDER BY id DESC LIMIT %s) AS found",
            [bounds(each)[0] for each in sessions], [bounds(each)[1] for each in sessions],
            to_text(text), self._roles, self._roles, limit,
        )  # fmt: skip

    def texts(self, numbers: Iterable[int]) -> Iterable[tuple[int, str, str | None]]:
        """Numbers, contents and extras of messages."""
        query = "SELECT id, content, extra FROM hermes.archive_messages WHERE id = ANY (%s)"
        for number, content, extra in self._rows(query, list(numbers)):
            yield number, from_text(content), None if extra is None else from_text(extra)

    def sizes(self, numbers: Iterable[int]) -> dict[int, int]:
        """The lengths of messages."""
        query = "SELECT id, size FROM hermes.archive_messages WHERE id = ANY (%s)"
        return dict(self._rows(query, list(numbers)))

    def in_time(
        self, numbers: Iterable[int], after: float | None, before: float | None
    ) -> set[int]:
        """Those messages that are not older than one time, and older than the other."""
        found = self._numbers(
            "SELECT id FROM hermes.archive_messages WHERE id = ANY (%s) AND at >= %s AND at < %s",
            list(numbers),
            -_EVER if after is None else after,
            _EVER if before is None else before,
        )
        return set(found)

    # -- sessions -------------------------------------------------------------------------

    def by_number(self, numbers: Iterable[int]) -> Iterator[Session]:
        """Sessions by their numbers, the largest first."""
        return sessions_where(
            self._database, "number = ANY (%s) ORDER BY number DESC", list(numbers)
        )

    def named(self, name: str) -> Iterator[Session]:
        """The session of this id, then those that hosts call so, the last active first."""
        return sessions_named(self._database, name)

    def parents(self, sessions: Sequence[Session]) -> list[list[Session]]:
        """For each session those of its user that its ``parent`` names, as in `named`."""
        return parents_of(self._database, sessions)

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
        # The scope of the transaction is this one, or a wider one. Then rows of others are left
        # out here.
        order = "active, number" if oldest else "active DESC, number DESC"
        found = sessions_where(
            self._database,
            f"active >= %s AND started < %s ORDER BY {order} LIMIT %s",
            -_EVER if after is None else after,
            _EVER if before is None else before,
            limit,
        )
        return (each for each in found if each.is_in(scope))

    def in_times(self, times: Iterable[tuple[float, float]], limit: int) -> Iterator[Session]:
        """Sessions that were going on in one of these times, at most so many of each."""
        for begin, end in times:
            condition = "active >= %s AND started <= %s ORDER BY active LIMIT %s"
            yield from sessions_where(self._database, condition, begin, end, limit)

    def titles(self) -> Iterator[tuple[int, str]]:
        """The title of each session that has one, by its number."""
        query = "SELECT number, title FROM hermes.archive_sessions WHERE title != ''"
        return ((number, from_text(title)) for number, title in self._rows(query))

    def times(self, numbers: Iterable[int]) -> Iterator[tuple[int, float]]:
        """When sessions had their last message."""
        query = "SELECT number, active FROM hermes.archive_sessions WHERE number = ANY (%s)"
        return iter(self._rows(query, list(numbers)))

    def _rows(self, query: str, *values: Any) -> list[Any]:
        return self._database.execute(query, values).fetchall()

    def _numbers(self, query: str, *values: Any) -> list[int]:
        return [number for (number,) in self._rows(query, *values)]


def _sum_of(rows: Sequence[tuple[int | None, int | None]]) -> Spread | None:
    """How often words occur together; None if one of them was not counted."""
    found = [Spread(messages, sessions or 0) for messages, sessions in rows if messages is not None]
    if len(found) < len(rows):
        return None
    return Spread(sum(each.messages for each in found), sum(each.sessions for each in found))


def sessions_where(database: Connection, condition: str, *values: Any) -> Iterator[Session]:
    """The sessions that fulfil a condition, and that the scope of the transaction includes."""
    query = f"SELECT {_COLUMNS} FROM hermes.archive_sessions WHERE {condition}"  # noqa: S608
    return map(session_from, database.execute(query, values))


def all_sessions(database: Connection, page: int) -> Iterator[Session]:
    """The sessions of one moment that the scope of the transaction includes, the oldest first."""
    query = f"SELECT {_COLUMNS} FROM hermes.archive_sessions ORDER BY active, number"  # noqa: S608
    with database.cursor("sessions") as cursor:
        cursor.itersize = page
        yield from map(session_from, cursor.execute(query))


def sessions_named(database: Connection, name: str) -> Iterator[Session]:
    """The session of this id, then those that hosts call so, the last active first."""
    values = {"key": key_of(name), "name": to_text(name)}
    return map(session_from, database.execute(_NAMED, values))


def parents_of(database: Connection, sessions: Sequence[Session]) -> list[list[Session]]:
    """For each session those of its user that its ``parent`` names, as in `sessions_named`."""
    found: list[list[Session]] = [[] for _ in sessions]
    values = (
        [key_of(each.parent) for each in sessions],
        [to_text(each.parent) for each in sessions],
        [to_text(each.user_id) for each in sessions],
    )
    for place, *row in database.execute(_PARENTS, values):
        found[place - 1].append(session_from(row))
    return found


# Two look-ups, each by its index: with OR, the planner would not use them below the policies.
_NAMED: Final = f"""
SELECT {_COLUMNS} FROM (
    SELECT 1 AS rank, {_COLUMNS} FROM hermes.archive_sessions WHERE key = %(key)s AND id = %(name)s
    UNION ALL
    SELECT 2, {_COLUMNS} FROM hermes.archive_sessions WHERE name_key = %(key)s AND name = %(name)s
) AS found ORDER BY rank, active DESC
"""  # noqa: S608
_PARENTS: Final = f"""
SELECT child.place, {_FOUND} FROM unnest(%s::uuid[], %s::text[], %s::text[])
    WITH ORDINALITY AS child (parent_key, parent_name, person, place)
CROSS JOIN LATERAL (
    SELECT 1 AS rank, {_COLUMNS} FROM hermes.archive_sessions
    WHERE key = parent_key AND id = parent_name AND user_id = person
    UNION ALL
    SELECT 2, {_COLUMNS} FROM hermes.archive_sessions
    WHERE name_key = parent_key AND name = parent_name AND user_id = person
) AS found ORDER BY child.place, found.rank, found.active DESC
"""  # noqa: S608


def key_of(name: str) -> UUID:
    """A short form of a text of any length, as the database makes it."""
    return UUID(md5(to_text(name).encode(), usedforsecurity=False).hexdigest())
