"""What is in a folder, to see whether something changed."""

from __future__ import annotations

from pathlib import Path


def tree(folder: Path) -> dict[str, bytes | None]:
    """Every file with its content and every folder, but for Python's own caches."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
        if "__pycache__" not in path.parts
    }
