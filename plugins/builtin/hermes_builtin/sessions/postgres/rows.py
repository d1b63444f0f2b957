"""Rows of the archive in PostgreSQL as they are, for a copy in another storage."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Final

from hermes_builtin.sessions.archive import Message, Session
from hermes_builtin.sessions.numbers import OTHER, place_of, role_code
from hermes_builtin.sessions.postgres.schema import COMPONENT
from hermes_builtin.sessions.postgres.search import key_of
from hermes_core.storage.migration import (
    Tables,
    freeze_namespace,
    thaw_namespace,
    why_namespace_is_frozen,
)
from hermes_core.storage.postgres import Connection, Database, from_text, to_text

# In the order in which a turn changes them. A search puts messages into the index, which changes
# another column of their session.
_TABLES: Final[Tables] = {
    "archive_sessions": "messages, ended, title",
    "archive_messages": "",
    "archive_imports": "",
}
_OWN: Final = "namespace = current_setting('hermes.namespace')"
_RESTORE: Final = (
    "SELECT hermes.archive_restore(%s::jsonb, %s::double precision, %s::double precision,"
    " %s::double precision, %s::integer[], %s::integer[], %s::double precision[], %s::integer[],"
    " %s::text[], %s::text[])"
)


class PostgresRows:
    """The rows of one namespace; see `ArchiveRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def _transaction(self) -> AbstractContextManager[Connection]:
        return self._database.transaction(COMPONENT, {})

    def restore(self, session: Session, messages: Sequence[Message]) -> None:
        """Store a session as it is, and more messages of it at their places."""
        texts = {
            name: to_text(each) for name, each in session._asdict().items() if isinstance(each, str)
        }
        texts["place"] = to_text(session.place)
        values = (
            json.dumps(texts, ensure_ascii=False),
            session.started,
            session.ended,
            session.active,
            [place_of(each.id) for each in messages],
            [role_code(each.role) for each in messages],
            [each.at for each in messages],
            [len(each.content) for each in messages],
            [to_text(each.content) for each in messages],
            [_extra(each) for each in messages],
        )
        with self._transaction() as database:
            database.execute(_RESTORE, values)

    def imports(self) -> list[tuple[str, str, int]]:
        """Up to where sessions of others were taken over: origin, session, position."""
        query = f"SELECT origin, session, position FROM hermes.archive_imports WHERE {_OWN}"  # noqa: S608
        with self._transaction() as database:
            rows = database.execute(query).fetchall()
        return sorted((from_text(row[0]), from_text(row[1]), int(row[2])) for row in rows)

    def restore_imports(self, rows: Iterable[tuple[str, str, int]]) -> None:
        """Store these positions."""
        given = [(key_of(name), to_text(origin), to_text(name), at) for origin, name, at in rows]
        with self._transaction() as database:
            database.cursor().executemany(
                "INSERT INTO hermes.archive_imports"
                " VALUES (current_setting('hermes.namespace'), %s, %s, %s, %s)"
                " ON CONFLICT (namespace, key, origin) DO UPDATE SET position = excluded.position",
                given,
            )

    def marks(self) -> list[str]:
        """What was said once."""
        query = f"SELECT key FROM hermes.archive_meta WHERE {_OWN} AND value = 'yes'"  # noqa: S608
        with self._transaction() as database:
            return sorted(key for (key,) in database.execute(query))

    def set_marks(self, added: Iterable[str] = (), removed: Iterable[str] = ()) -> None:
        """Note that something was said once, or that it was not."""
        with self._transaction() as database:
            for each in added:
                database.execute(
                    "INSERT INTO hermes.archive_meta"
                    " VALUES (current_setting('hermes.namespace'), %s, 'yes')"
                    " ON CONFLICT DO NOTHING",
                    (each,),
                )
            query = f"DELETE FROM hermes.archive_meta WHERE {_OWN} AND key = ANY (%s)"  # noqa: S608
            database.execute(query, (list(removed),))

    def freeze(self, why: str) -> None:
        """Refuse changes from now on, of all processes and machines."""
        with self._database.as_owner(COMPONENT) as owner:
            freeze_namespace(owner, self._database.namespace, _TABLES, why)

    def thaw(self) -> None:
        """Allow changes again."""
        with self._database.as_owner(COMPONENT) as owner:
            thaw_namespace(owner, self._database.namespace, _TABLES)

    def frozen(self) -> str:
        """Why changes are refused; "" if they are not."""
        with self._transaction() as database:
            namespace = self._database.namespace
            return why_namespace_is_frozen(database, namespace, "archive_messages")

    def close(self) -> None:
        """Nothing to close: the connections belong to all of the process."""


def _extra(message: Message) -> str | None:
    """What else is stored of a message."""
    extra = dict(message.extra)
    if role_code(message.role) == OTHER:
        extra["role"] = message.role
    return to_text(json.dumps(extra, ensure_ascii=False)) if extra else None
