"""The notes as text: entries with a line between them that holds nothing but ``§``.

The format is hermes-agent's, which may write to the same files. Reading is generous,
since people edit them by hand; writing is exact.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from itertools import pairwise
from typing import Final, NamedTuple

SEPARATOR: Final = "§"
DELIMITER: Final = f"\n{SEPARATOR}\n"

# A line of an entry that would be taken for the separator, however often it was escaped.
_LOOKS_LIKE_SEPARATOR: Final = re.compile(rf"^(\s*)(\\*{SEPARATOR}\s*)$", re.MULTILINE)
_ESCAPED: Final = re.compile(rf"^(\s*)\\(\\*{SEPARATOR}\s*)$", re.MULTILINE)
_SEPARATOR_LINE: Final = re.compile(rf"^[^\S\n]*{SEPARATOR}[^\S\n]*$", re.MULTILINE)
_HEADING: Final = re.compile(r"^## ", re.MULTILINE)
# A blank, or the punctuation that ends a sentence or a part of it.
_CONTINUES: Final = re.compile(r"[^\S\n]|[,.;:!?)\]}'\u2019\u201d\u2026%]+(?=\s|$)")


class Known(NamedTuple):
    """What was in a file when it was last looked at, and the entries that we saw in it.

    ``inode`` is the file's: who replaces the file by another has appended nothing.
    """

    text: str
    entries: list[str]
    inode: int = 0


def render(entries: Sequence[str]) -> str:
    """The text of a file with these entries."""
    text = DELIMITER.join(entries)
    if text.count(SEPARATOR) < len(entries):  # none of them has one
        return text
    return DELIMITER.join(
        _LOOKS_LIKE_SEPARATOR.sub(r"\1\\\2", entry) if SEPARATOR in entry else entry
        for entry in entries
    )


def parse(text: str, known: Known | None = None, inode: int = 0) -> list[str]:
    """The entries of a file, as the person who wrote it would count them.

    Args:
        text: What is in the file now.
        known: What was in it before. Text that has been appended to that without a
            separator (``echo ... >> MEMORY.md``) is an entry of its own.
        inode: The file's inode now, where it is known.
    """
    if known is not None and text == known.text:
        return list(known.entries)
    same_file = known is not None and known.inode in (0, inode)
    if known is not None and same_file and known.text and text.startswith(known.text):
        appended = unify(text[len(known.text) :])
        if not _CONTINUES.match(appended):
            return [*known.entries, *split(appended)]
    text = unify(text)
    entries = split(text)
    if len(entries) == 1 and not _has_separator(text):
        return _sections(text)
    return entries


def unify(text: str) -> str:
    """Text with plain line ends and without a byte order mark."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def tidy(content: str) -> str:
    """An entry as it is stored."""
    return unify(content).strip()


def _has_separator(text: str) -> bool:
    return _SEPARATOR_LINE.search(text) is not None


def split(text: str) -> list[str]:
    """The entries of a text that we wrote."""
    if text.count(SEPARATOR) == text.count(DELIMITER):  # nearly always, and much faster
        return [entry for entry in map(str.strip, text.split(DELIMITER)) if entry]
    return _kept(_SEPARATOR_LINE.split(text))


def _sections(text: str) -> list[str]:
    """A file from before there were separators: each ``##`` heading with what is below it."""
    starts = [match.start() for match in _HEADING.finditer(text)]
    edges = [0, *starts, len(text)]
    return _kept(text[begin:end] for begin, end in pairwise(edges))


def _kept(pieces: Iterable[str]) -> list[str]:
    entries = (piece.strip() for piece in pieces)
    return [
        _ESCAPED.sub(r"\1\2", entry) if SEPARATOR in entry else entry for entry in entries if entry
    ]


def text_hash(text: str) -> str:
    """What stands for a text, whatever is in it."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def entry_id(text: str) -> str:
    """A short name for an entry, the same wherever it is shown."""
    return text_hash(text)[:8]


def usage(length: int, limit: int) -> str:
    """How full a notebook is: ``12% — 264/2,200 chars``."""
    percent = min(100, length * 100 // limit)
    return f"{percent}% — {length:,}/{limit:,} chars"


def previews(entries: Sequence[str], width: int = 80) -> list[str]:
    """The beginnings of entries, for a choice among them."""
    lines = (" ".join(entry.split()) for entry in entries)
    return [line if len(line) <= width else f"{line[:width]}..." for line in lines]
