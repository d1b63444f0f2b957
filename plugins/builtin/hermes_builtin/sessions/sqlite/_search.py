"""From a query to sessions.

Rare words are looked up first, all of their messages. A word that is nearly everywhere tells
little: it only adds to the score of what the rarer ones found. If there is no rarer one, the
sessions are walked through, the newest first, until there are enough. Then the answer is said
to be approximate.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Final

from hermes_builtin.sessions._model import CRON, HIDDEN_SOURCES, Found, Hit, Session
from hermes_builtin.sessions._query import Query, Term
from hermes_builtin.sessions.archive import SearchOptions
from hermes_builtin.sessions.sqlite._index import Clause, Index
from hermes_builtin.sessions.sqlite._phrases import having, without
from hermes_builtin.sessions.sqlite._ranking import Ranking, weight
from hermes_builtin.sessions.sqlite._schema import bounds, session_of
from hermes_builtin.sessions.sqlite._sessions import Sessions

#: So many hits of the index are looked at for one query.
BUDGET: Final = 20_000
#: So many hits of rarer words are reweighed by a word that is everywhere.
_REWEIGHED: Final = 4000
_MOST_TERMS: Final = 24
_WALKED: Final = 400
_PER_SESSION: Final = 40
_CHUNK: Final = 60
_LITERAL: Final = 5000


class Search:
    """One search."""

    def __init__(
        self, database: sqlite3.Connection, query: Query, options: SearchOptions, total: int
    ) -> None:
        self._database = database
        self._query = query
        self._options = options
        self._total = max(total, 1)
        self._index = Index(database, query.roles or options.roles, query.excluded)
        self._sessions = Sessions(database)
        self._approximate = False
        self._allowed: set[int] | None = None

    def found(self) -> Found:
        """The answer."""
        query = self._query
        if not query.has_words:
            return self._literal()
        if query.required:
            self._allowed, more = having(self._database, self._index, query.required)
            self._approximate |= more
            if not self._allowed:
                return Found([], frozenset())
        clauses = self._clauses()
        hits = self._hits(clauses)
        words = frozenset(word for clause in clauses for word in _shown(clause))
        return Found(hits, words, self._approximate)

    def _clauses(self) -> list[Clause]:
        """What is looked up, the rarest first."""
        required = [
            Term(word)
            for group in self._query.required
            for phrase in group
            for word in phrase.words
        ]
        terms = dict.fromkeys((*self._query.terms, *required))
        clauses = sorted(map(self._index.clause, terms), key=lambda clause: clause.messages)
        return clauses[:_MOST_TERMS]

    # -- candidates -----------------------------------------------------------------------

    def _hits(self, clauses: list[Clause]) -> list[Hit]:
        ranking, common = self._looked_up(clauses)
        if ranking and not (self._options.newest is not None and common):
            hits = self._best(ranking)
            if len(hits) >= self._options.limit or not common or self._allowed is not None:
                return hits
        self._approximate = True
        for find in (self._walked, self._newest, self._everywhere):
            wider = find(clauses)
            hits = self._best(wider)
            if hits:
                return hits
        return self._best(ranking)

    def _looked_up(self, clauses: list[Clause]) -> tuple[Ranking, list[Clause]]:
        """The messages of the words that are rare enough; and those words that are not."""
        ranking = Ranking(self._total)
        left, common, rare = BUDGET, [], []
        reach = 0
        for clause in clauses:
            if self._allowed is not None:
                numbers = self._among_allowed(clause)
            elif clause.messages <= left and not clause.partial:
                numbers = self._index.all(clause.match)
                left -= len(numbers)
                if reach + len(numbers) <= _REWEIGHED:
                    rare.append(clause.match)
                    reach += len(numbers)
            else:
                common.append(clause)
                if not rare:
                    continue
                numbers = self._index.all(f"({' OR '.join(rare)}) AND {clause.match}")
                ranking.add(clause, numbers, weight(clause.messages, self._total))
                continue
            ranking.add(clause, numbers, weight(len(numbers), self._total))
        return ranking, common

    def _among_allowed(self, clause: Clause) -> list[int]:
        allowed = self._allowed or set()
        if clause.messages > BUDGET:  # cheaper to ask for each session that is left
            numbers: list[int] = []
            for session in sorted({session_of(number) for number in allowed}, reverse=True)[
                :_WALKED
            ]:
                numbers += self._index.within(clause.match, *bounds(session), _PER_SESSION)
        else:
            numbers = self._index.all(clause.match)
        return [number for number in numbers if number in allowed]

    def _walked(self, clauses: list[Clause]) -> Ranking:
        """The messages that match in the newest sessions that may be seen."""
        ranking = Ranking(self._total)
        wanted = self._options.limit * 4
        sessions = 0
        for session in self._sessions.newest(self._options.scope, _WALKED):
            if not self._may_show(session):
                continue
            there = False
            for clause in clauses:
                numbers = self._index.within(clause.match, *bounds(session.number), _PER_SESSION)
                ranking.add(clause, numbers, weight(clause.messages, self._total))
                there = there or bool(numbers)
            sessions += there
            if sessions >= wanted:
                break
        return ranking

    def _newest(self, clauses: list[Clause]) -> Ranking:
        """The messages with the largest numbers, whatever their sessions are."""
        ranking = Ranking(self._total)
        for clause in clauses:
            numbers = self._index.all(clause.match, BUDGET // len(clauses))
            ranking.add(clause, numbers, weight(clause.messages, self._total))
        return ranking

    def _everywhere(self, clauses: list[Clause]) -> Ranking:
        """One message of each session that matches: slow, but it is there."""
        ranking = Ranking(self._total)
        match = " OR ".join(clause.match for clause in clauses)
        numbers = sorted(self._index.sessions(match), reverse=True)
        seen = 0
        for session in self._sessions.by_number(numbers):
            if self._may_show(session):
                found = self._index.within(match, *bounds(session.number), _PER_SESSION)
                ranking.add(clauses[0], found, 1.0)
                seen += 1
                if seen >= self._options.limit * 4:
                    break
        return ranking

    # -- sessions -------------------------------------------------------------------------

    def _best(self, ranking: Ranking) -> list[Hit]:
        """The best session of each lineage that may be shown, machines' below people's."""
        if self._allowed is not None:
            ranking.keep(self._allowed)
        if self._query.after is not None or self._query.before is not None:
            ranking.keep(self._in_time(ranking.messages()))
        if self._query.excluded:
            ranking.keep(without(self._database, ranking.messages(), self._query.excluded))
        ranking.normalise(self._sizes)
        newest = self._options.newest
        order = ranking.sessions()
        if newest is not None:
            order = self._by_time(order, newest=newest)
        shown: list[Hit] = []
        crons: list[Hit] = []
        seen = self._left_out()
        for session, best, score in self._with_facts(order):
            if not self._may_show(session):
                continue
            root = self._sessions.root(session)
            if root in seen:
                continue
            seen.add(root)
            (crons if session.source == CRON else shown).append(Hit(session, best, score))
            if len(shown) >= self._options.limit:
                break
        return [*shown, *crons][: self._options.limit]

    def _left_out(self) -> set[str]:
        """The lineage that is asking."""
        asking = self._options.without
        session = self._sessions.by_id(asking) if asking else None
        return {asking} if session is None else {self._sessions.root(session)}

    def _with_facts(
        self, order: list[tuple[int, int, float]]
    ) -> Iterator[tuple[Session, int, float]]:
        for at in range(0, len(order), _CHUNK):
            chunk = order[at : at + _CHUNK]
            facts = {each.number: each for each in self._sessions.by_number(n for n, _, _ in chunk)}
            for number, best, score in chunk:
                if number in facts:
                    yield facts[number], best, score

    def _may_show(self, session: Session) -> bool:
        hidden = not self._options.hidden and session.source in HIDDEN_SOURCES
        return not hidden and self._sessions.is_in(session, self._options.scope)

    def _by_time(
        self, order: list[tuple[int, int, float]], *, newest: bool
    ) -> list[tuple[int, int, float]]:
        times = dict(self._sessions.times(number for number, _, _ in order))
        order.sort(key=lambda each: times.get(each[0], 0.0), reverse=newest)
        return order

    def _in_time(self, numbers: Iterable[int]) -> set[int]:
        rows = self._database.execute(
            "SELECT id FROM archive_messages WHERE id IN (SELECT value FROM json_each(?))"
            " AND at >= ? AND at < ?",
            (
                _json(numbers),
                self._query.after if self._query.after is not None else -1e18,
                self._query.before if self._query.before is not None else 1e18,
            ),
        )
        return {number for (number,) in rows}

    def _sizes(self, numbers: Iterable[int]) -> dict[int, int]:
        return dict(
            self._database.execute(
                "SELECT id, size FROM archive_messages"
                " WHERE id IN (SELECT value FROM json_each(?))",
                (_json(numbers),),
            ).fetchall()
        )

    # -- no words at all ------------------------------------------------------------------

    def _literal(self) -> Found:
        """What has the query in it as it stands, among the newest messages."""
        text = self._query.text
        if not text:
            return Found([], frozenset())
        self._approximate = True
        ranking = Ranking(self._total)
        clause = Clause(Term(text), "", 0)
        left = _LITERAL
        for session in self._sessions.newest(self._options.scope, _WALKED):
            if left <= 0:
                break
            low, high = bounds(session.number)
            rows = self._database.execute(
                "SELECT id FROM archive_messages WHERE id BETWEEN ? AND ? AND instr(content, ?)"
                " ORDER BY id DESC LIMIT ?",
                (low, high, text, _PER_SESSION),
            ).fetchall()
            left -= session.messages
            ranking.add(clause, [number for (number,) in rows], 1.0)
        return Found(self._best(ranking), frozenset((text,)), self._approximate)


def _shown(clause: Clause) -> Iterable[str]:
    return (f"{clause.term.word}*",) if clause.term.prefix else (clause.term.word,)


def _json(numbers: Iterable[int]) -> str:
    return f"[{','.join(map(str, numbers))}]"
