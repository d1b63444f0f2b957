"""A query as people type it: words, "phrases", -without, OR, prefix*, role:, after:, before:.

Any string is a query. What could be an operator but makes no sense as one is a word.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from types import MappingProxyType
from typing import Final, NamedTuple

from hermes_builtin.sessions.archive import ROLES
from hermes_builtin.sessions.words import (
    STOP_WORDS,
    fold,
    is_unspaced,
    plain_words,
    runs,
    words_of,
    written_words,
)

# -----------------------------------------------------------------------------------------------
# A query as people type it: words, "phrases", -without, OR, prefix*, role:, after:, before:
#
# Any string is a query. What could be an operator but makes no sense as one is a word.

LONGEST_QUERY: Final = 100_000
_ALTERNATIVES: Final = 64
_SHORTEST_EXCLUDED: Final = 3  # `rm -rf` is a command, not a wish to hear nothing of rf

# A minus counts only at the beginning of a word ("well-known" has none), before a word or a quote.
# Typographic quotes are what phones type. A lone quote is matched and ignored.
_PIECE: Final = re.compile(
    r"""(?P<minus>(?<!\S)-(?=["“\w]))?(?:["“](?P<phrase>[^"“”]+)["”]|(?P<word>[^\s"“”]+)|["“”])"""
)
_FILTER: Final = re.compile(r"(role|after|before):(.+)", re.IGNORECASE)
_AGE: Final = re.compile(r"(\d{1,5})([hdwmy])")
_HOURS: Final = {"h": 1, "d": 24, "w": 24 * 7, "m": 24 * 30, "y": 24 * 365}


class Term(NamedTuple):
    """A word that is looked for; as a prefix, whatever begins with it."""

    word: str
    prefix: bool = False


class Phrase(NamedTuple):
    """Words in a row, as they were typed; without a text in any order and form."""

    text: str
    words: tuple[str, ...]


class Query(NamedTuple):
    """What is looked for.

    Attributes:
        terms: Each makes a message more relevant; none is required.
        required: Groups of phrases; of each group one must be there.
        excluded: Phrases of which none may be there.
        roles: Who said it; empty for the caller's choice.
        after: Not before this time (seconds since 1970).
        before: Before this time.
        text: The query itself, for a search without words.
        pairs: Terms that stand side by side in it.
        forms: Terms' words as they were written, for stems of other languages.
    """

    terms: tuple[Term, ...] = ()
    required: tuple[tuple[Phrase, ...], ...] = ()
    excluded: tuple[Phrase, ...] = ()
    roles: frozenset[str] = frozenset()
    after: float | None = None
    before: float | None = None
    text: str = ""
    pairs: frozenset[tuple[str, str]] = frozenset()
    forms: Mapping[str, str] = MappingProxyType({})

    @property
    def has_words(self) -> bool:
        """Whether there is anything to look up in an index."""
        return bool(self.terms or self.required)

    def with_nothing_required(self) -> Query:
        """The same words, none of them required, and in any order."""
        found = [Term(word) for group in self.required for phrase in group for word in phrase.words]
        return self._replace(terms=tuple(dict.fromkeys((*self.terms, *found))), required=())

    def with_any_word(self) -> Query:
        """The same words, of which one must be there; of very many only the first."""
        words = [term.word for term in self.with_nothing_required().terms[:_ALTERNATIVES]]
        return self._replace(terms=(), required=(tuple(Phrase("", (each,)) for each in words),))

    def with_nothing_excluded(self) -> Query:
        """The same without what may not be there."""
        return self._replace(excluded=())


def parse(text: str, now: float | None = None) -> Query:
    """Understand a query. ``now`` is for dates like ``after:7d``."""
    pieces = list(_PIECE.finditer(text[:LONGEST_QUERY]))
    # It is unknown which of two operators goes first: then OR is meant, and AND ranks.
    mixed = {"OR", "AND"} <= {piece["word"] for piece in pieces}
    moment = datetime.now(UTC) if now is None else datetime.fromtimestamp(now, UTC)
    reader = _Reader(moment, "" if mixed else "AND")
    for piece in pieces:
        reader.take(piece)
    return reader.query(text)


def phrase_words(text: str) -> list[str]:
    """The index words of a text in a row; the last of a run of pairs is in the pair before it."""
    found: list[str] = []
    for run in runs(text):
        pairs = words_of(run)
        found += pairs[:-1] if is_unspaced(run) and len(pairs) > 1 else pairs
    return found


class _Reader:
    """Takes the pieces of a query one after the other."""

    def __init__(self, now: datetime, both: str) -> None:
        self._now = now
        self._both = both  # the operator that requires both its sides
        self._in_group = False  # whether the last piece is in the last group
        self._terms: list[Term] = []
        self._stop_words: list[Term] = []
        self._required: list[list[Phrase]] = []
        self._excluded: list[Phrase] = []
        self._roles: set[str] = set()
        self._times: dict[str, float] = {}
        self._operator = ""
        self._last_words: list[str] = []
        self._pairs: set[tuple[str, str]] = set()
        self._previous = ""
        self._forms: dict[str, str] = {}

    def take(self, piece: re.Match[str]) -> None:
        """One word, phrase, filter or operator."""
        minus, phrase, word = piece["minus"], piece["phrase"], piece["word"] or ""
        if word in ("OR", "AND", "NOT"):
            self._operator = word
            return
        if not phrase and self._filter(word):
            return
        written = phrase or word
        found = tuple(phrase_words(written))
        # Short words in other scripts are whole words, in English they are options of commands.
        excluded = minus and (phrase or len(word) >= _SHORTEST_EXCLUDED or not word.isascii())
        if not found:
            pass
        elif excluded or self._operator == "NOT":
            self._excluded.append(Phrase(written, found))
        elif phrase or (self._both and self._operator == self._both):
            self._require(Phrase(phrase or "", found))
        else:
            self._word(written, found)
        self._operator, self._last_words = "", list(found)

    def _require(self, phrase: Phrase) -> None:
        before = [Phrase("", tuple(self._last_words))] if self._last_words else []
        if self._operator == "OR" and self._in_group:
            self._required[-1].append(phrase)
        elif self._operator == "OR":
            self._required.append([*before, phrase])
        elif self._operator == "AND" and before and not self._in_group:
            self._required += [before, [phrase]]
        else:
            self._required.append([phrase])
        self._in_group = True

    def _word(self, written: str, found: Sequence[str]) -> None:
        if self._operator == "OR" and self._in_group:
            self._required[-1].append(Phrase("", tuple(found)))
            return
        self._in_group = False
        parts = runs(written)
        if written.endswith("*") and not is_unspaced(parts[-1]):
            self._terms.append(Term(parts.pop(), prefix=True))
        self._remember_forms(parts, written)
        for part in parts:
            pairs = words_of(part)
            if is_unspaced(part):
                # The last character stands alone, and the pair before it has it too.
                terms = [Term(pair) for pair in pairs[:-1]] or [Term(pairs[0], prefix=True)]
            else:
                terms = [Term(pair) for pair in pairs]
            if part in STOP_WORDS:
                self._stop_words += terms
                self._previous = ""
            else:
                self._terms += terms
                self._pair(terms)

    def _remember_forms(self, folded: Sequence[str], written: str) -> None:
        """Other languages' stemmers need the accents that the index leaves out."""
        spelled = written_words(written)
        if len(spelled) == len(folded):
            pairs = zip(folded, spelled, strict=True)
            self._forms |= {words_of(part)[0]: form for part, form in pairs if part.isalpha()}

    def _pair(self, terms: Sequence[Term]) -> None:
        for term in terms:
            if self._previous and self._previous != term.word:
                self._pairs.add((self._previous, term.word))
            self._previous = term.word

    def _filter(self, word: str) -> bool:
        """Take ``role:user`` and its kind; False if it is none."""
        match = _FILTER.fullmatch(word)
        if match is None:
            return False
        name, value = match[1].lower(), match[2].lower()
        if name == "role":
            roles = set(value.split(","))
            if not roles <= {*ROLES, "system"}:
                return False
            self._roles |= roles
            return True
        moment = _moment(value, self._now)
        if moment is None:
            return False
        self._times[name] = moment
        return True

    def query(self, text: str) -> Query:
        """All that was taken. Stop words count only where there is nothing else."""
        terms = self._terms or ([] if self._required else self._stop_words)
        query = Query(
            tuple(dict.fromkeys(terms)),
            tuple(map(tuple, self._required)),
            tuple(self._excluded),
            frozenset(self._roles),
            self._times.get("after"),
            self._times.get("before"),
            text.strip(),
            frozenset(self._pairs),
            self._forms,
        )
        if not query.has_words and not query.excluded:  # only words that could be operators
            query = query._replace(terms=tuple(dict.fromkeys(map(Term, plain_words(text)))))
        return query


def age(text: str) -> float | None:
    """The seconds that ``90d``, ``12w`` or ``1y`` mean; None if it is not an age."""
    match = _AGE.fullmatch(text.strip().lower())
    return int(match[1]) * _HOURS[match[2]] * 3600.0 if match else None


def _moment(value: str, now: datetime) -> float | None:
    """The time that ``2024``, ``2024-05``, ``2024-05-01``, ``2024-05-01T10:00`` or ``7d`` mean."""
    try:
        if (seconds := age(value)) is not None:
            return max((now - timedelta(seconds=seconds)).timestamp(), 0.0)
        if re.fullmatch(r"\d{4}(-\d{1,2}){0,2}", value):
            year, month, day = (*map(int, value.split("-")), 1, 1)[:3]
            start = datetime.combine(date(year, month, day), datetime.min.time())
        else:
            start = datetime.fromisoformat(value.upper())
        # A day begins at midnight where the person is, not in UTC.
        return start.astimezone().timestamp()  # without a zone: the zone of this machine
    except (ValueError, OverflowError, OSError):
        return None


# -- Days and months that a question names: "on 7 July", "in August 2025", "2025-08-01" ---------

_MONTHS: Final = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
)  # fmt: skip
#: Without a day or a year these are more often other words.
_AMBIGUOUS: Final = frozenset(("march", "may"))
_NAMED: Final = re.compile(
    r"(?:\b(\d{1,2})(?:st|nd|rd|th)?\s+(?:of\s+)?)?"
    rf"\b({'|'.join(_MONTHS)})\b"
    r"(?:\s+(\d{1,2})(?:st|nd|rd|th)?(?!\d))?,?(?:\s+(?:of\s+)?(\d{4})\b)?",
    re.IGNORECASE,
)
_NUMBERS: Final = re.compile(r"\b(\d{4})-(\d{2})(?:-(\d{2}))?\b")
_AFTERWARDS: Final = timedelta(days=10)
_SOON_AFTER: Final = 0.5


class Day(NamedTuple):
    """A day, or with day 0 a month; of any year if the year is 0."""

    year: int
    month: int
    day: int

    def span(self, near: date) -> tuple[date, date] | None:
        """From which day to which; None if there is no such day."""
        year = self.year or near.year
        if not (1 <= year <= 9999 and 1 <= self.month <= 12):  # noqa: PLR2004
            return None
        last = monthrange(year, self.month)[1]
        if self.day > last:
            return None
        return date(year, self.month, self.day or 1), date(year, self.month, self.day or last)


def days(text: str) -> list[Day]:
    """The days and months that a text names."""
    found = [Day(int(y), int(m), int(d or 0)) for y, m, d in _NUMBERS.findall(text)]
    for before, month, after, year in _NAMED.findall(text):
        if month.lower() in _AMBIGUOUS and not (before or after or year):
            continue
        number = _MONTHS.index(month.lower()) + 1
        found.append(Day(int(year or 0), number, int(before or after or 0)))
    return found


def agreement(named: list[Day], began: float, ended: float) -> float:
    """How well a conversation fits the days: 1 on such a day, less soon after, 0 else."""
    try:
        first, last = (datetime.fromtimestamp(at, UTC).astimezone().date() for at in (began, ended))
    except (OverflowError, ValueError, OSError):
        return 0.0
    best = 0.0
    for each in named:
        span = each.span(first)
        if span is None:
            continue
        if first <= span[1] and last >= span[0]:
            return 1.0
        # People talk about an event some days after it: such sessions count half.
        if timedelta(0) < first - span[1] <= _AFTERWARDS:
            best = _SOON_AFTER
    return best


def reach(named: list[Day]) -> list[tuple[float, float]]:
    """The times in which conversations fit the days of a known year."""
    found = []
    # Without a year any year fits, which is not a range to look up: `agreement` judges those.
    for span in (each.span(date.min) for each in named if each.year):
        if span is not None:
            with suppress(OverflowError, ValueError, OSError):  # a year that no clock knows
                begin = datetime.combine(span[0], datetime.min.time()).timestamp()
                end = datetime.combine(span[1] + _AFTERWARDS, datetime.max.time()).timestamp()
                found.append((begin, end))
    return found


# -- Does a query ask for a conversation by its title? ------------------------------------------

#: hermes-agent numbers the continuations of a conversation: "Taxes", "Taxes #2".
_NUMBER: Final = re.compile(r" #\d+\Z")
_QUOTES: Final = "`'\"“” \t\n"


class TitleQuery:
    """A query as it is compared with titles, of which there may be thousands."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._text = fold(query.text.strip(_QUOTES))
        # A word that must be there: most titles lack it, and need no closer look.
        self._first = next((term.word for term in query.terms if not term.prefix), "")

    def is_exact(self, title: str) -> bool:
        """Whether the query is the title, or the title of what was continued under it."""
        folded = fold(title).strip()
        if not self._text or not folded.startswith(self._text):
            return False
        rest = folded[len(self._text) :]
        return not rest or _NUMBER.fullmatch(rest) is not None

    def is_in(self, title: str) -> bool:
        """Whether a title has all words of the query, and none that it excludes.

        A query without words, like ``%``, is looked for as it stands.
        """
        if not self._query.has_words:
            return bool(self._text) and not self._query.excluded and self._text in fold(title)
        there = plain_words(title)
        if self._first and self._first not in there:
            return False
        return self._has_words(frozenset(there))

    def _has_words(self, there: frozenset[str]) -> bool:
        return (
            all(_is_there(term, there) for term in self._query.terms)
            and all(_is_any_there(group, there) for group in self._query.required)
            and not _is_any_there(self._query.excluded, there)
        )


def _is_there(term: Term, there: frozenset[str]) -> bool:
    if term.prefix:
        return any(word.startswith(term.word) for word in there)
    return term.word in there


def _is_any_there(phrases: tuple[Phrase, ...], there: frozenset[str]) -> bool:
    return any(there.issuperset(phrase.words) for phrase in phrases)
