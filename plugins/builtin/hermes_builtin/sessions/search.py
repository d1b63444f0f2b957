"""Search: from a query to ranked sessions, whatever database has the messages.

A database is a `Source`: it looks words up and reads messages. What is looked up, in which order,
how far, and how it is ranked is decided here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, islice
from typing import Final

from hermes_builtin.sessions.archive import (
    CRON,
    HIDDEN_SOURCES,
    Hit,
    SearchAnswer,
    SearchOptions,
    Session,
    TitleMatch,
    indexed_words,
)
from hermes_builtin.sessions.numbers import session_of
from hermes_builtin.sessions.phrases import MOST_READ, beginning, having, without
from hermes_builtin.sessions.query import Query, Term, TitleQuery, agreement, days, reach
from hermes_builtin.sessions.ranking import (
    Ranking,
    SessionScore,
    Spread,
    Totals,
    rarity,
    spread_of,
    weight,
)
from hermes_builtin.sessions.source import Group, Lineages, Source
from hermes_builtin.sessions.vocabulary import Clause, Vocabulary
from hermes_builtin.sessions.words import WEIGHT, related


def merged(source: Source, options: SearchOptions, *answers: SearchAnswer) -> SearchAnswer:
    """Several answers to one query as one: one hit of each lineage, machines' below people's."""
    lineages = Lineages(source.parents)
    hits = sorted((hit for each in answers for hit in each.hits), key=lambda hit: -hit.score)
    if options.newest is not None:
        hits.sort(key=lambda hit: hit.session.active, reverse=options.newest)
    # A dict keeps the first of each lineage.
    best: dict[str, Hit] = {}
    for hit in sorted(hits, key=lambda hit: hit.session.source == CRON):
        best.setdefault(lineages.root(hit.session), hit)
    return SearchAnswer(
        list(best.values())[: options.limit],
        frozenset().union(*(each.words for each in answers)),
        any(each.approximate for each in answers),
        next((each.behind for each in answers if each.behind), ""),
    )


# -- From a query to sessions -------------------------------------------------------------------
#
# Rare words are looked up first, all of their messages. A word that is nearly everywhere
# says little: it only adds to the score of what the rarer ones found. If there is no rarer one, the
# sessions are walked through, the newest first, until there are enough. Then the answer is said
# to be approximate.

#: So many hits of the index are looked at for one query.
BUDGET: Final = 5000
#: So many hits of rarer words are reweighed by a word that is everywhere.
_REWEIGHED: Final = 3000
#: A pasted page has hundreds of words; its rarest 24 identify it.
_MOST_TERMS: Final = 24
_WALKED: Final = 400
_ENOUGH: Final = 4  # times the limit
_PER_SESSION: Final = 40
_CHUNK: Final = 60
_LOOKED_AT: Final = 300
_LITERAL: Final = 5000
# Shorter words have too many neighbours that differ by one letter.
_SHORTEST_SLIP: Final = 7
_SLIP: Final = 0.8
_ON_A_DAY: Final = 30


class Search:
    """One search."""

    def __init__(
        self, source: Source, query: Query, options: SearchOptions, totals: Totals
    ) -> None:
        self._source = source
        self._query = query
        self._options = options
        self._totals = totals
        self._vocabulary = Vocabulary(source, query.forms)
        self._lineages = Lineages(source.parents)
        self._approximate = False
        #: In how many messages of all people words are; None for those that are too frequent.
        self._spread: dict[Group, Spread | None] = {}
        self._allowed: set[int] | None = None
        self._shown: set[str] = set()

    def found(self) -> SearchAnswer:
        """The answer."""
        query = self._query
        if not query.has_words:
            return self._literal()
        if query.required:
            self._allowed, more = having(self._source, query.required, self._visible)
            self._approximate |= more
            if not self._allowed:
                return SearchAnswer([], frozenset())
        clauses = self._clauses()
        for clause in clauses:
            term = clause.term
            self._shown.add(f"{term.word}*" if term.prefix else term.word)
            self._shown.update(clause.forms)
        hits = self._hits(clauses)
        return SearchAnswer(hits, frozenset(self._shown), self._approximate)

    def _clauses(self) -> list[Clause]:
        """What is looked up, the rarest first."""
        required = [
            Term(word)
            for group in self._query.required
            for phrase in group
            for word in phrase.words
        ]
        terms = dict.fromkeys((*self._query.terms, *required))
        clauses = self._vocabulary.clauses(terms)
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
        # From fast to slow. The last one looks at every match, because a search must not come back
        # empty when something is there.
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
        if self._allowed is None:
            self._count_everybody(clauses)
        for clause in clauses:
            if self._allowed is not None:
                numbers = self._among_allowed(clause)
            elif clause.partial or clause.messages > left:
                numbers = None
            else:
                numbers = self._source.newest((clause.match,), left + 1)
                numbers = None if len(numbers) > left else [*numbers, *self._longer(clause)]
            if numbers is None:
                common.append(clause)
                if rare:
                    # The database intersects the lists itself: only messages that a rare word has
                    # found are returned.
                    both = self._source.newest((tuple(rare), clause.match), left)
                    ranking.add(clause.term.word, both, self._guess(clause))
                continue
            left -= len(numbers)
            left -= self._add(ranking, clause, numbers, left)
            # Without the limit, the OR of many words would be as expensive as the frequent word
            # itself.
            if reach_ + len(numbers) <= _REWEIGHED:
                rare += clause.match
                reach_ += len(numbers)
        return ranking, common

    def _add(self, ranking: Ranking, clause: Clause, numbers: list[int], left: int) -> int:
        """Add the messages of a word, and of its synonyms; returns how many there are."""
        others, strength = self._other_words(clause.term, known=bool(numbers))
        instead: list[int] = []
        if others and self._allowed is None:
            instead = self._source.newest((tuple(others),), left + 1)
            instead = [] if len(instead) > left else instead
        value = self._weight(clause, others, numbers, instead)
        ranking.add(clause.term.word, numbers, value)
        ranking.add(clause.term.word, instead, value, strength)
        if instead:
            self._shown.update(others)
        return len(instead)

    def _count_everybody(self, clauses: Iterable[Clause]) -> None:
        """Count the messages of all people that have a word, where only some are returned."""
        groups = [each.match for each in clauses if not each.partial and each.messages <= BUDGET]
        found = self._source.spread(groups, BUDGET)
        if found is not None:
            self._spread = dict(zip(groups, found, strict=False))

    def _weight(
        self,
        clause: Clause,
        others: Iterable[str],
        numbers: Sequence[int],
        instead: Sequence[int],
    ) -> float:
        """The weight of a word, which is the same for all people."""
        if clause.match not in self._spread:
            # A misspelt word is in no message; it weighs what its correction weighs.
            return weight(spread_of(numbers or instead), self._totals)
        known = self._spread[clause.match]
        if known is not None and not known.messages and instead:
            (known,) = self._source.spread([tuple(others)], BUDGET) or [None]
        return self._guess(clause) if known is None else weight(known, self._totals)

    def _longer(self, clause: Clause) -> list[int]:
        """Messages with a word that begins as it should, though its stem does not."""
        if not clause.shorter:
            return []
        candidates = self._source.newest((clause.shorter,), MOST_READ)
        self._approximate |= len(candidates) == MOST_READ
        return sorted(beginning(self._source, candidates, clause.term.word))

    def _other_words(self, term: Term, *, known: bool) -> tuple[Iterable[str], float]:
        if term.prefix:
            return (), 1.0
        others = related(term.word)
        if not others and not known and len(term.word) >= _SHORTEST_SLIP and term.word.isalpha():
            return self._vocabulary.alike(term.word), _SLIP
        return others, WEIGHT

    def _guess(self, clause: Clause) -> float:
        """The weight of a word whose messages were not all looked at."""
        return rarity(clause.messages, self._totals.messages)

    def _among_allowed(self, clause: Clause) -> list[int]:
        allowed = self._allowed or set()
        if clause.messages <= BUDGET:
            numbers = self._source.newest((clause.match,), BUDGET)
        else:  # cheaper to ask for each session that is left
            # A session is a range of the primary key, so each of these look-ups is cheap.
            sessions = sorted({session_of(number) for number in allowed}, reverse=True)
            (numbers,) = self._source.within([clause.match], sessions[:_WALKED], _PER_SESSION)
        return [number for number in numbers if number in allowed]

    def _walked(self, clauses: list[Clause]) -> Ranking:
        """The messages that match in the newest sessions that may be seen."""
        newest = self._source.newest_sessions(
            self._options.scope,
            _WALKED,
            oldest=self._options.newest is False,
            after=self._query.after,
            before=self._query.before,
        )
        ranking = Ranking()
        weights = {clause.term.word: self._guess(clause) for clause in clauses}
        for found in self._visited(newest, [clause.match for clause in clauses]):
            for (word, value), numbers in zip(weights.items(), found, strict=True):
                ranking.add(word, numbers, value)
        return ranking

    def _visited(
        self, sessions: Iterable[Session], groups: Sequence[Group]
    ) -> Iterator[list[list[int]]]:
        """For each group the messages that match, of some sessions at a time, until enough."""
        shown = self._filtered(sessions)
        enough = self._options.limit * _ENOUGH
        size = enough
        while enough > 0 and (some := list(islice(shown, size))):
            found = self._within(groups, some)
            yield found
            there = {session_of(number) for numbers in found for number in numbers}
            # Jobs repeat the same words every day; they don't count towards enough.
            enough -= sum(each.number in there and each.source != CRON for each in some)
            size = min(2 * size, _CHUNK)

    def _within(self, groups: Sequence[Group], sessions: Sequence[Session]) -> list[list[int]]:
        """For each group the messages of sessions that match, in the time that is asked for."""
        numbers = [each.number for each in sessions]
        if self._is_timeless:
            return self._source.within(groups, numbers, _PER_SESSION)
        found = self._source.within(groups, numbers, None)
        in_time = self._in_time(chain.from_iterable(found))
        return [_last_of_each(number for number in each if number in in_time) for each in found]

    @property
    def _is_timeless(self) -> bool:
        return self._query.after is None and self._query.before is None

    def _newest(self, clauses: list[Clause]) -> Ranking:
        """The messages with the largest numbers, whatever their sessions are."""
        ranking = Ranking()
        if not self._is_timeless:
            return ranking
        for clause in clauses:
            numbers = self._source.newest((clause.match,), BUDGET // len(clauses))
            ranking.add(clause.term.word, numbers, self._guess(clause))
        return ranking

    def _everywhere(self, clauses: list[Clause]) -> Ranking:
        """Some sessions that match, looked for in all of them: slow, but it is there."""
        ranking = Ranking()
        group = tuple(chain.from_iterable(clause.match for clause in clauses))
        sessions = self._by_number(sorted(self._source.sessions_with(group), reverse=True))
        for (numbers,) in self._visited(sessions, [group]):
            # Any weight: there are only frequent words, and the answer is approximate.
            ranking.add(clauses[0].term.word, numbers, 1.0)
        return ranking

    def _by_number(self, numbers: Sequence[int]) -> Iterator[Session]:
        for at in range(0, len(numbers), _WALKED):
            yield from self._source.by_number(numbers[at : at + _WALKED])

    def _favour_days(self, ranking: Ranking) -> None:
        """Sessions of a day that the query names count for more."""
        named = days(self._query.text)
        if not named:
            return
        sessions = {each.number: each for each in self._source.in_times(reach(named), _ON_A_DAY)}
        numbers = {session_of(number) for number in ranking.messages()} - sessions.keys()
        sessions |= {each.number: each for each in self._source.by_number(numbers)}
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
            # The best 300 sessions are nearly always enough. If scope or lineage has removed most
            # of them, all are ranked.
            if sum(hit.session.source != CRON for hit in hits) >= self._options.limit:
                return hits
        return self._shown_of(ranking, 0)

    def _shown_of(self, ranking: Ranking, most: int) -> list[Hit]:
        order = ranking.sessions(self._source.sizes, self._query.pairs, self._words, most)
        if self._options.newest is not None:
            order = self._by_time(order, newest=self._options.newest)
        shown: list[Hit] = []
        crons: list[Hit] = []
        seen = set(self._asking)
        for session, ranked in self._with_facts(order):
            if not self._may_show(session):
                continue
            # One hit per lineage: a compressed conversation and its continuation say the same.
            root = self._lineages.root(session)
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
            ranking.keep(without(self._source, ranking.messages(), self._query.excluded))

    @cached_property
    def _asking(self) -> set[str]:
        """The lineage that is asking, which is left out."""
        return {self._root_of(asking) for asking in self._options.without}

    def _root_of(self, name: str) -> str:
        """The first session of the lineage of a session, which need not be there."""
        found = (each for each in self._source.named(name) if each.is_in(self._options.scope))
        session = next(iter(found), None)
        return name if session is None else self._lineages.root(session)

    def _with_facts(self, order: list[SessionScore]) -> Iterator[tuple[Session, SessionScore]]:
        # In chunks: the loop usually ends within the first one.
        for at in range(0, len(order), _CHUNK):
            chunk = order[at : at + _CHUNK]
            found = self._source.by_number(each.session for each in chunk)
            facts = {each.number: each for each in found}
            self._lineages.load(facts.values())
            for ranked in chunk:
                if ranked.session in facts:
                    yield facts[ranked.session], ranked

    def _filtered(self, sessions: Iterable[Session]) -> Iterator[Session]:
        """Those sessions that may be shown."""
        left = iter(sessions)
        while some := list(islice(left, _CHUNK)):
            if self._asking:
                self._lineages.load(some)
            yield from filter(self._may_show, some)

    def _may_show(self, session: Session) -> bool:
        if not self._options.hidden and session.source in HIDDEN_SOURCES:
            return False
        if not session.is_in(self._options.scope):
            return False
        if self._options.profiles and session.profile not in self._options.profiles:
            return False
        return not self._asking or self._lineages.root(session) not in self._asking

    def _visible(self, numbers: list[int]) -> list[int]:
        """Those messages whose sessions may be shown."""
        sessions = self._source.by_number({session_of(number) for number in numbers})
        shown = {session.number for session in self._filtered(sessions)}
        return [number for number in numbers if session_of(number) in shown]

    def _by_time(self, order: list[SessionScore], *, newest: bool) -> list[SessionScore]:
        times = dict(self._source.times(each.session for each in order))
        return sorted(order, key=lambda each: times.get(each.session, 0.0), reverse=newest)

    def _in_time(self, numbers: Iterable[int]) -> set[int]:
        return self._source.in_time(numbers, self._query.after, self._query.before)

    def _words(self, numbers: Iterable[int]) -> Iterator[tuple[int, list[str]]]:
        for number, content, extra in self._source.texts(numbers):
            yield number, indexed_words(content, extra)

    # -- titles ---------------------------------------------------------------------------

    def titled(self) -> list[TitleMatch]:
        """The sessions whose titles the query asks for, named exactly first, then the newest."""
        matching = TitleQuery(self._query)
        exact = {
            number: is_exact
            for number, title in self._source.titles()
            if (is_exact := matching.is_exact(title)) or matching.is_in(title)
        }
        sessions = self._source.by_number(exact) if exact else ()
        found = [
            TitleMatch(session, exact[session.number])
            for session in self._filtered(sessions)
            if self._goes_on_in_time(session)
        ]
        return sorted(found, key=lambda each: (not each.exact, -each.session.active))

    def _goes_on_in_time(self, session: Session) -> bool:
        after, before = self._query.after, self._query.before
        return (after is None or session.active >= after) and (
            before is None or session.started < before
        )

    # -- no words at all ------------------------------------------------------------------

    def _literal(self) -> SearchAnswer:
        """What has the query in it as it stands, among the newest messages."""
        text = self._query.text
        if not text:
            return SearchAnswer([], frozenset())
        ranking = Ranking()
        left = _LITERAL
        some: list[int] = []
        for session in self._source.newest_sessions(self._options.scope, _WALKED):
            if left <= 0:
                break
            some.append(session.number)
            left -= session.messages
        ranking.add(text, self._source.containing(text, some, _PER_SESSION), 1.0)
        return SearchAnswer(self._best(ranking), frozenset((text,)), approximate=True)


def _last_of_each(numbers: Iterable[int]) -> list[int]:
    """The last few messages of each session."""
    of: dict[int, list[int]] = defaultdict(list)
    for number in sorted(numbers):
        of[session_of(number)].append(number)
    return [number for some in of.values() for number in some[-_PER_SESSION:]]
