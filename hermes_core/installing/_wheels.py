"""Looks into wheels without installing them."""

from __future__ import annotations

import zipfile
from pathlib import Path, PurePosixPath
from typing import Final

_METADATA: Final = frozenset(("METADATA", "RECORD", "entry_points.txt"))
_MAX_BYTES: Final = 1_000_000


def unpack_texts(wheel: Path, site: Path) -> None:
    """Put what discovery reads of a wheel into a folder: metadata, sources, plugin.yaml.

    A wheel with neither entry points for agents nor a plugin.yaml has nothing for us.
    """
    with zipfile.ZipFile(wheel) as archive:
        entries = [each for each in archive.infolist() if each.file_size <= _MAX_BYTES]
        if not any(_is_of_interest(archive, each) for each in entries):
            return
        for each in entries:
            if _is_metadata(each) or each.filename.endswith((".py", "/plugin.yaml")):
                archive.extract(each, site)  # which keeps within the folder


def _is_metadata(entry: zipfile.ZipInfo) -> bool:
    path = PurePosixPath(entry.filename)
    return path.name in _METADATA and path.parent.suffix == ".dist-info"


def _is_of_interest(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bool:
    name = PurePosixPath(entry.filename).name
    if name == "entry_points.txt":
        return b"hermes_agent." in archive.read(entry)
    return name == "plugin.yaml"
