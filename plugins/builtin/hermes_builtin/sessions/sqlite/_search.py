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

from hermes_builtin.sessions._dates import agreement, days, reach
from hermes_builtin.sessions._model import CRON, HIDDEN_SOURCES, Found, Hit, Session
from hermes_builtin.sessions._query import Query, Term
from hermes_builtin.sessions._thesaurus import WEIGHT, related
from hermes_builtin.sessions.archive import SearchOptions
from hermes_builtin.sessions.sqlite._index import Clause, Index, quoted
from hermes_builtin.sessions.sqlite._indexing import indexed_words
from hermes_builtin.sessions.sqlite._phrases import MOST_READ, beginning, having, texts, without
from hermes_builtin.sessions.sqlite._ranking import Ranked, Ranking, Totals, rarity, weight
from hermes_builtin.sessions.sqlite._schema import bounds, session_of
from hermes_builtin.sessions.sqlite._sessions import Sessions

#: So many hits of the index are looked at for one query.
BUDGET: Final = 5000
#: So many hits of rarer words are reweighed by a word that is everywhere.
_REWEIGHED: Final = 3000
_MOST_TERMS: Final = 24
_WALKED: Final = 400
_ENOUGH: Final = 4  # times the limit
_PER_SESSION: Final = 40
_CHUNK: Final = 60
_LOOKED_AT: Final = 300
_LITERAL: Final = 5000
_SHORTEST_SLIP: Final = 7
_SLIP: Final = 0.8
_ON_A_DAY: Final = 30


class Search:
    """One search."""

    def __init__(
        self, database: sqlite3.Connection, query: Query, options: SearchOptions, totals: Totals
    ) -> None:
        self._database = database
        self._query = query
        self._options = options
        self._totals = totals
        self._index = Index(database, query.roles or options.roles, query.excluded)
        self._sessions = Sessions(database)
        self._approximate = False
        self._allowed: set[int] | None = None
        self._asking = self._left_out()
        self._shown: set[str] = set()

    def found(self) -> Found:
        """The answer."""
        query = self._query
        if not query.has_words:
            return self._literal()
        if query.required:
            self._allowed, more = having(self._database, self._index, query.required, self._visible)
            self._approximate |= more
            if not self._allowed:
                return Found([], frozenset())
        clauses = self._clauses()
        for term in (clause.term for clause in clauses):
            self._shown.add(f"{term.word}*" if term.prefix else term.word)
        hits = self._hits(clauses)
        return Found(hits, frozenset(self._shown), self._approximate)

    def _clauses(self) -> list[Clause]:
        """What is looked up, the rarest first."""
        required = [
            Term(word)
            for group in self._query.required
            for phrase in group
            for word in phrase.words
        ]
        terms = dict.fromkeys((*self._query.terms, *required))
        clauses = map(self._index.clause, terms)
        # Words that nobody said must not crowd out one that somebody did.
        known = sorted(clauses, key=lambda clause: (not clause.messages, clause.messages))
        return sorted(known[:_MOST_TERMS], key=lambda clause: clause.messages)

    # -- candidates -----------------------------------------------------------------------

    def _hits(self, clauses: list[Clause]) -> list[Hit]:
        ranking, common = self._looked_up(clauses)
        by_time = self._options.newest is not None
        if ranking and not (by_time and common):
            self._favour_days(ranking)
            rare = self._best(ranking)
            if len(rare) >= self._options.limit or not common or self._allowed is not None:
                return rare
        elif not common:
            return []
        else:
            rare = []
        self._approximate = True
        for find in (self._walked, self._newest, self._everywhere):
            if more := self._best(find(clauses)):
                return self._together(rare, more)
        return rare

    def _together(self, first: list[Hit], more: list[Hit]) -> list[Hit]:
        """Hits of rare words, and others where these are few."""
        seen = {hit.session.number for hit in first}
        hits = [*first, *(hit for hit in more if hit.session.number not in seen)]
        if self._options.newest is not None:
            hits.sort(key=lambda hit: hit.session.active, reverse=self._options.newest)
        return hits[: self._options.limit]

    def _looked_up(self, clauses: list[Clause]) -> tuple[Ranking, list[Clause]]:
        """The messages of the words that are rare enough; and those words that are not."""
        ranking = Ranking()
        common: list[Clause] = []
        rare: list[str] = []
        left, reach_ = BUDGET, 0
        for clause in clauses:
            if self._allowed is not None:
                numbers = self._among_allowed(clause)
            elif clause.partial or clause.messages > left:
                numbers = None
            else:
                numbers = self._index.newest(clause.match, left + 1)
                numbers = None if len(numbers) > left else [*numbers, *self._longer(clause)]
            if numbers is None:
                common.append(clause)
                if rare:
                    both = self._index.newest(f"({' OR '.join(rare)}) AND {clause.match}", left)
                    ranking.add(clause.term.word, both, self._guess(clause))
                continue
            left -= len(numbers)
            left -= self._add(ranking, clause, numbers, left)
            if reach_ + len(numbers) <= _REWEIGHED:
                rare.append(clause.match)
                reach_ += len(numbers)
        return ranking, common

    def _add(self, ranking: Ranking, clause: Clause, numbers: list[int], left: int) -> int:
        """Add the messages of a word, and of other words for it; gives how many those are."""
        others, strength = self._other_words(clause.term, known=bool(numbers))
        instead: list[int] = []
        if others and self._allowed is None:
            instead = self._index.newest(quoted(others, " OR "), left + 1)
            instead = [] if len(instead) > left else instead
        value = weight(numbers or instead, self._totals)
        ranking.add(clause.term.word, numbers, value)
        ranking.add(clause.term.word, instead, value, strength)
        if instead:
            self._shown.update(others)
        return len(instead)

    def _longer(self, clause: Clause) -> list[int]:
        """Messages with a word that begins as it should, though its stem does not."""
        if not clause.shorter:
            return []
        candidates = self._index.newest(clause.shorter, MOST_READ)
        self._approximate |= len(candidates) == MOST_READ
        return sorted(beginning(self._database, candidates, clause.term.word))

    def _other_words(self, term: Term, *, known: bool) -> tuple[Iterable[str], float]:
        if term.prefix:
            return (), 1.0
        others = related(term.word)
        if not others and not known and len(term.word) >= _SHORTEST_SLIP and term.word.isalpha():
            return self._index.alike(term.word), _SLIP
        return others, WEIGHT

    def _guess(self, clause: Clause) -> float:
        """The weight of a word whose messages were not all looked at."""
        return rarity(clause.messages, self._totals.messages)

    def _among_allowed(self, clause: Clause) -> list[int]:
        allowed = self._allowed or set()
        if clause.messages <= BUDGET:
            numbers = self._index.newest(clause.match, BUDGET)
        else:  # cheaper to ask for each session that is left
            numbers = []
            sessions = sorted({session_of(number) for number in allowed}, reverse=True)
            for session in sessions[:_WALKED]:
                numbers += self._index.within(clause.match, *bounds(session), _PER_SESSION)
        return [number for number in numbers if number in allowed]

    def _walked(self, clauses: list[Clause]) -> Ranking:
        """The messages that match in the newest sessions that may be seen."""
        ranking = Ranking()
        enough = self._options.limit * _ENOUGH
        for session in self._sessions.newest(
            self._options.scope,
            _WALKED,
            oldest=self._options.newest is False,
            after=self._query.after,
            before=self._query.before,
        ):
            if not self._may_show(session):
                continue
            there = False
            for clause in clauses:
                numbers = self._within(clause.match, session)
                ranking.add(clause.term.word, numbers, self._guess(clause))
                there = there or bool(numbers)
            enough -= there and session.source != CRON
            if not enough:
                break
        return ranking

    def _within(self, match: str, session: Session) -> list[int]:
        """Messages of a session that match, in the time that is asked for."""
        most = _PER_SESSION if self._is_timeless else -1
        numbers = self._index.within(match, *bounds(session.number), most)
        return numbers if self._is_timeless else sorted(self._in_time(numbers))[-_PER_SESSION:]

    @property
    def _is_timeless(self) -> bool:
        return self._query.after is None and self._query.before is None

    def _newest(self, clauses: list[Clause]) -> Ranking:
        """The messages with the largest numbers, whatever their sessions are."""
        ranking = Ranking()
        if not self._is_timeless:
            return ranking
        for clause in clauses:
            numbers = self._index.newest(clause.match, BUDGET // len(clauses))
            ranking.add(clause.term.word, numbers, self._guess(clause))
        return ranking

    def _everywhere(self, clauses: list[Clause]) -> Ranking:
        """Some sessions that match, looked for in all of them: slow, but it is there."""
        ranking = Ranking()
        match = " OR ".join(clause.match for clause in clauses)
        numbers = sorted(self._index.sessions(match), reverse=True)
        enough = self._options.limit * _ENOUGH
        for session in self._sessions.by_number(numbers):
            if self._may_show(session):
                found = self._within(match, session)
                ranking.add(clauses[0].term.word, found, 1.0)
                enough -= bool(found)
                if not enough:
                    break
        return ranking

    def _favour_days(self, ranking: Ranking) -> None:
        """Sessions of a day that the query names count for more."""
        named = days(self._query.text)
        if not named:
            return
        sessions = {each.number: each for each in self._sessions.in_times(reach(named), _ON_A_DAY)}
        numbers = {session_of(number) for number in ranking.messages()} - sessions.keys()
        sessions |= {each.number: each for each in self._sessions.by_number(numbers)}
        total = sum(ranking.weights.values())
        ranking.favour(
            {
                number: total * agreement(named, each.started, each.active)
                for number, each in sessions.items()
            }
        )

    # -- sessions -------------------------------------------------------------------------

    def _best(self, ranking: Ranking) -> list[Hit]:
        """The best session of each lineage that may be shown, machines' below people's."""
        self._filter(ranking)
        some_left = len({session_of(number) for number in ranking.messages()}) > _LOOKED_AT
        if self._options.newest is None and some_left:
            hits = self._shown_of(ranking, _LOOKED_AT)
            if sum(hit.session.source != CRON for hit in hits) >= self._options.limit:
                return hits
        return self._shown_of(ranking, 0)

    def _shown_of(self, ranking: Ranking, most: int) -> list[Hit]:
        order = ranking.sessions(self._sizes, self._query.pairs, self._words, most)
        if self._options.newest is not None:
            order = self._by_time(order, newest=self._options.newest)
        shown: list[Hit] = []
        crons: list[Hit] = []
        seen = set(self._asking)
        for session, ranked in self._with_facts(order):
            if not self._may_show(session):
                continue
            root = self._sessions.root(session)
            if root in seen:
                continue
            seen.add(root)
            hit = Hit(session, ranked.message, ranked.score)
            (crons if session.source == CRON else shown).append(hit)
            if len(shown) >= self._options.limit:
                break
        return [*shown, *crons][: self._options.limit]

    def _filter(self, ranking: Ranking) -> None:
        if self._allowed is not None:
            ranking.keep(self._allowed)
        if not self._is_timeless:
            ranking.keep(self._in_time(ranking.messages()))
        if self._query.excluded:
            ranking.keep(without(self._database, ranking.messages(), self._query.excluded))

    def _left_out(self) -> set[str]:
        """The lineage that is asking."""
        return {self._sessions.root_of(asking) for asking in self._options.without}

    def _with_facts(self, order: list[Ranked]) -> Iterator[tuple[Session, Ranked]]:
        for at in range(0, len(order), _CHUNK):
            chunk = order[at : at + _CHUNK]
            found = self._sessions.by_number(each.session for each in chunk)
            facts = {each.number: each for each in found}
            for ranked in chunk:
                if ranked.session in facts:
                    yield facts[ranked.session], ranked

    def _may_show(self, session: Session) -> bool:
        if not self._options.hidden and session.source in HIDDEN_SOURCES:
            return False
        if not self._sessions.is_in(session, self._options.scope):
            return False
        return not self._asking or self._sessions.root(session) not in self._asking

    def _visible(self, numbers: list[int]) -> list[int]:
        """Those messages whose sessions may be shown."""
        sessions = self._sessions.by_number({session_of(number) for number in numbers})
        shown = {session.number for session in sessions if self._may_show(session)}
        return [number for number in numbers if session_of(number) in shown]

    def _by_time(self, order: list[Ranked], *, newest: bool) -> list[Ranked]:
        times = dict(self._sessions.times(each.session for each in order))
        return sorted(order, key=lambda each: times.get(each.session, 0.0), reverse=newest)

    def _in_time(self, numbers: Iterable[int]) -> set[int]:
        after, before = self._query.after, self._query.before
        rows = self._database.execute(
            "SELECT id FROM archive_messages WHERE id IN (SELECT value FROM json_each(?))"
            " AND at >= ? AND at < ?",
            (_json(numbers), -1e18 if after is None else after, 1e18 if before is None else before),
        )
        return {number for (number,) in rows}

    def _sizes(self, numbers: Iterable[int]) -> dict[int, int]:
        rows = self._database.execute(
            "SELECT id, size FROM archive_messages WHERE id IN (SELECT value FROM json_each(?))"
            " AND typeof(size) = 'integer'",
            (_json(numbers),),
        )
        return dict(rows.fetchall())

    def _words(self, numbers: Iterable[int]) -> Iterator[tuple[int, list[str]]]:
        for number, content, extra in texts(self._database, numbers):
            yield number, indexed_words(content, extra)

    # -- no words at all ------------------------------------------------------------------

    def _literal(self) -> Found:
        """What has the query in it as it stands, among the newest messages."""
        text = self._query.text
        if not text:
            return Found([], frozenset())
        ranking = Ranking()
        left = _LITERAL
        for session in self._sessions.newest(self._options.scope, _WALKED):
            rows = self._database.execute(
                "SELECT id FROM archive_messages WHERE id BETWEEN ? AND ? AND instr(content, ?)"  # noqa: S608
                f"{self._index.condition.replace('rowid', 'id')} ORDER BY id DESC LIMIT ?",
                (*bounds(session.number), text, _PER_SESSION),
            ).fetchall()
            ranking.add(text, [number for (number,) in rows], 1.0)
            left -= session.messages
            if left <= 0:
                break
        return Found(self._best(ranking), frozenset((text,)), approximate=True)


def _json(numbers: Iterable[int]) -> str:
    return f"[{','.join(map(str, numbers))}]"
