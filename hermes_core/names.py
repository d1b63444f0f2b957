"""How names of providers compare, and what somebody may have meant."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Final

BUILTIN: Final = "builtin"

_SEPARATORS: Final = re.compile(r"[-_.]+")


def normalise(name: str) -> str:
    """The form in which names compare: PEP 503, case and NFKC folded."""
    return _SEPARATORS.sub("-", unicodedata.normalize("NFKC", name).casefold())


def split_choice(choice: str) -> tuple[str, str]:
    """``name@owner`` as (name, owner); the owner is "" where none is given."""
    name, _, owner = choice.partition("@")
    return name.strip(), owner.strip()


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """The known names that look most like ``name``, best first."""
    from difflib import get_close_matches  # noqa: PLC0415 - only when something is wrong

    by_normal = {normalise(each): each for each in known}
    return [by_normal[match] for match in get_close_matches(normalise(name), by_normal, cutoff=0.6)]
