"""Looking words up in the index: how frequent they are, and which messages have them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from hermes_builtin.sessions._query import Phrase, Term
from hermes_builtin.sessions._stemming import stem
from hermes_builtin.sessions.sqlite._schema import OTHER, SESSION_BITS, role_code

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
    """Something to look up: an FTS5 expression, and in about how many messages it is.

    Attributes:
        term: What is looked for.
        match: The expression.
        messages: In about how many messages it is.
        partial: The expression stands for only some of what is meant.
        shorter: Stems that the words in question may have; such messages are to be verified,
            since the index knows no endings: ``deployment*`` is among those with ``deploy``.
    """

    term: Term
    match: str
    messages: int
    partial: bool = False
    shorter: str = ""


def quoted(words: Iterable[str], between: str) -> str:
    """An FTS5 expression of words. Index words hold no quotes."""
    return between.join(f'"{word}"' for word in words)


def phrase_match(phrase: Phrase) -> str:
    """An expression for the messages that have all words of a phrase, in whatever order."""
    return quoted(dict.fromkeys(phrase.words), " AND ")


class Index:
    """The index as seen through one connection, limited to some roles, without some words."""

    def __init__(
        self,
        database: sqlite3.Connection,
        roles: frozenset[str] = frozenset(),
        excluded: Sequence[Phrase] = (),
    ) -> None:
        self._database = database
        codes = sorted({role_code(role) for role in roles})
        self.condition = (
            f" AND (rowid & {OTHER}) IN ({', '.join(map(str, codes))})"
            if codes and len(codes) <= OTHER
            else ""
        )
        lone = [phrase.words[0] for phrase in excluded if len(phrase.words) == 1]
        self._without = f" NOT ({quoted(lone, ' OR ')})" if lone else ""

    def clause(self, term: Term) -> Clause:
        """How to look a term up."""
        if not term.prefix:
            row = self._database.execute(
                "SELECT CAST(count AS INTEGER) FROM archive_terms WHERE term = ?", (term.word,)
            ).fetchone()
            return Clause(term, f'"{term.word}"', max(row[0], _UNCOUNTED) if row else 0)
        rows = self._database.execute(
            "SELECT term, CAST(count AS INTEGER) FROM archive_terms"
            " WHERE term >= ? AND term < ? AND typeof(term) = 'text' LIMIT ?",
            (term.word, term.word + "\U0010ffff", _MOST_COUNTED),
        ).fetchall()
        count = sum(max(each, _UNCOUNTED) for _, each in rows)
        shorter = quoted(self._shorter(term.word), " OR ")
        if count <= _BROAD:
            return Clause(term, f'"{term.word}"*', count, shorter=shorter)
        rows.sort(key=lambda row: -row[1])
        most = [word for word, _ in rows[:_MOST_EXPANSIONS]]
        return Clause(term, f"({quoted(most, ' OR ')})", count, partial=True)

    def _shorter(self, prefix: str) -> list[str]:
        """Stems that words with this beginning may have."""
        if not prefix.isascii() or len(prefix) < _SHORTEST_STEMMED:
            return []
        beginnings = [prefix[:at] for at in range(len(prefix) - 1, _SHORTEST_STEM - 1, -1)]
        candidates = {*beginnings, *(f"{each[:-1]}i" for each in beginnings), stem(prefix)}
        rows = self._database.execute(
            "SELECT term FROM archive_terms WHERE term IN (SELECT value FROM json_each(?))",
            (json.dumps(sorted(candidates - {prefix})),),
        )
        return [found for (found,) in rows]

    def newest(self, match: str, limit: int, below: int | None = None) -> list[int]:
        """The messages that match, at most so many, those with the largest numbers."""
        order = " ORDER BY rowid DESC LIMIT ?"
        if below is None:
            return self._rows(match, order, limit)
        return self._rows(match, f" AND rowid < ?{order}", below, limit)

    def alike(self, word: str) -> list[str]:
        """Words of the index that may be meant by one that is misspelt."""
        rows = self._database.execute(
            "SELECT term FROM archive_terms WHERE term >= ? AND term < ? LIMIT ?",
            (word[:_SURE_LETTERS], word[:_SURE_LETTERS] + "\U0010ffff", _MOST_COUNTED),
        )
        return [term for (term,) in rows if _is_one_slip(word, term)]

    def within(self, match: str, low: int, high: int, limit: int) -> list[int]:
        """The messages that match and have a number between two others."""
        return self._rows(match, " AND rowid BETWEEN ? AND ? LIMIT ?", low, high, limit)

    def sessions(self, match: str) -> list[int]:
        """The sessions that have a message that matches. Takes time where there are many."""
        rows = self._database.execute(
            f"SELECT DISTINCT rowid >> {SESSION_BITS} FROM archive_index"  # noqa: S608
            f" WHERE archive_index MATCH ?{self.condition}",
            (f"({match}){self._without}",),
        )
        return [number for (number,) in rows]

    def _rows(self, match: str, tail: str, *values: int) -> list[int]:
        rows = self._database.execute(
            f"SELECT rowid FROM archive_index WHERE archive_index MATCH ?{self.condition}{tail}",  # noqa: S608
            (f"({match}){self._without}", *values),
        )
        return [number for (number,) in rows]


def _is_one_slip(word: str, other: str) -> bool:
    """Whether one letter is missing, too many, wrong, or swapped with the next."""
    if abs(len(word) - len(other)) > 1 or word == other:
        return False
    at = next((at for at, (a, b) in enumerate(zip(word, other, strict=False)) if a != b), None)
    if at is None:
        return True
    swapped = word[at : at + 2] == other[at : at + 2][::-1] and word[at + 2 :] == other[at + 2 :]
    return (
        swapped
        or word[at + 1 :] == other[at + 1 :]
        or word[at:] == other[at + 1 :]
        or word[at + 1 :] == other[at:]
    )
