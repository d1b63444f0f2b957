"""The notes of an export, on their way into a home: docs/portable-format.md."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from hermes_builtin.notes import Author, Change, Notebook, Notes, Person
from hermes_core.config import load_config

IMPORT: Final = "import"
#: Origins of so many entries are in memory.
_SOME_ORIGINS: Final = 500
#: Changes of notebooks, and where their entries come from, until all of them were read.
_WAITING: Final = """
PRAGMA journal_mode = OFF;
CREATE TABLE changes (id INTEGER PRIMARY KEY, notebook TEXT, line BLOB);
CREATE INDEX changes_of ON changes (notebook);
CREATE TABLE origins (
    id INTEGER PRIMARY KEY, notebook TEXT, text TEXT, origin TEXT, UNIQUE (text, notebook)
);
CREATE INDEX origins_of ON origins (notebook);
BEGIN;
"""

Record = Mapping[str, Any]


class NotesImport:
    """Collects everything about the notes, and stores it at the end.

    Notes are few, but their history may be long, so it waits in a database without a name: SQLite
    writes it to the disk, and it is gone with the connection.
    """

    def __init__(self, counts: Counter[str]) -> None:
        self._database = sqlite3.connect("", isolation_level=None)
        self._database.executescript(_WAITING)
        self._counts = counts
        self._notebooks: dict[str, _Contents] = {}
        self._pending: dict[str, Record] = {}
        self._people: list[Person] = []

    def add(self, record: Record) -> None:
        """A record; those of other kinds are ignored."""
        match record["type"]:
            case "person":
                self._people.append(Person(record["platform"], record["user_id"]))
            case "change" | "note":
                key = record["notebook"]
                if key not in self._notebooks:
                    self._notebooks[key] = _Contents(self._database, key)
                self._notebooks[key].add(record)
            case "pending":
                self._pending[record["id"]] = record["record"]

    def store(self, home: Path) -> None:
        """Store all of it."""
        with closing(Notes.open(home, load_config(home).memory)) as notes:
            for person in self._people:
                notes.introduce(person)
            # All of them first: what one notebook gets says nothing about the text in another.
            for contents in self._notebooks.values():
                for some in contents.origins():
                    contents.drop_origins(notes.history.recorded_origins(some))
            for key, contents in self._notebooks.items():
                _import_notebook(notes, notes.book(key), contents, self._counts)
            _import_pending(notes, self._pending, self._counts)

    def close(self) -> None:
        """Forget what was collected."""
        self._database.close()


class _Contents:
    """What a file has of one notebook.

    Attributes:
        entries: Its notes.
        changes: How many changes of it there are.
        text: What the last of them left.
    """

    def __init__(self, database: sqlite3.Connection, notebook: str) -> None:
        self._database = database
        self._notebook = notebook
        self.entries: list[str] = []
        self.changes = 0
        self.text = ""

    def add(self, record: Record) -> None:
        """A note or a change."""
        if record["type"] == "note":
            self.entries.append(record["text"])
            known = {record["text"]: record["origin"]} if "origin" in record else {}
        else:
            self._database.execute(
                "INSERT INTO changes (notebook, line) VALUES (?, ?)",
                (self._notebook, json.dumps(record)),
            )
            self.changes += 1
            self.text = record["after"]
            known = record.get("origins", {})
        self._database.executemany(
            "INSERT INTO origins (notebook, text, origin) VALUES (?, ?, ?)"
            " ON CONFLICT (text, notebook) DO UPDATE SET origin = excluded.origin",
            [(self._notebook, text, origin) for text, origin in known.items()],
        )

    def history(self) -> Iterator[Change]:
        """Its changes, oldest first."""
        rows = self._database.execute(
            "SELECT line FROM changes WHERE notebook = ? ORDER BY id", (self._notebook,)
        )
        before = ""
        for (line,) in rows:
            change = _change_of(json.loads(line), before)
            yield change
            before = change.after

    def origins(self) -> Iterator[dict[str, str]]:
        """Where its entries come from, some at a time."""
        last = 0
        while rows := self._database.execute(
            "SELECT id, text, origin FROM origins WHERE notebook = ? AND id > ?"
            " ORDER BY id LIMIT ?",
            (self._notebook, last, _SOME_ORIGINS),
        ).fetchall():
            yield {text: origin for _, text, origin in rows}
            last = rows[-1][0]

    def drop_origins(self, texts: Iterable[str]) -> None:
        """Forget where these entries come from."""
        self._database.executemany(
            "DELETE FROM origins WHERE notebook = ? AND text = ?",
            [(self._notebook, each) for each in texts],
        )


def _change_of(record: Record, before: str) -> Change:
    entries = record.get("entries")
    return Change(
        record["notebook"],
        record["who"],
        record["action"],
        record.get("session", ""),
        record.get("before", before),
        record["after"],
        None if entries is None else json.dumps(entries, ensure_ascii=False),
        at=float(record["at"]),
    )


def _import_notebook(
    notes: Notes, book: Notebook, contents: _Contents, counts: Counter[str]
) -> None:
    is_restored = contents.changes > 0 and book.restore(
        contents.history(), contents.text, contents.origins()
    )
    counts["change"] += contents.changes if is_restored else 0
    # Also after that: somebody may have added a note to the file, and no change.
    present = set(book.read().entries)
    new = [each for each in contents.entries if each not in present]
    counts["known"] += 0 if is_restored else len(contents.entries) - len(new)
    counts["note"] += len(contents.entries) if is_restored else len(new)
    if new:
        book.merge(new, Author(IMPORT))
        for some in contents.origins():
            of_new = {each: some[each] for each in new if each in some}
            notes.history.record_origins(of_new, book.key)


def _import_pending(notes: Notes, pending: Mapping[str, Record], counts: Counter[str]) -> None:
    for name, record in pending.items():
        if not notes.pending.is_id(name):  # it would become part of a path
            counts["refused"] += 1
        elif notes.pending.restore(name, record):
            counts["pending"] += 1
        else:
            counts["known"] += 1
