"""The logs in a shared folder: one folder per machine, which only that machine writes.

``DIR/<machine>/0001.jsonl``, ``0002.jsonl``, ... are its segments, one JSON record per line. Every
line has a number (``seq``) and a checksum (``sum``) that includes the checksum of the line before
it. So a file that is torn, or that was not transferred completely, is read up to the last line that
is whole, and the rest later. Files of other names, such as the conflict copies of Dropbox and
Syncthing, are not read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path
from typing import Any, BinaryIO, Final

from hermes_core import HermesError
from hermes_core.storage.files import open_regular

FORMAT: Final = "hermes-sync"
VERSION: Final = 1
HEADER: Final = "header"
#: The last line of a segment after which there is another one.
END: Final = "end"

_SEGMENT: Final = re.compile(r"([0-9]{4,9})\.jsonl")
_MACHINE: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,40}-[0-9a-f]{8}")
_PREFIX: Final = b'{"sum":"'
_DIGITS: Final = 16
#: How every record begins.
_HEAD: Final = re.compile(rb'"seq":([0-9]{1,18}),"type":"([a-z]+)"')
_BODY: Final = len(_PREFIX) + _DIGITS + len(b'",')
#: How much is handled at a time.
MOST_LINES: Final = 500
MOST_CHARACTERS: Final = 4_000_000
#: A line is read into memory; the longest message that an archive takes is shorter.
_LONGEST_LINE: Final = 64_000_000

Record = Mapping[str, Any]


class SyncError(HermesError):
    """A folder can't be synced, or the log of a machine can't be read."""


@dataclass(frozen=True)
class Line:
    """A line of a log.

    Attributes:
        seq: Its number.
        kind: What it is about.
        sum: Its checksum.
        text: The line itself.
        end: The place in the file behind it.
    """

    seq: int
    kind: str
    sum: str
    text: bytes
    end: int

    @cached_property
    def record(self) -> Record:
        """What it says. Most lines are only skipped, so this is not read before it is needed."""
        found: dict[str, Any] = json.loads(self.text)
        return found


def encoded(record: Record, before: str) -> tuple[bytes, str]:
    """A record as a line, and its checksum; ``before`` is the checksum of the line before it."""
    try:
        text = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        text = json.dumps(record, separators=(",", ":")).encode()
    check = _checksum(text[1:], before)
    return b'%s%s",%s\n' % (_PREFIX, check.encode(), text[1:]), check


def _checksum(body: bytes, before: str) -> str:
    return sha256(before.encode() + body).hexdigest()[:_DIGITS]


def _decoded(raw: bytes, before: str, end: int) -> Line | None:
    """A line; None if it is not whole."""
    text = raw.rstrip(b"\r\n")  # git may have changed the ends of lines
    check = text[len(_PREFIX) : len(_PREFIX) + _DIGITS].decode("ascii", "replace")
    begins = text[:_BODY] == b'%s%s",' % (_PREFIX, check.encode())
    if not (raw.endswith(b"\n") and begins and _checksum(text[_BODY:], before) == check):
        return None
    head = _HEAD.match(text, _BODY)
    return None if head is None else Line(int(head[1]), head[2].decode(), check, text, end)


def seed(machine: str, segment: int) -> str:
    """What stands for the checksum before the first line of a segment."""
    return f"{machine}/{segment}"


def segment_name(segment: int) -> str:
    """The name of the file of a segment."""
    return f"{segment:04}.jsonl"


class MachineLog:
    """The log of one machine.

    Attributes:
        machine: The machine's id, which is the name of its folder.
        name: What its owner calls it; the id until a header was read.
        is_incomplete: Whether something was missing or torn when it was read.
        damage: The line that can't be read though whole ones follow; "" if nothing is damaged.
        replaced: The logs that its machine continues here, since they were damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.machine = folder.name
        self.name = folder.name.rpartition("-")[0]
        self.is_incomplete = False
        self.damage = ""
        self.replaced: tuple[str, ...] = ()

    def segments(self) -> dict[int, Path]:
        """The files by their numbers, in order."""
        found = ((each, _SEGMENT.fullmatch(each.name)) for each in self.folder.iterdir())
        numbers = {int(match[1]): each for each, match in found if match is not None}
        return dict(sorted(numbers.items()))

    def segment(self, number: int) -> Iterator[Line]:
        """The whole lines of a segment, with its header.

        Raises:
            SyncError: A newer version has written it, or it is not a file.
            FileNotFoundError: It is not there.
        """
        path = self.folder / segment_name(number)
        before, end = seed(self.machine, number), 0
        with _opened(path) as file:
            while raw := file.readline(_LONGEST_LINE):
                end += len(raw)
                if before == seed(self.machine, number):
                    _check_version(raw, path)
                line = _decoded(raw, before, end)
                if line is None:
                    return
                before = line.sum
                yield line

    def size(self, after: int) -> int:
        """About how many bytes there are to read after a line."""
        segments = self.segments()
        numbers = list(segments)
        return sum(
            segments[number].stat().st_size
            for number, following in zip_longest(numbers, numbers[1:])
            if following is None or not self._is_known(following, after)
        )

    def lines(self, after: int) -> Iterator[Line]:
        """The lines after the one with this number, as far as they are there, without headers."""
        self.is_incomplete, self.damage = False, ""
        last = after
        numbers = list(self.segments())
        self.is_incomplete = not numbers  # a service may create the folder before the file
        for number, following in zip_longest(numbers, numbers[1:]):
            # Nobody reads again what is known, however long the log is.
            if following is not None and self._is_known(following, after):
                continue
            is_ended = False
            is_begun = False
            for line in self.segment(number):
                if line.kind == HEADER:
                    self._read_header(line.record)
                    is_begun = line.seq <= last  # else the segments before it are missing
                    if not is_begun:
                        break
                elif line.kind == END:
                    is_ended, last = True, max(last, line.seq)
                elif line.seq > last:
                    last = line.seq
                    yield line
            if not is_begun or (not is_ended and (following is not None or self._is_torn(number))):
                self.is_incomplete = True
                self.damage = self._damage(number, is_last=following is None)
                return

    def _read_header(self, record: Record) -> None:
        self.name = str(record.get("name") or self.name)
        replaced = record.get("replaces")
        self.replaced = tuple(map(str, replaced)) if isinstance(replaced, list) else ()

    def read_header(self) -> None:
        """Read who has written the log, from its first segment that is there."""
        for number in self.segments():
            header = next(self.segment(number), None)
            if header is not None and header.kind == HEADER:
                self._read_header(header.record)
            return

    def _damage(self, number: int, *, is_last: bool) -> str:
        """The line of a segment that is not whole, if there are lines after it."""
        lines = list(self.segment(number))
        with _opened(self.folder / segment_name(number)) as file:
            file.seek(lines[-1].end if lines else 0)
            torn = file.readline(_LONGEST_LINE)
            # A service transfers a file from its start, so a second whole line is not a torn end.
            following = file.readline(_LONGEST_LINE)
        has_following = following.endswith(b"\n")
        is_damaged = torn.endswith(b"\n") and (has_following or not (is_last or following))
        return f"line {len(lines) + 1} of {segment_name(number)}" if is_damaged else ""

    def _is_known(self, following: int, after: int) -> bool:
        """Whether everything before a segment has been read."""
        first = self._first(following)
        return first is not None and first - 1 <= after

    def _is_torn(self, number: int) -> bool:
        """Whether there is more in a segment than its whole lines."""
        end = max((line.end for line in self.segment(number)), default=0)
        return (self.folder / segment_name(number)).stat().st_size > end

    def _first(self, number: int) -> int | None:
        """The number of the first record of a segment, if its header is there."""
        header = next(self.segment(number), None)
        return None if header is None else header.seq + 1


def _opened(path: Path) -> BinaryIO:
    try:
        return open_regular(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise SyncError(
            f"can't be read: {error.strerror or error}",
            where=str(path),
            hint="move it out of the folder if `sync` has not written it",
        ) from error


def _check_version(raw: bytes, path: Path) -> None:
    """Raise if a header is of a newer version, whatever that does to the lines."""
    try:
        header = json.loads(raw)
        version = header["version"] if header.get("format") == FORMAT else 0
    except (ValueError, KeyError, AttributeError, RecursionError):
        return
    if isinstance(version, int) and version > VERSION:
        raise SyncError(
            f"has format {version}, and this version knows {VERSION}",
            where=str(path),
            hint="upgrade hermes-plugins; nothing of this machine was read",
        )


def machine_logs(folder: Path) -> list[MachineLog]:
    """The logs of all machines in a shared folder."""
    found = sorted(each for each in folder.iterdir() if _MACHINE.fullmatch(each.name))
    return [MachineLog(each) for each in found if each.is_dir()]


def in_steps(lines: Iterator[Line], last: int) -> Iterator[list[Line]]:
    """Lines up to one of them, some at a time."""
    step: list[Line] = []
    characters = 0
    for line in lines:
        if line.seq > last:
            break
        step.append(line)
        characters += len(str(line.record.get("content", "")))
        if len(step) >= MOST_LINES or characters > MOST_CHARACTERS:
            yield step
            step, characters = [], 0
    if step:
        yield step


def last_line(log: MachineLog, after: int) -> int:
    """The number of the last line of a log."""
    return max((line.seq for line in log.lines(after)), default=after)
