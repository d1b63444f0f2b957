"""Statements that SQLite and PostgreSQL both understand, and what a connection must offer for them.

They use ``?`` for a value, ``ON CONFLICT``, ``count(*) FILTER``, and no function that only one of
the two has. What can't be written like that is a method of the store's own database class.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol


class Rows(Protocol):
    """What a statement returned: `sqlite3.Cursor`, or psycopg's."""

    @property
    def rowcount(self) -> int:
        """How many rows were changed."""

    def fetchone(self) -> Any:
        """The next row; None if there is no more."""

    def fetchall(self) -> list[Any]:
        """All rows."""

    def __iter__(self) -> Iterator[Any]:
        """The rows, one after the other."""


class Connection(Protocol):
    """A connection within a transaction: `sqlite3.Connection`, or `TranslatedConnection`."""

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Rows:
        """Run a statement."""

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> Any:
        """Run a statement once for each row of values."""
