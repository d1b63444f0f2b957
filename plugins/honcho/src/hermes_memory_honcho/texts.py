"""Texts that have to be short, or storable: questions, excerpts, recalled text, long messages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

# -- Texts that have to be short, or storable: questions, excerpts, what is recalled ------------

_TRIVIAL: Final = re.compile(
    r"/[\w:-]*(\s.*)?|"  # a command, and no path
    r"(y|n|k|yes|no|ok|okay|yep|yeah|nope|nah|sure|thanks?|thank you|go|go ahead|do it|done|"
    r"continue|proceed|next|got it|great|cool|nice|lgtm)[.!]*",
    re.IGNORECASE | re.DOTALL,
)
#: The server's tokenizer refuses its special tokens; which ones it has depends on its model.
_SPECIAL: Final = re.compile(r"<\|(?=[^\s<>|]{1,64}\|>)")
_JOINER: Final = "\u2060"


def is_trivial(text: str) -> bool:
    """Whether a message is only a yes, a thank-you or a command."""
    return not text.strip() or bool(_TRIVIAL.fullmatch(text.strip()))


def shortened(text: str, limit: int) -> str:
    """A question that can be sent: of a long one its beginning and its end."""
    text = str(storable(text)).strip()
    if len(text) <= limit:
        return text
    half = (limit - 3) // 2
    return f"{text[:half]} … {text[-half:]}"


def clipped(text: str, limit: int) -> str:
    """The beginning of a text, cut after a word."""
    if len(text) <= limit:
        return text
    head, _, rest = text[: max(0, limit - 2)].rpartition(" ")
    return f"{head or rest} …"


def around(text: str, query: str, width: int) -> str:
    """The part of a text where it has a word of the query, on one line."""
    text = " ".join(text.split())
    if len(text) <= width:
        return text
    lower = text.lower()
    words = sorted(set(re.findall(r"\w{4,}", query.lower())), key=len, reverse=True)
    found = next((at for word in words[:20] if (at := lower.find(word)) >= 0), 0)
    start = max(0, min(found - width // 3, len(text) - width))
    shown = text[start : start + width]
    return f"{'…' if start else ''}{shown}{'…' if start + width < len(text) else ''}"


def storable(value: Any) -> Any:
    """A value whose texts the SDK and the server take: no lone surrogates, no NUL.

    A special token of a model, such as ``<|endoftext|>``, gets an invisible word joiner after its
    first character. It reads the same and is found again, since questions go through here too.
    """
    if isinstance(value, str):
        if not (value.isascii() and "\0" not in value):
            value = value.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
        return _SPECIAL.sub(f"<{_JOINER}|", value) if "<|" in value else value
    if isinstance(value, dict):
        return {storable(key): storable(each) for key, each in value.items()}
    if isinstance(value, list):
        return [storable(each) for each in value]
    return value


# -- Long messages, in pieces that Honcho takes. Put together, the pieces are the message -------

#: Begins each piece but the first, as hermes-agent's plugin has it.
CONTINUED: Final = "[continued] "
_ENDS: Final = ("\n\n", ". ", " ")
_EARLIEST: Final = 0.3  # a piece shorter than this part of the limit is not a good piece


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
