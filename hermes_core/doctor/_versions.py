"""Versions against what a requirement asks for, as far as their numbers tell."""

from __future__ import annotations

import re
from typing import Final

_CLAUSE: Final = re.compile(r"\s*(===|==|!=|<=|>=|~=|<|>)\s*([^\s,]+)\s*")
_NUMBERS: Final = re.compile(r"\d+")


def is_met(installed: str, clauses: str) -> bool:
    """Whether a version satisfies all clauses, as far as their numbers tell."""
    have = _release(installed)
    for clause in filter(None, clauses.split(",")):
        match = _CLAUSE.fullmatch(clause)
        if match is None:
            continue
        sign, text = match[1], match[2]
        want = _release(text)
        if text.endswith(".*"):
            same = have[: len(want)] == want
            if (sign == "==" and not same) or (sign == "!=" and same):
                return False
        elif not _compares(have, sign, want):
            return False
    return True


def _compares(have: tuple[int, ...], sign: str, want: tuple[int, ...]) -> bool:
    width = max(len(have), len(want))
    left, right = (each + (0,) * (width - len(each)) for each in (have, want))
    if sign == "~=":
        return left >= right and have[: len(want) - 1] == want[:-1]
    return {
        "==": left == right, "===": left == right, "!=": left != right, "<=": left <= right,
        ">=": left >= right, "<": left < right, ">": left > right,
    }[sign]  # fmt: skip


def _release(text: str) -> tuple[int, ...]:
    """The numbers of a version, without what follows them."""
    release = re.match(r"v?(\d+(?:\.\d+)*)", text)
    return tuple(map(int, _NUMBERS.findall(release[1]))) if release else (0,)
