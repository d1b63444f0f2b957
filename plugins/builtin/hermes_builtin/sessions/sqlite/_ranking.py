"""Which sessions say most of what was asked for.

A message scores by the rarity of the words it has (BM25, each word counted once), a session by
its best messages together, and by how much of the query it covers in all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from math import log
from typing import Final

from hermes_builtin.sessions.sqlite._index import Clause
from hermes_builtin.sessions.sqlite._schema import session_of

_SATURATION: Final = 1.2
_LENGTH: Final = 0.3
_DECAY: Final = 0.5
_COVERAGE: Final = 0.5
_NORMALISED: Final = 1000
_BEST: Final = 6


def weight(count: int, total: int) -> float:
    """What a word tells that so many of all messages have."""
    count = min(count, total)
    return log(1 + (total - count + 0.5) / (count + 0.5))


class Ranking:
    """Collects which messages have which words."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._scores: dict[int, float] = defaultdict(float)
        self._coverage: dict[int, dict[str, float]] = defaultdict(dict)

    def __bool__(self) -> bool:
        return bool(self._scores)

    def add(self, clause: Clause, numbers: Iterable[int], value: float) -> None:
        """These messages have a word."""
        scores, coverage, word = self._scores, self._coverage, clause.term.word
        for number in numbers:
            scores[number] += value
            coverage[session_of(number)][word] = value

    def messages(self) -> Iterable[int]:
        """The messages that have any of the words."""
        return self._scores.keys()

    def keep(self, numbers: set[int]) -> None:
        """Forget all other messages."""
        self._scores = defaultdict(
            float, {each: score for each, score in self._scores.items() if each in numbers}
        )

    def normalise(self, sizes: Callable[[Iterable[int]], dict[int, int]]) -> None:
        """Let long messages count a little less, where it could matter."""
        best = sorted(self._scores, key=lambda number: -self._scores[number])[:_NORMALISED]
        known = sizes(best)
        if not known:
            return
        average = sum(known.values()) / len(known) or 1.0
        for number, size in known.items():
            length = 1 - _LENGTH + _LENGTH * size / average
            self._scores[number] *= (_SATURATION + 1) / (1 + _SATURATION * length)

    def sessions(self) -> list[tuple[int, int, float]]:
        """Session, its best message, and its score; the best first, of equals the newest."""
        of: dict[int, list[tuple[float, int]]] = defaultdict(list)
        for number, score in self._scores.items():
            of[session_of(number)].append((score, number))
        ranked = []
        for session, scored in of.items():
            scored.sort(reverse=True)
            score = sum(each * _DECAY**place for place, (each, _) in enumerate(scored[:_BEST]))
            score += _COVERAGE * sum(self._coverage[session].values())
            ranked.append((session, scored[0][1], score))
        ranked.sort(key=lambda each: (-each[2], -each[0]))
        return ranked
