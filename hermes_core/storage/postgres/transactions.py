"""Statements that SQLite understands, too, and text as PostgreSQL can store it."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final, TypeVar

import psycopg

from hermes_core.storage.forks import close_before_fork
from hermes_core.storage.postgres.database import Database
from hermes_core.storage.postgres.errors import PostgresError, ServerFault
from hermes_core.storage.postgres.schema import Component, Connection
from hermes_core.storage.sql import Rows
from hermes_core.storage.time_limit import TURN_SECONDS, time_limit

_T = TypeVar("_T")

# -- text ------------------------------------------------------------------------------------
#
# PostgreSQL stores every character but NUL. U+FFFE, which is not a character, stands for it,
# followed by "0"; and followed by "1" for itself. So every text comes back as it was.

_ESCAPES: Final = {"\0": "\ufffe0", "\ufffe": "\ufffe1"}
_ESCAPED: Final = re.compile("[\0\ufffe]")
_ESCAPE: Final = re.compile("\ufffe([01])")


def to_text(text: str) -> str:
    """Text as PostgreSQL can store it."""
    if "\0" not in text and "\ufffe" not in text:
        return text
    return _ESCAPED.sub(lambda found: _ESCAPES[found[0]], text)


def from_text(stored: str) -> str:
    """Text as it was before `to_text`."""
    if "\ufffe" not in stored:
        return stored
    return _ESCAPE.sub(lambda found: "\0" if found[1] == "0" else "\ufffe", stored)


# -- statements that SQLite understands, too -------------------------------------------------


class Transactions:
    """The transactions of one store, one at a time for all threads of a process.

    A nested one is part of the outer one, but what it did is undone if it fails.

    Args:
        database: Where.
        component: Its tables.
        tables: Their names in the statements, without the name of the component.
        scope: For the policies; see `Database.transaction`.
    """

    def __init__(
        self,
        database: Database,
        component: Component,
        tables: tuple[str, ...],
        scope: Mapping[str, str] | None = None,
    ) -> None:
        #: Held during a transaction. Take it to make several steps one for this process.
        self.lock = threading.RLock()
        self.where = database.where
        self._database = database
        self._component = component
        self._names = (tables, f"{component.name}_")
        self._scope = scope
        self._current: Connection | None = None
        self._pid = os.getpid()
        close_before_fork(self)

    @contextmanager
    def begin(self) -> Iterator[TranslatedConnection]:
        """Commit everything done inside, or nothing."""
        # Short statements of a store that all threads share: no thread waits long for another one.
        with time_limit(TURN_SECONDS), self.lock:
            if self._current is not None:
                with self._current.transaction():
                    yield TranslatedConnection(self._current, *self._names)
                return
            with self._database.transaction(self._component, self._scope) as connection:
                self._current = connection
                try:
                    yield TranslatedConnection(connection, *self._names)
                finally:
                    self._current = None

    def read(self, work: Callable[[TranslatedConnection], _T]) -> _T:
        """Run ``work``, which only reads; each of its statements sees what is committed then."""
        with time_limit(TURN_SECONDS), self.lock:
            # Without a transaction there is no scope.
            if self._current is None and self._scope is None:
                # One message per statement, instead of three. It fails if the server has closed
                # the connection; then the next try gets a new one.
                try:
                    with self._database.connection(self._component) as connection:
                        return work(TranslatedConnection(connection, *self._names))
                except PostgresError as error:
                    if error.fault is not ServerFault.UNREACHABLE:
                        raise
            with self.begin() as translated:
                return work(translated)

    def before_fork(self) -> None:
        """Don't wait for the lock: whoever holds it may wait for that of the database."""

    def after_fork(self) -> None:
        """In a child, forget the transaction of another thread, which does not exist there."""
        if self._pid != os.getpid():
            self._pid, self.lock, self._current = os.getpid(), threading.RLock(), None


class TranslatedConnection:
    """A connection that takes statements as `storage.sql` describes them.

    Args:
        connection: The connection.
        tables: The names of the tables in the statements. In PostgreSQL, where one schema has the
            tables of all stores, they begin with ``prefix``.
        prefix: Such as ``outbox_``.
    """

    def __init__(self, connection: Connection, tables: tuple[str, ...], prefix: str) -> None:
        self._connection = connection
        self._names = (tables, prefix)

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Rows:
        """Run a statement."""
        cursor = self._connection.cursor(row_factory=_decoded)
        return cursor.execute(_translated(statement, *self._names), _encoded(values))

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> Rows:
        """Run a statement once for each row of values."""
        cursor = self._connection.cursor()
        cursor.executemany(_translated(statement, *self._names), [_encoded(row) for row in rows])
        return cursor


@lru_cache(maxsize=256)
def _translated(statement: str, tables: tuple[str, ...], prefix: str) -> str:
    text = statement.replace("%", "%%").replace("?", "%s")
    return re.sub(rf"\b({'|'.join(tables)})\b", rf"{prefix}\1", text)


def _encoded(values: Sequence[Any]) -> list[Any]:
    return [to_text(each) if isinstance(each, str) else each for each in values]


def _decoded(cursor: psycopg.Cursor[Any]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:  # noqa: ARG001 - psycopg's signature
    """Makes the rows of a cursor."""
    return lambda row: tuple(from_text(each) if isinstance(each, str) else each for each in row)
