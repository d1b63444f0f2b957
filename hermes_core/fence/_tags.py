"""The tags of the fence, in every spelling that a model would read as one, and how to remove them.

`defused` makes the tags in a text harmless, `without_fences` removes fenced spans from a finished
text, and `StreamScrubber` removes them from a stream, however it is cut into chunks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Final

OPENING: Final = "<memory-context>"
CLOSING: Final = "</memory-context>"

#: How a tag is shown where it is not removed: readable, but not a tag. Removing it could form a
#: new tag from the text around it, and many models read entities such as &lt; as tags.
SHOWN_OPENING: Final = "[memory-context]"
SHOWN_CLOSING: Final = "[/memory-context]"

#: A tag in a stream has at most so many characters, because a reader waits for its end. Streams
#: also accept fewer spellings than `defused`: a model repeats the plain tags that it saw, while
#: recalled text may contain tags that were forged on purpose.
LONGEST: Final = 256

#: So many letters of the name make a tag likely: ``<member>`` is rare, ``<m`` is not.
_TELLING: Final = 3

#: How our own note begins.
NOTE_BEGINS: Final = "[Recalled by memory plugins"

#: Invisible and blank characters, which a forged tag may contain.
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


#: A span that may be a mere mention of the tag is held back so long, which is
#: enough for most blocks.
_LONGEST_HELD: Final = 8_000
#: The most blanks between an opening tag and what shows that it is a leak.
_BLANKS_AFTER: Final = 8
_QUOTES: Final = frozenset("`'\"")


def defused(text: str) -> str:
    """Return a text whose fence tags are harmless but still visible: ``[memory-context]``.

    The result is never longer than the text.
    """
    return _any_tag().sub(_shown, text)


def without_fences(text: str) -> str:
    """Return a finished text without fenced spans, stray tags and notes."""
    if "[" in text:
        text = re.sub(_NOTE, "", text, flags=re.IGNORECASE)
    if "<" not in text:
        return text
    # What stood on both sides of a span may be a tag, now that they touch. It is shown: to
    # remove it, and what then touches, could take for ever.
    return _plain_tag().sub(_shown, "".join(_outside(text)))


def _is_harmless(text: str) -> bool:
    """Return True if a text contains no tag, and no beginning of one at its end.

    A quick check, which may return False wrongly. It ignores invisible characters.
    """
    if b"memory" in text.encode("ascii", "ignore").lower():
        return False
    return _suspect().match(text, text.rfind("<")) is None


@cache
def _suspect() -> re.Pattern[str]:
    """Finds where a tag may begin, as far as there is text."""
    pattern = ""
    for part in reversed(_streamed_name()[:_TELLING]):
        pattern = rf"(?:\Z|{part}{pattern})"
    return re.compile(f"<{_FEW_BLANKS}(?:{_SLASH}{_FEW_BLANKS})?{pattern}")


@cache
def _beginning() -> re.Pattern[str]:
    """Matches as much of a tag as there is; the group ``end`` only if it is whole."""
    pattern = rf"(?:{_NAME_ENDS}[^<>]*+(?P<end>>)?)?"
    for part in reversed(_streamed_name()):
        pattern = f"(?:{part}{pattern})?"
    return re.compile(f"<{_FEW_BLANKS}(?:(?P<slash>{_SLASH}){_FEW_BLANKS})?{pattern}")


def _outside(text: str) -> list[str]:
    """Return the pieces of a text outside of spans and tags."""
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


class StreamScrubber:
    """Removes ``<memory-context> ... </memory-context>`` from what a model says.

    A tag alone on a line, or with a note (``[``) after it, begins a leaked block: all up
    to its closing tag is dropped, and if there is none, up to the end. A tag in quotes is a
    mention, and shown as ``[memory-context]``. Any other is unclear: the text after it is held
    back until a closing tag says that it was a span, or the stream's end or 8,000 characters
    say that it was none; then it is shown.

    What is shown does not depend on how the stream was cut. Text without ``<`` passes at once.
    """

    def __init__(self) -> None:
        self._suspect = _suspect()
        self._beginning = _beginning()
        self.reset()

    def reset(self) -> None:
        """Start a new stream."""
        self._calm = True  # nothing pending, no span
        self._before = "\n"  # ends with the character before what comes next
        self._pending = ""  # may be a tag
        self._broken = False  # the text so far ends with half a tag
        self._depth = 0  # of leaked spans
        self._unclear: list[list[str]] = []  # spans around them, each with its text
        self._held = 0
        self._visible: list[str] = []

    def feed(self, text: str) -> str:
        """Return what can be shown now."""
        if self._calm and ("<" not in text or _is_harmless(text)):
            self._before = text or self._before
            return text
        return self._scrubbed(self._pending + text, at_end=False)

    def flush(self) -> str:
        """End the stream, and return what was held back and can be shown."""
        self._scrubbed(self._pending, at_end=True)
        self._release()
        shown = "".join(self._visible)
        self.reset()
        return shown

    def _scrubbed(self, text: str, *, at_end: bool) -> str:
        self._visible = []
        position = 0
        while found := self._suspect.search(text, position):
            start = found.start()
            self._pass_before(text[position:start])
            position = start
            tag = self._beginning.match(text, start)
            if tag is None or not self._passed(tag, at_end=at_end):
                break
            position = tag.end()
        else:
            self._pass(text[position:])
            position = len(text)
        self._pending = text[position:]
        self._before = text[position - 1] if position else self._before
        self._calm = not (self._pending or self._depth or self._unclear)
        return "".join(self._visible)

    def _pass_before(self, text: str) -> None:
        """Pass text before a possible tag; it may end with half a tag."""
        self._pass(text)
        half = self._beginning.match(text, text.rfind("<")) if "<" in text else None
        self._broken |= half is not None and half.end() == len(text)

    def _passed(self, tag: re.Match[str], *, at_end: bool) -> bool:
        """Handle a tag, or half of one; return False if more text is needed to decide."""
        text, (start, end) = tag.string, tag.span()
        if end - start > LONGEST:
            self._pass(f"[{text[start + 1 : end]}")
        elif tag["end"]:
            before = text[start - 1] if start else self._before[-1]
            after = text[end : end + _BLANKS_AFTER + 1]
            judge = self._closed if tag["slash"] else self._opened
            return judge(before, after, at_end=at_end)
        elif end == len(text) and not at_end:
            return False
        else:
            self._pass(text[start:end])
            self._broken = True
        return True

    def _opened(self, before: str, after: str, *, at_end: bool) -> bool:
        if self._depth:
            self._depth += 1
        elif _is_leak(before, after):
            self._show_if_broken(SHOWN_OPENING)
            self._depth = 1
        elif not (at_end or after.strip() or len(after) > _BLANKS_AFTER):
            return False
        elif _is_quoted(before, after):
            self._pass(SHOWN_OPENING)
        else:
            self._show_if_broken(SHOWN_OPENING)
            self._unclear.append([])
            self._pass(SHOWN_OPENING)
        return True

    def _closed(self, before: str, after: str, *, at_end: bool) -> bool:
        if self._depth:
            self._depth -= 1
        elif self._unclear:
            self._held -= sum(map(len, self._unclear.pop()))
        elif before in _QUOTES and not after and not at_end:
            return False
        elif _is_quoted(before, after):
            self._pass(SHOWN_CLOSING)
        else:
            self._show_if_broken(SHOWN_CLOSING)
        self._broken = False
        return True

    def _show_if_broken(self, shown: str) -> None:
        """Show a tag between two halves of another one, which would become whole without it."""
        if self._broken:
            self._pass(shown)

    def _pass(self, text: str) -> None:
        """Show text that is not a tag, hold it back or drop it, depending on the span."""
        if not text:
            return
        self._broken = False
        if self._depth:
            return
        if not self._unclear:
            self._visible.append(text)
            return
        self._unclear[-1].append(text)
        self._held += len(text)
        if self._held > _LONGEST_HELD:
            self._release()

    def _release(self) -> None:
        """Show what was held back: it was not a span."""
        for texts in self._unclear:
            self._visible += texts
        self._unclear.clear()
        self._held = 0


def _is_leak(before: str, after: str) -> bool:
    alone = before == "\n" and after.lstrip(" \t\r").startswith("\n")
    return alone or after.lstrip().startswith("[")


def _is_quoted(before: str, after: str) -> bool:
    return before in _QUOTES and after.startswith(before)
