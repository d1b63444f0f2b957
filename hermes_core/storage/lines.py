"""Files of lines that several processes append to: what waits until a server can take it.

A line is a JSON object that begins with its checksum, so that a damaged one is never taken for
something else. A process that is killed while it appends leaves a line without an end.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from json import dumps, loads  # before a plugin can replace them
from pathlib import Path
from typing import Any, Final
from zlib import crc32

_START: Final = b'{"sum":"'
_SUM: Final = 8
_TAIL: Final = 8192


def line_of(fields: Mapping[str, Any]) -> bytes:
    """The line that stands for some fields."""
    # ASCII only: lone surrogates, which a host may pass, can't be written otherwise.
    text = dumps(fields).encode("ascii")
    return b'%s%08x",%s\n' % (_START, crc32(text), text[1:])


def fields_of(line: bytes) -> dict[str, Any] | None:
    """The fields of a line; None if it is not what was written."""
    end = len(_START) + _SUM
    text = b"{" + line[end + 2 : -1]
    is_whole = line.startswith(_START) and line.endswith(b"\n")
    if not is_whole or line[len(_START) : end] != b"%08x" % crc32(text):
        return None
    try:
        fields: dict[str, Any] = loads(text)
    except ValueError:
        return None
    return fields


def lines_of(content: bytes) -> list[bytes]:
    """The lines with their ends; the last one has none if it was not written to its end."""
    # Not `splitlines`, which would also divide a damaged line at a carriage return.
    *whole, last = content.split(b"\n")
    return [*(line + b"\n" for line in whole), *([last] if last else [])]


def ends_with_line(path: Path) -> bool:
    """Whether a file is there and ends with a line."""
    try:
        with path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"
    except OSError:
        return False


def last_line(path: Path) -> bytes:
    """The last line of a file, without an end if it was not written to its end."""
    size = _TAIL
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while True:
            file.seek(max(0, end - size))
            tail = file.read(size)
            start = tail.rfind(b"\n", 0, -1) + 1
            if start or size >= end:
                return tail[start:]
            size *= 8


def append_line(path: Path, line: bytes, *, durable: bool) -> None:
    """Append a line as a whole, or not at all."""
    # By its path each time: a descriptor that is kept may be another file by now.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
    handle = os.open(path, flags, 0o600)
    try:
        before = os.fstat(handle).st_size
        try:
            written = os.write(handle, line)
            while written < len(line):
                written += os.write(handle, line[written:])
            if durable:
                os.fsync(handle)
        except BaseException:
            with suppress(OSError):
                os.ftruncate(handle, before)
            if not before:
                with suppress(OSError):
                    path.unlink()
            raise
    finally:
        os.close(handle)
