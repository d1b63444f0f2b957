"""The archive of conversations in SQLite."""

from __future__ import annotations

from hermes_builtin.sessions.sqlite._archive import SqliteArchive
from hermes_builtin.sessions.sqlite._schema import ARCHIVE
from hermes_builtin.sessions.sqlite._sharing import SharedArchives

ARCHIVE_ID = ARCHIVE.application_id

__all__ = ["ARCHIVE_ID", "SharedArchives", "SqliteArchive"]
