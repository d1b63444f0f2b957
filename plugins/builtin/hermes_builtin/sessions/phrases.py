"""Phrases: the index knows which words a message has, the text knows in which order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from hermes_builtin.sessions.query import Phrase
from hermes_builtin.sessions.source import Source
from hermes_builtin.sessions.words import fold, is_unspaced, runs

#: So many messages that have all words of a phrase are read, the newest first.
MOST_READ: Final = 3000


_MOST_PAGES: Final = 30


def pattern(phrase: Phrase) -> re.Pattern[str]:
    """What finds a phrase in a folded text."""
    parts = runs(phrase.text)
    # Any signs between the words: "state-of-the-art" is found by "state of the art".
    middle = r"[\W_]*".join(map(re.escape, parts))
    before = "" if is_unspaced(parts[0]) else r"(?<![^\W_])"
    after = "" if is_unspaced(parts[-1]) else r"(?![^\W_])"
    return re.compile(f"{before}{middle}{after}")


def having(
    source: Source,
    groups: Sequence[Sequence[Phrase]],
    visible: Callable[[list[int]], list[int]],
) -> tuple[set[int], bool]:
    """The messages to be seen that have a phrase of each group; and whether there may be more."""
    found: set[int] | None = None
    more = False
    for group in groups:
        has: set[int] = set()
        for phrase in group:
            numbers, rest = _having(source, phrase, visible)
            has |= numbers
            more |= rest
        # Groups are connected by AND, the phrases of a group by OR.
        found = has if found is None else found & has
    return found or set(), more


def _having(
    source: Source, phrase: Phrase, visible: Callable[[list[int]], list[int]]
) -> tuple[set[int], bool]:
    """The newest messages that have a phrase; and whether there may be older ones."""
    below = None
    words = [(word,) for word in dict.fromkeys(phrase.words)]
    for _ in range(_MOST_PAGES):
        candidates = source.newest(words, MOST_READ, below)
        found = _verified(source, visible(candidates), phrase)
        more = len(candidates) == MOST_READ
        if found or not more:
            return found, more
        # Newest first, page by page: usually the first page has a hit.
        below = candidates[-1]
    return set(), True


def without(source: Source, numbers: Iterable[int], phrases: Sequence[Phrase]) -> set[int]:
    """Those messages that have none of the phrases of several words."""
    left = set(numbers)
    for phrase in phrases:
        if len(phrase.words) > 1:
            left -= _verified(source, left, phrase)
    return left


def beginning(source: Source, numbers: Iterable[int], prefix: str) -> set[int]:
    """Those messages that have a word which begins like this."""
    return _matching(source, numbers, re.compile(rf"(?<![^\W_]){re.escape(prefix)}"))


def _verified(source: Source, numbers: Iterable[int], phrase: Phrase) -> set[int]:
    if not phrase.text:
        return set(numbers)
    return _matching(source, numbers, pattern(phrase))


def _matching(source: Source, numbers: Iterable[int], wanted: re.Pattern[str]) -> set[int]:
    return {
        number
        for number, content, extra in source.texts(numbers)
        if wanted.search(fold(content)) or (extra and wanted.search(fold(extra)))
    }
