"""Reads of the archive in PostgreSQL, several of them in one transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, Final

from hermes_builtin.sessions.archive import (
    ALWAYS,
    EVERYBODY,
    HIDDEN_SOURCES,
    Message,
    Period,
    Reader,
    Scope,
    SearchAnswer,
    SearchOptions,
    Session,
    Span,
    TitleMatch,
    facts_of,
)
from hermes_builtin.sessions.numbers import OTHER, role_code, role_name, session_of
from hermes_builtin.sessions.postgres.search import (
    PostgresSource,
    parents_of,
    sessions_named,
    sessions_where,
)
from hermes_builtin.sessions.query import Query
from hermes_builtin.sessions.ranking import Totals
from hermes_builtin.sessions.search import Search
from hermes_builtin.sessions.source import Lineages
from hermes_builtin.sessions.words import storable
from hermes_core.errors import DatabaseError
from hermes_core.storage.postgres import Connection, from_text, to_text

_PAGE: Final = 500
_ALL_ROLES: Final = (1 << (OTHER + 1)) - 1
# Both ends in one statement: of each span, one half returns nothing and costs nothing.
_READ: Final = """
SELECT span.place, message.id, message.content, message.at, message.extra
FROM unnest(%s::bigint[], %s::bigint[], %s::integer[], %s::integer[], %s::boolean[])
    WITH ORDINALITY AS span (low, high, most, roles, is_last, place)
CROSS JOIN LATERAL (
    (SELECT id, content, at, extra FROM hermes.archive_messages
     WHERE NOT is_last AND id BETWEEN low AND high AND (roles >> (id & 3)::integer) & 1 = 1
     ORDER BY id LIMIT most)
    UNION ALL
    (SELECT id, content, at, extra FROM hermes.archive_messages
     WHERE is_last AND id BETWEEN low AND high AND (roles >> (id & 3)::integer) & 1 = 1
     ORDER BY id DESC LIMIT most)
) AS message ORDER BY span.place, message.id
"""


def scope_values(scope: Scope) -> dict[str, str]:
    """A scope as the policies of the database take it."""
    given = scope._asdict().items()
    return {name: to_text(storable(value)) for name, value in given if value is not None}


class PostgresReader(Reader):
    """The archive of a namespace as one transaction sees it.

    Args:
        database: A connection in a transaction.
        scope: What the transaction sees, and what is read where no other scope is given.
        totals: Returns about how much there is.
        behind: Why the newest messages are not in the index.
    """

    def __init__(
        self,
        database: Connection,
        scope: Scope,
        totals: Callable[[Connection], Totals],
        behind: DatabaseError | None = None,
    ) -> None:
        self._database = database
        self._own = self._scope = scope
        self._totals = totals
        self._behind = behind

    def _see(self, scope: Scope) -> Connection:
        """The connection, with which only what a scope includes is seen."""
        if scope != self._scope:
            set_scope(self._database, scope)
            self._scope = scope
        return self._database

    # -- searches -------------------------------------------------------------------------

    def search(self, query: Query, options: SearchOptions) -> SearchAnswer:
        """The sessions that say most of what a query asks for."""
        source = self._source(query, options)
        found = Search(source, query, options, self._totals(self._database)).found()
        if self._behind is None:
            return found
        # An empty answer would say "not there", which nobody knows.
        if not found.hits:
            raise self._behind
        return found._replace(behind=str(self._behind))

    def titled(self, query: Query, options: SearchOptions) -> list[TitleMatch]:
        """The sessions whose titles a query asks for, those that it names exactly first."""
        return Search(self._source(query, options), query, options, Totals(0, 0)).titled()

    def _source(self, query: Query, options: SearchOptions) -> PostgresSource:
        return PostgresSource(self._see(options.scope), query, options)

    # -- sessions -------------------------------------------------------------------------

    def session(self, session_id: str, scope: Scope) -> Session | None:
        """One session, if it may be seen."""
        found = sessions_named(self._see(scope), storable(session_id))
        return next((each for each in found if each.is_in(scope)), None)

    def lineages(self, sessions: Sequence[Session]) -> list[list[str]]:
        """For each session its id and the ids of those that it continues, up to the first."""
        # Those that a session continues may be of another chat.
        lineages = Lineages(lambda some: parents_of(self._see(EVERYBODY), some))
        lineages.load(sessions)
        return [lineages.of(each) for each in sessions]

    def browse(
        self,
        scope: Scope,
        limit: int,
        *,
        hidden: bool = False,
        profiles: Container[str] = (),
        within: Period = ALWAYS,
    ) -> list[Session]:
        """The sessions with the newest messages; of these profiles only, if any is named."""
        found: list[Session] = []
        page = min(4 * limit, _PAGE)
        where = " AND ".join(within.conditions).replace("?", "%s") or "true"
        values = [value for each in within.conditions.values() for value in each]
        condition = f"{where} ORDER BY active DESC, number DESC LIMIT %s OFFSET %s"
        for at in range(0, 1 << 62, page):
            some = list(sessions_where(self._see(scope), condition, *values, page, at))
            found += [
                each
                for each in some
                if each.messages and each.is_in(scope)
                if hidden or each.source not in HIDDEN_SOURCES
                if not profiles or each.profile in profiles
            ]
            if len(found) >= limit or len(some) < page:
                break
        return found[:limit]

    def owner(self, message_id: int, scope: Scope) -> Session | None:
        """The session that a message belongs to, if it may be seen."""
        condition = "number = %s AND EXISTS (SELECT 1 FROM hermes.archive_messages WHERE id = %s)"
        found = sessions_where(self._see(scope), condition, session_of(message_id), message_id)
        return next((each for each in found if each.is_in(scope)), None)

    def has_profile(self, profiles: Iterable[str]) -> bool:
        """Whether there is a session of one of these profiles."""
        query = "SELECT 1 FROM hermes.archive_sessions WHERE profile = ANY (%s) LIMIT 1"
        wanted = [to_text(storable(each)) for each in profiles]
        return self._see(EVERYBODY).execute(query, (wanted,)).fetchone() is not None

    # -- messages -------------------------------------------------------------------------

    def read(self, spans: Sequence[Span], scope: Scope | None = None) -> list[list[Message]]:
        """For each span its messages, in their order."""
        found: list[list[Message]] = [[] for _ in spans]
        if not spans:
            return found
        database = self._see(self._own if scope is None else scope)
        columns = zip(*((*each[:3], _mask(each.roles), each.last) for each in spans), strict=True)
        for place, *row in database.execute(_READ, [list(each) for each in columns]):
            found[place - 1].append(_message(*row))
        return found


def set_scope(database: Connection, scope: Scope) -> None:
    """Have a transaction see what another scope includes."""
    text = json.dumps(scope_values(scope), ensure_ascii=False)
    database.execute("SELECT set_config('hermes.scope', %s, true)", (text,))


def _mask(roles: Iterable[str]) -> int:
    """Roles as a number with a bit for each; all of them, if none is given."""
    return sum({1 << role_code(role) for role in roles}) or _ALL_ROLES


def _message(number: int, content: str, at: float, extra: str | None) -> Message:
    facts: dict[str, Any] = facts_of(from_text(extra)) if extra else {}
    role = role_name(number) or str(facts.pop("role", "other"))
    return Message(number, role, from_text(content), at, facts)
