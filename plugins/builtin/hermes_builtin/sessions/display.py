"""Conversations as a model gets them: cut to size, with hits marked, saying what was cut."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from hermes_builtin.sessions.archive import Message, Session, searchable
from hermes_builtin.sessions.words import (
    LONGEST,
    fold,
    inflected,
    is_unspaced,
    language_in,
    places,
)

LINK: Final = "@session:"
DEFAULT_PROFILE: Final = "default"  # of agents that have no profile
# Characters. A model gets several results, and its context is not ours to fill.
SNIPPET: Final = 240
FACT: Final = 200
# Stemming a long text word by word is slow: it is searched in parts, up to a limit.
_SEARCHED_AT_ONCE: Final = 4000
_READ: Final = 400_000
_CALLS: Final = 600


def when(at: float) -> str:
    """A time as a person says it, in the zone of this machine."""
    try:
        return time.strftime("%B %d, %Y at %I:%M %p", time.localtime(at))
    except (OverflowError, ValueError, OSError):
        return ""


def message(each: Message, most: int, *, around: int = 0, anchor: bool = False) -> dict[str, Any]:
    """A message with at most so many characters, from around a place in it."""
    shown: dict[str, Any] = {"id": each.id, "role": each.role}
    # A third before the hit, the rest after it: what follows usually explains more.
    begin = max(0, min(around - most // 3, len(each.content) - most))
    content = each.content[begin : begin + most]
    if len(content) < len(each.content):
        head = "[...] " if begin else ""
        tail = " [...]" if begin + most < len(each.content) else ""
        content = f"{head}{content}{tail}"
        shown |= {"truncated": True, "length": len(each.content)}
    shown |= {"content": content, "timestamp": each.at}
    names = {key: each.extra.get(key) for key in ("tool_name", "tool_call_id")}
    shown |= {key: str(value)[:FACT] for key, value in names.items() if value}
    if calls := each.extra.get("tool_calls"):
        shown["tool_calls"] = _calls(calls)
    if each.extra.get("damaged"):
        shown["damaged"] = True
    if anchor:
        shown["anchor"] = True
    return shown


def _calls(calls: Any) -> Any:
    text = json.dumps(calls, ensure_ascii=False)
    return calls if len(text) <= _CALLS else f"{text[:_CALLS]} [...]"


def first_hit(text: str, words: frozenset[str]) -> int:
    """Where the first of the words is in a text; 0 if none is seen."""
    return next((begin for begin, _ in _hits(text, words)), 0)


def snippet(each: Message, words: frozenset[str], mask: Callable[[str], str] = str) -> str:
    """The part of a message that has most of the words, with ``>>>`` and ``<<<`` around them.

    It may be what a tool is called with that has them. ``mask`` gets the whole text: a secret that
    is cut or has marks in it would not be recognised.
    """
    text = mask(each.content)
    hits = list(_hits(text, words))
    if not hits and each.extra:
        text = mask(searchable(each.content, each.extra))
        hits = list(_hits(text, words))
    if not hits:
        return _trimmed(mask(each.content), 0, SNIPPET)
    # The window that has most hits, not the first hit: a rare word says more where others are near.
    best = max(
        range(len(hits)),
        key=lambda at: sum(hits[at][0] <= begin < hits[at][0] + SNIPPET for begin, _ in hits),
    )
    start = max(0, hits[best][0] - SNIPPET // 6)
    pieces = []
    at = start
    for begin, end in hits:
        if start <= begin and end <= start + SNIPPET:
            pieces += [text[at:begin], ">>>", text[begin:end], "<<<"]
            at = end
    pieces.append(text[at : start + SNIPPET])
    # Two hits that touch, such as two pairs of one Chinese word, are shown as one.
    body = " ".join("".join(pieces).split()).replace("<<<>>>", "")
    return f"{'...' if start else ''}{body}{'...' if start + SNIPPET < len(text) else ''}"


def marked(text: str, words: frozenset[str]) -> list[tuple[str, bool]]:
    """A text in pieces, each with whether it is one of the words."""
    pieces, at = [], 0
    for begin, end in _hits(text, words) if words else ():
        pieces += [(text[at:begin], False), (text[begin:end], True)]
        at = end
    return [each for each in (*pieces, (text[at:], False)) if each[0]]


def _trimmed(text: str, begin: int, length: int) -> str:
    body = " ".join(text[begin : begin + length].split())
    return f"{body}..." if begin + length < len(text) else body


def _hits(text: str, words: frozenset[str]) -> Iterator[tuple[int, int]]:
    """Where the words are, in the first part of the text that has any."""
    if len(text) <= _SEARCHED_AT_ONCE:
        yield from _hits_in(text, words, 0)
        return
    # Where it begins as the stem does, else wherever it is.
    for begin in (_likely(text, words), *range(0, min(len(text), _READ), _SEARCHED_AT_ONCE)):
        found = list(_hits_in(text[begin : begin + _SEARCHED_AT_ONCE], words, begin))
        if found:
            yield from found
            return


def _hits_in(part: str, words: frozenset[str], begin: int) -> Iterator[tuple[int, int]]:
    prefixes = tuple(word[:-1] for word in words if word.endswith("*"))
    languages = {code for word in words if (code := language_in(word))}
    open_, shut = 0, 0  # the hit that may go on: a word of three characters is two pairs
    for first, last, found in places(part):
        found += [inflected(part[first:last], code) for code in languages]
        if not words.isdisjoint(found):
            known = next(word for word in found if word in words)
            last = first + len(known) if is_unspaced(known) else last  # noqa: PLW2901
        elif not (prefixes and fold(part[first : first + LONGEST]).startswith(prefixes)):
            continue
        if first < shut:
            shut = max(shut, last)
            continue
        if shut:
            yield begin + open_, begin + shut
        open_, shut = first, last
    if shut:
        yield begin + open_, begin + shut


def _likely(text: str, words: frozenset[str]) -> int:
    """About where the first of the words is in a long text.

    A stem is nearly always how the word begins, but for its last letters.
    """
    folded = fold(text)
    needles = (word.partition("+")[0].rstrip("*")[: max(3, len(word) - 2)] for word in words)
    found = [at for at in map(folded.find, filter(None, needles)) if at >= 0]
    return max(0, min(found, default=0) - SNIPPET)


def title(session: Session, words: frozenset[str], mask: Callable[[str], str] = str) -> str:
    """The title of a session, with ``>>>`` and ``<<<`` around the words that were looked for."""
    return snippet(Message(0, "", session.title, 0.0, {}), words, mask)


def link(session: Session) -> str:
    """What names a session to a person, and to the tool: ``@session:profile/id``."""
    return f"{LINK}{session.profile or DEFAULT_PROFILE}/{session.id}"


def session_facts(session: Session) -> dict[str, Any]:
    """The facts about a session that is read."""
    return {
        "model": None,
        "when": when(session.started),
        "source": session.source[:FACT],
        "title": session.title[:FACT],
    }
