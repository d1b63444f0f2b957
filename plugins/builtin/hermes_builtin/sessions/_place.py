"""Which file is the archive: ``state.db``, unless hermes-agent has it already.

hermes-agent's file is looked at, never changed; ours is ``sessions.db`` beside it then. Should
hermes-agent come to a home where ``state.db`` is ours, it adds its own tables to it, under
other names.
"""

from __future__ import annotations

import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from hermes_builtin.sessions.sqlite import ARCHIVE_ID
from hermes_core.errors import DatabaseError

_THEIRS: Final = frozenset(("schema_version", "sessions", "messages"))


class Place(NamedTuple):
    """The archive's file; and that in which hermes-agent keeps its conversations, if any."""

    path: Path
    theirs: Path | None = None


def place(home: Path) -> Place:
    """Where the archive of a home is.

    Raises:
        DatabaseError: What is there is no database.
    """
    state, beside = home / "state.db", home / "sessions.db"
    owner, tables = _look(state)
    theirs = state if tables >= _THEIRS else None
    if beside.exists() or (theirs is not None and owner != ARCHIVE_ID):
        return Place(beside, theirs)
    return Place(state, theirs)


def _look(path: Path) -> tuple[int, frozenset[str]]:
    """Whose database it is, and its tables."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if path.is_symlink():
            raise DatabaseError(
                "is a link to a file that is not there",
                where=str(path),
                hint="is its disk mounted? else remove the link",
            ) from None
        return 0, frozenset()
    except OSError as error:
        raise DatabaseError(f"can't be read: {error.strerror}", where=str(path)) from error
    if not stat.S_ISREG(mode):
        raise DatabaseError("is not a regular file", where=str(path), hint="move it away")
    try:
        with closing(read_only(path)) as database:
            owner = database.execute("PRAGMA application_id").fetchone()[0]
            rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            return int(owner), frozenset(name for (name,) in rows)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise DatabaseError(
            f"is no archive that can be read: {error}",
            where=str(path),
            hint="it was not changed; run: hermes-plugins sessions repair",
        ) from error


def read_only(path: Path) -> sqlite3.Connection:
    """A connection that can't change a database.

    Where nobody has it open, there is no ``-wal``; then none is made for a look either.
    """
    quiet = "" if path.with_name(f"{path.name}-wal").exists() else "&immutable=1"
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro{quiet}", uri=True, timeout=10)
