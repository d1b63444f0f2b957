"""Looks for text in notes that would command the model instead of informing it.

Notes go into every system prompt, so one poisoned entry outlives the conversation that
planted it. Three things are looked for: orders that override the model's instructions,
orders to carry data away, and characters that a person can't see. Nothing in the text can
switch the scan off.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import Final, NamedTuple

from hermes_builtin.notes._disguises import readings, respelt
from hermes_builtin.notes._patterns import Match, Text, plain, search

_QUOTED: Final = 60


class Finding(NamedTuple):
    """What was found: a kind, and words for a person."""

    kind: str
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"


def scan(text: str) -> Finding | None:
    """The first thing wrong with a text, or None."""
    return hidden_characters(text) or _command(text)


# -- commands --------------------------------------------------------------------------------


def _command(text: str) -> Finding | None:
    first = Text.of(plain(text))
    found = _search(first) or next(filter(None, map(_search, readings(text, first))), None)
    if found is None:
        return None
    quote = " ".join(found.quote.split())
    return Finding(found.kind, f"“{quote if len(quote) <= _QUOTED else quote[:_QUOTED] + '...'}”")


def _search(text: Text) -> Match | None:
    found = search(text)
    if found is None and (other := respelt(text)):
        found = search(other)
    return found


# -- characters that can't be seen -----------------------------------------------------------

_LINE_ENDS: Final = {ord("\n"): None, ord("\t"): None}
_UNSEEN: Final = frozenset(("Cc", "Cf", "Cn", "Co", "Cs"))
_BLANK: Final = (
    r"[\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\ufe00-\ufe0f\U000e0100-\U000e01ef]"
)

_LETTER: Final = r"[^\W\d_]"
_PICTURE: Final = (
    r"[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u2bff\u3030\u303d\u3297\u3299\ufe0f"
    r"\U0001f000-\U0001fbff]"
)
_IDEOGRAPH: Final = r"[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003fffd]"
_JOINING: Final = r"[\u0600-\u07ff\u0860-\u0dff\u0f00-\u109f\u1780-\u18af]"
_NO_SPACES: Final = r"[\u0e00-\u0eff\u0f00-\u109f\u1780-\u17ff]"
_RIGHT_TO_LEFT: Final = r"[\u05d0-\u05ff\u0620-\u08ff\ufb1d-\ufdfb\ufe70-\ufefc]"

#: Characters that are not seen, in the places where people use them.
_IN_PLACE: Final = (
    rf"(?<={_PICTURE})\u200d(?={_PICTURE})",  # joins emoji
    rf"(?<={_JOINING})[\u200c\u200d]",  # joins letters, or keeps them apart
    rf"(?:(?<={_PICTURE})|(?<=[#*0-9]))(?<!\ufe0f)[\ufe0e\ufe0f]",  # colourful or plain
    rf"(?<={_IDEOGRAPH})[\ufe00-\ufe0f\U000e0100-\U000e01ef]",  # a variant of an ideograph
    r"\U0001f3f4[\U000e0061-\U000e007a]{2}[\U000e0030-\U000e007a]{1,3}\U000e007f",  # flag of Wales
    rf"(?<={_LETTER})\u00ad(?={_LETTER})",  # a soft hyphen
    rf"(?<=[/.,:?&=@#_+|-])\u200b|(?<={_NO_SPACES})\u200b|\u200b(?={_NO_SPACES})",  # may break here
    r"(?<=[\u2801-\u28ff])\u2800|\u2800(?=[\u2801-\u28ff])",  # a space in Braille
    r"[\u0600-\u0605\u06dd\u070f\u08e2]",  # Arabic signs around numbers
    r"\r$",  # the line end of Windows
    # These blocks still grow, and the tables of this Python may be older than the text.
    r"[\U0001f000-\U0001fbff]|[\U00020000-\U0003fffd]",
)
_DIRECTION_MARKS: Final = r"[\u061c\u200e\u200f\u2066-\u2069]"


def hidden_characters(text: str) -> Finding | None:
    """The first character that hides something, or None.

    Joiners are part of emoji and of many scripts, direction marks of right-to-left text,
    and a soft hyphen of a long word: these pass where they belong.
    """
    if text.isascii() and text.translate(_LINE_ENDS).isprintable():
        return None
    suspects = {char for char in set(text) if _is_suspect(char)}
    if not suspects:
        return None
    for line in text.split("\n"):
        for char in _out_of_place(line):
            if char in suspects:
                name = unicodedata.name(char, "character without a name").lower()
                return Finding("hidden characters", f"U+{ord(char):04X} {name}")
    return None


def _is_suspect(char: str) -> bool:
    if " " <= char <= "~" or ord(char) in _LINE_ENDS:
        return False
    return unicodedata.category(char) in _UNSEEN or re.match(_BLANK, char) is not None


def _out_of_place(line: str) -> str:
    """What is left of a line without the characters that may hide something but don't."""
    left = _in_place().sub("", line)
    return re.sub(_DIRECTION_MARKS, "", left) if re.search(_RIGHT_TO_LEFT, line) else left


@cache
def _in_place() -> re.Pattern[str]:
    return re.compile("|".join(_IN_PLACE))
