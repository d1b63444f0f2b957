"""Where the text of a notebook is stored: a protocol, and files."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from hermes_builtin.notes.entries import FileChanged, NotesError
from hermes_core.storage.files import LockTimeoutError, StagedFile, file_lock, stage_file
from hermes_core.storage.home import ensure_folder

# Far beyond any cap: a larger file is something else that was copied over the notes.
MAX_BYTES: Final = 16_000_000


class FileText(NamedTuple):
    """What is in a file, and which one it is; there is none if the inode is 0."""

    text: str
    inode: int


class TextUpdate(Protocol):
    """A new text that is ready to be put in place; `StagedFile`, or one in a database.

    Attributes:
        path: The temporary file; "" if there is none.
        inode: Its inode.
    """

    @property
    def path(self) -> str:
        """See above."""

    @property
    def inode(self) -> int:
        """See above."""

    def discard(self) -> None:
        """Forget it."""


class NotesText(Protocol):
    """The text of one notebook: in a file, or in a database.

    Attributes:
        place: Where it is, for people.
    """

    place: str

    @property
    def exists(self) -> bool:
        """Whether there is one, whatever is in it."""

    def read(self) -> str:
        """The text; "" if there is none. Any other problem raises."""

    def look(self) -> FileText:
        """The text, and which file it is in."""

    def locked(self) -> AbstractContextManager[None]:
        """Hold the lock, so that what is read inside is still true when it is written."""

    def write_aside(self, text: str) -> TextUpdate:
        """A new text, ready to be put in place."""

    def put_in_place(self, staged: Any, expected: str) -> bool:
        """Let it take the place of ``expected``; False if it may not survive a power cut."""


class NotesFile:
    """A file, its lock, and the promise that it holds the old text or the new."""

    def __init__(self, path: Path, *, lock_seconds: float = 30.0) -> None:
        self.path = path
        self.place = str(path)
        self._name = str(path)
        self._folder = path.parent
        self._lock_path = path.with_name(f"{path.name}.lock")
        self._lock_seconds = lock_seconds

    @property
    def exists(self) -> bool:
        """Whether there is a file."""
        return self.path.exists()

    def read(self) -> str:
        """The text; "" if there is no file. Any other problem raises."""
        return self.look().text

    def look(self) -> FileText:
        """The text, and which file it is in."""
        # Without O_NONBLOCK, opening a FIFO waits until somebody writes to it.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        try:
            handle = os.open(self._name, flags)
        except FileNotFoundError:
            # Notes on a disk that is not mounted are not empty notes: creating a new file there
            # would hide them.
            if self.path.is_symlink() and not self.path.resolve().parent.is_dir():
                raise self._error(
                    "is a link to a file that is not there", "is its disk mounted?"
                ) from None
            return FileText("", 0)
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
        return FileText(self._decoded(content), status.st_ino)

    def _decoded(self, content: bytes) -> str:
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise self._error(
                f"is not UTF-8 text (line {line}, byte {error.start})",
                "save it as UTF-8 in an editor, or move it elsewhere; nothing was changed",
            ) from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock, so that what is read inside is still true when it is written."""
        # The lock file is in this folder, so it must exist before the lock.
        if not os.path.isdir(self._folder):  # noqa: PTH112 - at every change
            ensure_folder(self._folder)
        with ExitStack() as held:
            try:
                held.enter_context(file_lock(self._lock_path, self._lock_seconds))
            except LockTimeoutError as error:
                hint = error.hint
                raise self._error(f"is {error.what}", hint) from error
            except OSError as error:
                raise self._error(f"can't be locked: {error.strerror or error}") from error
            yield

    def write_aside(self, text: str) -> StagedFile:
        """A new text on the disk, ready to be put in place."""
        try:
            return stage_file(self.path, text.encode(), mode=0o600)
        except OSError as error:
            raise self._unwritable(error) from error

    def put_in_place(self, staged: StagedFile, expected: str) -> bool:
        """Let it take the place of ``expected``; False if it may not survive a power cut.

        Raises:
            FileChanged: Somebody without our lock, such as an editor, was faster.
            NotesError: It can't be done; the file is as it was.
        """
        # Our lock binds only programs that take it. This look narrows the window for editors to the
        # moment between it and the rename.
        if self.read() != expected:
            raise FileChanged(f"{self.path} was changed in the meantime")
        try:
            return staged.commit()
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
