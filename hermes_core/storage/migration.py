"""What `storage migrate` needs of each storage: its parts, a checksum, and how it is frozen.

The conversations, the notes and the outbox each bring a class that implements `StoragePart`, over
files and over PostgreSQL. So a copy, and its verification, is written once for each of them.

A migration copies a home while agents may run. Before its last pass it freezes the source: triggers
refuse every change, in each process and on each machine that still writes there. An agent keeps
what it can't store in its spool, and hands it over to the storage that config.yaml names then.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final, Protocol

from hermes_core.errors import HermesError

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

    def freeze(self, why: str, copy: str = "") -> None:
        """Refuse changes from now on, also those of other processes.

        Args:
            why: The error that writers get.
            copy: The id of a migration that copies to here, and still may.

        Raises:
            HermesError: Another migration copies to here.
        """

    def thaw(self, copy: str = "") -> None:
        """Allow changes again.

        Args:
            copy: The id of the migration that has copied to here.

        Raises:
            HermesError: Another migration copies to here.
        """

    def copy_as(self, migration: str) -> None:
        """Store to what is frozen, for the migration with this id. "" ends that."""

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
_MOVING: Final = "this memory is being moved to "
_MOVING_HINT: Final = (
    "wait for that; if it was interrupted, run `hermes-plugins storage migrate` again where it was "
    "begun"
)
_COPY: Final = "this is an incomplete copy of a memory"
_COPY_HINT: Final = (
    "finish that migration where it was begun; or use another storage, or another namespace"
)
_TAKEN: Final = "this copy was deleted, or completed by another process"
_TAKEN_HINT: Final = "see: hermes-plugins storage status"
#: The SQLSTATE of a change that is refused; PostgreSQL has none that begins with these letters.
FROZEN_STATE: Final = "HP001"
#: How long to try to lock the tables of a namespace; how long one attempt waits, which is less than
#: the server's ``deadlock_timeout`` (1 s); and the time in between, in which turns go on.
_LOCK_SECONDS: Final = 30.0
_LOCK_ATTEMPT: Final = "250ms"
_LOCK_PAUSE: Final = 0.05
#: Not in time; or a deadlock after all, if that is how the server is configured.
_NOT_LOCKED: Final = ("55P03", "40P01")
#: The id of the migration that copies with a connection: a setting in PostgreSQL, and a function of
#: each of our connections to a file.
COPYING: Final = "hermes.copying"
COPYING_FILE: Final = "hermes_copying"
# Everybody who can connect can read the catalogue of triggers. So neither the namespace nor the
# reason is in a trigger: they are in a table that only its owner reads, and only the rows of one
# namespace. Of the namespace, the condition of a trigger has one byte of a hash, which says nothing
# and is quickly compared. Whoever deletes a namespace that was moved away says so with a setting:
# see docs/fleet.md.
_FROZEN: Final = f"""
CREATE TABLE hermes.frozen (
    namespace text PRIMARY KEY,
    why text NOT NULL,
    copy text NOT NULL, -- the id of the migration that copies to here; '' if none does
    mark text NOT NULL  -- in the names of the triggers
);
ALTER TABLE hermes.frozen ENABLE ROW LEVEL SECURITY;
ALTER TABLE hermes.frozen FORCE ROW LEVEL SECURITY;
CREATE POLICY frozen_rows ON hermes.frozen
    USING (namespace = (SELECT hermes.current_namespace()))
    WITH CHECK (namespace = (SELECT hermes.current_namespace()));
CREATE FUNCTION hermes.refuse_frozen() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = hermes, pg_temp AS $$
DECLARE
    own text;
    state frozen;
BEGIN
    IF TG_OP = 'INSERT' THEN own := NEW.namespace; ELSE own := OLD.namespace; END IF;
    SELECT * INTO state FROM frozen WHERE namespace = own;
    IF FOUND AND (state.copy = ''
            OR state.copy IS DISTINCT FROM current_setting('{COPYING}', true))
        AND (TG_OP != 'DELETE'
            OR own IS DISTINCT FROM current_setting('hermes.deleting', true)) THEN
        RAISE '%', state.why USING ERRCODE = '{FROZEN_STATE}';
    END IF;
    IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
    RETURN NEW;
END $$;
REVOKE EXECUTE ON FUNCTION hermes.refuse_frozen FROM PUBLIC; -- a trigger needs no such right
CREATE FUNCTION hermes.why_frozen() RETURNS text LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = hermes, pg_temp AS $$
    SELECT why FROM frozen WHERE namespace = current_namespace()
$$;
CREATE FUNCTION hermes.check_copy(wanted text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = hermes, pg_temp AS $$
BEGIN
    PERFORM 1 FROM frozen WHERE namespace = current_namespace() AND copy = wanted FOR SHARE;
    IF NOT FOUND THEN
        RAISE '{_TAKEN}' USING ERRCODE = '{FROZEN_STATE}';
    END IF;
END $$;
"""  # noqa: S608


_AS_OWNER: Final = (
    "SELECT set_config('role', pg_get_userbyid(nspowner), true) FROM pg_namespace"
    " WHERE nspname = 'hermes'"
)
_RAISED: Final = re.compile(r"RAISE\(ABORT, '(.*)'\)", re.DOTALL)


def _events(columns: str) -> Iterator[tuple[str, str]]:
    """What is refused: a name for it, and the event."""
    yield "insert", "INSERT"
    yield "delete", "DELETE"
    yield "update", f"UPDATE OF {columns}" if columns else "UPDATE"


def moving_to(where: str) -> str:
    """Why a memory takes no changes while it is moved."""
    return _MOVING + where


def moved_to(where: str) -> str:
    """Why a memory takes no changes after it was moved."""
    return f"this memory has moved to {where}"


def copied_by(who: str) -> str:
    """Why a copy takes no changes before it is complete."""
    return f"{_COPY}: a migration by {who} has not finished"


def frozen_hint(why: str) -> str:
    """What to do about a memory that takes no changes."""
    if why.startswith(_MOVING):
        return _MOVING_HINT
    if why.startswith(_TAKEN):
        return _TAKEN_HINT
    return _COPY_HINT if why.startswith(_COPY) else MOVED_HINT


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# -- SQLite ------------------------------------------------------------------------------------


def freeze_file(connection: Any, tables: Tables, why: str, copy: str = "") -> None:
    """Refuse changes of these tables of a file.

    Args:
        connection: In a transaction.
        tables: Which.
        why: The error that writers get.
        copy: The id of a migration that may still change them: see `SqliteFile.copy_as`.
    """
    thaw_file(connection, tables)
    condition = f" WHEN {COPYING_FILE}() != {_quoted(copy)}" if copy else ""
    for table, columns in tables.items():
        for name, event in _events(columns):
            connection.execute(
                f"CREATE TRIGGER frozen_{table}_{name} BEFORE {event} ON {table}"
                f"{condition} BEGIN SELECT RAISE(ABORT, {_quoted(why)}); END"
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


def freeze_namespace(
    connection: Connection, namespace: str, tables: Tables, why: str, copy: str = ""
) -> None:
    """Refuse changes of the rows of a namespace; waits for whoever changes the tables now.

    Args:
        connection: As the owner of the tables, in a transaction.
        namespace: Whose rows.
        tables: Their names, without the schema.
        why: The error that writers get.
        copy: The id of a migration that may still change them.

    Raises:
        HermesError: Another migration copies to the namespace.
    """
    create_frozen(connection)
    row = connection.execute(
        "INSERT INTO hermes.frozen VALUES (%s, %s, %s, %s)"
        " ON CONFLICT (namespace) DO UPDATE SET why = excluded.why, copy = excluded.copy"
        " WHERE frozen.copy IN ('', excluded.copy) RETURNING mark",
        (namespace, why, copy, os.urandom(8).hex()),
    ).fetchone()
    if row is None:
        raise incomplete_copy(namespace)
    names = {f"frozen_{row[0]}_{name}" for name, _ in _events("")}
    if len(_triggers(connection, tables, names)) == len(tables) * len(names):
        return
    lock_tables(connection, tables, "SHARE ROW EXCLUSIVE")
    byte = sha256(namespace.encode()).digest()[0]
    for table, columns in tables.items():
        for name, event in _events(columns):
            changed = "NEW" if name == "insert" else "OLD"
            connection.execute(
                f"CREATE OR REPLACE TRIGGER frozen_{row[0]}_{name} BEFORE {event}"
                f" ON hermes.{table} FOR EACH ROW"
                f" WHEN (get_byte(sha256(convert_to({changed}.namespace, 'UTF8')), 0) = {byte})"
                " EXECUTE FUNCTION hermes.refuse_frozen()".encode()
            )


def incomplete_copy(where: str) -> HermesError:
    """That somebody else copies a memory to there."""
    return HermesError(f"{where} is an incomplete copy of another memory", hint=_COPY_HINT)


def has_frozen(connection: Connection) -> bool:
    """Whether the table of frozen namespaces exists: a migration creates it."""
    return connection.execute("SELECT to_regclass('hermes.frozen')").fetchone() != (None,)


def create_frozen(connection: Connection) -> None:
    """Create that table and its functions, if they do not exist."""
    if not has_frozen(connection):
        # Two that freeze at the same time don't both create it.
        connection.execute("LOCK TABLE hermes.versions IN SHARE ROW EXCLUSIVE MODE")
        if not has_frozen(connection):
            # Also if a superuser moves a memory, it belongs to whom the other tables belong to.
            connection.execute(_AS_OWNER.encode())
            connection.execute(_FROZEN.encode())
            connection.execute("RESET ROLE")


def thaw_namespace(connection: Connection, namespace: str, tables: Tables, copy: str = "") -> None:
    """Let the rows of a namespace be changed again.

    Args:
        connection: As the owner of the tables, in a transaction.
        namespace: Whose rows.
        tables: Their names, without the schema.
        copy: The id of the migration that has copied to the namespace.

    Raises:
        HermesError: Another migration copies to the namespace.
    """
    mark, other = _frozen_row(connection, namespace)
    if other not in ("", copy):
        raise incomplete_copy(namespace)
    names = {_trigger(name, namespace) for name, _ in _events("")}
    if mark:
        names |= {f"frozen_{mark}_{name}" for name, _ in _events("")}
    found = _triggers(connection, tables, names)
    # To drop a trigger needs a lock that keeps readers out, too.
    frozen = {table for _, table in found}
    if frozen:
        lock_tables(connection, [each for each in tables if each in frozen], "ACCESS EXCLUSIVE")
    for name, table in found:
        connection.execute(f"DROP TRIGGER IF EXISTS {name} ON hermes.{table}".encode())
    if mark and not _triggers(connection, None, names):
        connection.execute("DELETE FROM hermes.frozen WHERE namespace = %s", (namespace,))


def copier_of(connection: Connection, namespace: str) -> str:
    """The id of the migration that copies to a namespace; "" if none does."""
    return _frozen_row(connection, namespace)[1]


def _frozen_row(connection: Connection, namespace: str) -> tuple[str, str]:
    """Of a namespace that is frozen, the mark of its triggers, and who copies to it."""
    if not has_frozen(connection):
        return "", ""
    row = connection.execute(
        "SELECT mark, copy FROM hermes.frozen WHERE namespace = %s FOR UPDATE", (namespace,)
    ).fetchone()
    return (str(row[0]), str(row[1])) if row else ("", "")


def _triggers(
    connection: Connection, tables: Iterable[str] | None, names: Iterable[str]
) -> list[tuple[str, str]]:
    """The triggers that exist of these names, with their tables; None: of all tables."""
    rows = connection.execute(
        "SELECT tgname, relname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid"
        " WHERE relnamespace = to_regnamespace('hermes') AND tgname = ANY (%s)",
        (list(names),),
    ).fetchall()
    wanted = None if tables is None else set(tables)
    return [(name, table) for name, table in rows if wanted is None or table in wanted]


def lock_tables(connection: Connection, tables: Iterable[str], mode: str) -> None:
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
    query = "SELECT to_regprocedure('hermes.why_frozen()')"
    if connection.execute(query).fetchone() != (None,):
        row = connection.execute("SELECT hermes.why_frozen()").fetchone()
        if row and row[0]:
            return str(row[0])
    row = connection.execute(
        "SELECT tgargs FROM pg_trigger WHERE tgname = %s AND tgrelid = to_regclass(%s)",
        (_trigger("insert", namespace), f"hermes.{table}"),
    ).fetchone()
    return bytes(row[0]).partition(b"\0")[0].decode("utf-8", "replace") if row else ""


# Version 0.2.0 has the reason in the triggers, and functions that come with them.
def _trigger(event: str, namespace: str) -> str:
    return f"frozen_{event}_{sha256(namespace.encode()).hexdigest()[:16]}"
