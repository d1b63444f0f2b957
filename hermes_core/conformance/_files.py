"""What lies on the disk: found by looking, since a database is written behind Python's back."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def files(folder: Path) -> Iterator[Path]:
    """Every file below a folder."""
    for parent, _, names in os.walk(folder):
        for name in names:
            yield Path(parent, name)


def shared_with_others(folder: Path) -> list[str]:
    """The files that others may read or write, with their modes; none where modes say nothing."""
    if os.name != "posix":
        return []
    found = []
    for path in files(folder):
        mode = stat.S_IMODE(path.lstat().st_mode)
        if mode & _OTHERS and not path.is_symlink():
            found.append(f"{path.relative_to(folder)} is {mode:04o}")
    return sorted(found)


def holding(folder: Path, text: str) -> list[Path]:
    """The files that have a text somewhere in their bytes."""
    needle = text.encode()
    return [path for path in files(folder) if needle in _bytes(path)]


def printed_since(output: Path, size: int) -> str:
    """What was printed into a file since it had a size."""
    sys.stdout.flush()
    return output.read_bytes()[size:].decode("utf-8", "replace").strip()


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
