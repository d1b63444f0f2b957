"""Search: from a query to ranked sessions."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from heapq import nlargest
from itertools import pairwise
from math import log
from typing import Final, NamedTuple

from hermes_builtin.sessions.archive import (
    CRON,
    HIDDEN_SOURCES,
    Found,
    Hit,
    SearchOptions,
    Session,
    Titled,
)
from hermes_builtin.sessions.query import Query, Term, TitleQuery, agreement, days, reach
from hermes_builtin.sessions.sqlite.database import (
    OTHER,
    ROLE_BITS,
    SESSION_BITS,
    bounds,
    json_list,
    session_of,
)
from hermes_builtin.sessions.sqlite.index import (
    MOST_READ,
    Clause,
    Index,
    beginning,
    having,
    indexed_words,
    quoted,
    texts,
    without,
)
from hermes_builtin.sessions.sqlite.tables import Sessions
from hermes_builtin.sessions.words import WEIGHT, related

# -- Which sessions say most of what was asked for ----------------------------------------------
#
# A message scores by the rarity of the words it has (BM25, each word counted once), a session by
# its best messages together, and by how much of the query it covers in all. Among the best
# sessions it also counts whether the words stand close together.

# BM25's k1 and b. b is smaller than the usual 0.75: messages differ in length by their nature, and
# a long one is not padded.
_SATURATION: Final = 1.2
_LENGTH: Final = 0.3
# A session's nth best message counts 0.5 ** n: many weak mentions can't outrank one good answer.
_DECAY: Final = 0.5
_BEST: Final = 12
# Bonus for distinct words over the whole session, and for words near each other: within
# neighbouring messages (`_WINDOW`), or side by side as in the query (`_ADJACENT`).
_COVERAGE: Final = 0.5
_WINDOW: Final = 0.5
_ADJACENT: Final = 0.5
_OF_SESSIONS: Final = 0.7  # the part of a word's weight that is due to the sessions it is in
# A question and its answer are neighbours: one has the words that the other leaves out.
_NEIGHBOURS: Final = ((1, 0.7), (2, 0.4))
# Only the best are refined: lengths and texts have to be read from disk, scores alone don't.
_NORMALISED: Final = 400
_REFINED: Final = 40
_READ: Final = 120

Sizes = Callable[[Iterable[int]], Mapping[int, int]]
Words = Callable[[Iterable[int]], Iterable[tuple[int, list[str]]]]


class Totals(NamedTuple):
    """How many messages and sessions there are, about."""

    messages: int
    sessions: int


class Ranked(NamedTuple):
    """A session, its best message, and how good it is."""

    session: int
    message: int
    score: float


def rarity(count: int, total: int) -> float:
    """Return the inverse document frequency: the rarer, the higher."""
    count = min(count, total)
    # BM25's idf with 1 added, so that a word in more than half of all messages never counts
    # negatively.
    return log(1 + (total - count + 0.5) / (count + 0.5))


def weight(numbers: Collection[int], totals: Totals) -> float:
    """Return how much a word counts that is in these messages."""
    # A word that one long session repeats is rare among sessions, and that is what is searched for.
    sessions = len({number >> SESSION_BITS for number in numbers})
    of_messages = rarity(len(numbers), totals.messages)
    return (1 - _OF_SESSIONS) * of_messages + _OF_SESSIONS * rarity(sessions, totals.sessions)


class Ranking:
    """Collects which messages have which words."""

    def __init__(self) -> None:
        self.weights: dict[str, float] = {}
        self._values: dict[int, dict[str, float]] = defaultdict(dict)
        self._bonus: dict[int, float] = {}

    def __bool__(self) -> bool:
        return bool(self._values)

    def add(self, word: str, numbers: Iterable[int], value: float, strength: float = 1.0) -> None:
        """These messages have a word, or with less strength another one for it."""
        self.weights[word] = value
        worth = value * strength
        values = self._values
        for number in numbers:
            # The first value stays: the word itself is added before its synonyms, which are worth
            # less.
            values[number].setdefault(word, worth)

    def favour(self, sessions: Mapping[int, float]) -> None:
        """Let sessions count for more, whatever they say."""
        self._bonus.update(sessions)

    def messages(self) -> Iterable[int]:
        """The messages that have any of the words."""
        return self._values.keys()

    def keep(self, numbers: set[int]) -> None:
        """Forget all other messages."""
        for number in self._values.keys() - numbers:
            del self._values[number]

    def sessions(
        self, sizes: Sizes, pairs: Collection[tuple[str, str]], words: Words, most: int = 0
    ) -> list[Ranked]:
        """The best first; of equals the user's before others, then the newest.

        Args:
            sizes: Returns the lengths of messages.
            pairs: Words that stand side by side in the query.
            words: Returns the words of messages.
            most: Only so many sessions are looked at, those with the best messages; 0 is all.
        """
        ranked = self._by_messages(self._scores(sizes), most)
        best = nlargest(_REFINED, ranked, key=_score)
        # With a single word there is nothing to be close to.
        if len(self.weights) > 1 and best:
            closer = self._closeness({each.session for each in best}, pairs, words)
            ranked = [
                Ranked(each.session, each.message, each.score + closer.get(each.session, 0.0))
                for each in ranked
            ]
        # Session numbers grow with time. What a tool returned never outranks what the user said.
        ranked.sort(key=lambda each: (-each.score, each.message & OTHER, -each.session))
        return ranked

    def _scores(self, sizes: Sizes) -> dict[int, float]:
        """What the messages are worth; long ones a little less, where it could matter."""
        scores = {number: sum(values.values()) for number, values in self._values.items()}
        if len(scores) == 1:
            return scores
        known = sizes(nlargest(_NORMALISED, scores, key=scores.__getitem__))
        average = sum(known.values()) / len(known) if known else 1.0
        for number, size in known.items():
            length = 1 - _LENGTH + _LENGTH * size / (average or 1.0)
            scores[number] *= (_SATURATION + 1) / (1 + _SATURATION * length)
        return scores

    def _by_messages(self, scores: Mapping[int, float], most: int) -> list[Ranked]:
        of: dict[int, list[tuple[float, int]]] = defaultdict(list)
        for number, score in scores.items():
            of[number >> SESSION_BITS].append((score, number))
        if 0 < most < len(of):
            best = nlargest(most, of, key=lambda session: (max(of[session]), session))
            of = {session: of[session] for session in best}
        ranked = []
        for session, scored in of.items():
            covered: Mapping[str, float] = self._values[scored[0][1]]
            total = scored[0][0]
            if len(scored) > 1:
                scored.sort(reverse=True)
                total = sum(each * _DECAY**at for at, (each, _) in enumerate(scored[:_BEST]))
                covered = self._covered(number for _, number in scored)
            total += _COVERAGE * sum(covered.values()) + self._bonus.get(session, 0.0)
            equals = (number for score, number in scored if score == scored[0][0])
            ranked.append(Ranked(session, min(equals, key=_role_code), total))
        return ranked

    def _covered(self, numbers: Iterable[int]) -> dict[str, float]:
        """What messages say together."""
        covered: dict[str, float] = {}
        for number in numbers:
            for word, value in self._values[number].items():
                if value > covered.get(word, 0.0):
                    covered[word] = value
        return covered

    def _closeness(
        self, sessions: set[int], pairs: Collection[tuple[str, str]], words: Words
    ) -> dict[int, float]:
        """What sessions gain by words that are near each other, or side by side."""
        near = {
            number: values
            for number, values in self._values.items()
            if number >> SESSION_BITS in sessions
        }
        # Without the role's bits, consecutive numbers are consecutive messages.
        by_place = {number >> ROLE_BITS: values for number, values in near.items()}
        gain: dict[int, float] = defaultdict(float)
        for number in near:
            session = number >> SESSION_BITS
            gain[session] = max(gain[session], _WINDOW * _window(number >> ROLE_BITS, by_place))
        beside = self._beside(near, pairs, words)
        return {session: gain[session] + beside.get(session, 0.0) for session in sessions}

    def _beside(
        self,
        near: Mapping[int, Mapping[str, float]],
        pairs: Collection[tuple[str, str]],
        words: Words,
    ) -> dict[int, float]:
        gain: dict[int, float] = defaultdict(float)
        known = [pair for pair in pairs if pair[0] in self.weights and pair[1] in self.weights]
        if not known:
            return gain
        both = [
            number for number, has in near.items() if any(a in has and b in has for a, b in known)
        ]
        both.sort(key=lambda number: -sum(near[number].values()))
        for number, found in words(both[:_READ]):
            there = set(pairwise(found))
            worth = sum(min(self.weights[a], self.weights[b]) for a, b in known if (a, b) in there)
            session = number >> SESSION_BITS
            gain[session] = max(gain[session], _ADJACENT * worth)
        return gain


def _role_code(number: int) -> int:
    return number & OTHER


def _score(ranked: Ranked) -> float:
    return ranked.score


def _window(place: int, by_place: Mapping[int, Mapping[str, float]]) -> float:
    """What a message and those around it say together."""
    union = dict(by_place[place])
    for distance, share in _NEIGHBOURS:
        for neighbour in (place - distance, place + distance):
            for word, value in by_place.get(neighbour, {}).items():
                union[word] = max(union.get(word, 0.0), share * value)
    return sum(union.values())


def merged(database: sqlite3.Connection, options: SearchOptions, *answers: Found) -> Found:
    """Several answers to one query as one: one hit of each lineage, machines' below people's."""
    sessions = Sessions(database)
    hits = sorted((hit for each in answers for hit in each.hits), key=lambda hit: -hit.score)
    if options.newest is not None:
        hits.sort(key=lambda hit: hit.session.active, reverse=options.newest)
    # A dict keeps the first of each lineage.
    best: dict[str, Hit] = {}
    for hit in sorted(hits, key=lambda hit: hit.session.source == CRON):
        best.setdefault(sessions.root(hit.session), hit)
    return Found(
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
        self, database: sqlite3.Connection, query: Query, options: SearchOptions, totals: Totals
    ) -> None:
        self._database = database
        self._query = query
        self._options = options
        self._totals = totals
        roles = query.roles or options.roles
        self._index = Index(database, roles, query.excluded, query.forms)
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
        for clause in clauses:
            term = clause.term
            self._shown.add(f"{term.word}*" if term.prefix else term.word)
            self._shown.update(clause.forms)
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
                    # FTS5 intersects the lists itself: only messages that a rare word has found are
                    # returned.
                    both = self._index.newest(f"({' OR '.join(rare)}) AND {clause.match}", left)
                    ranking.add(clause.term.word, both, self._guess(clause))
                continue
            left -= len(numbers)
            left -= self._add(ranking, clause, numbers, left)
            # Without the limit, the OR of many words would be as expensive as the frequent word
            # itself.
            if reach_ + len(numbers) <= _REWEIGHED:
                rare.append(clause.match)
                reach_ += len(numbers)
        return ranking, common

    def _add(self, ranking: Ranking, clause: Clause, numbers: list[int], left: int) -> int:
        """Add the messages of a word, and of its synonyms; returns how many there are."""
        others, strength = self._other_words(clause.term, known=bool(numbers))
        instead: list[int] = []
        if others and self._allowed is None:
            instead = self._index.newest(quoted(others, " OR "), left + 1)
            instead = [] if len(instead) > left else instead
        # A misspelt word is in no message; it weighs what its correction weighs.
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
            # A session is a range of the primary key, so each of these look-ups is cheap.
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
            # Jobs repeat the same words every day; they don't count towards enough.
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
                # Any weight: there are only frequent words, and the answer is approximate.
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
            # The best 300 sessions are nearly always enough. If scope or lineage has removed most
            # of them, all are ranked.
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
            # One hit per lineage: a compressed conversation and its continuation say the same.
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
        scope = self._options.scope
        return {self._sessions.root_of(asking, scope) for asking in self._options.without}

    def _with_facts(self, order: list[Ranked]) -> Iterator[tuple[Session, Ranked]]:
        # In chunks: the loop usually ends within the first one.
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
        if not session.is_in(self._options.scope):
            return False
        if self._options.profiles and session.profile not in self._options.profiles:
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
            (
                json_list(numbers),
                -1e18 if after is None else after,
                1e18 if before is None else before,
            ),
        )
        return {number for (number,) in rows}

    def _sizes(self, numbers: Iterable[int]) -> dict[int, int]:
        rows = self._database.execute(
            "SELECT id, size FROM archive_messages WHERE id IN (SELECT value FROM json_each(?))"
            " AND typeof(size) = 'integer'",
            (json_list(numbers),),
        )
        return dict(rows.fetchall())

    def _words(self, numbers: Iterable[int]) -> Iterator[tuple[int, list[str]]]:
        for number, content, extra in texts(self._database, numbers):
            yield number, indexed_words(content, extra)

    # -- titles ---------------------------------------------------------------------------

    def titled(self) -> list[Titled]:
        """The sessions whose titles the query asks for, named exactly first, then the newest."""
        matching = TitleQuery(self._query)
        exact = {
            number: is_exact
            for number, title in self._sessions.titles()
            if (is_exact := matching.is_exact(title)) or matching.is_in(title)
        }
        found = [
            Titled(session, exact[session.number])
            for session in self._sessions.by_number(exact)
            if self._may_show(session) and self._goes_on_in_time(session)
        ]
        return sorted(found, key=lambda each: (not each.exact, -each.session.active))

    def _goes_on_in_time(self, session: Session) -> bool:
        after, before = self._query.after, self._query.before
        return (after is None or session.active >= after) and (
            before is None or session.started < before
        )

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
