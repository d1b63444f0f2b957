"""Tables that take no more changes, because their content moves to another storage.

A migration copies a home while agents may run. Before its last pass it freezes the source: triggers
refuse every change, in each process and on each machine that still writes there. An agent keeps
what it can't store in its spool, and hands it over to the storage that config.yaml names then.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from hermes_core.storage.postgres import Connection

#: Tables, each with the columns that may not change; "" for all of them.
Tables = Mapping[str, str]

_FUNCTION: Final = """
CREATE OR REPLACE FUNCTION hermes.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE '%', TG_ARGV[0] USING ERRCODE = '25006';  -- read-only: the writer may try again later
END $$
"""


def _events(columns: str) -> Iterator[tuple[str, str]]:
    """What is refused: a name for it, and the event."""
    yield "insert", "INSERT"
    yield "delete", "DELETE"
    yield "update", f"UPDATE OF {columns}" if columns else "UPDATE"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# -- SQLite ------------------------------------------------------------------------------------


def freeze_file(connection: Any, tables: Tables, why: str) -> None:
    """Refuse changes of these tables of a file; ``why`` is the error that writers get."""
    thaw_file(connection, tables)
    for table, columns in tables.items():
        for name, event in _events(columns):
            connection.execute(
                f"CREATE TRIGGER frozen_{table}_{name} BEFORE {event} ON {table}"
                f" BEGIN SELECT RAISE(ABORT, {_quoted(why)}); END"
            )


def thaw_file(connection: Any, tables: Tables) -> None:
    """Let these tables be changed again."""
    for table, columns in tables.items():
        for name, _ in _events(columns):
            connection.execute(f"DROP TRIGGER IF EXISTS frozen_{table}_{name}")


def is_frozen(error: BaseException | None) -> bool:
    """Whether an error, or one that it wraps, is that of a file that was frozen."""
    while error is not None:
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_CONSTRAINT_TRIGGER:
            return True
        error = error.__cause__
    return False


# -- PostgreSQL --------------------------------------------------------------------------------


def freeze_namespace(connection: Connection, namespace: str, tables: Tables, why: str) -> None:
    """Refuse changes of the rows of a namespace; waits for whoever changes the tables now.

    Args:
        connection: As the owner of the tables, in a transaction.
        namespace: Whose rows.
        tables: Their names, without the schema.
        why: The error that writers get.
    """
    connection.execute(_FUNCTION)
    for table, columns in tables.items():
        for name, event in _events(columns):
            row = "NEW" if name == "insert" else "OLD"
            connection.execute(
                f"CREATE OR REPLACE TRIGGER {_trigger(name, namespace)} BEFORE {event}"
                f" ON hermes.{table} FOR EACH ROW WHEN ({row}.namespace = {_quoted(namespace)})"
                f" EXECUTE FUNCTION hermes.refuse_change({_quoted(why)})".encode()
            )


def thaw_namespace(connection: Connection, namespace: str, tables: Tables) -> None:
    """Let the rows of a namespace be changed again."""
    for table, columns in tables.items():
        for name, _ in _events(columns):
            statement = f"DROP TRIGGER IF EXISTS {_trigger(name, namespace)} ON hermes.{table}"
            connection.execute(statement.encode())


def _trigger(event: str, namespace: str) -> str:
    return f"frozen_{event}_{sha256(namespace.encode()).hexdigest()[:16]}"
