"""Phrases: the index knows which words a message has, the text knows in which order."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from hermes_builtin.sessions._query import Phrase
from hermes_builtin.sessions._words import fold, is_unspaced, runs
from hermes_builtin.sessions.sqlite._index import Index, phrase_match

#: So many messages that have all words of a phrase are read, the newest first.
MOST_READ: Final = 3000
_MOST_PAGES: Final = 30


def pattern(phrase: Phrase) -> re.Pattern[str]:
    """What finds a phrase in a folded text."""
    parts = runs(phrase.text)
    middle = r"[\W_]*".join(map(re.escape, parts))
    before = "" if is_unspaced(parts[0]) else r"(?<![^\W_])"
    after = "" if is_unspaced(parts[-1]) else r"(?![^\W_])"
    return re.compile(f"{before}{middle}{after}")


def having(
    database: sqlite3.Connection,
    index: Index,
    groups: Sequence[Sequence[Phrase]],
    visible: Callable[[list[int]], list[int]],
) -> tuple[set[int], bool]:
    """The messages to be seen that have a phrase of each group; and whether there may be more."""
    found: set[int] | None = None
    more = False
    for group in groups:
        has: set[int] = set()
        for phrase in group:
            numbers, rest = _having(database, index, phrase, visible)
            has |= numbers
            more |= rest
        found = has if found is None else found & has
    return found or set(), more


def _having(
    database: sqlite3.Connection,
    index: Index,
    phrase: Phrase,
    visible: Callable[[list[int]], list[int]],
) -> tuple[set[int], bool]:
    """The newest messages that have a phrase; and whether there may be older ones."""
    below = None
    for _ in range(_MOST_PAGES):
        candidates = index.newest(phrase_match(phrase), MOST_READ, below)
        found = _verified(database, visible(candidates), phrase)
        more = len(candidates) == MOST_READ
        if found or not more:
            return found, more
        below = candidates[-1]
    return set(), True


def without(
    database: sqlite3.Connection, numbers: Iterable[int], phrases: Sequence[Phrase]
) -> set[int]:
    """Those messages that have none of the phrases of several words."""
    left = set(numbers)
    for phrase in phrases:
        if len(phrase.words) > 1:
            left -= _verified(database, left, phrase)
    return left


def beginning(database: sqlite3.Connection, numbers: Iterable[int], prefix: str) -> set[int]:
    """Those messages that have a word which begins like this."""
    wanted = re.compile(rf"(?<![^\W_]){re.escape(prefix)}")
    return {
        number
        for number, content, extra in texts(database, numbers)
        if wanted.search(fold(content)) or (extra and wanted.search(fold(extra)))
    }


def _verified(database: sqlite3.Connection, numbers: Iterable[int], phrase: Phrase) -> set[int]:
    if not phrase.text:
        return set(numbers)
    wanted = pattern(phrase)
    return {
        number
        for number, content, extra in texts(database, numbers)
        if wanted.search(fold(content)) or (extra and wanted.search(fold(extra)))
    }


def texts(
    database: sqlite3.Connection, numbers: Iterable[int]
) -> Iterable[tuple[int, str, str | None]]:
    """The texts of messages."""
    return database.execute(
        "SELECT id, content, extra FROM archive_messages"
        " WHERE id IN (SELECT value FROM json_each(?))",
        (f"[{','.join(map(str, numbers))}]",),
    )
