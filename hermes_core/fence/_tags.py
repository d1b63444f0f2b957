"""The tags of the fence: how to make forged ones harmless, and how to remove them from a text.

`defuse` finds tags in every spelling that a model could read as one, because recalled text may
contain tags that were forged on purpose. `without_fences` finds those with plain brackets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Final

from hermes_core.fence._look_alikes import skeleton, with_readable_tags

OPENING: Final = "<memory-context>"
CLOSING: Final = "</memory-context>"

#: How our own note begins, and hermes-agent's.
NOTE_BEGINS: Final = "[Recalled by memory plugins"
THEIR_NOTE_BEGINS: Final = "[System note: The following is recalled memory context"

_NOTE: Final = (
    rf"(?:{re.escape(NOTE_BEGINS)}|\[System note:[^\[\]]{{0,40}}recalled memory context)"
    r"[^\[\]]{0,400}\]\s*+"
)
#: A tag in a skeleton, in which look-alikes are ASCII and what is invisible is a blank.
_TAG: Final = (
    r"< *+(?P<slash>[/\\][ /\\]*+)?"
    r"(?:m|r *+n) *+e *+(?:m|r *+n) *+[o0] *+r *+y[ -]++"
    r"c *+[o0] *+n *+t *+e *+x *+t(?![\w-])"
)


def defuse(text: str) -> str:
    """Return a text whose fence tags are harmless but still visible: ``[memory-context]``.

    The result is never longer than the text. Tags are not removed: that could form a new tag
    from the text around them.
    """
    text = _shown(text, _any_tag().finditer(skeleton(text)))
    readable = with_readable_tags(text)
    return _shown(text, _any_tag().finditer(skeleton(readable))) if readable != text else text


def without_fences(text: str) -> str:
    """Return a finished text without fenced spans, stray tags and notes."""
    if "[" in text:
        text = re.sub(_NOTE, "", text, flags=re.IGNORECASE)
    if "<" not in text:
        return text
    # What stood on both sides of a span may be a tag, now that they touch. It is shown: to
    # remove it, and what then touches, could take for ever.
    rest = "".join(_outside(text))
    return _shown(rest, _plain_tags(rest))


def _outside(text: str) -> list[str]:
    """Return the pieces of a text outside of spans and tags."""
    pieces: list[str] = []
    opened: list[int] = []  # how many pieces there were before each span that is still open
    position = 0
    for tag in _plain_tags(text):
        pieces.append(text[position : tag.start()])
        position = tag.end()
        if not tag["slash"]:
            opened.append(len(pieces))
        elif opened:
            del pieces[opened.pop() :]
    return [*pieces, text[position:]]


def _shown(text: str, tags: Iterable[re.Match[str]]) -> str:
    """Show each tag in square brackets."""
    pieces: list[str] = []
    position = 0
    for tag in tags:
        slash, end = "/" if tag["slash"] else "", "]" if tag["end"] else ""
        pieces += text[position : tag.start()], f"[{slash}memory-context{end}"
        position = tag.end()
    return "".join([*pieces, text[position:]])


@cache
def _any_tag() -> re.Pattern[str]:
    """A tag with brackets of any kind; of one with attributes, its beginning."""
    return re.compile(rf"{_TAG}(?P<end>[ /\\]*+>)?")


@cache
def _plain_tag() -> re.Pattern[str]:
    """A whole tag, with its attributes."""
    return re.compile(f"{_TAG}[^<>]*+(?P<end>>)")


def _plain_tags(text: str) -> list[re.Match[str]]:
    """The tags of a text that begin with ``<`` and end with ``>``."""
    found = _plain_tag().finditer(skeleton(text))
    return [tag for tag in found if text[tag.start()] == "<" and text[tag.end() - 1] == ">"]
