"""Names of folders: the last part of the path, unless another folder has that name already.

``app`` is what hermes-agent calls the session of ``~/work/app``. That of ``~/play/app`` must be
another one, so a home remembers which folder came first.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from hermes_core import HermesError
from hermes_core.backends import read_own_file, save_own_file


def folder_name(home: Path, folder: Path) -> str:
    """What a folder is called in this home. A path is the name of all others that share it."""
    name = folder.name or "root"
    file = home / "honcho" / "folders.json"
    first = read_own_file(file).get(name)
    if first is None:
        with suppress(HermesError, OSError):  # a home that can't be written to is told elsewhere
            save_own_file(file, {name: str(folder)})
        return name
    return name if first == str(folder) else str(folder)
