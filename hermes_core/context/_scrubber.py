"""Takes leaked spans of recalled text out of a stream, however it is cut into chunks."""

from __future__ import annotations

import re
from typing import Final

from hermes_core.context._tags import (
    LONGEST,
    SHOWN_CLOSING,
    SHOWN_OPENING,
    beginning,
    is_harmless,
    suspect,
)

#: A span that may be a mere mention of the tag is kept so long, as long as a block is by default.
_HELD: Final = 8_000
#: So many blanks may stand between an opening tag and what tells a leak.
_BLANKS: Final = 8
_QUOTES: Final = frozenset("`'\"")


class StreamScrubber:
    """Removes ``<memory-context> ... </memory-context>`` from what a model says.

    A tag on a line of its own, or with a note (``[``) after it, begins a leaked block: all up
    to its closing tag is dropped, and if there is none, up to the end. A tag in quotes is a
    mention, and shown as ``[memory-context]``. Any other is unclear: the text after it is held
    back until a closing tag says that it was a span, or the stream's end or 8,000 characters
    say that it was none; then it is shown.

    What is shown does not depend on how the stream was cut. Text without ``<`` passes at once.
    """

    def __init__(self) -> None:
        self._suspect = suspect()
        self._beginning = beginning()
        self.reset()

    def reset(self) -> None:
        """Forget everything: what comes next begins a stream."""
        self._calm = True  # nothing pending, no span
        self._before = "\n"  # ends with the character before what comes next
        self._pending = ""  # may be a tag
        self._broken = False  # the text so far ends with half a tag
        self._depth = 0  # of leaked spans
        self._unclear: list[list[str]] = []  # spans around them, each with its text
        self._held = 0
        self._visible: list[str] = []

    def feed(self, chunk: str) -> str:
        """What may be shown now."""
        if self._calm and ("<" not in chunk or is_harmless(chunk)):
            self._before = chunk or self._before
            return chunk
        return self._scrubbed(self._pending + chunk, at_end=False)

    def flush(self) -> str:
        """What was held back and may be shown; the stream is at its end."""
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
        """Text before what may be a tag; half a tag may be the end of it."""
        self._pass(text)
        half = self._beginning.match(text, text.rfind("<")) if "<" in text else None
        self._broken |= half is not None and half.end() == len(text)

    def _passed(self, tag: re.Match[str], *, at_end: bool) -> bool:
        """Do with a tag, or half a one, what is to be done; False if that is not known yet."""
        text, (start, end) = tag.string, tag.span()
        if end - start > LONGEST:
            self._pass(f"[{text[start + 1 : end]}")
        elif tag["end"]:
            before = text[start - 1] if start else self._before[-1]
            after = text[end : end + _BLANKS + 1]
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
            self._mend(SHOWN_OPENING)
            self._depth = 1
        elif not (at_end or after.strip() or len(after) > _BLANKS):
            return False
        elif _is_quoted(before, after):
            self._pass(SHOWN_OPENING)
        else:
            self._mend(SHOWN_OPENING)
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
            self._mend(SHOWN_CLOSING)
        self._broken = False
        return True

    def _mend(self, shown: str) -> None:
        """Show a tag between two halves of another, which would be whole without it."""
        if self._broken:
            self._pass(shown)

    def _pass(self, text: str) -> None:
        """Text that is no tag: shown, held back or dropped, as the span wants it."""
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
        if self._held > _HELD:
            self._release()

    def _release(self) -> None:
        """It was no span: show it."""
        for texts in self._unclear:
            self._visible += texts
        self._unclear.clear()
        self._held = 0


def _is_leak(before: str, after: str) -> bool:
    alone = before == "\n" and after.lstrip(" \t\r").startswith("\n")
    return alone or after.lstrip().startswith("[")


def _is_quoted(before: str, after: str) -> bool:
    return before in _QUOTES and after.startswith(before)
