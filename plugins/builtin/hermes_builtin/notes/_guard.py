"""Looks for text in notes that would command the model instead of informing it.

Notes go into every system prompt, so one poisoned entry outlives the conversation that
planted it. Three things are looked for: orders that override the model's instructions,
orders to carry data away, and characters that a person can't see. Nothing in the text can
switch the scan off.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
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


def _command(text: str) -> Finding | None:
    first = Text.of(plain(text))
    found = _search(first) or next(filter(None, map(_search, _others(text, first))), None)
    if found is None:
        return None
    quote = found.quote if len(found.quote) <= _QUOTED else f"{found.quote[:_QUOTED]}..."
    return Finding(found.kind, f"“{quote}”")


def _others(text: str, first: Text) -> Iterator[Text]:
    return map(Text.of, readings(text, first))


def _search(text: Text) -> Match | None:
    found = search(text)
    if found is None and (other := respelt(text)):
        found = search(other)
    return found


# -- characters that can't be seen -----------------------------------------------------------

_FINE: Final = {ord("\n"): None, ord("\t"): None}
_UNSEEN: Final = frozenset(("Cc", "Cf", "Cn", "Co", "Cs"))
_BLANKS: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_SELECTORS: Final = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_FLAG: Final = re.compile(
    "\U0001f3f4[\U000e0061-\U000e007a]{2}[\U000e0030-\U000e007a]{1,3}\U000e007f"
)

_JOINERS: Final = frozenset("\u200c\u200d")
_JOINING: Final = re.compile("[\u0600-\u07ff\u0860-\u0dff\u0f00-\u109f\u1780-\u18af]")
_PICTOGRAPH: Final = frozenset(("So", "Sk"))
_DIRECTION_MARKS: Final = frozenset("\u061c\u200e\u200f\u2066\u2067\u2068\u2069")
_RIGHT_TO_LEFT: Final = re.compile("[\u05d0-\u05ff\u0620-\u08ff\ufb1d-\ufdfb\ufe70-\ufefc]")
_IDEOGRAPH: Final = re.compile("[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003fffd]")
_NOT_SELECTABLE: Final = re.compile(r"[^\W\d_\u3400-\U0003fffd\u2139]|[\s\ufe00-\ufe0f]|$")
_BREAKABLE: Final = re.compile("[/.,;:?&=@#_+|\u0e00-\u0eff\u0f00-\u109f\u1780-\u17ff-]")
_BRAILLE: Final = re.compile("[\u2801-\u28ff]")
_ARABIC_SIGNS: Final = frozenset("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u08e2")
#: These blocks still grow, and the tables of this Python may be older than the text.
_NEW: Final = re.compile("[\U0001f000-\U0001fbff\U00020000-\U0003fffd]")


def hidden_characters(text: str) -> Finding | None:
    """The first character that hides something, or None.

    Joiners are part of emoji and of many scripts, direction marks of right-to-left text,
    and a soft hyphen of a long word: these pass where they belong.
    """
    if text.isascii() and text.translate(_FINE).isprintable():
        return None
    suspects = {char for char in set(text) if _is_suspect(char)}
    if not suspects:
        return None
    for line in _FLAG.sub("", text).split("\n"):
        right_to_left = _RIGHT_TO_LEFT.search(line) is not None
        for index, char in enumerate(line):
            if char in suspects and not (
                (right_to_left and char in _DIRECTION_MARKS)
                or _belongs(char, line[index - 1 : index] if index else "", line[index + 1 : index + 2])
            ):
                name = unicodedata.name(char, "character without a name")
                return Finding("hidden characters", f"U+{ord(char):04X} {name.lower()}")
    return None


def _is_suspect(char: str) -> bool:
    if " " <= char <= "~" or ord(char) in _FINE:
        return False
    return (
        unicodedata.category(char) in _UNSEEN
        or char in _BLANKS
        or _SELECTORS.match(char) is not None
    )


def _belongs(char: str, before: str, after: str) -> bool:
    """Whether a character that may hide something is between others that need it."""
    if char in _JOINERS:
        emoji = char == "\u200d" and _is_pictograph(before) and _is_pictograph(after)
        return emoji or _JOINING.match(before) is not None
    if _SELECTORS.match(char):
        if char > "\uffff":
            return _IDEOGRAPH.match(before) is not None
        return _NOT_SELECTABLE.match(before) is None
    if char == "\u00ad":  # soft hyphen
        return before.isalpha() and after.isalpha()
    if char == "\u200b":  # zero width space
        return _BREAKABLE.match(before) is not None or _BREAKABLE.match(after) is not None
    if char == "\u2800":  # the space of Braille
        return _BRAILLE.match(before) is not None or _BRAILLE.match(after) is not None
    if char == "\r":
        return not after
    return char in _ARABIC_SIGNS or (
        unicodedata.category(char) == "Cn" and _NEW.match(char) is not None
    )


def _is_pictograph(char: str) -> bool:
    return bool(char) and (
        unicodedata.category(char) in _PICTOGRAPH or char == "\ufe0f" or _NEW.match(char) is not None
    )
