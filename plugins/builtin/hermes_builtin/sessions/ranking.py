"""Ranking: which sessions say most of what was asked for, whatever database has the messages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from heapq import nlargest
from itertools import pairwise
from math import log
from typing import Final, NamedTuple

from hermes_builtin.sessions.numbers import OTHER, ROLE_BITS, SESSION_BITS

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


class Spread(NamedTuple):
    """In how many messages and sessions a word is."""

    messages: int
    sessions: int


class SessionScore(NamedTuple):
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


def spread_of(numbers: Collection[int]) -> Spread:
    """Return in how many messages and sessions a word is that these messages have."""
    return Spread(len(numbers), len({number >> SESSION_BITS for number in numbers}))


def weight(spread: Spread, totals: Totals) -> float:
    """Return how much a word counts that is in so many messages and sessions."""
    # A word that one long session repeats is rare among sessions, and that is what is searched for.
    of_messages = rarity(spread.messages, totals.messages)
    of_sessions = rarity(spread.sessions, totals.sessions)
    return (1 - _OF_SESSIONS) * of_messages + _OF_SESSIONS * of_sessions


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
    ) -> list[SessionScore]:
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
                SessionScore(each.session, each.message, each.score + closer.get(each.session, 0.0))
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

    def _by_messages(self, scores: Mapping[int, float], most: int) -> list[SessionScore]:
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
            ranked.append(SessionScore(session, min(equals, key=_role_code), total))
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


def _score(ranked: SessionScore) -> float:
    return ranked.score


def _window(place: int, by_place: Mapping[int, Mapping[str, float]]) -> float:
    """What a message and those around it say together."""
    union = dict(by_place[place])
    for distance, share in _NEIGHBOURS:
        for neighbour in (place - distance, place + distance):
            for word, value in by_place.get(neighbour, {}).items():
                union[word] = max(union.get(word, 0.0), share * value)
    return sum(union.values())
