"""Rows of the archive in PostgreSQL as they are, for a copy in another storage."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Final
from uuid import UUID

from hermes_builtin.sessions.archive import COPIED, INCOMPLETE, Message, Session, StoredTurn
from hermes_builtin.sessions.numbers import OTHER, place_of, role_code
from hermes_builtin.sessions.postgres.schema import COMPONENT
from hermes_builtin.sessions.postgres.search import key_of
from hermes_core.storage.migration import (
    Tables,
    copier_of,
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
#: Of a session: the place of its next message, and up to which place it is a copy.
_COPY: Final = f"""
SELECT session.next, coalesce(mark.value, '0') FROM hermes.archive_sessions AS session
LEFT JOIN hermes.archive_meta AS mark
ON mark.namespace = session.namespace AND mark.key = '{COPIED}' || session.number
WHERE session.key = %s AND session.id = %s FOR UPDATE OF session
"""  # noqa: S608
_MARK: Final = f"""
INSERT INTO hermes.archive_meta
SELECT namespace, '{COPIED}' || number, next::text FROM hermes.archive_sessions
WHERE key = %s AND id = %s
ON CONFLICT (namespace, key) DO UPDATE SET value = excluded.value
"""  # noqa: S608
_PAGE: Final = 1000
_NO_KEY: Final = UUID(int=0)


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
        wanted = (key_of(session.id), to_text(session.id))
        with self._transaction() as database:
            before = database.execute(_COPY, wanted).fetchone()
            database.execute(_RESTORE, values)
            if before is None or before[0] == int(before[1]):
                database.execute(_MARK, wanted)

    def copied(self) -> dict[int, int]:
        """Up to which place the sessions are a copy and nothing else, by their numbers."""
        query = f"SELECT key, value FROM hermes.archive_meta WHERE {_OWN} AND starts_with(key, %s)"  # noqa: S608
        with self._transaction() as database:
            rows = database.execute(query, (COPIED,)).fetchall()
        return {int(key.removeprefix(COPIED)): int(place) for key, place in rows}

    def forget_copied(self) -> None:
        """Forget which sessions are a copy: from now on, all of this is as good as any other."""
        query = f"DELETE FROM hermes.archive_meta WHERE {_OWN} AND starts_with(key, %s)"  # noqa: S608
        with self._transaction() as database:
            database.execute(query, (COPIED,))

    def turns(self) -> Iterator[list[StoredTurn]]:
        """The turns whose keys are known, some at a time."""
        query = (
            "SELECT key, extract(epoch FROM at)::double precision, ids FROM hermes.archive_turns"  # noqa: S608
            f" WHERE {_OWN} AND key > %s ORDER BY key LIMIT {_PAGE}"
        )
        last = _NO_KEY
        while True:
            with self._transaction() as database:
                rows = database.execute(query, (last,)).fetchall()
            if rows:
                yield list(map(StoredTurn._make, rows))
            if len(rows) < _PAGE:
                return
            last = rows[-1][0]

    def restore_turns(self, turns: Iterable[StoredTurn]) -> None:
        """Remember the keys of turns, so that they are not stored again."""
        given = [(each.key, each.at, each.ids) for each in turns]
        with self._transaction() as database:
            database.cursor().executemany(
                "INSERT INTO hermes.archive_turns (namespace, key, at, ids)"
                " VALUES (current_setting('hermes.namespace'), %s, to_timestamp(%s), %s::bigint[])"
                " ON CONFLICT DO NOTHING",
                given,
            )

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
            # Version 0.2.0 leaves the name of an incomplete copy here.
            return sorted(key for (key,) in database.execute(query) if key != INCOMPLETE)

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

    def freeze(self, why: str, copy: str = "") -> None:
        """Refuse changes from now on, of all processes and machines."""
        with self._database.as_owner(COMPONENT) as owner:
            freeze_namespace(owner, self._database.namespace, _TABLES, why, copy)

    def thaw(self, copy: str = "") -> None:
        """Allow changes again."""
        with self._database.as_owner(COMPONENT) as owner:
            thaw_namespace(owner, self._database.namespace, _TABLES, copy)

    def copier(self) -> str:
        """The id of the migration that copies to here; "" if none does."""
        with self._database.errors(), self._database.connected() as owner:
            return copier_of(owner, self._database.namespace)

    def copy_as(self, migration: str) -> None:
        """Store to what is frozen, for the migration with this id. "" ends that."""
        self._database.copy_as(migration)

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
