"""Format 3 of the notes in PostgreSQL: a hash, and a write that waits, belong to a notebook.

Before, a person could see and delete the hashes of the notes of all others. Which notebook a
write was for was looked up in its record by the policy, and a record that PostgreSQL can't read
made every statement about the table fail, for everybody.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final

from hermes_builtin.notes.text_owners import SHARED, owners_by_hash
from hermes_core.storage.migration import lock_tables
from hermes_core.storage.postgres import Connection, from_text, to_text

_CHANGED: Final = ("notes_allowed", "notes_origins", "notes_pending")
_READ: Final = ("notes_texts", "notes_changes", "notes_blocked")


def target_of(record: str) -> str | None:
    """The notebook that a waiting write is for; None if the record doesn't say it."""
    try:
        target = json.loads(record)["payload"]["target"]
        target.encode()
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None
    return str(target)


def give_rows_to_notebooks(connection: Connection) -> None:
    """Add the notebook to each row that lacks it, in all namespaces."""
    # Agents that run change the texts first. In this order, and without waiting for long while
    # some are locked, neither of them ends the other.
    lock_tables(connection, (*_READ, *_CHANGED), "ACCESS EXCLUSIVE")
    connection.execute(
        "ALTER TABLE hermes.notes_pending ADD target text;"
        " ALTER TABLE hermes.notes_blocked DROP CONSTRAINT notes_blocked_pkey,"
        "  ADD PRIMARY KEY (namespace, target, id);"
        " ALTER TABLE hermes.notes_allowed ADD target text NOT NULL DEFAULT 'memory',"
        "  DROP CONSTRAINT notes_allowed_pkey, ADD PRIMARY KEY (namespace, target, hash);"
        " ALTER TABLE hermes.notes_origins ADD target text NOT NULL DEFAULT 'memory',"
        "  DROP CONSTRAINT notes_origins_pkey, ADD PRIMARY KEY (namespace, target, hash)"
    )
    # The policies hold for the owner, too, and a namespace that has moved away takes no changes.
    for table in (*_CHANGED, *_READ):
        connection.execute(f"ALTER TABLE hermes.{table} NO FORCE ROW LEVEL SECURITY".encode())
    for table in _CHANGED:
        connection.execute(f"ALTER TABLE hermes.{table} DISABLE TRIGGER USER".encode())
    _fill_pending(connection)
    _divide_hashes(connection)
    for table in _CHANGED:
        connection.execute(f"ALTER TABLE hermes.{table} ENABLE TRIGGER USER".encode())
    for table in (*_CHANGED, *_READ):
        connection.execute(f"ALTER TABLE hermes.{table} FORCE ROW LEVEL SECURITY".encode())


def _fill_pending(connection: Connection) -> None:
    rows = connection.execute("SELECT record, namespace, id FROM hermes.notes_pending").fetchall()
    known = ((target_of(from_text(record)), *key) for record, *key in rows)
    connection.cursor().executemany(
        "UPDATE hermes.notes_pending SET target = %s WHERE namespace = %s AND id = %s",
        [(to_text(target), *key) for target, *key in known if target is not None],
    )


def _divide_hashes(connection: Connection) -> None:
    """Give the hashes of private texts to their notebooks; a text may be in several."""
    texts = _by_namespace(connection, "SELECT namespace, target, text FROM hermes.notes_texts")
    changes = _by_namespace(
        connection, "SELECT namespace, target, before, after, entries FROM hermes.notes_changes"
    )
    blocked = _by_namespace(connection, "SELECT namespace, target, text FROM hermes.notes_blocked")
    for namespace in {*texts, *changes, *blocked}:
        owners = owners_by_hash(texts[namespace], changes[namespace], blocked[namespace])
        private = [(hashed, each - {SHARED}) for hashed, each in owners.items() if each != {SHARED}]
        copies = [(each, namespace, hashed) for hashed, some in private for each in sorted(some)]
        gone = [(namespace, hashed) for hashed, _ in private if SHARED not in owners[hashed]]
        for table, value in (("notes_allowed", "at"), ("notes_origins", "origin")):
            connection.cursor().executemany(
                f"INSERT INTO hermes.{table} (namespace, hash, {value}, target)"  # noqa: S608
                f" SELECT namespace, hash, {value}, %s FROM hermes.{table}"
                f" WHERE namespace = %s AND hash = %s AND target = '{SHARED}'".encode(),
                copies,
            )
            connection.cursor().executemany(
                f"DELETE FROM hermes.{table}"  # noqa: S608
                f" WHERE namespace = %s AND hash = %s AND target = '{SHARED}'".encode(),
                gone,
            )


def _by_namespace(connection: Connection, query: str) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = defaultdict(list)
    rows: Iterable[tuple[Any, ...]] = connection.execute(query.encode())
    for namespace, *values in rows:
        found[namespace].append(tuple(each if each is None else from_text(each) for each in values))
    return found
