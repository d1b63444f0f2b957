"""From the words of a query to the words that the index has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Final, NamedTuple

from hermes_builtin.sessions.query import Term
from hermes_builtin.sessions.source import Group, Source
from hermes_builtin.sessions.words import LANGUAGE_MARKS, inflected, stem

#: A prefix that more words begin with stands for the most frequent of them.
_MOST_EXPANSIONS: Final = 10


_MOST_COUNTED: Final = 5000


_BROAD: Final = 5000


#: A word that no sampled message has is taken to be in so many.
_UNCOUNTED: Final = 8


_SURE_LETTERS: Final = 2


_SHORTEST_STEMMED: Final = 4


_SHORTEST_STEM: Final = 3


class Clause(NamedTuple):
    """Something to look up, and in about how many messages it is.

    Attributes:
        term: What is looked for.
        match: The words of which a message must have one.
        messages: In about how many messages they are.
        partial: The words are only some of what is meant.
        shorter: Stems that the words in question may have; such messages are to be verified,
            since the index knows no endings: ``deployment*`` is among those with ``deploy``.
        forms: The same word as a stem of other languages; part of ``match``.
    """

    term: Term
    match: Group
    messages: int
    partial: bool = False
    shorter: Group = ()
    forms: Group = ()


class Vocabulary:
    """The words of an archive, and what a term of a query stands for among them."""

    def __init__(self, source: Source, forms: Mapping[str, str]) -> None:
        self._source = source
        self._forms = forms

    def clauses(self, terms: Iterable[Term]) -> list[Clause]:
        """How to look terms up."""
        wanted = list(terms)
        plain = [term.word for term in wanted if not term.prefix]
        # Two questions for all terms: each may be a way to another machine.
        counts = dict(self._source.counts([*plain, *LANGUAGE_MARKS]))
        codes = [mark[1:] for mark in LANGUAGE_MARKS if mark in counts]
        stems = {word: self._inflected(word, codes) for word in plain}
        counts.update(self._source.counts(set(chain.from_iterable(stems.values()))))
        return [
            self._prefix(term) if term.prefix else self._word(term, stems[term.word], counts)
            for term in wanted
        ]

    @staticmethod
    def _word(term: Term, stems: list[str], counts: Mapping[str, int]) -> Clause:
        forms = tuple(each for each in stems if each in counts and each != term.word)
        words = (term.word, *forms)
        count = sum(max(counts[each], _UNCOUNTED) for each in words if each in counts)
        return Clause(term, words, count, forms=forms)

    def _prefix(self, term: Term) -> Clause:
        rows = self._source.terms(term.word, _MOST_COUNTED)
        count = sum(max(each, _UNCOUNTED) for _, each in rows)
        if count <= _BROAD:
            return Clause(term, (f"{term.word}*",), count, shorter=self._shorter(term.word))
        # The database would merge the lists of thousands of words. The most frequent ones cover
        # most messages, and `partial` says that it is not all.
        rows.sort(key=lambda row: -row[1])
        most = tuple(word for word, _ in rows[:_MOST_EXPANSIONS])
        return Clause(term, most, count, partial=True)

    def _inflected(self, word: str, codes: Iterable[str]) -> list[str]:
        """A word as a stem of each language that some message is in."""
        form = self._forms.get(word)
        return [] if form is None else [inflected(form, code) for code in codes]

    def _shorter(self, prefix: str) -> Group:
        """Stems that words with this beginning may have."""
        if not prefix.isascii() or len(prefix) < _SHORTEST_STEMMED:
            return ()
        # Snowball also turns a final y into i, so "happiness*" may be under "happi".
        beginnings = [prefix[:at] for at in range(len(prefix) - 1, _SHORTEST_STEM - 1, -1)]
        candidates = {*beginnings, *(f"{each[:-1]}i" for each in beginnings), stem(prefix)}
        return tuple(sorted(self._source.counts(candidates - {prefix})))

    def alike(self, word: str) -> list[str]:
        """Words of the archive that may be meant by one that is misspelt."""
        terms = self._source.terms(word[:_SURE_LETTERS], _MOST_COUNTED)
        return [term for term, _ in terms if _is_one_slip(word, term)]


def _is_one_slip(word: str, other: str) -> bool:
    """Whether one letter is missing, too many, wrong, or swapped with the next."""
    if abs(len(word) - len(other)) > 1 or word == other:
        return False
    at = next((at for at, (a, b) in enumerate(zip(word, other, strict=False)) if a != b), None)
    # One is the beginning of the other, and they differ by one letter.
    if at is None:
        return True
    swapped = word[at : at + 2] == other[at : at + 2][::-1] and word[at + 2 :] == other[at + 2 :]
    return (
        swapped
        or word[at + 1 :] == other[at + 1 :]
        or word[at:] == other[at + 1 :]
        or word[at + 1 :] == other[at:]
    )
