"""Days and months that a question names: "on 7 July", "in August 2025", "2025-08-01"."""

from __future__ import annotations

import re
from calendar import monthrange
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import Final, NamedTuple

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
        if timedelta(0) < first - span[1] <= _AFTERWARDS:
            best = _SOON_AFTER
    return best


def reach(named: list[Day]) -> list[tuple[float, float]]:
    """The times in which conversations fit the days of a known year."""
    found = []
    for span in (each.span(date.min) for each in named if each.year):
        if span is not None:
            with suppress(OverflowError, ValueError, OSError):  # a year that no clock knows
                begin = datetime.combine(span[0], datetime.min.time()).timestamp()
                end = datetime.combine(span[1] + _AFTERWARDS, datetime.max.time()).timestamp()
                found.append((begin, end))
    return found
