"""What a secret looks like, and what only stands in its place: `sk-...`, `<your key>`, a name."""

from __future__ import annotations

import math
import re
from collections import Counter
from functools import cache
from typing import Final

_STAND_INS: Final = (
    r"example|placeholder|changeme|change[_-]me|dummy|redacted|your[_-]|[_-]here\b|x{6}|\*{3}"
    r"|\.{3}"
)
#: Words and small numbers with signs between: the name of something, not a secret.
_NAME: Final = r"(?:[A-Z]?[a-z]+|[A-Z]+|v?\d{1,4})"
_FEW: Final = 6
_LONG: Final = 16
_BITS: Final = 2.8


@cache
def _names() -> re.Pattern[str]:
    return re.compile(rf"{_NAME}(?:[_\-./:]+{_NAME}){{0,40}}+[_\-./:]*")


@cache
def _stand_ins() -> re.Pattern[str]:
    return re.compile(_STAND_INS, re.IGNORECASE)


def stands_in(body: str) -> bool:
    """Whether the body of a token is a placeholder or the name of something."""
    start = body[:200]
    return (
        len(set(start)) < _FEW
        or _names().fullmatch(start) is not None
        or _stand_ins().search(start) is not None
    )


def is_password(value: str) -> bool:
    """Whether a value that is called a password can be one."""
    return (
        len(value) >= _FEW
        and not _is_code(value)
        and not stands_in(value)
        and (not value.isalpha() or _mixes_cases(value))
    )


def is_random(value: str) -> bool:
    """Whether a value that is called a key or a token looks drawn by chance."""
    return (
        len(value) >= _LONG
        and not _is_code(value)
        and not stands_in(value)
        and any(map(str.isdigit, value))
        and any(map(str.isalpha, value))
        and _bits(value[:200]) >= _BITS
    )


def _is_code(value: str) -> bool:
    """A variable, a call, a template: what will be a secret only when it runs."""
    return value[0] in "$<{%([&@/~." or any(sign in value for sign in ("(", "${", "{{", "[", "->"))


def _mixes_cases(value: str) -> bool:
    return any(map(str.isupper, value[1:])) and any(map(str.islower, value))


def _bits(value: str) -> float:
    size = len(value)
    return -sum(n / size * math.log2(n / size) for n in Counter(value).values())
