"""The outbox as a part of what a home stores: counted, checked, copied to another storage."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hermes_core.outbox.records import StreamKey, WriteState
from hermes_core.outbox.sqlite import OutboxFile
from hermes_core.outbox.store import OutboxStore, open_store
from hermes_core.storage.migration import (
    Digest,
    Progress,
    Tables,
    freeze_file,
    freeze_namespace,
    thaw_file,
    thaw_namespace,
)
from hermes_core.storage.processes import machine_of
from hermes_core.storage.sql import Connection

if TYPE_CHECKING:
    from hermes_core.storage.postgres import Component, Database

_PAGE: Final = 200
_TABLES: Final[Tables] = {"streams": "", "writes": ""}
_ROWS: Final = (
    "SELECT writes.id, provider, owner, session, keywords, holder, event_id, hook, payload,"
    " created, attempts, failing_since, error, state, writes.due, faults"
    " FROM writes JOIN streams ON streams.id = stream WHERE {own} AND writes.id > ?"
    " ORDER BY writes.id LIMIT ?"
)
_INSERT: Final = (
    "INSERT INTO writes (stream, event_id, hook, payload, created, attempts, failing_since, error,"
    " state, due, faults) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
#: The columns of a row after the holder.
_STATE, _ATTEMPTS = 7, 4


class _Row(NamedTuple):
    """A write, and the stream that it belongs to, as another storage should have it."""

    key: StreamKey
    values: tuple[Any, ...]


class OutboxPart:
    """The outbox of a home.

    Args:
        home: The home.
        database: Where it stores what it remembers; None for files.
    """

    name = "outbox"

    def __init__(self, home: Path, database: Database | None) -> None:
        self.store: OutboxStore = open_store(home, set_aside=False, database=database)
        self.place = self.store.database.place
        self.component: Component | None = None
        self._database = database
        self._path = home / "outbox.db"
        if database is not None:
            from hermes_core.outbox.postgres import OUTBOX  # noqa: PLC0415 - imports psycopg

            self.component = OUTBOX

    def counts(self) -> dict[str, int]:
        """How many streams have writes, and how many writes there are by state."""
        own = self.store.database.of_home("writes")

        def work(connection: Connection) -> dict[str, int]:
            streams = f"SELECT count(DISTINCT stream) FROM writes WHERE {own}"  # noqa: S608
            states = f"SELECT state, count(*) FROM writes WHERE {own} GROUP BY state"  # noqa: S608
            found = dict(connection.execute(states).fetchall())
            named = {each.name.lower(): int(found.get(each.value, 0)) for each in WriteState}
            return {"streams": int(connection.execute(streams).fetchone()[0]), **named}

        return self.store.database.read(work)

    def size(self) -> int:
        """How much room the writes take."""
        if self._database is None and not self._path.exists():
            return 0
        return self.store.database.read(self.store.database.used_bytes)

    def claims(self) -> list[str]:
        """Who delivers something now, as far as that is known."""
        held = [each for each in self.store.open_streams() if self.store.is_claimed_elsewhere(each)]
        return sorted({f"a process of {machine_of(each.holder)}" for each in held})

    def check(self, progress: Progress) -> list[str]:
        """Damage, streams that can't be read, and states that nobody knows."""
        problems = [] if self.store.database.is_whole() else ["the outbox is damaged"]
        known = {each.value for each in WriteState}
        unreadable: set[StreamKey] = set()
        for done, row in enumerate(self._rows(), 1):
            progress(done, done)
            if row.values[_STATE] not in known:
                problems.append(f"write {row.values[0]} has the state {row.values[_STATE]!r}")
            if not _is_readable(row.key):
                unreadable.add(row.key)
        problems += [f"the keywords of session {each.session} can't be read" for each in unreadable]
        return problems

    def _rows(self) -> Iterator[_Row]:
        """All writes, in the order of delivery, some at a time."""
        query = _ROWS.format(own=self.store.database.of_home("writes"))
        last = 0
        while True:
            page = self.store.database.read(partial(_fetch, query, last))
            yield from (_Row(StreamKey(*row[1:5]), _moved(row[5], row[6:])) for row in page)
            if len(page) < _PAGE:
                return
            last = page[-1][0]

    def copy_from(self, source: OutboxPart, progress: Progress) -> None:
        """Replace all writes, in one transaction. Numbers are new, their order is the same."""
        total = sum(source.counts().values())

        def work(connection: Connection) -> None:
            database = self.store.database
            for table in ("writes", "streams"):
                connection.execute(f"DELETE FROM {table} WHERE {database.of_home(table)}")  # noqa: S608
            streams: dict[StreamKey, int] = {}
            for done, row in enumerate(source._rows(), 1):
                if row.key not in streams:
                    streams[row.key] = database.add_stream(connection, row.key)
                connection.execute(_INSERT, (streams[row.key], *row.values))
                progress(done, total)

        self.store.database.change(work)

    def digest(self, progress: Progress) -> str:
        """A checksum of all writes and their streams, in order."""
        digest = Digest()
        for done, row in enumerate(self._rows(), 1):
            digest.add((row.key, row.values))
            progress(done, done)
        return digest.value()

    def freeze(self, why: str, copy: str = "") -> None:
        """Refuse changes from now on."""
        self._change_triggers(why, copy)

    def thaw(self, copy: str = "") -> None:
        """Allow changes again."""
        self._change_triggers("", copy)

    def copy_as(self, migration: str) -> None:
        """Store to what is frozen, for the migration with this id. "" ends that."""
        if isinstance(self.store.database, OutboxFile):
            self.store.database.copy_as(migration)
        elif self._database is not None:
            self._database.copy_as(migration)

    def _change_triggers(self, why: str, copy: str) -> None:
        if isinstance(self.store.database, OutboxFile):
            if not why and not self._path.exists():
                return
            with self.store.database.transaction() as connection:
                if why:
                    freeze_file(connection, _TABLES, why, copy)
                else:
                    thaw_file(connection, _TABLES)
            return
        assert self._database is not None  # noqa: S101 - else it is a file
        assert self.component is not None  # noqa: S101
        tables = {f"outbox_{table}": columns for table, columns in _TABLES.items()}
        with self._database.as_owner(self.component) as owner:
            if why:
                freeze_namespace(owner, self._database.namespace, tables, why, copy)
            else:
                thaw_namespace(owner, self._database.namespace, tables, copy)

    def close(self) -> None:
        """Close the file."""
        self.store.close()


def _fetch(query: str, last: int, connection: Connection) -> list[Any]:
    return connection.execute(query, (last, _PAGE)).fetchall()


def _moved(holder: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values of a write as another storage should have them.

    Whoever held the stream may have delivered the write: like a claim that was not released, that
    counts as an attempt, so that the provider can look for it.
    """
    waits = values[_STATE] in (WriteState.WAITING, WriteState.SKIPPED)
    attempts = int(values[_ATTEMPTS]) + (1 if holder and waits else 0)
    return (*values[:_ATTEMPTS], attempts, *values[_ATTEMPTS + 1 :])


def _is_readable(key: StreamKey) -> bool:
    try:
        _ = key.context
    except Exception:  # noqa: BLE001 - whatever is stored there
        return False
    return True
