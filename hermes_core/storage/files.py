"""Files: atomic writes, advisory locks, and whether a path is on a network file system."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import BinaryIO, Final, NamedTuple

from hermes_core.errors import HermesError
from hermes_core.storage.home import let_owner_use

if sys.platform == "win32":
    import msvcrt

    def _try_lock(handle: int) -> None:
        # Windows locks bytes, not files: one byte at the start stands for the whole file.
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)

    def _unlock(handle: int) -> None:
        os.lseek(handle, 0, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_UNLCK, 1)
else:
    import fcntl

    def _try_lock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_UN)


# flock has no timeout, so waiting means polling. Locks are held for milliseconds.
_POLL_SECONDS: Final = 0.005

_MOUNTS: Final = Path("/proc/self/mountinfo")
# File systems on which SQLite's shared memory, or locks, don't work between machines.
_NETWORK: Final = frozenset(
    (
        "9p",
        "afs",
        "ceph",
        "cifs",
        "fuse.sshfs",
        "glusterfs",
        "lustre",
        "nfs",
        "nfs4",
        "smb3",
        "smbfs",
    )
)


# -- reading ---------------------------------------------------------------------------------


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file for reading. Opening a FIFO or a device might never return.

    Raises:
        OSError: It can't be opened, or is not a regular file (then without an error number).
    """
    if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - opening a device may do things
        raise OSError(None, "is not a regular file")
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
    file = os.fdopen(os.open(path, flags), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # replaced in between
        file.close()
        raise OSError(None, "is not a regular file")
    return file


def read_regular(path: str | os.PathLike[str], limit: int) -> bytes:
    """The content of a regular file of at most ``limit`` bytes.

    Raises:
        OSError: It can't be read; without an error number if it is something else, or too large.
    """
    with open_regular(path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(None, "is too large to be one")
    return content


# -- atomic writes ---------------------------------------------------------------------------


class StagedFile(NamedTuple):
    """The new version of a file, stored beside it under a temporary name."""

    path: str
    target: str
    inode: int

    def discard(self) -> None:
        """Remove it, if it still exists."""
        with suppress(OSError):
            os.unlink(self.path)  # noqa: PTH108

    def commit(self) -> bool:
        """Replace the file; returns whether the new content is safe from a power cut, too.

        Raises:
            OSError: The file was not changed.
        """
        # The content is synced already. The rename becomes durable with the folder's sync: without
        # it, a power cut may bring the old file back.
        os.replace(self.path, self.target)  # noqa: PTH105
        try:
            sync_folder(os.path.dirname(self.target) or ".")  # noqa: PTH120
        except OSError:
            return False
        return True


def replace_file(path: Path, content: bytes, *, mode: int | None = None) -> bool:
    """Write a file atomically: it has the old content or the new, never a mix.

    A symbolic link stays a link.

    Args:
        path: The file.
        content: Its new content.
        mode: Its mode; by default that of the existing file, 0600 for a new one.

    Returns:
        Whether the new content is safe from a power cut, too.
    """
    staged = stage_file(path, content, mode=mode)
    try:
        return staged.commit()
    except BaseException:
        staged.discard()
        raise


def stage_file(path: Path, content: bytes, *, mode: int | None = None) -> StagedFile:
    """The first half of `replace_file`: write everything, but don't replace the file yet."""
    target = os.path.realpath(path) if os.path.islink(path) else os.fspath(path)  # noqa: PTH114
    if mode is None:
        mode = _mode_of(target)
    folder, name = os.path.split(target)
    # In the same folder: a rename is atomic only within one file system. O_EXCL and a random name,
    # so that two processes never write to one temporary file.
    temporary = os.path.join(folder, f".{name}.{os.urandom(4).hex()}.tmp")  # noqa: PTH118
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    handle = os.open(temporary, flags, 0o600)
    try:
        inode = _filled(handle, content)
        let_owner_use(temporary)
        # Wider only after the content is there; a secret is never readable by others in between.
        if mode != 0o600:  # noqa: PLR2004
            os.chmod(temporary, mode)  # noqa: PTH101 - a path by name, beside the calls around it
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108
        raise
    return StagedFile(temporary, target, inode)


def _mode_of(target: str) -> int:
    try:
        return stat.S_IMODE(os.stat(target).st_mode)  # noqa: PTH116
    except FileNotFoundError:
        return 0o600


def _filled(handle: int, content: bytes) -> int:
    """Write and sync a new file; returns its inode."""
    try:
        written = os.write(handle, content)
        while written < len(content):
            written += os.write(handle, content[written:])
        os.fsync(handle)
        return os.fstat(handle).st_ino
    finally:
        os.close(handle)


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Make a rename in ``folder`` durable, where the platform can."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# -- locks -----------------------------------------------------------------------------------


class LockTimeoutError(HermesError):
    """The lock was not free in time; ``holder`` says who has it, if the system knows."""

    def __init__(self, path: Path, seconds: float) -> None:
        self.holder = holder(path)
        super().__init__(
            f"locked by {self.holder} for more than {seconds:g} s",
            where=str(path),
            hint="try again later",
        )


@contextmanager
def file_lock(path: Path, seconds: float) -> Iterator[None]:
    """Hold the lock ``path``, after waiting for at most ``seconds``.

    The lock works between processes and threads: flock, or msvcrt on Windows. hermes-agent locks
    the same files in the same way. The lock file is never removed: unlinking it would let two
    waiters lock two different files under one name.

    Raises:
        LockTimeoutError: It was not free in time.
        OSError: The lock file can't be opened.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        let_owner_use(path)
        _acquire(handle, path, seconds)
        try:
            yield
        finally:
            with suppress(OSError):  # closing it does the same
                _unlock(handle)
    finally:
        os.close(handle)


def _acquire(handle: int, path: Path, seconds: float) -> None:
    end = monotonic() + seconds
    while True:
        try:
            _try_lock(handle)
        except (BlockingIOError, PermissionError):  # PermissionError: on Windows
            if monotonic() >= end:
                raise LockTimeoutError(path, seconds) from None
            sleep(_POLL_SECONDS)
        else:
            return


def holder(path: Path) -> str:
    """Who holds a lock, if the system knows (Linux); else "another process"."""
    try:
        inode = f":{path.stat().st_ino} "
        rows = Path("/proc/locks").read_text().splitlines()
        pid = next(row.split()[4] for row in rows if inode in row and "FLOCK" in row)
        command = Path(f"/proc/{pid}/comm").read_text().strip()
    except (OSError, StopIteration, IndexError):
        return "another process"
    return f"process {pid} ({command})"


# -- network file systems --------------------------------------------------------------------


def network_file_system(path: Path, mounts: Path = _MOUNTS) -> str:
    """The kind of network file system that a path is on; "" if none is known."""
    if os.name == "nt":
        return "a network share" if path.absolute().drive.startswith("\\\\") else ""
    try:
        table = mounts.read_text("utf-8", "replace")
    except OSError:
        return ""
    # Most machines have no such mount: this saves resolving the path and parsing the table.
    if not any(f" - {kind} " in table for kind in _NETWORK):
        return ""
    place = os.path.realpath(path)
    best, kind = "", ""
    for line in table.splitlines():
        before, _, after = line.partition(" - ")
        # The kernel writes blanks in a mount point as octal escapes: "\040".
        point = re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), before.split()[4])
        inside = place == point or place.startswith(f"{point.rstrip('/')}/")
        # The longest mount point wins; of two at one place, the later one covers the earlier.
        if inside and len(point) >= len(best):
            best, kind = point, after.split()[0]
    return kind if kind in _NETWORK else ""
