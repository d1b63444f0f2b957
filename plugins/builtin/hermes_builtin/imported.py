"""Memories of external providers that came with an import, in the home's imported.db.

They belong to the services that listed them, so nothing recalls them here. They are stored for the
next export, line by line as they were in the file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from json import loads
from pathlib import Path
from typing import Any, Final

from hermes_builtin.items import text_parts
from hermes_core.provider import MEMORY_ORDER
from hermes_core.session import TERMINAL, identity_text
from hermes_core.storage.sqlite import SqliteFile
from hermes_core.storage.sqlite_connection import Schema

Record = Mapping[str, Any]

_PAGE: Final = 1000


def path_of(home: Path) -> Path:
    """Return the path of a home's imported memories."""
    return home / "imported.db"


def _create_tables(database: sqlite3.Connection) -> None:
    database.execute("CREATE TABLE providers (name BLOB PRIMARY KEY, line BLOB NOT NULL)")
    # Bytes throughout: a text may have half of a surrogate pair, and bytes sort by code points.
    database.execute(
        "CREATE TABLE memories (number INTEGER PRIMARY KEY, provider BLOB NOT NULL,"
        " id BLOB NOT NULL, place BLOB NOT NULL, line BLOB NOT NULL, UNIQUE (provider, id))"
    )
    database.execute("CREATE INDEX memories_order ON memories (provider, place)")


SCHEMA: Final = Schema(
    "the imported memories",
    application_id=0x4850494D,  # "HPIM"
    migrations=(_create_tables,),
)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(content: bytes) -> str:
    return content.decode("utf-8", "surrogatepass")


def place_of(record: Record) -> bytes:
    """Where a memory is in the order of an export."""
    parts = (_bytes(str(record.get(key, ""))) for key in MEMORY_ORDER)
    return b"\0\0".join(each.replace(b"\0", b"\0\1") for each in parts)


class ImportedMemories:
    """The memories of external providers in one home."""

    def __init__(self, home: Path) -> None:
        hint = "move it away, and import the file again"
        self._file = SqliteFile(path_of(home), SCHEMA, damage_hint=hint)
        self._exists = path_of(home).exists()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def add(self, memories: Iterable[tuple[Record, bytes]]) -> int:
        """Store memories and the lines that say them; return how many were not there yet."""
        rows = [
            (_bytes(each["provider"]), _bytes(each["id"]), place_of(each), line)
            for each, line in memories
        ]

        def work(database: sqlite3.Connection) -> int:
            before = database.total_changes
            database.executemany(
                "INSERT OR IGNORE INTO memories (provider, id, place, line) VALUES (?, ?, ?, ?)",
                rows,
            )
            return database.total_changes - before

        return self._file.change(work)

    def add_provider(self, name: str, line: bytes) -> None:
        """Store what an export says about a provider, in place of what an earlier one said."""
        statement = "INSERT OR REPLACE INTO providers (name, line) VALUES (?, ?)"
        self._file.change(lambda file: file.execute(statement, (_bytes(name), line)) and None)

    def providers(self) -> dict[str, dict[str, Any]]:
        """Return the providers with what was said about each; {} if only its memories are known."""
        found = self._rows("SELECT DISTINCT provider, '{}' FROM memories")
        found += self._rows("SELECT name, line FROM providers")
        return {_text(name): loads(line) for name, line in found}

    def ids(self, provider: str) -> set[str]:
        """Return the ids of a provider's memories."""
        rows = self._rows("SELECT id FROM memories WHERE provider = ?", _bytes(provider))
        return {_text(row[0]) for row in rows}

    def lines(self, provider: str) -> Iterator[tuple[bytes, str, bytes]]:
        """Yield place, id and line of each memory of a provider, in order."""
        place, number = b"", 0
        while rows := self._rows(_NEXT, _bytes(provider), place, number, _PAGE):
            for place, number, name, line in rows:  # noqa: B007 - the last one is where to go on
                yield place, _text(name), line

    def _rows(self, statement: str, *values: Any) -> list[Any]:
        if not self._exists:
            return []
        return self._file.read(lambda file: file.execute(statement, values).fetchall())


_NEXT: Final = (
    "SELECT place, number, id, line FROM memories WHERE provider = ? AND (place, number) > (?, ?)"
    " ORDER BY place, number LIMIT ?"
)


def forget_imported(
    home: Path, matches: Callable[[str], bool], *, user_id: str, platform: str, delete: bool
) -> list[str]:
    """Find what a person wants to be forgotten, and delete it; return the texts.

    Args:
        home: The home.
        matches: Whether a text is meant.
        user_id: Whose memories are all meant; "" for none.
        platform: Where that user is known; "" for everywhere.
        delete: Whether to delete them.
    """
    if not path_of(home).exists():
        return []

    def is_meant(record: Record) -> bool:
        if not user_id:
            return any(map(matches, text_parts(record)))
        where = identity_text(record.get("platform", TERMINAL))
        return identity_text(record.get("user_id", "")) == identity_text(user_id) and (
            platform in ("", where)
        )

    def work(database: sqlite3.Connection) -> list[str]:
        found = []
        # What is said about a provider may quote a memory.
        for table, key in (("memories", "number"), ("providers", "name")):
            rows = database.execute(f"SELECT {key}, line FROM {table}")  # noqa: S608 - constants
            chosen = [(each, record) for each, line in rows if is_meant(record := loads(line))]
            found += [str(record.get("text", record.get("name"))) for _, record in chosen]
            if delete:
                gone = f"DELETE FROM {table} WHERE {key} = ?"  # noqa: S608 - constants
                database.executemany(gone, [(each,) for each, _ in chosen])
        return found

    file = SqliteFile(path_of(home), SCHEMA)
    try:
        found = file.change(work) if delete else file.read(work)
        if delete and found:
            file.erase_free_space()
        return found
    finally:
        file.close()
