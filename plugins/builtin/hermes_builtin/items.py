"""Items: JSON objects that a program stores under a namespace and a key, in the home's items.db.

Frameworks with a key-value store for long-term memory, such as LangGraph, keep theirs here. Items
of different people are separate, and their text is searched by the words of the archive's index.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import Any, Final

from hermes_builtin.sessions.words import storable, words
from hermes_core import HermesError
from hermes_core.session import identity_text
from hermes_core.storage.sqlite import SqliteFile
from hermes_core.storage.sqlite_connection import Schema

#: Bytes of one item as JSON. It is memory for a model, not a place for files.
LARGEST: Final = 1_000_000
_MOST_QUERY_WORDS: Final = 64

Namespace = tuple[str, ...]


class ItemRefused(HermesError, ValueError):  # noqa: N818 - named like our other errors
    """An item that can't be stored; nothing of its batch was."""


@dataclass(frozen=True, slots=True)
class StoredItem:
    """An item as it is stored.

    Attributes:
        namespace: Where it is, from general to special.
        key: Its name there.
        value: What it says.
        created: When it was first stored, in Unix seconds.
        updated: When it was last stored.
        score: How well it matches a query, more is better; None if none of its words does.
    """

    namespace: Namespace
    key: str
    value: dict[str, Any]
    created: float
    updated: float
    score: float | None = None


@dataclass(frozen=True, slots=True)
class ItemWrite:
    """One change: an item to store, or to delete if ``value`` is None.

    Attributes:
        namespace: Where.
        key: Its name there.
        value: What it says; None deletes it.
        text: What a search looks at; "" if it is not searched by words.
        minutes: How long it lives after its last use; None for ever.
    """

    namespace: Namespace
    key: str
    value: dict[str, Any] | None
    text: str = ""
    minutes: float | None = None


def path_of(home: Path) -> Path:
    """Return the path of a home's items."""
    return home / "items.db"


def _create_tables(database: sqlite3.Connection) -> None:
    database.execute(
        "CREATE TABLE items (number INTEGER PRIMARY KEY, owner TEXT NOT NULL,"
        " namespace TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,"
        " created REAL NOT NULL, updated REAL NOT NULL, minutes REAL, expires REAL,"
        " UNIQUE (owner, namespace, key))"
    )
    database.execute("CREATE INDEX items_expire ON items (expires) WHERE expires IS NOT NULL")
    # Words that are made here, so the tokenizer only has to split at blanks.
    database.execute("CREATE VIRTUAL TABLE item_words USING fts5(words)")


SCHEMA: Final = Schema(
    "the items",
    application_id=0x48504954,  # "HPIT"
    migrations=(_create_tables,),
)
_FIELDS: Final = "namespace, key, value, created, updated"
_ALIVE: Final = "(expires IS NULL OR expires > :now)"
_WITHIN: Final = f"owner = :owner AND namespace >= :first AND namespace < :end AND {_ALIVE}"


class Items:
    """The items of one person in one home.

    Args:
        home: The home.
        platform: Where the person is known.
        user_id: As whom; "" for the owner of the machine.
        clock: Returns Unix seconds.
    """

    def __init__(
        self, home: Path, *, platform: str, user_id: str, clock: Callable[[], float] = time
    ) -> None:
        self._owner = owner_key(platform, user_id)
        self._clock = clock
        hint = "move it away to begin with an empty one"
        self._file = SqliteFile(path_of(home), SCHEMA, separate_reader=True, damage_hint=hint)

    def of(self, platform: str, user_id: str) -> Items:
        """Return the items of another person in the same file, which is open once."""
        other = copy(self)
        other._owner = owner_key(platform, user_id)  # noqa: SLF001 - of the same class
        return other

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        self._file.close()

    def get(self, namespace: Namespace, key: str, *, refresh: bool = True) -> StoredItem | None:
        """Return an item; None if there is none, or if it has expired.

        Args:
            namespace: Where it is.
            key: Its name there.
            refresh: Whether its time to live begins again.
        """
        where = {"owner": self._owner, "namespace": _joined(namespace), "key": key}
        statement = (
            f"SELECT {_FIELDS}, NULL FROM items WHERE owner = :owner"  # noqa: S608 - constants
            f" AND namespace = :namespace AND key = :key AND {_ALIVE}"
        )
        values = {**where, "now": self._clock()}
        row = self._file.read(lambda file: file.execute(statement, values).fetchone())
        if row is None:
            return None
        found = _item(row)
        if refresh:
            self._refresh([found])
        return found

    def search(
        self,
        prefix: Namespace,
        *,
        query: str = "",
        wanted: Callable[[dict[str, Any]], bool] | None = None,
        limit: int = 10,
        offset: int = 0,
        refresh: bool = True,
    ) -> list[StoredItem]:
        """Return items below a namespace: those with words of the query first, then the newest.

        Args:
            prefix: The namespace; () for all.
            query: What to look for.
            wanted: Which values to return.
            limit: How many.
            offset: How many to skip.
            refresh: Whether their time to live begins again.
        """
        first, end = _range(prefix)
        now, terms = self._clock(), _match(query)
        values = {"owner": self._owner, "first": first, "end": end, "now": now, "terms": terms}
        statement = _RANKED if terms else _NEWEST

        def read(file: sqlite3.Connection) -> list[StoredItem]:
            found = map(_item, file.execute(statement, values))
            chosen = (each for each in found if wanted is None or wanted(each.value))
            return [each for at, each in _until(chosen, offset + limit) if at >= offset]

        result = self._file.read(read)
        if refresh:
            self._refresh(result)
        return result

    def namespaces(self) -> list[Namespace]:
        """Return every namespace that has items, sorted."""
        statement = f"SELECT DISTINCT namespace FROM items WHERE owner = :owner AND {_ALIVE}"  # noqa: S608 - constants
        values = {"owner": self._owner, "now": self._clock()}
        rows = self._file.read(lambda file: file.execute(statement, values).fetchall())
        return sorted(_split(row[0]) for row in rows)

    def change(self, writes: Sequence[ItemWrite]) -> None:
        """Store and delete items: all of it, or nothing.

        Raises:
            ItemRefused: One is too large, or not JSON.
            DatabaseError: The file can't be written.
        """
        prepared = [(each, _json(each)) for each in writes]
        if prepared:
            self._file.change(lambda file: self._write(file, prepared))

    def _write(
        self, file: sqlite3.Connection, writes: Iterable[tuple[ItemWrite, str | None]]
    ) -> None:
        now = self._clock()
        _delete(file, "expires <= ?", (now,))
        for each, value in writes:
            place = (self._owner, _joined(each.namespace), each.key)
            if value is None:
                _delete(file, "owner = ? AND namespace = ? AND key = ?", place)
                continue
            expires = None if each.minutes is None else now + each.minutes * 60
            row = file.execute(_PUT, (*place, value, now, now, each.minutes, expires)).fetchone()
            file.execute("DELETE FROM item_words WHERE rowid = ?", row)
            if each.text:
                indexed = " ".join(words(storable(each.text)))
                file.execute("INSERT INTO item_words (rowid, words) VALUES (?, ?)", (*row, indexed))

    def _refresh(self, found: Sequence[StoredItem]) -> None:
        """Begin the time to live of items again; most have none, and cost nothing."""
        places = [(self._owner, _joined(each.namespace), each.key) for each in found]
        due = "owner = ? AND namespace = ? AND key = ? AND minutes IS NOT NULL"
        look = f"SELECT 1 FROM items WHERE {due}"  # noqa: S608 - constants
        update = f"UPDATE items SET expires = ? + minutes * 60 WHERE {due}"  # noqa: S608
        mortal = self._file.read(
            lambda file: [each for each in places if file.execute(look, each).fetchone()]
        )
        if mortal:
            now = self._clock()
            rows = [(now, *each) for each in mortal]
            self._file.change(lambda file: file.executemany(update, rows) and None)


_PUT: Final = (
    "INSERT INTO items (owner, namespace, key, value, created, updated, minutes, expires)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (owner, namespace, key) DO UPDATE SET"
    " value = excluded.value, updated = excluded.updated, minutes = excluded.minutes,"
    " expires = excluded.expires RETURNING number"
)
_NEWEST: Final = (
    f"SELECT {_FIELDS}, NULL FROM items WHERE {_WITHIN}"  # noqa: S608 - constants
    " ORDER BY updated DESC, number DESC"
)
_RANKED: Final = (
    f"SELECT {_FIELDS}, -hits.rank FROM items LEFT JOIN"  # noqa: S608 - constants
    " (SELECT rowid, rank FROM item_words WHERE item_words MATCH :terms) AS hits"
    f" ON hits.rowid = items.number WHERE {_WITHIN}"
    " ORDER BY hits.rank IS NULL, hits.rank, updated DESC, number DESC"
)


def owner_key(platform: str, user_id: str) -> str:
    """Return how a person is named in the file: their full identity."""
    return json.dumps([identity_text(platform), identity_text(user_id)])


def forget_items(
    home: Path, matches: Callable[[str], bool], *, user_id: str, platform: str, delete: bool
) -> list[str]:
    """Find what a person wants to be forgotten, and delete it; returns the items' texts.

    Args:
        home: The home.
        matches: Whether a text is meant.
        user_id: Whose items are all meant; "" for none.
        platform: Where that user is known; "" for everywhere.
        delete: Whether to delete them.
    """
    if not path_of(home).exists():
        return []
    file = SqliteFile(path_of(home), SCHEMA)

    def is_meant(owner: str, *texts: str) -> bool:
        if not user_id:
            return any(map(matches, texts))
        where, who = json.loads(owner)
        return who == identity_text(user_id) and platform in ("", where)

    def work(database: sqlite3.Connection) -> list[str]:
        rows = database.execute("SELECT number, owner, namespace, key, value FROM items")
        # The value as text: JSON may spell a character in another way.
        texts = [(row[0], row[1], row[2], row[3], " ".join(_strings(row[4]))) for row in rows]
        chosen = [each for each in texts if is_meant(*each[1:])]
        for number, *_ in chosen if delete else ():
            _delete(database, "number = ?", (number,))
        return [each[-1] for each in chosen]

    try:
        found = file.change(work) if delete else file.read(work)
        if delete and found:
            with file.writing() as database:
                database.execute("INSERT INTO item_words (item_words) VALUES ('optimize')")
            file.erase_free_space()
        return found
    finally:
        file.close()


def _strings(value: str) -> Iterator[str]:
    return text_parts(json.loads(value))


def text_parts(value: Any) -> Iterator[str]:
    """Yield every text and number in a value of JSON."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield str(name)
            yield from text_parts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from text_parts(each)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield str(value)


def _delete(file: sqlite3.Connection, where: str, values: Sequence[Any]) -> None:
    gone = file.execute(f"DELETE FROM items WHERE {where} RETURNING number", values).fetchall()  # noqa: S608 - constants
    file.executemany("DELETE FROM item_words WHERE rowid = ?", gone)


def _json(write: ItemWrite) -> str | None:
    if write.value is None:
        return None
    where = ".".join((*write.namespace, write.key))
    try:
        text = json.dumps(write.value, ensure_ascii=False)
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise ItemRefused(f"the item is not JSON: {error}", where=where) from error
    if size > LARGEST:
        raise ItemRefused(
            f"the item has {size:,} bytes; at most {LARGEST:,} are allowed", where=where,
            hint="store a summary, and the whole in a file",
        )  # fmt: skip
    return text


def _item(row: Sequence[Any]) -> StoredItem:
    namespace, key, value, created, updated, score = row
    return StoredItem(_split(namespace), key, json.loads(value), created, updated, score)


# Labels have no period, so a namespace is a path that ends in one: everything below it is a range.


def _joined(namespace: Namespace) -> str:
    if not namespace or not all(each and "." not in each for each in namespace):
        raise ItemRefused(f"not a namespace: {namespace!r}")
    return "".join(f"{each}." for each in namespace)


def _split(joined: str) -> Namespace:
    return tuple(joined.split(".")[:-1])


def _range(prefix: Namespace) -> tuple[str, str]:
    """The first path below a namespace, and the first behind it; "/" follows "."."""
    if not prefix:
        return "", "\U0010ffff"
    path = _joined(prefix)
    return path, f"{path[:-1]}/"


def _match(query: str) -> str:
    """A query of FTS5 for any of the words."""
    found = dict.fromkeys(words(storable(query)))
    quoted = [f'"{each}"' for each in found if any(map(str.isalnum, each))]
    return " OR ".join(quoted[:_MOST_QUERY_WORDS])


def _until(items: Iterable[StoredItem], end: int) -> Iterator[tuple[int, StoredItem]]:
    for at, each in enumerate(items):
        if at >= end:
            return
        yield at, each
