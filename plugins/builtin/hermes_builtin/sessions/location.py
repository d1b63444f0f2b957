"""Where the archive of a home is: in a file of it, or in the database that config.yaml names.

Only this module decides. Everybody else has an `Archive`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hermes_builtin.sessions.archive import Archive
from hermes_builtin.sessions.hermes_agent import archive_files, theirs_in
from hermes_builtin.sessions.sqlite import SharedArchives, SqliteArchive
from hermes_core.config.storage import home_database

if TYPE_CHECKING:
    from hermes_core.storage.postgres import Database

# A gateway has hundreds of managers, and they share the file.
_SHARED: Final = SharedArchives()


@dataclass(frozen=True)
class Location:
    """Where an archive is.

    Attributes:
        shown: For people: a path, or an address without a password.
        theirs: hermes-agent's own file of conversations in this home, if any.
        path: The file; None if it is in a database.
    """

    shown: str
    theirs: Path | None = None
    path: Path | None = None
    database: Database | None = None

    @property
    def exists(self) -> bool:
        """Whether there may be something in it: a file is created with the first message."""
        return self.path is None or os.path.lexists(self.path)

    def open(self, *, durable: bool = False) -> Archive:
        """The archive, for whoever closes it soon."""
        if self.path is not None:
            return SqliteArchive(self.path, durable=durable)
        return self._in_database()

    def open_shared(self, *, durable: bool = False) -> Archive:
        """The archive that all of this process share; close it with `close_shared`."""
        if self.path is not None:
            return _SHARED.open(self.path, durable=durable)
        return self._in_database()

    def _in_database(self) -> Archive:
        from hermes_builtin.sessions.postgres import PostgresArchive  # noqa: PLC0415 - an extra

        assert self.database is not None  # noqa: S101 - else there is a path
        return PostgresArchive(self.database)


def locate(home: Path, memory: Mapping[str, Any] | None = None) -> Location:
    """Where the archive of a home is.

    Args:
        home: The Hermes home.
        memory: The section ``memory`` of its config.yaml, if the caller has read it.

    Raises:
        DatabaseError: A file is not a database, or psycopg is not installed.
    """
    database = home_database(home, memory)
    if database is not None:
        shown = f"{database.where} ({database.namespace})"
        return Location(shown, theirs_in(home), database=database)
    where = archive_files(home)
    return Location(str(where.path), where.theirs, where.path)


def close_shared(archive: Archive) -> None:
    """One user of a shared archive less."""
    if isinstance(archive, SqliteArchive):
        _SHARED.close(archive)
    else:
        archive.close()
