"""Rows from the pages of a database file, for what SQLite can't reach any more.

The rows of a table are in its leaves; the pages above them only say which leaf has which. Where
one of those is damaged, SQLite finds none of the rows below it, though they are all there.

What is read here may be of any table, or no row at all: the caller looks at its checksum. And it
must be the file of a copy that nobody has open: never that of an archive in use.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

_TABLE_LEAF: Final = 0x0D
_FILE_HEADER: Final = 100
_PAGE_HEADER: Final = 8
_INTEGERS: Final = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}  # bytes by what a column's type says
_FLOAT: Final = 7
_CONSTANTS: Final = {0: None, 8: 0, 9: 1}
_FIRST_SIZED: Final = 12  # blobs are even, texts odd

Values = list[Any]


def rows(path: Path) -> Iterator[tuple[int, Values]]:
    """All rows in all leaves that can be read: number and values."""
    with path.open("rb") as file:
        pages = _Pages.of(file)
        for number in range(1, pages.last + 1):
            page = pages.page(number)
            at = _FILE_HEADER if number == 1 else 0
            if page[at : at + 1] != bytes([_TABLE_LEAF]):
                continue
            first = at + _PAGE_HEADER
            cells = int.from_bytes(page[at + 3 : at + 5], "big")
            for cell in range(first, min(first + 2 * cells, len(page) - 1), 2):
                try:
                    yield pages.row(page, int.from_bytes(page[cell : cell + 2], "big"))
                except (IndexError, struct.error):  # it is no row
                    continue


class _Pages(NamedTuple):
    """The pages of a file: their size, what of it is used, and the number of the last one."""

    file: BinaryIO
    size: int
    usable: int
    last: int

    @classmethod
    def of(cls, file: BinaryIO) -> _Pages:
        header = file.read(_FILE_HEADER)
        size = int.from_bytes(header[16:18], "big")
        size = 65_536 if size == 1 else size
        length = file.seek(0, 2)
        return cls(file, size, size - header[20], length // size)

    def page(self, number: int) -> bytes:
        """A page, by its number from 1 on."""
        self.file.seek((number - 1) * self.size)
        return self.file.read(self.size)

    def row(self, page: bytes, at: int) -> tuple[int, Values]:
        """The row whose cell begins there."""
        length, at = _varint(page, at)
        number, at = _varint(page, at)
        if length > self.last * self.size:
            raise IndexError
        here = self._length_here(length)
        record = page[at : at + here]
        if here < length:
            record += self._overflow(
                int.from_bytes(page[at + here : at + here + 4], "big"), length - here
            )
        return number, _values(record)

    def _length_here(self, length: int) -> int:
        """How much of a record is in its cell; the rest is in a chain of pages."""
        most = self.usable - 35
        if length <= most:
            return length
        least = (self.usable - 12) * 32 // 255 - 23
        wanted = least + (length - least) % (self.usable - 4)
        return wanted if wanted <= most else least

    def _overflow(self, number: int, length: int) -> bytes:
        parts = []
        while length > 0:
            if not 0 < number <= self.last:
                raise IndexError
            page = self.page(number)
            parts.append(page[4 : min(self.usable, 4 + length)])
            length -= len(parts[-1])
            number = int.from_bytes(page[:4], "big")
        return b"".join(parts)


def _values(record: bytes) -> Values:
    """The columns of a row."""
    begin, at = _varint(record, 0)
    data, values = begin, []
    while at < begin:
        kind, at = _varint(record, at)
        size = _size(kind)
        values.append(_value(kind, record[data : data + size]))
        data += size
    if data != len(record):
        raise IndexError
    return values


def _size(kind: int) -> int:
    if kind >= _FIRST_SIZED:
        return (kind - _FIRST_SIZED) // 2
    return 8 if kind == _FLOAT else _INTEGERS.get(kind, 0)


def _value(kind: int, stored: bytes) -> Any:
    if kind in _INTEGERS:
        return int.from_bytes(stored, "big", signed=True)
    if kind == _FLOAT:
        return struct.unpack(">d", stored)[0]
    if kind >= _FIRST_SIZED:
        return stored.decode("utf-8", "replace") if kind % 2 else stored
    return _CONSTANTS.get(kind)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of one to nine bytes, and where it ends: seven bits each, eight in the ninth."""
    value = 0
    for place in range(at, at + 8):
        value = value << 7 | data[place] & 0x7F
        if data[place] < 0x80:  # noqa: PLR2004 - the last one has no high bit
            return value, place + 1
    value = value << 8 | data[at + 8]
    return value - (1 << 64) if value >> 63 else value, at + 9
