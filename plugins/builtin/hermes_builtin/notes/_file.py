"""One notebook file: read with care, replaced under the lock that hermes-agent takes too."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from hermes_builtin.notes._errors import FileChanged, NotesError
from hermes_core.home import Aside, ensure_folder, put_in_place, write_aside
from hermes_core.locking import LockTimeoutError, file_lock

MAX_BYTES: Final = 16_000_000


class Seen(NamedTuple):
    """What is in a file, and which one it is; there is none if the inode is 0."""

    text: str
    inode: int


class NotesFile:
    """A file, its lock, and the promise that it holds the old text or the new."""

    def __init__(self, path: Path, *, lock_seconds: float = 10.0) -> None:
        self.path = path
        self._name = str(path)
        self._folder = path.parent
        self._lock_path = path.with_name(f"{path.name}.lock")
        self._lock_seconds = lock_seconds

    def read(self) -> str:
        """The text; "" if there is no file. Whatever else is the matter is an error."""
        return self.look().text

    def look(self) -> Seen:
        """The text, and which file it is in."""
        # Without O_NONBLOCK, opening a FIFO waits until somebody writes to it.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        try:
            handle = os.open(self._name, flags)
        except FileNotFoundError:
            if self.path.is_symlink() and not self.path.resolve().parent.is_dir():
                raise self._error(
                    "is a link to a file that is not there", "is its disk mounted?"
                ) from None
            return Seen("", 0)
        except OSError as error:
            raise self._error(f"can't be read: {error.strerror or error}") from error
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise self._error("is not a regular file", "move it away")
            if status.st_size > MAX_BYTES:
                raise self._error(f"has {status.st_size:,} bytes, too many for notes")
            content = _whole(handle, status.st_size)
        except OSError as error:
            raise self._error(f"can't be read: {error.strerror or error}") from error
        finally:
            os.close(handle)
        return Seen(self._decoded(content), status.st_ino)

    def _decoded(self, content: bytes) -> str:
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise self._error(
                f"is not UTF-8 text (line {line}, byte {error.start})",
                "convert it to UTF-8 in an editor; nothing was changed",
            ) from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock, so that what is read inside is still true when it is written."""
        if not os.path.isdir(self._folder):  # noqa: PTH112 - at every change
            ensure_folder(self._folder)
        try:
            with file_lock(self._lock_path, self._lock_seconds):
                yield
        except LockTimeoutError as error:
            raise self._error(f"is {error.what}", f"{error.hint}; nothing was changed") from error
        except OSError as error:
            raise self._error(f"can't be locked: {error.strerror or error}") from error

    def write_aside(self, text: str) -> Aside:
        """A new text on the disk, ready to be put in place."""
        try:
            return write_aside(self.path, text.encode(), mode=0o600)
        except OSError as error:
            raise self._unwritable(error) from error

    def put_in_place(self, aside: Aside, expected: str) -> bool:
        """Let it take the place of ``expected``; False if it may not survive a power cut.

        Raises:
            FileChanged: Somebody without our lock, such as an editor, was faster.
            NotesError: It can't be done; the file is as it was.
        """
        if self.read() != expected:
            raise FileChanged(f"{self.path} was changed in the meantime")
        try:
            return put_in_place(aside)
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> NotesError:
        return self._error(f"can't be written: {error.strerror or error}", "nothing was changed")

    def _error(self, what: str, hint: str = "") -> NotesError:
        return NotesError(what, where=str(self.path), hint=hint)


def _whole(handle: int, size: int) -> bytes:
    """All that is in a file, which may have grown since its size was asked for."""
    content = os.read(handle, size + 1)
    if len(content) == size:
        return content
    pieces = [content]
    while piece := os.read(handle, MAX_BYTES):
        pieces.append(piece)
    return b"".join(pieces)
