"""The tags of the fence, in every spelling that a model would take for one."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Final

OPENING: Final = "<memory-context>"
CLOSING: Final = "</memory-context>"

#: How a tag is shown where it is not removed: readable, and no tag.
SHOWN_OPENING: Final = "[memory-context]"
SHOWN_CLOSING: Final = "[/memory-context]"

#: A tag in a stream has at most so many characters: somebody waits for its end.
LONGEST: Final = 256

#: So many letters of the name make a tag likely: ``<member>`` is rare, ``<m`` is not.
_TELLING: Final = 3

#: How our own note begins.
NOTE_BEGINS: Final = "[Recalled by memory plugins"

#: Characters that are not seen, and such as are, but blank: they may stand in a forged tag.
_UNSEEN: Final = (
    r"\x80-\x9f\u00ad\u0300-\u036f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    r"\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    r"\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_BLANK: Final = rf"\s\x00-\x1f\x7f{_UNSEEN}"
_HYPHENS: Final = r"-_\u2010-\u2015\u2212\ufe58\ufe63\uff0d\uff3f"
_SLASH: Final = r"[/\u2044\u2215\uff0f]"
_BLANKS: Final = f"[{_BLANK}]*+"
_FEW_BLANKS: Final = f"[{_BLANK}]{{0,8}}+"
_NAME_ENDS: Final = r"(?![\w-])"

#: An ampersand may be written as an entity itself, and that again.
_ENTITY: Final = r"&(?:amp;|#0*+38;|#x0*+26;)*+"
_LESS: Final = (
    r"(?:[<\u2039\u2329\u27e8\u3008\ufe64\uff1c]"
    rf"|{_ENTITY}(?:lt|#0*+60(?!\d)|#x0*+3c(?![\da-f]));?+)"
)
_GREATER: Final = (
    r"(?:[>\u203a\u232a\u27e9\u3009\ufe65\uff1e]"
    rf"|{_ENTITY}(?:gt|#0*+62(?!\d)|#x0*+3e(?![\da-f]));?+)"
)

#: The note in a fence of ours, and in one of hermes-agent's.
_NOTE: Final = (
    rf"(?:{re.escape(NOTE_BEGINS)}|\[System note:[^\[\]]{{0,40}}recalled memory context)"
    r"[^\[\]]{0,400}\]\s*+"
)


def defused(text: str) -> str:
    """A text whose fence tags are harmless, and can still be seen: ``[memory-context]``.

    It is never longer than before.
    """
    return _any_tag().sub(_shown, text)


def without_fences(text: str) -> str:
    """A finished text without fenced spans, without tags that belong to none, and without notes."""
    if "[" in text:
        text = re.sub(_NOTE, "", text, flags=re.IGNORECASE)
    if "<" not in text:
        return text
    # What stood on both sides of a span may be a tag, now that they touch. It is shown: to
    # remove it, and what then touches, could take for ever.
    return _plain_tag().sub(_shown, "".join(_outside(text)))


def is_harmless(text: str) -> bool:
    """Whether there can be no tag in a text, nor the beginning of one at its end.

    It asks little, and may say no wrongly. Only ASCII counts: what is not seen is none.
    """
    if b"memory" in text.encode("ascii", "ignore").lower():
        return False
    return suspect().match(text, text.rfind("<")) is None


@cache
def suspect() -> re.Pattern[str]:
    """Finds where a tag may begin, as far as there is text."""
    pattern = ""
    for part in reversed(_streamed_name()[:_TELLING]):
        pattern = rf"(?:\Z|{part}{pattern})"
    return re.compile(f"<{_FEW_BLANKS}(?:{_SLASH}{_FEW_BLANKS})?{pattern}")


@cache
def beginning() -> re.Pattern[str]:
    """Matches as much of a tag as there is; the group ``end`` only if it is whole."""
    pattern = rf"(?:{_NAME_ENDS}[^<>]*+(?P<end>>)?)?"
    for part in reversed(_streamed_name()):
        pattern = f"(?:{part}{pattern})?"
    return re.compile(f"<{_FEW_BLANKS}(?:(?P<slash>{_SLASH}){_FEW_BLANKS})?{pattern}")


def _outside(text: str) -> list[str]:
    """What is in no span, and no tag."""
    pieces: list[str] = []
    opened: list[int] = []  # how many pieces there were before each span that is still open
    position = 0
    for tag in _plain_tag().finditer(text):
        pieces.append(text[position : tag.start()])
        position = tag.end()
        if not tag["slash"]:
            opened.append(len(pieces))
        elif opened:
            del pieces[opened.pop() :]
    return [*pieces, text[position:]]


def _shown(tag: re.Match[str]) -> str:
    shown = SHOWN_CLOSING if tag["slash"] else SHOWN_OPENING
    return shown if tag["end"] else shown[:-1]


@cache
def _any_tag() -> re.Pattern[str]:
    """A tag with brackets of any kind; of one with attributes, its beginning."""
    return re.compile(
        f"{_LESS}{_tag_name()}(?P<end>{_BLANKS}{_SLASH}?{_BLANKS}{_GREATER})?", re.IGNORECASE
    )


@cache
def _plain_tag() -> re.Pattern[str]:
    """A whole tag as the fence has it, with ``<`` and ``>``."""
    return re.compile(f"<{_tag_name()}[^<>]*+(?P<end>>)")


def _tag_name() -> str:
    name = "".join(_name(_any_letter, _BLANKS, f"[{_HYPHENS}{_BLANK}]++"))
    return f"{_BLANKS}(?P<slash>{_SLASH})?{_BLANKS}{name}{_NAME_ENDS}"


def _streamed_name() -> list[str]:
    """In a stream somebody waits: a tag has few blanks, and none between the letters."""
    return _name(_plain_letter, f"[{_UNSEEN}]{{0,8}}+", f"[{_HYPHENS}{_BLANK}]{{1,8}}+")


def _name(letter: Callable[[str], str], gap: str, hyphen: str) -> list[str]:
    """The tag's name, part by part."""
    letters = [letter(each) + gap for each in "memorcontex"]
    return [*letters[:5], letter("y"), hyphen, *letters[5:], letter("t")]


def _plain_letter(letter: str) -> str:
    return f"[{letter}{letter.upper()}]"


def _any_letter(letter: str) -> str:
    """Also a full-width one."""
    both = letter + letter.upper()
    return f"[{both}{''.join(chr(ord(each) + 0xFEE0) for each in both)}]"
