"""Searches the bytes of files for texts, whatever the files are: databases, logs, notes, JSON.

A database is also searched as bytes, so that free pages and the write-ahead log are covered.
Texts are found as UTF-8 and with the escapes of JSON, also if JSON is inside of JSON.
"""

from __future__ import annotations

import os
import re
import sqlite3
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hermes_core.errors import DatabaseError
from hermes_core.provider import fold_text, has_folded
from hermes_core.storage.files import open_regular
from hermes_core.storage.sqlite_connection import read_only

#: What `readings` understands, for receipts.
ENCODINGS: Final = ("UTF-8", "JSON escapes")

_CHUNK: Final = 1 << 20
# A character takes up to 7 bytes as an escape within an escaped text, and 13 within two.
_BYTES_PER_CHARACTER: Final = 16
# For invisible characters and further blanks in it.
_BYTES_BETWEEN: Final = 1024
_DEEPEST: Final = 3
_ESCAPE: Final = re.compile(r'\\(u[0-9a-fA-F]{4}|["\\/bfnrt])')
_ESCAPED: Final = frozenset(' "\\/')
_LETTERS: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_SQLITE: Final = b"SQLite format 3\0"
#: How files begin whose content is compressed: what is in them is unknown.
_COMPRESSED: Final = (b"\x1f\x8b", b"PK\x03\x04", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ", b"BZh")


@dataclass(frozen=True, slots=True)
class Needles:
    """Texts to search for. Build it with `of`."""

    texts: tuple[str, ...] = ()

    @classmethod
    def of(cls, *texts: str) -> Needles:
        """Return the needles for some texts; empty ones are left out."""
        forms = map(fold_text, texts)
        return cls(tuple(dict.fromkeys(filter(None, forms))))

    def __bool__(self) -> bool:
        return bool(self.texts)

    def found_in(self, text: str) -> bool:
        """Return whether a text contains one of them, as it is or escaped."""
        # JSON escapes no plain letter, so most files have to be read in one way only. A blank may
        # be a line break there.
        mark = "\\u" if self._is_plain else "\\"
        return any(
            has_folded(each, needle) for each in _readings(text, mark) for needle in self.texts
        )

    @property
    def _is_plain(self) -> bool:
        return all(
            each.isascii() and each.isprintable() and not _ESCAPED & set(each)
            for each in self.texts
        )

    @property
    def longest(self) -> int:
        """The length of the longest, in characters."""
        return max(map(len, self.texts), default=0)


def _readings(text: str, mark: str) -> Iterator[str]:
    """A text as it is, and as long as it has ``mark``, with fewer levels of JSON's escapes."""
    yield fold_text(text)
    for _ in range(_DEEPEST):
        if mark not in text:
            return
        plainer = _unescaped(text)
        if plainer == text:
            return
        text = plainer
        yield fold_text(text)


def _unescaped(text: str) -> str:
    plain = _ESCAPE.sub(_character, text)
    # Two escapes make one character beyond U+FFFF.
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _character(found: re.Match[str]) -> str:
    escape = found[1]
    return chr(int(escape[1:], 16)) if len(escape) > 1 else _LETTERS.get(escape, escape)


# -- files ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileSearchResult:
    """What a search through all files below a folder found.

    Attributes:
        files: How many files were searched.
        bytes: How large they are.
        hits: The files that contain a needle, or whose name does.
        stored: Those of them that have it in what they store now, and not only in free space.
        unread: Files that could not be read, or whose content is compressed.
    """

    files: int = 0
    bytes: int = 0
    hits: tuple[Path, ...] = ()
    stored: tuple[Path, ...] = ()
    unread: tuple[Path, ...] = ()


def search_files(
    folder: Path, needles: Needles, ignored: Iterable[Path], own: Iterable[str] = ()
) -> FileSearchResult:
    """Search every file below a folder, byte by byte; links are followed, ``own`` ones first.

    Call it in a process that has none of the databases open: on POSIX, closing any handle of a file
    releases the locks that SQLite holds on it in this process, and another process that closes the
    database then removes its write-ahead log, with what was written to it since.
    """
    ignored = frozenset(ignored)
    files = size = 0
    hits: list[Path] = []
    unread: list[Path] = []
    for path in files_below(folder, own):
        if path in ignored:
            continue
        files += 1
        try:
            size += path.stat().st_size
            if contains(path, needles) or needles.found_in(str(path.relative_to(folder))):
                hits.append(path)
            elif _is_compressed(path):
                unread.append(path)
        except FileNotFoundError:  # an agent has just removed it
            files -= 1
        except OSError:
            unread.append(path)
    stored = [each for each in hits if _is_stored(each, needles)]
    return FileSearchResult(files, size, tuple(hits), tuple(stored), tuple(unread))


def files_below(folder: Path, own: Iterable[str] = ()) -> Iterator[Path]:
    """Every regular file below a folder, in the same order each time.

    What is behind a link comes last, so that a file in a real folder has the path of that folder.
    The folders ``own`` come before other links.
    """
    seen: set[tuple[int, int]] = set()
    waiting = [str(folder), *(os.path.join(folder, each) for each in own)]  # noqa: PTH118
    while waiting:
        for place, folders, names in os.walk(waiting.pop(0)):
            at = os.stat(place)  # noqa: PTH116
            if (at.st_dev, at.st_ino) in seen:  # a link back to where we came from
                folders.clear()
                continue
            seen.add((at.st_dev, at.st_ino))
            folders.sort()
            below = (os.path.join(place, each) for each in folders)  # noqa: PTH118
            waiting += [each for each in below if os.path.islink(each)]  # noqa: PTH114
            yield from _regular_files(place, sorted(names))


def _regular_files(place: str, names: list[str]) -> Iterator[Path]:
    for name in names:
        path = Path(place, name)
        with suppress(OSError):
            if stat.S_ISREG(path.stat().st_mode):
                yield path


def contains(path: Path, needles: Needles) -> bool:
    """Return whether the bytes of a file contain a needle."""
    kept = needles.longest * _BYTES_PER_CHARACTER + _BYTES_BETWEEN if needles else 0
    with open_regular(path) as file:
        before = b""
        while chunk := file.read(_CHUNK):
            window = before + chunk
            # "replace": a database has bytes between its texts that are no UTF-8.
            if needles.found_in(window.decode("utf-8", "replace")):
                return True
            before = window[-kept:] if kept else b""
    # A long text of a database is stored in pieces on several pages.
    return _rows_contain(path, needles)


def _is_compressed(path: Path) -> bool:
    with open_regular(path) as file:
        return file.read(8).startswith(_COMPRESSED)


# -- rows of databases ------------------------------------------------------------------------


def _is_stored(path: Path, needles: Needles) -> bool:
    try:
        if _is_database(path):
            return _rows_contain(path, needles)
    except OSError:  # it is gone
        return True
    # What belongs to a database has nothing that counts by itself.
    return not path.name.endswith(("-wal", "-shm", "-journal"))


def _is_database(path: Path) -> bool:
    with open_regular(path) as file:
        return file.read(len(_SQLITE)) == _SQLITE


def _rows_contain(path: Path, needles: Needles) -> bool:
    try:
        if not _is_database(path):
            return False
        with read_only(path) as database:
            tables = database.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table'"
                " AND sql NOT LIKE 'CREATE VIRTUAL%'"
            ).fetchall()
            return any(_table_contains(database, name, needles) for (name,) in tables)
    except (sqlite3.Error, DatabaseError, OSError):
        return False  # a damaged one: its bytes were searched


def _table_contains(database: sqlite3.Connection, table: str, needles: Needles) -> bool:
    quoted = table.replace('"', '""')
    for row in database.execute(f'SELECT * FROM "{quoted}"'):  # noqa: S608
        for cell in row:
            text = cell.decode("utf-8", "replace") if isinstance(cell, bytes) else cell
            if isinstance(text, str) and needles.found_in(text):
                return True
    return False
