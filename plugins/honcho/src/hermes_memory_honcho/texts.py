"""Texts that have to be short, or storable: questions, excerpts, what is recalled."""

from __future__ import annotations

import re
from typing import Any, Final

_TRIVIAL: Final = re.compile(
    r"/[\w:-]*(\s.*)?|"  # a command, and no path
    r"(y|n|k|yes|no|ok|okay|yep|yeah|nope|nah|sure|thanks?|thank you|go|go ahead|do it|done|"
    r"continue|proceed|next|got it|great|cool|nice|lgtm)[.!]*",
    re.IGNORECASE | re.DOTALL,
)


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
    """A value whose texts the SDK and the server take: no lone surrogates, no NUL."""
    if isinstance(value, str):
        if value.isascii() and "\0" not in value:
            return value
        return value.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
    if isinstance(value, dict):
        return {key: storable(each) for key, each in value.items()}
    if isinstance(value, list):
        return [storable(each) for each in value]
    return value
