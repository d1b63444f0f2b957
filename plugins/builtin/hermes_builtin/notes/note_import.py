"""Notes from files of other agents: CLAUDE.md, AGENTS.md, Codex's memories, OMI-AI, pasted text.

Nothing becomes a note by itself: each entry waits until a person approves it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from hermes_builtin.notes import Author, Notes, NotesError, RefusalError, operation, previews
from hermes_core.privacy.origin import IMPORT
from hermes_core.storage.files import read_regular

#: More are not notes that a person reads one by one.
MOST_ENTRIES: Final = 500
_LARGEST: Final = 5_000_000

_INTERCHANGE: Final = "open-memory-interchange"
_FRONT_MATTER: Final = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
_COMMENT: Final = re.compile(r"<!--.*?-->", re.DOTALL)
_HEADING: Final = re.compile(r" {0,3}#{1,6}\s+(.*?)\s*#*$")
_BULLET: Final = re.compile(r"\s*(?:[-*+•]|\d{1,3}[.)])\s+(?:\[[ xX]\]\s+)?(.*)$")
_FENCE: Final = re.compile(r"\s*(```|~~~)")
#: What only divides a text.
_RULE: Final = re.compile(r"\s*([-*_=]\s*){3,}$")


@dataclass(frozen=True, slots=True)
class ImportSummary:
    """What came of an import.

    Attributes:
        ids: Of the writes that wait now.
        known: How many entries are notes already, or wait already.
        refused: Entries that can't be notes, and why.
    """

    ids: tuple[str, ...] = ()
    known: int = 0
    refused: tuple[str, ...] = ()


def entries_of(text: str) -> list[str]:
    """The entries of a text: each item of a list, and each paragraph; headings stay with them.

    A file of OMI-AI (Open Memory Interchange) has an entry for each of its memories.
    """
    if (memories := _interchanged(text)) is not None:
        return list(dict.fromkeys(memories))
    text = _COMMENT.sub("", _FRONT_MATTER.sub("", text.replace("\r\n", "\n")))
    found = (each for each in _Entries().read(text.split("\n")) if each)
    return list(dict.fromkeys(found))


def _interchanged(text: str) -> list[str] | None:
    """The memories of a file of OMI-AI; None if it is something else.

    It is one document with its ``memories``, or lines, of which the first describes the file and
    each other one is a memory. Its ``content`` alone says what a memory is; every other field is
    optional for a reader.
    """
    if _INTERCHANGE not in text:
        return None
    try:
        documents = [json.loads(text)]
    except ValueError:
        documents = [_json_of(line) for line in text.splitlines() if line.strip()]
    head = documents[0] if documents and isinstance(documents[0], dict) else {}
    if head.get("format") != _INTERCHANGE:
        return None
    listed = head.get("memories")
    records = [*(listed if isinstance(listed, list) else ()), *documents[1:]]
    contents = (each.get("content") for each in records if isinstance(each, dict))
    return [each.strip() for each in contents if isinstance(each, str) and each.strip()]


def _json_of(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


@dataclass(slots=True)
class _Entries:
    """Divides lines into entries."""

    heading: str = ""
    lines: list[str] = field(default_factory=list)
    is_code: bool = False

    def read(self, lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            if _FENCE.match(line):
                self.is_code = not self.is_code
                self.lines.append(line.rstrip())
            elif self.is_code:
                self.lines.append(line.rstrip())
            else:
                yield from self._plain(line)
        yield self._entry()

    def _plain(self, line: str) -> Iterator[str]:
        heading, bullet = _HEADING.match(line), _BULLET.match(line)
        if heading or not line.strip() or _RULE.match(line):
            yield self._entry()
            self.heading = heading[1] if heading else self.heading
        elif bullet:
            yield self._entry()
            self.lines.append(bullet[1].strip())
        else:
            self.lines.append(line.strip())

    def _entry(self) -> str:
        text, self.lines = "\n".join(self.lines).strip(), []
        # "Testing: run make test" says more than "run make test".
        return f"{self.heading}: {text}" if text and self.heading else text


def files_in(path: Path) -> list[Path]:
    """The files that a path means: itself, or the Markdown and text files of a folder."""
    if not path.is_dir():
        return [path]
    return sorted(each for each in path.rglob("*") if each.suffix in (".md", ".txt"))


def text_of(path: Path) -> str:
    """The text of a file.

    Raises:
        NotesError: It can't be read.
    """
    try:
        return read_regular(path, _LARGEST).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        todo = "name a text file in UTF-8, a folder, or - for standard input"
        raise NotesError(f"can't be read: {reason}", where=str(path), hint=todo) from error


def stage(notes: Notes, target: str, entries: list[str], source: str) -> ImportSummary:
    """Have entries wait for a person.

    Args:
        notes: The notes of a person.
        target: The notebook.
        entries: What to stage.
        source: Where it comes from, for the person who decides.

    Raises:
        NotesError: There are too many, or they can't be stored.
    """
    if len(entries) > MOST_ENTRIES:
        raise NotesError(
            f"has {len(entries):,} entries; at most {MOST_ENTRIES} can be imported at once",
            where=source,
            hint="divide the file",
        )
    book = notes.notebooks[target]
    waiting = {each.content for staged in notes.pending.operations(book.key) for each in staged}
    known = {*book.read().entries, *waiting}
    ids, refused = [], []
    for text in entries:
        if text in known:
            continue
        wanted = operation("add", text, None)._replace(origin=IMPORT)
        try:
            book.check([wanted])
        except RefusalError as error:
            refused.append(f"{previews([text])[0]}: {error}")
            continue
        ids.append(
            notes.pending.stage(book.key, [wanted], Author("import"), f"it comes from {source}")
        )
    return ImportSummary(tuple(ids), len(entries) - len(ids) - len(refused), tuple(refused))
