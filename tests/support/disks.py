"""File systems of our own: one that fills up, and one that becomes read-only."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


class Disk:
    """A small file system in memory, mounted at ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir()
        self._ballast = folder / "ballast"

    @property
    def free(self) -> int:
        return shutil.disk_usage(self.folder).free

    def fill(self, leave: int = 0) -> None:
        """Use all of the room, but for some."""
        with self._ballast.open("ab", buffering=0) as file, suppress(OSError):
            while self.free > leave:
                file.write(b"x" * min(self.free - leave, 65_536))

    def make_room(self) -> None:
        self._ballast.unlink()

    def make_read_only(self) -> None:
        _run("mount", "-o", "remount,ro", str(self.folder))

    def make_writable(self) -> None:
        _run("mount", "-o", "remount,rw", str(self.folder))


@contextmanager
def small_disk(folder: Path, size: str = "3m") -> Iterator[Disk]:
    """Mount a file system of this size; skips the test where that is not possible."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root may mount a file system")
    folder.mkdir()
    options = f"size={size},mode=755"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"can't mount: {mounted.stderr.decode().strip()}")
    try:
        yield Disk(folder)
    finally:
        # Lazily: a process that a test left behind must not keep it mounted.
        _run("umount", "-l", str(folder))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
