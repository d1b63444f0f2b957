"""Judges by a sample of turns whether a provider recalls what it was handed.

A provider that repeats the question, or answers everything with the same text, must not pass. So a
question has only a part of the turn, and the answer must have words of the rest: words that are
rare in what was said, and that the provider does not return for a question that nobody asked.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from typing import Any, Final

#: Nothing of it was ever said. What a provider returns for it, it returns for anything.
CONTROL: Final = "Which hat did the parrot of the lighthouse keeper wear on the moon?"

#: A shorter word without a digit says little.
_SHORTEST: Final = 4
#: A rare word is in at most so many of the turns: one of a hundred, and always one.
_RARE_SHARE: Final = 100
#: So many words in a row, one of them rare, are not a coincidence.
_RUN: Final = 4

_WORD: Final = re.compile(r"\w+")
#: Scripts that are written without spaces.
_UNSPACED: Final = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\uffdf]")


class Judgement(Enum):
    """What an answer says about a turn."""

    RECALLED = "recalled"
    MISSING = "missing"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a turn.

    Attributes:
        text: What to ask: what the user said, or the first part of it.
        rare: Rare words of the turn that are not in the question.
        runs: Some words in a row that are not in the question, one of them rare.
    """

    text: str
    rare: frozenset[str]
    runs: frozenset[str]

    def judge(self, answer: str, control: str) -> Judgement:
        """Whether an answer shows that the turn is known.

        Args:
            answer: What was recalled for the question.
            control: What was recalled for `CONTROL`.
        """
        words = _words(answer)
        telling = self.rare.difference(_words(control))
        if not telling.isdisjoint(words) or any(each in _joined(words) for each in self.runs):
            return Judgement.RECALLED
        return Judgement.MISSING if telling else Judgement.UNKNOWN


def count_words(
    wanted: Iterable[Mapping[str, Any]], turns: Iterable[Mapping[str, Any]]
) -> tuple[Counter[str], int]:
    """In how many turns each word of some wanted turns is, and how many turns there are."""
    known = {word for turn in wanted for word in _words(_said(turn))}
    counts: Counter[str] = Counter()
    total = 0
    for turn in turns:
        counts.update(known.intersection(_words(_said(turn))))
        total += 1
    return counts, total


def question_about(turn: Mapping[str, Any], counts: Counter[str], total: int) -> Question | None:
    """A question about a turn; None if it has no rare words to judge an answer by."""
    most = max(total // _RARE_SHARE, 1)
    rare = {word for word in _words(_said(turn)) if _is_telling(word) and 0 < counts[word] <= most}
    answer = _words(str(turn["assistant_content"]))
    text, rest = _parted(str(turn["user_content"]), rare, is_short=rare.isdisjoint(answer))
    asked, parts = _words(text), (_words(rest), answer)
    left = rare.intersection(chain(*parts)).difference(asked)
    if not left or not asked:
        return None
    runs = {run for part in parts for run in _runs(part, left) if run not in _joined(asked)}
    return Question(text, frozenset(left), frozenset(runs))


def _said(turn: Mapping[str, Any]) -> str:
    return f"{turn['user_content']}\n{turn['assistant_content']}"


def _is_telling(word: str) -> bool:
    if word.isdigit() and len(word) <= _SHORTEST:
        return False  # any answer may have a count or a time in it
    return len(word) >= _SHORTEST or not word.isalpha() or bool(_UNSPACED.search(word))


def _parted(text: str, rare: set[str], *, is_short: bool) -> tuple[str, str]:
    """The text up to the middle one of its rare words, and the rest.

    A single rare word is in the first part, unless that has to be short.
    """
    found = [
        match for match in _WORD.finditer(text) if not rare.isdisjoint(_parts(match[0].casefold()))
    ]
    end = found[(len(found) - 1) // 2].end() if len(found) > 1 else len(text)
    if len(found) == 1 and is_short:
        end = found[0].start()
    return text[:end], text[end:]


def _words(text: str) -> list[str]:
    return [part for word in _WORD.findall(text.casefold()) for part in _parts(word)]


def _parts(word: str) -> Sequence[str]:
    """The word; where words are not separated, each pair of characters."""
    if not _UNSPACED.search(word):
        return (word,)
    return [word[at : at + 2] for at in range(len(word) - 1)] or (word,)


def _joined(words: Sequence[str]) -> str:
    return f" {' '.join(words)} "


def _runs(words: Sequence[str], rare: set[str]) -> Iterator[str]:
    for at in range(len(words) - _RUN + 1):
        if not rare.isdisjoint(run := words[at : at + _RUN]):
            yield _joined(run)
