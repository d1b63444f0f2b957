"""The full-text index: filling it, looking words up, and verifying phrases against the text."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final, NamedTuple

from hermes_builtin.sessions.archive import searchable
from hermes_builtin.sessions.query import Phrase, Term
from hermes_builtin.sessions.sqlite.database import (
    OTHER,
    SAMPLE,
    SESSION_BITS,
    json_list,
    role_code,
    session_of,
)
from hermes_builtin.sessions.words import (
    LANGUAGE_MARKS,
    fold,
    inflected,
    is_unspaced,
    runs,
    stem,
    words,
)

# -----------------------------------------------------------------------------------------------
# Putting words into the index, many messages at a time: one by one costs five times as much
#
# A message is stored first, and in the same transaction it is noted from which message on a
# session is not in the index. Before anything is looked up, what is pending is indexed.

#: So many messages are indexed in one transaction, or fewer with so many characters: whoever
#: wants to write meanwhile waits for it.
BATCH: Final = 512
_MOST_TEXT: Final = 100_000
_KNOWN_TERMS: Final = 200_000

Row = tuple[int, int, str, str | None]


def indexed_words(content: str, extra: str | None) -> list[str]:
    """The words by which a message can be found, in order."""
    return words(searchable(content, facts_of(extra)) if extra else content)


def facts_of(extra: str | None) -> dict[str, Any]:
    """What else is known of a message; {} if it is no longer what was stored."""
    try:
        facts = json.loads(extra) if extra else {}
    except (ValueError, TypeError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


def is_pending(database: sqlite3.Connection) -> bool:
    """Whether there are messages that are not in the index yet."""
    return database.execute("SELECT 1 FROM archive_unindexed LIMIT 1").fetchone() is not None


# CROSS JOIN fixes the order of the loops: for each unindexed session, a range of the primary key.
_PENDING: Final = (
    "SELECT id, checksum, content, extra FROM archive_unindexed CROSS JOIN archive_messages"  # noqa: S608
    f" ON id BETWEEN first AND ((session + 1) << {SESSION_BITS}) - 1 ORDER BY session, id LIMIT ?"
)
_ALL: Final = "SELECT id, checksum, content, extra FROM archive_messages ORDER BY id LIMIT ?"


def _some(database: sqlite3.Connection) -> tuple[list[Row], bool]:
    """The first messages that are not in the index yet, and whether there may be more."""
    pending = database.execute(_PENDING, (BATCH,))
    rows: list[Row] = []
    size = 0
    with closing(pending):
        for row in pending:
            rows.append(row)
            size += sum(len(text) for text in row[2:] if isinstance(text, str))
            if size >= _MOST_TEXT:
                break
    return rows, len(rows) == BATCH or size >= _MOST_TEXT


class Indexer:
    """Puts words into the index, and counts them."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def some_pending(self, database: sqlite3.Connection) -> tuple[int, bool]:
        """Index some of the messages that are pending; how many, and whether more may be."""
        rows, more = _some(database)
        self.add(database, rows)
        if not more:
            database.execute("DELETE FROM archive_unindexed")
            return len(rows), False
        # Sessions before the last one are complete; in the last one the mark moves behind what was
        # read.
        last = rows[-1][0]
        session = session_of(last)
        database.execute("DELETE FROM archive_unindexed WHERE session < ?", (session,))
        moved = database.execute(
            "UPDATE archive_unindexed SET first = :next WHERE session = :session AND first < :next",
            {"next": last + 1, "session": session},
        )
        if moved.rowcount != 1:  # a damaged page; the same ones would come again for ever
            raise sqlite3.DatabaseError("messages are not in order")
        return len(rows), True

    def add(self, database: sqlite3.Connection, rows: Sequence[Row]) -> None:
        """Put messages into the index; those that are sampled also into the counts."""
        counts: Counter[str] = Counter()
        seen: set[str] = set()
        entries = []
        for number, mark, content, extra in rows:
            found = indexed_words(content, extra) if isinstance(content, str) else []
            entries.append((number, " ".join(found)))
            seen.update(found)
            if isinstance(mark, int) and mark % SAMPLE == 0:  # else damaged: `check` reports it
                counts.update(set(found))
        database.executemany("INSERT INTO archive_index (rowid, words) VALUES (?, ?)", entries)
        # In the order of the table, so that each of its pages is looked up once.
        database.executemany(
            "INSERT INTO archive_terms VALUES (?, ?)"
            " ON CONFLICT DO UPDATE SET count = count + excluded.count",
            [(word, SAMPLE * count) for word, count in sorted(counts.items())],
        )
        # Every word is in the table, with 0 if no sampled message has it: prefixes and misspelt
        # words are looked up there. `_known` saves most of these inserts.
        unknown = seen - counts.keys() - self._known
        database.executemany(
            "INSERT OR IGNORE INTO archive_terms VALUES (?, 0)",
            [(word,) for word in sorted(unknown)],
        )
        # Bounded memory: clearing only costs some inserts that are ignored.
        if len(self._known) > _KNOWN_TERMS:
            self._known.clear()
        self._known |= seen

    def forget(self) -> None:
        """A transaction failed: the table of terms may not have what we think."""
        self._known.clear()


#: At most so many messages are indexed while somebody waits for a search.
SMALL: Final = 50_000


@contextmanager
def index_in_memory(database: sqlite3.Connection, *, everything: bool) -> Iterator[bool]:
    """Have this connection look words up in another index: that of messages that are not indexed.

    For a file that can't be written, or not now. The index is in memory and ends with the block.

    Args:
        database: A connection for reading.
        everything: Index all messages, since the index of the file is damaged.

    Yields:
        Whether it has all of them; there may be too many.
    """
    definitions = database.execute(
        "SELECT sql FROM main.sqlite_master WHERE name IN ('archive_index', 'archive_terms')"
    ).fetchall()
    database.execute("PRAGMA temp_store = MEMORY")
    database.execute("PRAGMA query_only = 0")
    try:
        # SQLite looks for a name among the temporary tables first.
        for (definition,) in definitions:
            database.execute(definition.replace("TABLE archive_", "TABLE temp.archive_", 1))
        rows = database.execute(_ALL if everything else _PENDING, (SMALL + 1,)).fetchall()
        indexer = Indexer()
        for at in range(0, len(rows), BATCH):
            indexer.add(database, rows[at : at + BATCH])
        yield len(rows) <= SMALL
    finally:
        for table in ("archive_index", "archive_terms"):
            database.execute(f"DROP TABLE IF EXISTS temp.{table}")
        database.execute("PRAGMA query_only = 1")


# -- Looking words up in the index: how frequent they are, and which messages have them ---------

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
        forms: The same word as a stem of other languages; part of the expression.
        shorter: Stems that the words in question may have; such messages are to be verified,
            since the index knows no endings: ``deployment*`` is among those with ``deploy``.
    """

    term: Term
    match: str
    messages: int
    partial: bool = False
    shorter: str = ""
    forms: tuple[str, ...] = ()


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
        forms: Mapping[str, str] | None = None,
    ) -> None:
        self._database = database
        self._forms = forms or {}
        self._codes: list[str] | None = None  # the languages of the archive, once they are needed
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
            counts = self._counts([term.word, *self._inflected(term.word)])
            forms = tuple(each for each in counts if each != term.word)
            match = quoted((term.word, *forms), " OR ")
            count = sum(max(each, _UNCOUNTED) for each in counts.values())
            return Clause(term, f"({match})" if forms else match, count, forms=forms)
        rows = self._database.execute(
            "SELECT term, CAST(count AS INTEGER) FROM archive_terms"
            " WHERE term >= ? AND term < ? AND typeof(term) = 'text' LIMIT ?",
            # A range of the primary key; LIKE would not use it. The last code point comes after
            # every word.
            (term.word, term.word + "\U0010ffff", _MOST_COUNTED),
        ).fetchall()
        count = sum(max(each, _UNCOUNTED) for _, each in rows)
        shorter = quoted(self._shorter(term.word), " OR ")
        if count <= _BROAD:
            return Clause(term, f'"{term.word}"*', count, shorter=shorter)
        rows.sort(key=lambda row: -row[1])
        # FTS5 would merge the lists of thousands of words. The most frequent ones cover most
        # messages, and `partial` says that it is not all.
        most = [word for word, _ in rows[:_MOST_EXPANSIONS]]
        return Clause(term, f"({quoted(most, ' OR ')})", count, partial=True)

    def _counts(self, words: Sequence[str]) -> dict[str, int]:
        """In about how many messages words are; those that are in none are left out."""
        marks = ", ".join("?" * len(words))
        return dict(
            self._database.execute(
                f"SELECT term, CAST(count AS INTEGER) FROM archive_terms WHERE term IN ({marks})",  # noqa: S608
                words,
            ).fetchall()
        )

    def _inflected(self, word: str) -> list[str]:
        """A word as a stem of each language that some message is in."""
        form = self._forms.get(word)
        if form is None:
            return []
        if self._codes is None:
            self._codes = [mark[1:] for mark in self._counts(LANGUAGE_MARKS)]
        return [inflected(form, code) for code in self._codes]

    def _shorter(self, prefix: str) -> list[str]:
        """Stems that words with this beginning may have."""
        if not prefix.isascii() or len(prefix) < _SHORTEST_STEMMED:
            return []
        # Snowball also turns a final y into i, so "happiness*" may be under "happi".
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


# -- Phrases: the index knows which words a message has, the text knows in which order ----------

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
        # Groups are connected by AND, the phrases of a group by OR.
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
        # Newest first, page by page: usually the first page has a hit.
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
    return _matching(database, numbers, re.compile(rf"(?<![^\W_]){re.escape(prefix)}"))


def _verified(database: sqlite3.Connection, numbers: Iterable[int], phrase: Phrase) -> set[int]:
    if not phrase.text:
        return set(numbers)
    return _matching(database, numbers, pattern(phrase))


def _matching(
    database: sqlite3.Connection, numbers: Iterable[int], wanted: re.Pattern[str]
) -> set[int]:
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
        (json_list(numbers),),
    )
