"""Where the memory of a home was before it moved: no search of the home's files finds it there."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from hermes_core.config import Config
from hermes_core.storage.files import read_regular, replace_file

#: Where the memory was before, a line each: no search of the home's files finds it there.
LEFT: Final = "storage-left.txt"


_MOVED_FILES: Final = ("state.db", "sessions.db", "outbox.db", "memories/", "pending/")


_MOST_BYTES: Final = 10_000_000


def left_at(home: Path) -> list[str]:
    """The namespaces of databases from which the memory of a home was moved away."""
    try:
        return read_regular(home / LEFT, _MOST_BYTES).decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        return [f"{LEFT}, which can't be read ({error.strerror or error})"]


def note_left(home: Path, where: str, *, in_use: bool = False) -> None:
    """Remember that a namespace keeps what it has, or that it is in use again."""
    known = left_at(home)
    others = [each for each in known if each != where]
    lines = others if in_use else [*others, where]
    if lines != known:
        replace_file(home / LEFT, "".join(f"{each}\n" for each in lines).encode(), mode=0o600)


def is_from_before(config: Config, name: str) -> bool:
    """Whether a file of the home has what it remembered before it moved to a database."""
    return bool(config.storage) and name.startswith(_MOVED_FILES)
