"""An advisory lock on a file, between processes and threads: flock, or msvcrt on Windows.

hermes-agent locks the same files in the same way. The lock file is left where it is:
unlinking it would let two waiters lock two different files under one name.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from hermes_core.errors import HermesError

if sys.platform == "win32":
    import msvcrt

    def _try_lock(handle: int) -> None:
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


_POLL_SECONDS: Final = 0.005


class LockTimeoutError(HermesError):
    """Somebody else holds the lock; ``holder`` says who, where the system tells."""

    def __init__(self, path: Path, seconds: float) -> None:
        self.holder = holder(path)
        super().__init__(
            f"locked by {self.holder} for more than {seconds:g} s",
            where=str(path),
            hint="try again when it is done",
        )


@contextmanager
def file_lock(path: Path, seconds: float) -> Iterator[None]:
    """Hold the lock ``path``, after waiting for at most ``seconds``.

    Raises:
        LockTimeoutError: It was not free in time.
        OSError: The lock file can't be opened.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _acquire(handle, path, seconds)
        try:
            yield
        finally:
            with suppress(OSError):  # closing it does the same
                _unlock(handle)
    finally:
        os.close(handle)


def _acquire(handle: int, path: Path, seconds: float) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            _try_lock(handle)
        except (BlockingIOError, PermissionError):  # the latter is how Windows says it
            if time.monotonic() >= end:
                raise LockTimeoutError(path, seconds) from None
            time.sleep(_POLL_SECONDS)
        else:
            return


def holder(path: Path) -> str:
    """Who holds a lock, where the system tells (Linux); else "another process"."""
    try:
        inode = f":{path.stat().st_ino} "
        rows = Path("/proc/locks").read_text().splitlines()
        pid = next(row.split()[4] for row in rows if inode in row and "FLOCK" in row)
        command = Path(f"/proc/{pid}/comm").read_text().strip()
    except (OSError, StopIteration, IndexError):
        return "another process"
    return f"process {pid} ({command})"
