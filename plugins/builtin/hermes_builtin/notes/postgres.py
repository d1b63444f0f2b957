"""The notes in PostgreSQL: texts, history, what waits for a person, and whose they are.

The rules are those of `Notebook`. Whoever changes a notebook holds the lock of its row until the
text and the history are committed together, so two machines never write over each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from hermes_builtin.notes.entries import FileChanged, NotesError
from hermes_builtin.notes.notes_text import FileText
from hermes_builtin.notes.own_rows import give_rows_to_notebooks, target_of
from hermes_builtin.notes.people import Person, checked_name
from hermes_builtin.notes.text_owners import owner_of
from hermes_core.errors import DatabaseError
from hermes_core.storage.postgres import (
    FOR_NOBODY,
    Component,
    Connection,
    Database,
    Transactions,
    policy_changed,
    protect_table,
)
from hermes_core.storage.sql import Connection as SqlConnection

# A user's own notebook is called `user/FOLDER`. Where a transaction acts for one person, the
# policies hide those of all others; and everything, unless it is one of ours, which names the
# notebook.
_NOTEBOOK: Final = "(SELECT nullif(current_setting('hermes.scope', true), '')::jsonb ->> 'notes')"
_ASKED: Final = f"{FOR_NOBODY} OR {_NOTEBOOK} IS NOT NULL"
_OWN: Final = (
    f"{FOR_NOBODY} OR {_NOTEBOOK} = target OR {_NOTEBOOK} != '' AND target NOT LIKE 'user/%'"
)
_PENDING_TARGET: Final = "(record::json #>> '{payload,target}')"
# ``namespace`` is last where history.db has a table of the same name, for the order of its columns.
_TABLES: Final = f"""
CREATE TABLE hermes.notes_texts (
    namespace text NOT NULL DEFAULT current_setting('hermes.namespace'),
    target text NOT NULL,
    text text NOT NULL DEFAULT '',
    PRIMARY KEY (namespace, target)
);
CREATE TABLE hermes.notes_changes (
    id bigint GENERATED ALWAYS AS IDENTITY,
    target text NOT NULL,
    at double precision NOT NULL,
    who text NOT NULL,
    action text NOT NULL,
    session text NOT NULL,
    temporary text NOT NULL,
    inode bigint NOT NULL,
    before text,
    after text NOT NULL,
    entries text,
    namespace text NOT NULL DEFAULT current_setting('hermes.namespace'),
    PRIMARY KEY (namespace, id)
);
CREATE INDEX notes_changes_of ON hermes.notes_changes (namespace, target, id);
CREATE TABLE hermes.notes_allowed (
    hash text NOT NULL,
    at double precision NOT NULL,
    namespace text NOT NULL DEFAULT current_setting('hermes.namespace'),
    PRIMARY KEY (namespace, hash)
);
CREATE TABLE hermes.notes_blocked (
    number bigint GENERATED ALWAYS AS IDENTITY,
    id text NOT NULL,
    at double precision NOT NULL,
    target text NOT NULL,
    text text NOT NULL,
    reason text NOT NULL,
    namespace text NOT NULL DEFAULT current_setting('hermes.namespace'),
    PRIMARY KEY (namespace, id)
);
CREATE TABLE hermes.notes_origins (
    hash text NOT NULL,
    origin text NOT NULL,
    namespace text NOT NULL DEFAULT current_setting('hermes.namespace'),
    PRIMARY KEY (namespace, hash)
);
CREATE TABLE hermes.notes_pending (
    id text NOT NULL,
    record text NOT NULL,
    namespace text NOT NULL DEFAULT current_setting('hermes.namespace'),
    PRIMARY KEY (namespace, id)
);
CREATE TABLE hermes.notes_people (
    folder text NOT NULL,
    platform text NOT NULL,
    user_id text NOT NULL,
    namespace text NOT NULL DEFAULT current_setting('hermes.namespace'),
    PRIMARY KEY (namespace, folder)
);
{protect_table("notes_texts", _OWN)}
{protect_table("notes_changes", _OWN)}
{protect_table("notes_blocked", _OWN)}
{protect_table("notes_allowed", _ASKED)}
{protect_table("notes_origins", _ASKED)}
{protect_table("notes_pending", _OWN.replace("target", _PENDING_TARGET))}
{protect_table("notes_people", _OWN.replace("target", "('user/' || folder)"))}
"""

# An empty name is that of nobody's notebook.
_NAMED: Final = f"{FOR_NOBODY} OR {_NOTEBOOK} != ''"
_OWN_ROWS: Final = "".join(
    policy_changed(f"notes_{each}", _OWN) for each in ("allowed", "origins", "pending")
)


def _separate(connection: Connection) -> None:
    """Let people see hashes and waiting writes of their own notebooks and the shared ones only."""
    give_rows_to_notebooks(connection)
    connection.execute(_OWN_ROWS.encode())


NOTES: Final = Component(
    "notes",
    (
        _TABLES,
        policy_changed("notes_allowed", _NAMED) + policy_changed("notes_origins", _NAMED),
        _separate,
    ),
)
_NAMES: Final = ("texts", "changes", "allowed", "blocked", "origins", "pending", "people")


class StagedText(NamedTuple):
    """A new text. Nothing is stored before it is put in place."""

    text: str
    path: str = ""
    inode: int = 0

    def discard(self) -> None:
        """Forget it: there is nothing to remove."""


@contextmanager
def _as_notes_errors() -> Iterator[None]:
    try:
        yield
    except DatabaseError as error:
        raise NotesError(error.what, where=error.where, hint=error.hint) from error


class NotesTables:
    """All notes of one home.

    Args:
        database: Where.
        only: The notebook of the person whom this is for: those of others can't be seen. "" for
            the person at the terminal, who decides about everybody's.
    """

    exists = True
    order = "number"

    def __init__(self, database: Database, only: str = "") -> None:
        scope = {"notes": only} if only else None
        self._transactions = Transactions(database, NOTES, _NAMES, scope)
        #: As a person without any notes would see them.
        self._of_nobody = Transactions(database, NOTES, _NAMES, {"notes": "user/"})
        self.where = database.where

    @property
    def database(self) -> NotesTables:
        """The history, and what the guard refused and a person allowed."""
        return self

    @property
    def records(self) -> RecordRows:
        """The writes that wait for a person."""
        return RecordRows(self)

    @property
    def people(self) -> PeopleRows:
        """Who has their own notes."""
        return PeopleRows(self)

    def text(self, target: str, name: str = "") -> TextRow:
        """The text of a notebook: of the home, or of the user with this name."""
        return TextRow(self, f"{target}/{checked_name(name)}" if name else target)

    @contextmanager
    def transaction(self) -> Iterator[SqlConnection]:
        """Commit everything done inside, or nothing. A nested one is part of the outer one."""
        with _as_notes_errors(), self._transactions.begin() as connection:
            yield connection

    opened = reading = transaction

    def of_home(self, table: str) -> str:
        """The condition for the rows of this home."""
        return f"{table}.namespace = current_setting('hermes.namespace')"

    def insert(self, connection: SqlConnection, statement: str, values: Sequence[Any]) -> int:
        """Insert a row, and return its number."""
        return int(connection.execute(f"{statement} RETURNING id", values).fetchone()[0])

    def fetch(self, statement: str, *values: Any) -> list[Any]:
        """The rows that a query returns."""
        with _as_notes_errors():
            return self._transactions.read(
                lambda connection: connection.execute(statement, values).fetchall()
            )

    def put_origin(self, connection: SqlConnection, target: str, hashed: str, origin: str) -> None:
        """Record where a text comes from, for those who see the notebook."""
        connection.execute(
            "INSERT INTO origins (target, hash, origin) VALUES (?, ?, ?)"
            " ON CONFLICT (namespace, target, hash) DO UPDATE SET origin = excluded.origin",
            (owner_of(target), hashed, origin),
        )

    def put_allowed(self, connection: SqlConnection, target: str, hashed: str, at: float) -> None:
        """Record that a person vouches for a text, for those who see the notebook."""
        connection.execute(
            "INSERT INTO allowed (target, hash, at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            (owner_of(target), hashed, at),
        )

    def overwrite_deleted(self, connection: SqlConnection) -> None:
        """Nothing: the server decides when it overwrites what was deleted."""

    def erase_free_space(self) -> bool:
        """False: only the server's own VACUUM does that, and its log has it longer."""
        return False

    def check(self) -> None:
        """Raise `NotesError` unless every table can be read, by a person as well.

        The server checks its pages itself. What a policy can't decide about fails for people only.
        """
        for each in (self._transactions, self._of_nobody):
            with _as_notes_errors():
                each.read(_count_all)

    def close(self) -> None:
        """Nothing to close: the connections belong to all of the process."""


class TextRow:
    """The text of one notebook, and its lock."""

    def __init__(self, tables: NotesTables, key: str) -> None:
        self.place = f"{tables.where} ({key})"
        self._tables = tables
        self._key = key
        self._which = f"WHERE {tables.of_home('texts')} AND target = ?"

    @property
    def exists(self) -> bool:
        """Whether there is one, whatever is in it."""
        return bool(self._tables.fetch(f"SELECT 1 FROM texts {self._which}", self._key))

    def read(self) -> str:
        """The text; "" if there is none."""
        rows = self._tables.fetch(f"SELECT text FROM texts {self._which}", self._key)
        return str(rows[0][0]) if rows else ""

    def look(self) -> FileText:
        """The text. It is in no file."""
        return FileText(self.read(), 0)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the row; everything done inside is committed together."""
        with self._tables.transaction() as connection:
            connection.execute(
                "INSERT INTO texts (target) VALUES (?) ON CONFLICT DO NOTHING", (self._key,)
            )
            connection.execute(f"SELECT 1 FROM texts {self._which} FOR UPDATE", (self._key,))
            yield

    def write_aside(self, text: str) -> StagedText:
        """A new text, ready to be put in place."""
        return StagedText(text)

    def put_in_place(self, staged: StagedText, expected: str) -> bool:
        """Let it take the place of ``expected``.

        Raises:
            FileChanged: Somebody changed the row without its lock.
        """
        with self._tables.transaction() as connection:
            done = connection.execute(
                f"UPDATE texts SET text = ? {self._which} AND text = ?",
                (staged.text, self._key, expected),
            )
            if done.rowcount != 1:
                raise FileChanged(f"{self.place} was changed in the meantime")
        return True


def _count_all(connection: SqlConnection) -> None:
    for each in _NAMES:
        connection.execute(f"SELECT count(*) FROM {each}").fetchone()


class RecordRows:
    """The writes that wait for a person."""

    def __init__(self, tables: NotesTables) -> None:
        self._tables = tables
        self._which = f"WHERE {tables.of_home('pending')} AND id = ?"

    def store(self, name: str, record: str) -> None:
        """Store a record."""
        with self._tables.transaction() as connection:
            connection.execute(
                "INSERT INTO pending (id, record, target) VALUES (?, ?, ?)",
                (name, record, target_of(record)),
            )

    def all(self) -> list[tuple[str, str]]:
        """The ids and where each record is, for messages."""
        rows = self._tables.fetch(f"SELECT id FROM pending WHERE {self._tables.of_home('pending')}")
        return [(name, f"{self._tables.where} (pending write {name})") for (name,) in rows]

    def texts(self) -> dict[str, str]:
        """Every record by its id, also one that can't be used."""
        own = self._tables.of_home("pending")
        return dict(self._tables.fetch(f"SELECT id, record FROM pending WHERE {own}"))

    def read(self, name: str) -> str:
        """A record; "" if there is none."""
        rows = self._tables.fetch(f"SELECT record FROM pending {self._which}", name)
        return str(rows[0][0]) if rows else ""

    def exists(self, name: str) -> bool:
        """Whether there is such a record."""
        return bool(self._tables.fetch(f"SELECT 1 FROM pending {self._which}", name))

    def remove(self, name: str) -> None:
        """Remove a record, if there is one."""
        with self._tables.transaction() as connection:
            connection.execute(f"DELETE FROM pending {self._which}", (name,))


class PeopleRows:
    """Everybody with their own USER.md."""

    def __init__(self, tables: NotesTables) -> None:
        self._tables = tables
        self._own = tables.of_home("people")

    def introduce(self, person: Person) -> None:
        """Note whose notes these are: the name does not say it."""
        with self._tables.transaction() as connection:
            connection.execute(
                "INSERT INTO people (folder, platform, user_id) VALUES (?, ?, ?)"
                " ON CONFLICT DO NOTHING",
                (person.folder, *person),
            )

    def person(self, name: str) -> Person | None:
        """Whose they are; None if nobody noted it."""
        rows = self._tables.fetch(
            f"SELECT platform, user_id FROM people WHERE {self._own} AND folder = ?", name
        )
        return Person(*rows[0]) if rows else None

    def exists(self, name: str) -> bool:
        """Whether there is anything of this user."""
        known = f"SELECT 1 FROM people WHERE {self._own} AND folder = ?"
        return self._tables.text("user", name).exists or bool(self._tables.fetch(known, name))

    def drop(self, name: str) -> None:
        """Delete the notes of a user, and who it is."""
        text = self._tables.text("user", name)
        with text.locked(), self._tables.transaction() as connection:
            connection.execute(
                f"DELETE FROM texts WHERE {self._tables.of_home('texts')} AND target = ?",
                (f"user/{name}",),
            )
            connection.execute(f"DELETE FROM people WHERE {self._own} AND folder = ?", (name,))

    def names(self) -> list[str]:
        """The names of all users with notes, whether or not it was noted who they are."""
        own = f"{self._tables.of_home('texts')} AND target LIKE 'user/%'"
        known = self._tables.fetch(f"SELECT folder FROM people WHERE {self._own}")
        texts = self._tables.fetch(f"SELECT target FROM texts WHERE {own}")
        return sorted({folder for (folder,) in known} | {each[5:] for (each,) in texts})

    def all(self) -> list[Person]:
        """Everybody."""
        rows = self._tables.fetch(
            f"SELECT platform, user_id FROM people WHERE {self._own} ORDER BY folder"
        )
        return [Person(*row) for row in rows]
