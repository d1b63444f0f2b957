"""Values in the log of another machine: what can't be stored, or not be compared, is refused."""

from __future__ import annotations

from math import isfinite
from typing import Any, Final

#: What a database takes as an integer is smaller.
_INTEGERS: Final = 2**63
#: Seconds: to a later time of a title, no milliseconds can be added any more.
_LATEST: Final = 1e11
#: What reading a record raises if it is not as it must be.
UNUSABLE: Final = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)


def checked_text(value: Any) -> str:
    """A text that can be stored.

    Raises:
        ValueError: It is not a text, or has half of a surrogate pair.
    """
    if not isinstance(value, str):
        raise ValueError("not a text")  # noqa: TRY004 - a value of a record, not an argument
    value.encode()
    return value


def checked_seq(value: Any) -> int:
    """The number of a line.

    Raises:
        ValueError: It is not an integer, or too large for a database.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _INTEGERS:
        raise ValueError("not the number of a line")
    return value


def checked_time(value: Any) -> float:
    """A time, as messages and conversations have it.

    Raises:
        ValueError: It is not a number, not finite, or too large for a database.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("not a time")  # noqa: TRY004 - a value of a record, not an argument
    if not (isfinite(value) and abs(value) < _INTEGERS):
        raise ValueError("not a time")
    return float(value)


def checked_stamp(value: Any) -> float:
    """The time at which a title was given: a later one must be possible.

    Raises:
        ValueError: It is not such a time.
    """
    stamp = checked_time(value)
    if abs(stamp) > _LATEST:
        raise ValueError("not the time of a title")
    return stamp
