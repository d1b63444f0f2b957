"""Values as people write them, in files and variables, as the values that are meant."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any, Final

_YES: Final = frozenset(("true", "yes", "on", "1", "y"))
_NO: Final = frozenset(("false", "no", "off", "0", "n"))
NAMES: Final = {
    "text": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "yes or no",
    "list": "a list",
}


class NotSuch(Exception):  # noqa: N818 - reads as what it is
    """A value is not of the type that it should have."""

    def __init__(self, kind: str) -> None:
        self.wanted = NAMES[kind]
        super().__init__(self.wanted)


def coerced(value: Any, kind: str) -> Any:
    """A value of the type: ``"10"`` is 10, ``"yes"`` is True, ``"a, b"`` is a list.

    Raises:
        NotSuch: It can't be meant. The error never has the value in it.
    """
    if kind == "boolean":
        return _boolean(value)
    if kind == "list":
        return _items(value)
    if kind in ("integer", "number"):
        return _number(value, kind)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise NotSuch(kind)


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower() if isinstance(value, str | int) else ""
    if text in _YES:
        return True
    if text in _NO:
        return False
    raise NotSuch("boolean")


def _items(value: Any) -> list[Any]:
    """A list; in a text with commas between, or as JSON."""
    if isinstance(value, str):
        if not value.lstrip().startswith("["):
            return [each.strip() for each in value.split(",") if each.strip()]
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise NotSuch("list") from None
    if not isinstance(value, list):
        raise NotSuch("list")
    return value


def _number(value: Any, kind: str) -> int | float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise NotSuch(kind)
    if isinstance(value, str) and "_" in value:  # Python's own, and nobody else's
        raise NotSuch(kind)
    try:
        number = float(value)
        whole = int(value) if isinstance(value, int | str) and _is_whole(value) else None
    except (ValueError, OverflowError):
        raise NotSuch(kind) from None
    if not isfinite(number):
        raise NotSuch(kind)
    if whole is not None:
        return whole
    if number.is_integer() and (kind == "integer" or isinstance(value, int)):
        return int(number)
    if kind == "integer":
        raise NotSuch(kind)
    return number


def _is_whole(value: int | str) -> bool:
    return isinstance(value, int) or value.strip().lstrip("+-").isdecimal()
