"""The archive of conversations in PostgreSQL."""

from __future__ import annotations

from hermes_builtin.sessions.postgres.archive import PostgresArchive

__all__ = ["PostgresArchive"]
