"""`StreamScrubber`: removes a block that a model repeats, and nothing else that it writes."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from hermes_core.fence._tags import NOTE_BEGINS, THEIR_NOTE_BEGINS

_NOTES: Final = (NOTE_BEGINS.lower(), THEIR_NOTE_BEGINS.lower())
_NAME: Final = "memory-context"
#: Bounded, because a reader waits for the end of a tag.
_BLANKS: Final = "[ \t]{0,8}+"
#: The most blanks and line ends between an opening tag and the note.
_BLANKS_BEFORE_NOTE: Final = 8
#: So much of the text after a tag decides what it is.
_DECIDING: Final = _BLANKS_BEFORE_NOTE + max(map(len, _NOTES))
#: What may precede a tag that begins a line. Four blanks would make it an example of code.
_LINE_BEGINS: Final = r"\n[ \t]{0,3}+\Z"
_TAIL: Final = 4


@cache
def _tag() -> re.Pattern[str]:
    """Matches a whole tag, with the group ``end``; or half of one at the end of the text."""
    pattern = rf"(?:\Z|{_BLANKS}(?:\Z|(?P<end>>)))"
    for letter in reversed(_NAME):
        pattern = rf"(?:\Z|[{letter}{letter.upper()}]{pattern})"
    return re.compile(f"<{_BLANKS}(?:(?P<slash>/){_BLANKS})?{pattern}")


class StreamScrubber:
    """Removes echoed blocks, ``<memory-context> ... </memory-context>``, from what a model says.

    A block begins with a tag that is alone on its line, outside of Markdown code, and ends with
    a closing tag at the beginning of a line. If our note, or hermes-agent's, follows the opening
    tag, both tags may be anywhere. Such text is held back until the closing tag arrives, and
    then dropped. If none arrives, or another block begins, it was no block and is shown.

    Everything else is shown unchanged, however the stream is cut into chunks. Text without
    ``<`` passes at once.
    """

    def __init__(self) -> None:
        self._tag = _tag()
        self.reset()

    def reset(self) -> None:
        """Start a new stream."""
        self._pending = ""  # may be a tag
        self._tail = "\n"  # what precedes it
        self._code = _Code()  # of what was shown
        self._visible: list[str] = []
        self._block: _Block | None = None

    def feed(self, text: str) -> str:
        """Return what can be shown now."""
        if self._block is None and not self._pending and "<" not in text:
            self._move(text)
            self._code.add(text)
            return text
        self._scan(self._pending + text)
        return self._shown()

    def flush(self) -> str:
        """End the stream, and return what was held back and was no block."""
        self._take(self._pending)
        self._release()
        shown = self._shown()
        self.reset()
        return shown

    def _shown(self) -> str:
        shown = "".join(self._visible)
        self._visible.clear()
        return shown

    def _scan(self, text: str) -> None:
        position = 0
        self._pending = ""
        while tag := self._tag.search(text, position):
            self._take(text[position : tag.start()])
            if not tag["end"]:
                self._pending = tag[0]
                return
            position = tag.end()
            self._judge(tag)
        self._take(text[position:])

    def _judge(self, tag: re.Match[str]) -> None:
        """Begin or end a block with a whole tag, or pass it as text."""
        block = self._block
        begins_line = re.search(_LINE_BEGINS, self._tail) is not None
        if not tag["slash"]:
            self._release()  # `defuse` leaves no tag in a block
            self._block = _Block(tag[0], alone=begins_line and not self._code.is_open())
            self._move(tag[0])
        elif block is not None and (block.has_note or (block.is_alone and begins_line)):
            self._block = None
            self._tail = "\n"  # another block may follow immediately
        else:
            self._take(tag[0])

    def _take(self, text: str) -> None:
        """Show text, or hold it back while it may be part of a block."""
        self._move(text)
        if self._block is None:
            self._visible.append(text)
            self._code.add(text)
        elif text:
            self._block.add(text)
            if self._block.is_none:
                self._release()

    def _move(self, text: str) -> None:
        self._tail = (self._tail + text[-_TAIL:])[-_TAIL:]

    def _release(self) -> None:
        """Show what was held back: it was not a block."""
        if self._block is not None:
            held = "".join(self._block.held)
            self._block = None
            self._visible.append(held)
            self._code.add(held)


class _Block:
    """Text from an opening tag on, which may be a block: what follows the tag decides."""

    def __init__(self, tag: str, *, alone: bool) -> None:
        self.held = [tag]
        self.has_note = False
        #: Whether the tag is alone on its line, as far as that is known.
        self.is_alone = alone
        self.is_none = False
        self._after = ""
        self._decided = False

    def add(self, text: str) -> None:
        """Continue with text."""
        self.held.append(text)
        if not self._decided:
            self._after += text[:_DECIDING]
            self._decide(self._after)

    def _decide(self, after: str) -> None:
        ends = re.match(r"[ \t]{0,8}+(?:\r?(?:\n|\Z))", after)
        self.is_alone &= ends is not None
        note = after.lstrip().lower()
        blanks = len(after) - len(note)
        may_have_note = blanks <= _BLANKS_BEFORE_NOTE and any(
            each.startswith(note[: len(each)]) for each in _NOTES
        )
        self.has_note = may_have_note and note.startswith(_NOTES)
        self.is_none = not (self.is_alone or may_have_note)
        self._decided = self.has_note or (not may_have_note and (ends is None or "\n" in ends[0]))


class _Code:
    """Whether a text ends within a fenced block of Markdown code. Looks only when asked."""

    _FENCE: Final = re.compile(r"(?m)^ {0,3}(?P<fence>`{3,}+(?=[^`\n]*$)|~{3,}+)(?P<rest>[^\n]*)\n")

    def __init__(self) -> None:
        self._new: list[str] = []
        self._fence = ""

    def add(self, text: str) -> None:
        """Continue with text."""
        self._new.append(text)

    def is_open(self) -> bool:
        """Return whether the last line is in a block of code."""
        text = "".join(self._new)
        end = text.rfind("\n") + 1
        self._new = [text[end:]]
        for found in self._FENCE.finditer(text[:end]):
            fence = found["fence"]
            if not self._fence:
                self._fence = fence
            elif fence.startswith(self._fence) and not found["rest"].strip():
                self._fence = ""
        return bool(self._fence)
