"""Times and sizes as people read them."""

from __future__ import annotations

from datetime import datetime
from typing import Final

_SHORT: Final = 0.01
_KILO: Final = 1000
_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86_400


def moment(at: float | None) -> str | None:
    """A time for JSON; None if there is none, or no calendar has it."""
    if at is None:
        return None
    try:
        return datetime.fromtimestamp(at).astimezone().isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return None


def day_and_time(at: float) -> str:
    """A time for people."""
    return (moment(at) or "?")[:19].replace("T", " ")


def duration(seconds: float) -> str:
    """How long something took."""
    if seconds < 1:
        return f"{seconds * 1000:.{1 if seconds < _SHORT else 0}f} ms"
    return f"{seconds:.1f} s"


def span(seconds: float) -> str:
    """About how long ago, or how long until."""
    seconds = max(seconds, 0)
    if seconds < _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE:.0f} min"
    if seconds < 2 * _DAY:
        return f"{seconds // _HOUR:.0f} h"
    return f"{seconds // _DAY:,.0f} days"


def size(count: int) -> str:
    """A number with a unit that fits; nothing where it is not known."""
    if count < _KILO:
        return f"{count} B" if count else "-"
    kilobytes = count / _KILO
    return f"{kilobytes:.1f} kB" if kilobytes < _KILO else f"{kilobytes / _KILO:,.1f} MB"
