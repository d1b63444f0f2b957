"""Texts on their way to Mem0 and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hermes_core.backends import Recalled
from hermes_memory_mem0.memories import Memory

#: Embedding models take about 8,000 tokens; a question needs less.
LONGEST_QUERY: Final = 2_000
_SHOWN: Final = 500
_HEADING: Final = "## Mem0 Memory"


def cleaned(text: str) -> str:
    """A text that every store takes: no halves of characters, no NUL."""
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return whole.replace("\x00", "")


def shortened(text: str, limit: int) -> str:
    """The beginning and the end of a text that is too long for a model; 0 for no limit.

    The whole of it is in the built-in's archive.
    """
    if not limit or len(text) <= limit:
        return text
    half = limit // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n[{left_out} characters are left out here]\n{text[-half:]}"


def question(text: str) -> str:
    """What is asked with: not more of a message than an embedding model takes."""
    return cleaned(text)[:LONGEST_QUERY].strip()


def recalled(memories: Sequence[Memory]) -> Recalled:
    """Memories for the model to read; nothing for none."""
    lines = [f"- {_one_line(each.text)}" for each in memories]
    return Recalled("\n".join([_HEADING, *lines]), len(lines)) if lines else Recalled()


def _one_line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
