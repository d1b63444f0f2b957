"""Where the notes of a home are: their texts, their history, what waits, and whose they are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from hermes_builtin.notes.history_file import HistoryFile, NotesDatabase
from hermes_builtin.notes.notebook import FILES
from hermes_builtin.notes.notes_text import NotesFile, NotesText
from hermes_builtin.notes.pending import RecordFiles, Records
from hermes_builtin.notes.people import PeopleFolders, Person

if TYPE_CHECKING:
    from hermes_core.storage.postgres import Database


class People(Protocol):
    """Everybody with their own USER.md, by the name of their folder."""

    def introduce(self, person: Person) -> None:
        """Note whose notes these are: the name does not say it."""

    def person(self, name: str) -> Person | None:
        """Whose they are; None if nobody noted it."""

    def all(self) -> list[Person]:
        """Everybody."""

    def names(self) -> list[str]:
        """The names of all folders, whether or not it was noted whose they are."""

    def exists(self, name: str) -> bool:
        """Whether there is anything of this user."""

    def drop(self, name: str) -> None:
        """Delete the notes of a user, and who it is; the caller has the lock of the notes."""


class NotesStorage(Protocol):
    """What `Notes` needs of files, or of a database.

    Attributes:
        database: The history, and what the guard refused and a person allowed.
        records: The writes that wait for a person.
        people: Who has their own notes.
    """

    @property
    def database(self) -> NotesDatabase: ...  # noqa: D102 - see above
    @property
    def records(self) -> Records: ...  # noqa: D102
    @property
    def people(self) -> People: ...  # noqa: D102

    def text(self, target: str, name: str = "") -> NotesText:
        """The text of a notebook: of the home, or of the user with this folder."""

    def close(self) -> None:
        """Close what is open."""


class NotesFolder:
    """Files. Names and formats are hermes-agent's: both programs may use one home."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "memories"
        self.database = HistoryFile(self._folder / "history.db")
        self.records = RecordFiles(home)
        self.people = PeopleFolders(self._folder)

    def text(self, target: str, name: str = "") -> NotesFile:
        """The text of a notebook: of the home, or of the user with this folder."""
        folder = self.people.folder(name) if name else self._folder
        return NotesFile(folder / FILES[target])

    def close(self) -> None:
        """Close the history."""
        self.database.close()


def open_storage(home: Path, database: Database | None = None, only: str = "") -> NotesStorage:
    """The notes of a home: its files, or what is in its database.

    Args:
        home: The home.
        database: Where it stores what it remembers; None for files.
        only: The notebook of the one person whom this is for; "" for the person at the terminal.
    """
    if database is None:
        return NotesFolder(home)
    from hermes_builtin.notes.postgres import NotesTables  # noqa: PLC0415 - imports psycopg

    return NotesTables(database, only)
