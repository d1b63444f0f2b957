"""The archive of conversations in SQLite."""

from __future__ import annotations

from hermes_builtin.sessions.sqlite.archive import SharedArchives, SqliteArchive
from hermes_builtin.sessions.sqlite.database import ARCHIVE

ARCHIVE_ID = ARCHIVE.application_id

__all__ = ["ARCHIVE_ID", "SharedArchives", "SqliteArchive"]
