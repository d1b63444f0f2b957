"""What `storage migrate` needs of each storage: its parts, a checksum, and how it is frozen.

The conversations, the notes and the outbox each bring a class that implements `StoragePart`, over
files and over PostgreSQL. So a copy, and its verification, is written once for each of them.

A migration copies a home while agents may run. Before its last pass it freezes the source: triggers
refuse every change, in each process and on each machine that still writes there. An agent keeps
what it can't store in its spool, and hands it over to the storage that config.yaml names then.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from hermes_core.storage.postgres import Component, Connection

Progress = Callable[[int, int], None]


def no_progress(done: int, total: int) -> None:
    """Show nothing."""


def counted(count: int, what: str) -> str:
    """A count for people: ``what`` is a plural, or a word that has none."""
    return f"{count:,} {what.removesuffix('s') if count == 1 else what}"


class StoragePart(Protocol):
    """One part of what a home stores.

    Every method raises `HermesError` if the storage can't be used.

    Attributes:
        name: What people call it.
        place: Where it is: a path, or the address of a database without its password.
        component: Its tables in PostgreSQL; None if it is in files.
    """

    name: str
    place: str
    component: Component | None

    def counts(self) -> Mapping[str, int]:
        """How much there is of what."""

    def size(self) -> int:
        """How many bytes it takes; in a database, those of all namespaces."""

    def check(self, progress: Progress) -> list[str]:
        """What is wrong with it, a line each. Looks at everything."""

    def copy_from(self, source: Any, progress: Progress) -> None:
        """Copy what ``source`` has and this one has not; it may be interrupted and repeated.

        Args:
            source: The same part of another storage.
            progress: Called with what is done, and how much there is.
        """

    def digest(self, progress: Progress) -> str:
        """A checksum of the content, which is the same in each storage."""

    def freeze(self, why: str) -> None:
        """Refuse changes from now on, also those of other processes."""

    def thaw(self) -> None:
        """Allow changes again."""

    def close(self) -> None:
        """Close what is open."""


class Digest:
    """A checksum of rows: the same values in the same order have the same one."""

    def __init__(self) -> None:
        self._hash = sha256()

    def add(self, row: Iterable[Any]) -> None:
        """One more row, of texts, numbers, None, and what is made of them."""
        text = json.dumps(list(row), ensure_ascii=True, sort_keys=True, default=str)
        self._hash.update(text.encode() + b"\n")

    def value(self) -> str:
        """The checksum of all rows."""
        return self._hash.hexdigest()


#: Tables, each with the columns that may not change; "" for all of them.
Tables = Mapping[str, str]

#: What to do on a machine whose config.yaml still names the old storage.
MOVED_HINT: Final = (
    "set memory.storage to where it is now, and restart the agents here; "
    "or use the old one again with: hermes-plugins storage migrate --cancel"
)
#: The SQLSTATE of a change that is refused; PostgreSQL has none that begins with these letters.
FROZEN_STATE: Final = "HP001"
#: How long to try to lock the tables of a namespace; how long one attempt waits, which is less than
#: the server's ``deadlock_timeout`` (1 s); and the time in between, in which turns go on.
_LOCK_SECONDS: Final = 30.0
_LOCK_ATTEMPT: Final = "250ms"
_LOCK_PAUSE: Final = 0.05
#: Not in time; or a deadlock after all, if that is how the server is configured.
_NOT_LOCKED: Final = ("55P03", "40P01")
# Whoever deletes a namespace that was moved away says so with a setting: see docs/fleet.md.
_FUNCTION: Final = f"""
CREATE OR REPLACE FUNCTION hermes.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND OLD.namespace = current_setting('hermes.deleting', true) THEN
        RETURN OLD;
    END IF;
    RAISE '%', TG_ARGV[0] USING ERRCODE = '{FROZEN_STATE}';
END $$
"""


_RAISED: Final = re.compile(r"RAISE\(ABORT, '(.*)'\)", re.DOTALL)


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


def why_file_is_frozen(connection: Any, table: str) -> str:
    """The error that writers of a table get; "" if it takes changes."""
    query = "SELECT sql FROM sqlite_master WHERE type = 'trigger' AND name = ?"
    row = connection.execute(query, (f"frozen_{table}_insert",)).fetchone()
    found = _RAISED.search(row[0]) if row else None
    return found[1].replace("''", "'") if found else ""


def is_frozen(error: BaseException | None) -> bool:
    """Whether an error, or one that it wraps, is that of a file or namespace that was frozen."""
    while error is not None:
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_CONSTRAINT_TRIGGER:
            return True
        if getattr(error, "sqlstate", "") == FROZEN_STATE:
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
    _lock(connection, tables, "SHARE ROW EXCLUSIVE")
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
    names = [_trigger(name, namespace) for name, _ in _events("")]
    rows = connection.execute(
        "SELECT tgname, relname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid"
        " WHERE relnamespace = to_regnamespace('hermes') AND relname = ANY (%s)"
        " AND tgname = ANY (%s)",
        (list(tables), names),
    ).fetchall()
    # To drop a trigger needs a lock that keeps readers out, too.
    frozen = {table for _, table in rows}
    if frozen:
        _lock(connection, [each for each in tables if each in frozen], "ACCESS EXCLUSIVE")
    for name, table in rows:
        connection.execute(f"DROP TRIGGER IF EXISTS {name} ON hermes.{table}".encode())


def _lock(connection: Connection, tables: Iterable[str], mode: str) -> None:
    """Lock tables, all or none.

    Whoever holds some of them and waits for another can deadlock with a turn. So this never waits
    for long: before the server looks for a deadlock, which could end the turn instead of this, it
    gives up and tries again.
    """
    names = ", ".join(f"hermes.{table}" for table in tables)
    end = monotonic() + _LOCK_SECONDS
    (before,) = connection.execute("SELECT current_setting('lock_timeout')").fetchone() or ("",)
    while True:
        try:
            with connection.transaction():  # a savepoint: after an error, nothing is locked
                limit = "SELECT set_config('lock_timeout', %s, true)"
                connection.execute(limit, (_LOCK_ATTEMPT,))
                connection.execute(f"LOCK TABLE {names} IN {mode} MODE".encode())
                connection.execute(limit, (before,))
        except Exception as error:
            if getattr(error, "sqlstate", "") not in _NOT_LOCKED or monotonic() > end:
                raise
            sleep(_LOCK_PAUSE)
        else:
            return


def why_namespace_is_frozen(connection: Connection, namespace: str, table: str) -> str:
    """The error that writers of a namespace get; "" if it takes changes."""
    row = connection.execute(
        "SELECT tgargs FROM pg_trigger WHERE tgname = %s AND tgrelid = to_regclass(%s)",
        (_trigger("insert", namespace), f"hermes.{table}"),
    ).fetchone()
    return bytes(row[0]).partition(b"\0")[0].decode("utf-8", "replace") if row else ""


def _trigger(event: str, namespace: str) -> str:
    return f"frozen_{event}_{sha256(namespace.encode()).hexdigest()[:16]}"
