"""Files of a plugin's own below the home: settings as JSON, and small databases."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from sqlite3 import Connection
from typing import Any, Final

from hermes_core.errors import ConfigError, DatabaseError, HomeError
from hermes_core.storage.files import replace_file
from hermes_core.storage.home import ensure_folder
from hermes_core.storage.sqlite import SqliteFile
from hermes_core.storage.sqlite_connection import Schema

#: No id in the header: earlier versions created these files without one.
_NO_APPLICATION: Final = 0
_WAIT_SECONDS: Final = 10.0  # less than a call of a provider may take


@contextmanager
def own_database(path: Path, table: str, *, erase: bool = False) -> Iterator[Connection]:
    """A connection to a small database, for one change that is made as a whole or not at all.

    The file is created when first used, readable by its owner only. A damaged one is an error, not
    replaced: what a plugin remembers of its writes can't be made again.

    Args:
        path: The file.
        table: Creates its table: ``CREATE TABLE IF NOT EXISTS ...``.
        erase: Leave nothing of deleted rows in the file.

    Raises:
        DatabaseError: The file can't be used.
    """
    schema = Schema(f"the file {path.name}", _NO_APPLICATION, (table,))
    # Closed at once: it is used once per session or write, and a plugin has no moment at which it
    # could close it for certain.
    hint = "move it away to start with a new file"
    try:
        made = SqliteFile(path, schema, wait_seconds=_WAIT_SECONDS, damage_hint=hint)
        with closing(made) as file:
            with file.transaction() as database:
                yield database
            if erase:
                file.erase_free_space()
    except HomeError as error:
        raise DatabaseError(error.what, where=error.where, hint=error.hint) from error


def read_own_file(path: Path) -> dict[str, Any]:
    """Return the content of a settings file; {} if it does not exist.

    Raises:
        ConfigError: It exists and can't be read. An unreadable file is not an empty one.
    """
    try:
        found = json.loads(path.read_text("utf-8-sig"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"can't be read: {reason}", where=str(path), hint="fix the file, or move it away"
        ) from error
    if not isinstance(found, dict):
        raise ConfigError(
            "is not an object of settings", where=str(path), hint="fix the file, or move it away"
        )
    return found


def save_own_file(path: Path, values: Mapping[str, Any]) -> None:
    """Change some settings of a file and leave the others as they are. None removes a setting.

    The file is replaced atomically and readable by its owner only.

    Raises:
        ConfigError: The file exists and can't be read; it is not changed.
    """
    # Read again right before the write: a key that a newer version of the plugin knows is
    # preserved.
    merged = {**read_own_file(path), **values}
    kept = {key: value for key, value in merged.items() if value is not None}
    ensure_folder(path.parent)
    text = json.dumps(kept, indent=2, ensure_ascii=False) + "\n"
    replace_file(path, text.encode(), mode=0o600)
