"""Reads the entries of a large JSON file one by one, in a bounded amount of memory.

A file is one array of entries, or entries one after the other: JSON lines, or a single document.
`json` parses the text in a buffer that moves through the file. An entry that is not complete
yet is parsed again when the buffer has twice as much, so each byte is parsed about twice at most.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any, Final

_CHUNK: Final = 1 << 20
#: Longer entries have images or whole files in them. A character takes up to 4 bytes of memory.
LONGEST_ENTRY: Final = 32_000_000
#: An error so close to the end of the buffer may be that of a word or an escape that goes on.
_LONGEST_WORD: Final = 16

_BLANKS: Final = re.compile("[\ufeff \t\r\n]*")
_UNTERMINATED: Final = "Unterminated string"


@dataclass(frozen=True, slots=True)
class JsonEntry:
    """One entry of a file, or why it can't be read.

    Attributes:
        value: What it is.
        start: Its first byte in the file.
        length: How many bytes it has.
        place: For people, for example "line 7".
        problem: What is wrong with it; "" if nothing is.
    """

    value: Any
    start: int
    length: int
    place: str
    problem: str = ""


class JsonStream:
    """The entries of a file.

    Iterate over it once. After an entry with a problem the next ones follow, if it is known where
    they begin: in JSON lines, or if the entry is whole but not UTF-8.

    Args:
        file: Open for reading, in binary mode.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        # Bytes that are not UTF-8 become surrogates, so that only their entry is affected.
        self._decode = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode
        self._parse = json.JSONDecoder().raw_decode
        self._text = ""
        self._at = 0  # where the next entry begins in the text
        self._byte = 0  # and in the file
        self._line = 1
        self._number = 0
        self._is_end = False
        self._is_array = False
        self._is_line = True  # whether a broken entry ends with its line

    def __iter__(self) -> Iterator[JsonEntry]:
        self._is_array = self._peek() == "["
        if self._is_array:
            self._advance(self._at + 1)
        while self._peek() not in ("", "]"):
            if self._is_array and self._number and not self._skip_comma():
                yield self._broken("a comma is missing before it")
                return
            self._number += 1
            entry = self._entry()
            yield entry
            if entry.problem and not entry.length and not self._next_line():
                return
        yield from self._ending()

    def _entry(self) -> JsonEntry:
        try:
            value, end = self._value()
        except RecursionError:
            return self._broken("is nested too deeply")
        except json.JSONDecodeError as error:
            # If the error is in a later line, the entry was written in several: the next line may
            # be a part of it.
            self._is_line = "\n" not in self._text[self._at : error.pos].rstrip()
            is_cut_off = error.pos >= len(self._text) or error.msg.startswith(_UNTERMINATED)
            return self._broken("is cut off" if is_cut_off else f"is not JSON: {error.msg}")
        except _LongEntryError:
            return self._broken(f"is longer than {LONGEST_ENTRY // 1_000_000} MB")
        start, place = self._byte, self._place()
        is_text = self._advance(end)
        problem = "" if is_text else "is not UTF-8"
        return JsonEntry(value, start, self._byte - start, place, problem)

    def _value(self) -> tuple[Any, int]:
        while True:
            try:
                value, end = self._parse(self._text, self._at)
                # A number may go on after the buffer.
                if end < len(self._text) or isinstance(value, dict | list) or not self._fill():
                    return value, end
            except json.JSONDecodeError as error:
                may_go_on = error.msg.startswith(_UNTERMINATED) or (
                    error.pos >= len(self._text) - _LONGEST_WORD
                )
                if not may_go_on or not self._fill():
                    raise

    def _ending(self) -> Iterator[JsonEntry]:
        """What is wrong with the end of the file."""
        if not self._is_array:
            if self._peek():
                yield self._broken("is not JSON")
        elif not self._peek():
            self._number += 1
            yield self._broken("is missing: the file is cut off before it")
        else:
            self._advance(self._at + 1)
            if self._peek():
                yield self._broken("follows the end of the list")

    def _next_line(self) -> bool:
        """After a broken line: go to the next one, if the file has an entry in each line."""
        if self._is_array or not self._is_line:
            return False
        while (end := self._text.find("\n", self._at)) < 0:
            self._advance(len(self._text))
            if not self._fill():
                return False
        self._advance(end)
        return True

    def _broken(self, problem: str) -> JsonEntry:
        return JsonEntry(None, self._byte, 0, self._place(), problem)

    def _place(self) -> str:
        if self._is_array:
            return f"entry {self._number:,} (byte {self._byte:,})"
        return f"line {self._line:,}"

    # -- the buffer -------------------------------------------------------------------------

    def _peek(self) -> str:
        """The next character that is not blank; "" at the end."""
        while True:
            found = _BLANKS.match(self._text, self._at)
            assert found is not None  # noqa: S101 - it matches nothing as well
            self._advance(found.end())
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._fill():
                return ""

    def _skip_comma(self) -> bool:
        if self._peek() != ",":
            return False
        self._advance(self._at + 1)
        self._peek()
        return True

    def _advance(self, end: int) -> bool:
        """Go to a place in the text. Returns whether all of the way is UTF-8."""
        passed = self._text[self._at : end]
        encoded = passed.encode("utf-8", "surrogateescape")
        self._byte += len(encoded)
        self._line += passed.count("\n")
        self._at = end
        return passed.isascii() or not _has_escaped_bytes(passed)

    def _fill(self) -> bool:
        """Read more; False at the end of the file."""
        rest = self._text[self._at :]
        if self._is_end:
            return False
        if len(rest) > LONGEST_ENTRY:
            raise _LongEntryError
        chunk = self._file.read(max(_CHUNK, len(rest)))
        self._is_end = not chunk
        self._text = rest + self._decode(chunk, final=self._is_end)
        self._at = 0
        return True


class _LongEntryError(Exception):
    """An entry is longer than the buffer may be."""


def _has_escaped_bytes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
