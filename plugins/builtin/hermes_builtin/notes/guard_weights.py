"""Weighs sentences: what their words and concepts amount to together.

The rules name what is said and in which order. A sentence that says the same in other words
still has the concepts: somebody who is spoken to, a rule, and that it is not to count. What each
word, each concept and each pair of them counts for is learned from the texts in tests/corpus;
`benchmarks/guard_weights.py` writes guard-weights.txt.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import combinations, pairwise
from typing import Final, NamedTuple

from hermes_builtin.notes.guard_rules import concepts, file_text

_ENDS: Final = ("STOP", "BREAK")
_MARGIN: Final = 0.25  # a sentence that weighs less may be harmless
_STEM: Final = 6  # letters of a word that count
_FOREIGN: Final = 3  # the shortest word in another script

_Span = tuple[int, int]
Feature = tuple[str, ...]

#: The family that a concept speaks for.
_FAMILIES: Final = {
    "C_RULE": "instruction override",
    "C_MAKER": "instruction override",
    "C_CANCEL": "instruction override",
    "C_BE": "role takeover",
    "C_TABOO": "role takeover",
    "C_HIDE": "deception",
    "C_MEMORY": "persistence",
    "C_PERMIT": "persistence",
    "C_SELF": "persistence",
    "C_CONFIG": "tampering",
    "C_EDIT": "tampering",
    "C_RUN": "tampering",
    "C_SEND": "exfiltration",
    "C_SECRET": "exfiltration",
    "C_WEB": "exfiltration",
}


class Sentence(NamedTuple):
    """The words of a sentence, and the concepts in it."""

    words: Sequence[str]
    concepts: Sequence[str]


def sentences(words: Sequence[str], spans: Mapping[str, Sequence[_Span]]) -> Iterator[Sentence]:
    """The sentences of a text that have a concept."""
    ends = [at for at, word in enumerate(words) if word in _ENDS]
    found: dict[int, list[str]] = defaultdict(list)
    for name in concepts():
        for number in {bisect_right(ends, begin) for begin, _ in spans.get(name, ())}:
            found[number].append(name)
    starts = [0, *(end + 1 for end in ends)]
    for number in sorted(found):
        end = ends[number] if number < len(ends) else len(words)
        yield Sentence(words[starts[number] : end], sorted(found[number]))


def features(sentence: Sentence) -> set[Feature]:
    """What a sentence is weighed by: words, the first one, neighbours, concepts, and pairs."""
    stems = list(filter(None, map(_stem, sentence.words)))
    found: set[Feature] = {("word", stem) for stem in stems}
    found.update(("words", *pair) for pair in pairwise(stems))
    if stems:
        found.add(("first", stems[0]))
    found.update((name,) for name in sentence.concepts)
    found.update(combinations(sentence.concepts, 2))
    return found


@lru_cache(maxsize=8192)
def _stem(word: str) -> str:
    """The letters of a word that count; "" for what is not a word."""
    counts = word.isalpha() and word.islower() and (word.isascii() or len(word) >= _FOREIGN)
    return word[:_STEM] if counts else ""


@cache
def _weights() -> dict[Feature, float]:
    text = file_text("guard-weights.txt")
    rows = (line.split() for line in text.splitlines() if line[0] != "#")
    return {tuple(feature): float(weight) for weight, *feature in rows}


def suspicious(words: Sequence[str], spans: Mapping[str, Sequence[_Span]]) -> Sentence | None:
    """The first sentence that weighs too much, or None."""
    return next((each for each in sentences(words, spans) if _weight(each) > _MARGIN), None)


def _weight(sentence: Sentence) -> float:
    """The sum for all `features`, without a tuple for each word: it is most of a scan."""
    single, double = _word_weights()
    stems = list(filter(None, map(_stem, sentence.words)))
    total = _concept_weight(tuple(sentence.concepts))
    total += sum(single.get(stem, 0.0) for stem in set(stems))
    total += sum(double[pair] for pair in set(pairwise(stems)) & double.keys())
    return total + _weights().get(("first", stems[0]), 0.0) if stems else total


@cache
def _word_weights() -> tuple[dict[str, float], dict[Feature, float]]:
    """The weights of words, and of two words that follow each other."""
    rows = _weights().items()
    single = {feature[1]: weight for feature, weight in rows if feature[0] == "word"}
    return single, {feature[1:]: weight for feature, weight in rows if feature[0] == "words"}


@lru_cache(maxsize=4096)
def _concept_weight(names: tuple[str, ...]) -> float:
    weights = _weights()
    found = (*((name,) for name in names), *combinations(names, 2))
    return weights["bias",] + sum(weights.get(each, 0.0) for each in found)


def family(sentence: Sentence) -> str:
    """The kind of attack that the concepts of a sentence speak for most."""
    votes: dict[str, float] = defaultdict(float)
    weights = _weights()
    for feature in features(sentence):
        for name in feature:
            if name in _FAMILIES:
                votes[_FAMILIES[name]] += weights.get(feature, 0.0)
    return max(votes, key=votes.__getitem__, default="instruction override")
