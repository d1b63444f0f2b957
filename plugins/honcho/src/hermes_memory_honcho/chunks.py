"""Long messages, in pieces that Honcho takes. Put together, the pieces are the message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

#: Begins each piece but the first, as hermes-agent's plugin has it.
CONTINUED: Final = "[continued] "
_ENDS: Final = ("\n\n", ". ", " ")
_EARLIEST: Final = 0.3  # a piece shorter than this part of the limit is no good piece


def pieces(text: str, limit: int) -> Iterator[str]:
    """A message of any length, in pieces of at most ``limit`` characters.

    They end where a paragraph does, else a sentence, else a word, else anywhere.
    """
    mark = ""
    at = 0
    while True:
        room = limit - len(mark)
        if len(text) - at <= room:
            yield mark + text[at:]
            return
        end = _end(text, at, at + room)
        yield mark + text[at:end]
        at, mark = end, CONTINUED


def _end(text: str, start: int, stop: int) -> int:
    earliest = start + int((stop - start) * _EARLIEST)
    for mark in _ENDS:
        found = text.rfind(mark, earliest, stop)
        if found >= 0:
            return found + len(mark)
    return stop
