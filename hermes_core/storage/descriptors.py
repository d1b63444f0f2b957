"""Which file a name stands for, and whether a process still has the descriptors it opened."""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol
from weakref import WeakSet

from hermes_core.errors import DatabaseError

NO_FILE: Final = (0, 0)


class OpenFile(Protocol):
    """A file with descriptors of this process."""

    def abandon(self) -> set[tuple[int, ...]]:
        """Leave its connections open permanently; returns which files they have open."""


class _DescriptorWatch:
    """Notices that something in this process has closed descriptors that are not its own.

    SQLite goes on writing to the numbers of its descriptors, and these may be other files by then.
    A new connection does not help: SQLite shares descriptors between the connections of a process
    to one file. So that file is not used again in this process.

    The end of a pipe stands for all descriptors: a process has no other one with its identity.
    On Windows pipes have no identity, and nothing is noticed.
    """

    def __init__(self) -> None:
        self.files: WeakSet[OpenFile] = WeakSet()
        self._handle = -1
        self._identity = NO_FILE
        self._unusable: set[tuple[int, ...]] = set()

    def check(self, name: str) -> None:
        """Raise if the descriptors of a file are gone; begin to watch if nobody has yet."""
        # Without a lock, which a forked child could inherit taken: two threads that both find it
        # do the same twice.
        self.look()
        if self._identity == NO_FILE:
            self._begin()
        if self._unusable and identity_of(name) in self._unusable:
            raise DatabaseError(
                "something in this process has closed its file descriptors",
                where=name,
                hint="restart the agent; a plugin may have done it: see isolation: process",
            )

    def look(self) -> None:
        """Give up every open file if descriptors were closed."""
        if self._identity == NO_FILE or _descriptor_identity(self._handle) == self._identity:
            return
        for file in list(self.files):
            self._unusable |= file.abandon()
        self._begin()

    def _begin(self) -> None:
        with suppress(OSError):
            self._handle, other = os.pipe()
            os.close(other)
            self._identity = _descriptor_identity(self._handle)


def _descriptor_identity(handle: int) -> tuple[int, int]:
    try:
        found = os.fstat(handle)
    except OSError:
        return NO_FILE
    return found.st_dev, found.st_ino


def never_close(connection: sqlite3.Connection) -> None:
    """Never close a connection: closing it would write to, and close, whatever it finds."""
    import ctypes  # noqa: PLC0415 - hardly ever needed

    # A reference of ours would be dropped when the interpreter ends, and the connection closed.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


# Module state: descriptors belong to the process.
DESCRIPTORS: Final = _DescriptorWatch()


def identity_of(name: str) -> tuple[int, int]:
    """Which file has this name now: an open connection may have one that was moved away."""
    try:
        found = os.stat(name)  # noqa: PTH116 - at every use
    except OSError:
        return NO_FILE
    return found.st_dev, found.st_ino


def state_of(name: str) -> tuple[int, ...]:
    """Which file has this name now, and whether it or its WAL was changed since."""
    state: tuple[int, ...] = identity_of(name)
    for suffix in ("", "-wal"):
        with suppress(OSError):
            found = os.stat(name + suffix)  # noqa: PTH116 - at every use
            state = (*state, found.st_size, found.st_mtime_ns)
    return state


def is_without_a_byte(path: Path) -> bool:
    """Whether a file was truncated to nothing. We never leave one like that."""
    return path.is_file() and not size_of(os.fspath(path))


def size_of(name: str) -> int:
    """The size of a file; 0 if there is none."""
    try:
        return os.stat(name).st_size  # noqa: PTH116
    except OSError:
        return 0
