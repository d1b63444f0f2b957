"""The conversations and the notes as parts of what a home stores: for `hermes-plugins storage`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from hermes_builtin.notes import NotesError
from hermes_builtin.notes.history import divided
from hermes_builtin.notes.history_file import HistoryFile
from hermes_builtin.notes.notebook import TARGETS
from hermes_builtin.notes.notes_text import NotesText
from hermes_builtin.notes.pending import RecordFiles
from hermes_builtin.notes.storage import open_storage
from hermes_builtin.notes.text_owners import SHARED, owners_by_hash
from hermes_builtin.sessions.archive import (
    DELETED,
    EVERYBODY,
    REPLACED,
    Message,
    NewMessage,
    Session,
    StoredTurn,
)
from hermes_builtin.sessions.conversations import open_archive
from hermes_builtin.sessions.hermes_agent import archive_files, theirs_in
from hermes_builtin.sessions.location import Location
from hermes_builtin.sessions.numbers import SESSION_BITS, place_of, session_of
from hermes_builtin.sessions.spool import Spool
from hermes_builtin.sessions.sqlite.archive import SqliteArchive
from hermes_builtin.sessions.sqlite.rows import SqliteRows
from hermes_core.checkup.migration import CONTINUE, was_interrupted
from hermes_core.config.storage import home_database
from hermes_core.errors import HermesError
from hermes_core.privacy.origin import lowest
from hermes_core.storage.migration import (
    Digest,
    Progress,
    StoragePart,
    Tables,
    freeze_file,
    freeze_namespace,
    frozen_hint,
    no_progress,
    thaw_file,
    thaw_namespace,
)
from hermes_core.storage.sql import Connection

if TYPE_CHECKING:
    from hermes_core.storage.postgres import Component, Database

#: Messages per transaction of the copy.
_STEP: Final = 500


def parts_of(home: Path, database: Database | None) -> list[StoragePart]:
    """The conversations and the notes of a home: in its files, or in a database."""
    return [ConversationsPart(home, database), NotesPart(home, database)]


def spooled(home: Path, *, seconds: float = 0) -> tuple[int, str]:
    """How many turns wait in the spool, and why; hand them over first, for so long."""
    spool = Spool(home, partial(open_archive, home))
    problem = ""
    if seconds and spool.waiting().turns:
        archive = open_archive(home)
        try:
            problem = str(spool.hand_over(archive, seconds) or "")
        finally:
            archive.close()
    waiting = spool.waiting()
    return waiting.turns, problem or waiting.why


def moved(home: Path) -> HermesError | None:
    """That this memory has moved elsewhere, and takes no changes here; None if it does."""
    try:
        with closing(ConversationsPart(home, home_database(home))) as part:
            why = part.frozen()
    except (HermesError, OSError):  # other checks report it
        return None
    if not why:
        return None
    hint = f"a migration was interrupted: {CONTINUE}" if was_interrupted(home) else frozen_hint(why)
    return HermesError(why, where=part.place, hint=hint)


# -- conversations ------------------------------------------------------------------------------


class ArchiveRows(Protocol):
    """What a copy needs of an archive, besides the protocol that everybody uses."""

    def restore(self, session: Session, messages: Sequence[Message]) -> None:
        """Store a session as it is, and more messages of it at their places."""

    def copied(self) -> dict[int, int]:
        """Up to which place the sessions are a copy and nothing else, by their numbers."""

    def forget_copied(self) -> None:
        """Forget which sessions are a copy."""

    def turns(self) -> Iterator[list[StoredTurn]]:
        """The turns whose keys are known, some at a time."""

    def restore_turns(self, turns: Iterable[StoredTurn]) -> None:
        """Remember the keys of turns, so that the spool does not store them again."""

    def imports(self) -> list[tuple[str, str, int]]:
        """Up to where sessions of others were taken over: origin, session, position."""

    def restore_imports(self, rows: Iterable[tuple[str, str, int]]) -> None:
        """Store these positions."""

    def marks(self) -> list[str]:
        """What was said once."""

    def set_marks(self, added: Iterable[str] = (), removed: Iterable[str] = ()) -> None:
        """Note that something was said once, or that it was not."""

    def freeze(self, why: str, copy: str = "") -> None:
        """Refuse changes from now on."""

    def thaw(self, copy: str = "") -> None:
        """Allow changes again."""

    def copier(self) -> str:
        """The id of the migration that copies to here; "" if none does."""

    def copy_as(self, migration: str) -> None:
        """Store to what is frozen, for the migration with this id. "" ends that."""

    def frozen(self) -> str:
        """Why changes are refused; "" if they are not."""

    def close(self) -> None:
        """Close it."""


class ConversationsPart:
    """All conversations of a home."""

    name = "conversations"

    def __init__(self, home: Path, database: Database | None) -> None:
        self.component: Component | None = None
        if database is None:
            where = archive_files(home)
            location = Location(str(where.path), where.theirs, where.path)
            self._rows: ArchiveRows = SqliteRows(where.path)
        else:
            from hermes_builtin.sessions.postgres.rows import PostgresRows  # noqa: PLC0415 - an extra
            from hermes_builtin.sessions.postgres.schema import COMPONENT  # noqa: PLC0415

            location = Location(database.where, theirs_in(home), database=database)
            self._rows = PostgresRows(database)
            self.component = COMPONENT
        self.place = location.shown
        self._archive = location.open()

    def counts(self) -> dict[str, int]:
        """How many sessions and messages there are."""
        found = self._archive.stats()
        return {"sessions": found.sessions, "messages": found.messages}

    def deletions(self) -> int:
        """How many deletions and replacements of texts have left a mark."""
        return sum(each.startswith((DELETED, REPLACED)) for each in self._rows.marks())

    def size(self) -> int:
        """How many bytes the file, or the tables of all namespaces, take."""
        return self._archive.stats().bytes

    def check(self, progress: Progress) -> list[str]:
        """What the archive's own check finds."""
        return [each.what for each in self._archive.check(progress)]

    def _sessions(self) -> list[Session]:
        """All sessions, in the order in which they were first stored here."""
        return sorted(self._archive.sessions(EVERYBODY), key=lambda each: each.number)

    def copy_from(self, source: ConversationsPart, progress: Progress) -> None:
        """Store what is missing here; whatever is here already stays."""
        here = {each.id: each for each in self._sessions()}
        total, done = source.counts()["messages"], 0
        for session in source._sessions():
            known = here.get(session.id)
            if known is None or known._replace(number=session.number) != session:
                self._copy(source, session, known)
            done += session.messages
            progress(done, max(total, done))
        self._rows.restore_imports(source._rows.imports())
        marks = source._rows.marks()
        self._rows.set_marks(marks, {*self._rows.marks()} - {*marks})
        self._copy_turns(source)

    def _copy_turns(self, source: ConversationsPart) -> None:
        """Copy the keys of turns: one may wait in the spool of a machine that does not know yet."""
        names = {each.number: each.id for each in source._sessions()}
        numbers = {each.id: each.number for each in self._sessions()}
        for page in source._rows.turns():
            self._rows.restore_turns(
                turn._replace(ids=[new for old in turn.ids if (new := _moved(old, names, numbers))])
                for turn in page
            )

    def _copy(self, source: ConversationsPart, session: Session, known: Session | None) -> None:
        """Copy the messages behind those that are here. The last step has the facts as well."""
        last = self._archive.last(known, 1) if known is not None else []
        after = place_of(last[0].id) if last else -1
        missing = (each for each in source._archive.messages(session) if place_of(each.id) > after)
        while some := list(islice(missing, _STEP)):
            self._rows.restore(session, some)
            if len(some) < _STEP:
                return
        self._rows.restore(session, ())

    def correct(self, source: ConversationsPart, progress: Progress) -> None:
        """Make this copy like the source, where something was deleted or replaced since.

        What somebody else has stored here stays: only messages of this copy are touched, which
        have numbers below those of all others in their session.
        """
        copied = self._rows.copied()
        there = {each.id: each for each in source._sessions()}
        here = self._sessions()
        for done, session in enumerate(here, 1):
            if (most := copied.get(session.number)) is not None:
                self._correct(source, session, there.get(session.id), most)
            progress(done, len(here))
        self.copy_from(source, no_progress)

    def _correct(
        self, source: ConversationsPart, session: Session, other: Session | None, most: int
    ) -> None:
        """Remove the messages of a session that the source lacks, and replace those that differ.

        Args:
            source: Where it is copied from.
            session: The copy.
            other: The session of that id at the source, if there is one.
            most: Up to which place it is a copy.
        """
        here = _by_place(self._archive.messages(session))
        is_same = other is not None and _is_same_talk(session, other)
        there = _by_place(source._archive.messages(other)) if other and is_same else {}
        copies = {at: each for at, each in here.items() if at < most}
        if not _is_beginning(here, copies, there):
            is_same, there = False, {}  # another conversation of that name: it is copied again
        gone = [each.id for at, each in copies.items() if at not in there]
        if gone or not (here or is_same):
            self._archive.remove(session, gone)
        for at, each in copies.items():
            if at in there and each[1:] != there[at][1:]:
                self._archive.replace_message(each.id, NewMessage(*there[at][1:]))

    def digest(self, progress: Progress) -> str:
        """A checksum of all facts and messages, read as everybody reads them."""
        digest = Digest()
        total, done = self.counts()["messages"], 0
        # By id: what was deleted at the source and stored again has another number here.
        for session in sorted(self._sessions(), key=_id):
            digest.add(session[1:])
            for each in self._archive.messages(session):
                extra = dict(each.extra)
                digest.add((place_of(each.id), each.role, each.content, each.at, extra))
            done += session.messages
            progress(done, max(total, done))
        digest.add(self._rows.imports())
        digest.add(self._rows.marks())
        return digest.value()

    def copier(self) -> str:
        """The id of the migration that copies to here; "" if none does."""
        return self._rows.copier()

    def forget_copied(self) -> None:
        """Forget which conversations are a copy: this is complete."""
        self._rows.forget_copied()

    def freeze(self, why: str, copy: str = "") -> None:
        """Refuse changes from now on."""
        if copy:
            self._archive.prepare()
        self._rows.freeze(why, copy)

    def thaw(self, copy: str = "") -> None:
        """Allow changes again."""
        self._rows.thaw(copy)

    def copy_as(self, migration: str) -> None:
        """Store to what is frozen, for the migration with this id. "" ends that."""
        self._rows.copy_as(migration)
        if isinstance(self._archive, SqliteArchive):  # it has the file open as well
            self._archive.copy_as(migration)

    def frozen(self) -> str:
        """Why changes are refused: where this memory has moved; "" if they are not."""
        return self._rows.frozen()

    def close(self) -> None:
        """Close the archive."""
        self._rows.close()
        self._archive.close()


def _id(session: Session) -> str:
    return session.id


def _is_same_talk(session: Session, other: Session) -> bool:
    """Whether two sessions are of the same person and have the same source."""
    return (session.source, session.name, *session.owner, session.platform) == (
        other.source, other.name, *other.owner, other.platform,
    )  # fmt: skip


def _by_place(messages: Iterable[Message]) -> dict[int, Message]:
    return {place_of(each.id): each for each in messages}


def _is_beginning(
    here: Mapping[int, Message], copies: Mapping[int, Message], there: Mapping[int, Message]
) -> bool:
    """Whether messages are a copy of those of the source, as they were at some time."""
    missing = (at for at in there if at not in here and at < max(here, default=-1))
    both = (at for at in copies if at in there)
    return next(missing, None) is None and all(
        (copies[at].role, copies[at].at) == (there[at].role, there[at].at) for at in both
    )


def _moved(message: int, names: Mapping[int, str], numbers: Mapping[str, int]) -> int:
    """The number that a message has in the copy; 0 if its session was deleted."""
    number = numbers.get(names.get(session_of(message), ""))
    return 0 if number is None else message + ((number - session_of(message)) << SESSION_BITS)


# -- notes --------------------------------------------------------------------------------------

_CHANGES: Final = "target, at, who, action, session, before, after, entries"
# Their columns, and the order of the rows. What is not a fact of a home is left out: numbers, which
# are new in the copy, and which file a text was in.
_COPIED: Final = {
    "allowed": ("hash, at", "hash, at"),
    "origins": ("hash, origin", "hash, origin"),
    "blocked": ("id, at, target, text, reason", ""),
}
#: Which of several values of a text counts.
_HASHED: Final[Mapping[str, Callable[[Iterable[Any]], Any]]] = {"allowed": min, "origins": lowest}
_TABLES: Final[Tables] = dict.fromkeys(("changes", *_COPIED), "")
_MORE_TABLES: Final = ("texts", "pending", "people")


class NotesPart:
    """All notebooks of a home, their history, what waits for a person, and whose they are."""

    name = "notes"

    def __init__(self, home: Path, database: Database | None) -> None:
        self._home, self._database = home, database
        self._storage = open_storage(home, database)
        self._rows = self._storage.database
        self.place = str(home / "memories") if database is None else database.where
        self.component: Component | None = None
        if database is not None:
            from hermes_builtin.notes.postgres import NOTES  # noqa: PLC0415 - imports psycopg

            self.component = NOTES

    # -- reading --------------------------------------------------------------------------

    def _keys(self) -> list[str]:
        """The notebooks that there are, or that the history knows."""
        own = [f"user/{name}" for name in self._storage.people.names()]
        known = {target for target, *_ in self._changes()} if self._rows.exists else set()
        return sorted({*TARGETS, *own, *known})

    def _text(self, key: str) -> NotesText:
        target, _, name = key.partition("/")
        return self._storage.text(target, name)

    def _texts(self) -> dict[str, str]:
        """The text of each notebook that exists."""
        texts = ((key, self._text(key)) for key in self._keys())
        return {key: text.read() for key, text in texts if text.exists}

    def _changes(self) -> list[tuple[Any, ...]]:
        """The history, without a change that was begun and never made."""
        query = f"SELECT {_CHANGES}, temporary FROM changes WHERE {self._own('changes')}"  # noqa: S608
        rows = self._fetch(f"{query} ORDER BY id")
        return [tuple(row[:-1]) for row in rows if not (row[-1] and os.path.lexists(row[-1]))]

    def _table(self, name: str) -> list[tuple[Any, ...]]:
        columns, order = _COPIED[name]
        query = f"SELECT {columns} FROM {name} WHERE {self._own(name)}"  # noqa: S608
        rows = list(map(tuple, self._fetch(f"{query} ORDER BY {order or self._rows.order}")))
        if name not in _HASHED:
            return rows
        # A database has a row for each notebook with the text.
        merged = _HASHED[name]
        return [(each, merged(row[1] for row in same)) for each, same in groupby(rows, _hash_of)]

    def _owners(self) -> Mapping[str, set[str]]:
        """Whose notebooks have which texts, by their hashes."""
        changes = [(row[0], row[5], row[6], row[7]) for row in self._changes()]
        blocked = [(row[2], row[3]) for row in self._table("blocked")]
        return owners_by_hash(self._texts().items(), changes, blocked)

    def _own(self, table: str) -> str:
        return self._rows.of_home(table)

    def _fetch(self, query: str) -> list[Any]:
        if not self._rows.exists:
            return []
        with self._rows.reading() as connection:
            return connection.execute(query).fetchall()

    def _pending(self) -> dict[str, str]:
        """What waits for a person. A record that is not JSON stays where it is."""
        return {
            name: text for name, text in self._storage.records.texts().items() if _is_json(text)
        }

    def counts(self) -> dict[str, int]:
        """How many notebooks with a text, changes, waiting writes, and decisions there are."""
        return {
            "notebooks": sum(bool(text) for text in self._texts().values()),
            "changes": len(self._changes()),
            "pending": len(self._pending()),
            **{name: len(self._table(name)) for name in _COPIED},
        }

    def size(self) -> int:
        """About how many bytes they take."""
        texts = sum(len(text) for text in self._texts().values())
        return texts + sum(len(row[6]) for row in self._changes())

    def check(self, progress: Progress) -> list[str]:
        """Damage of the history, and texts that can't be read."""
        problems: list[str] = []
        with _noting(problems):
            if self._rows.exists:
                self._rows.check()
            odd = {target for target, *_, seen in self._changes() if seen and divided(seen) is None}
            problems += [
                f"a change of {each} has entries that are not JSON" for each in sorted(odd)
            ]
        for done, key in enumerate(keys := self._keys(), 1):
            with _noting(problems):
                self._text(key).read()
            progress(done, len(keys))
        broken = self._storage.records.texts().keys() - self._pending().keys()
        return [*problems, *(f"the pending write {each} is not JSON" for each in sorted(broken))]

    # -- copying --------------------------------------------------------------------------

    def copy_from(self, source: NotesPart, progress: Progress) -> None:
        """Take over all of it. They are small, so every pass replaces everything."""
        people, texts = source._storage.people.all(), source._texts()
        for person in self._storage.people.all():
            if person not in people:  # dropped at the source since an earlier pass
                self._storage.people.drop(person.folder)
        for key in self._texts().keys() - texts.keys():
            self._put(key, "")
        for person in people:
            self._storage.people.introduce(person)
        for done, (key, text) in enumerate(texts.items(), 1):
            self._put(key, text)
            progress(done, len(texts))
        with self._rows.transaction() as connection:
            self._replace(connection, source)
        records = source._pending()
        for name, text in self._storage.records.texts().items():
            if records.get(name) != text:
                self._storage.records.remove(name)
        for name, text in records.items():
            if not self._storage.records.exists(name):
                self._storage.records.store(name, text)

    def _put(self, key: str, text: str) -> None:
        page = self._text(key)
        with page.locked():
            if not page.exists or page.read() != text:
                page.put_in_place(page.write_aside(text), page.read())

    def _replace(self, connection: Connection, source: NotesPart) -> None:
        for table in ("changes", *_COPIED):
            connection.execute(f"DELETE FROM {table} WHERE {self._own(table)}")  # noqa: S608
        connection.executemany(
            f"INSERT INTO changes ({_CHANGES}, temporary, inode)"  # noqa: S608
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, '', 0)",
            source._changes(),
        )
        columns, _ = _COPIED["blocked"]
        connection.executemany(
            f"INSERT INTO blocked ({columns}) VALUES (?, ?, ?, ?, ?)",  # noqa: S608
            source._table("blocked"),
        )
        owners = source._owners()
        for hashed, at in source._table("allowed"):
            for owner in owners.get(hashed, (SHARED,)):
                self._rows.put_allowed(connection, owner, hashed, at)
        for hashed, origin in source._table("origins"):
            for owner in owners.get(hashed, (SHARED,)):
                self._rows.put_origin(connection, owner, hashed, origin)
        # The newest change of a notebook is the one that left the text in this file.
        for key in source._keys():
            connection.execute(
                "UPDATE changes SET inode = ? WHERE id = (SELECT max(id) FROM changes"  # noqa: S608
                f" WHERE {self._own('changes')} AND target = ?)",
                (self._text(key).look().inode, key),
            )

    def digest(self, progress: Progress) -> str:
        """A checksum of all of it."""
        digest = Digest()
        # An empty notebook is the same as none.
        texts = {key: text for key, text in self._texts().items() if text}
        rows = [texts, self._changes(), self._pending(), self._storage.people.all()]
        rows += [self._table(name) for name in _COPIED]
        for done, each in enumerate(rows, 1):
            digest.add([each])
            progress(done, len(rows))
        return digest.value()

    # -- freezing -------------------------------------------------------------------------

    def freeze(self, why: str, copy: str = "") -> None:
        """Refuse changes from now on."""
        if isinstance(self._rows, HistoryFile):
            with self._rows.transaction() as connection:
                freeze_file(connection, _TABLES, why, copy)
            RecordFiles(self._home).freeze(why)
            return
        with self._as_owner() as (owner, namespace, tables):
            freeze_namespace(owner, namespace, tables, why, copy)

    def copy_as(self, migration: str) -> None:
        """Store to what is frozen, for the migration with this id. "" ends that."""
        if self._database is not None:
            self._database.copy_as(migration)
            return
        assert isinstance(self._rows, HistoryFile)  # noqa: S101 - else there is a database
        assert isinstance(self._storage.records, RecordFiles)  # noqa: S101
        self._rows.copy_as(migration)
        self._storage.records.is_copying = bool(migration)

    def thaw(self, copy: str = "") -> None:
        """Allow changes again."""
        if isinstance(self._rows, HistoryFile):
            RecordFiles(self._home).thaw()
            if self._rows.exists:
                with self._rows.transaction() as connection:
                    thaw_file(connection, _TABLES)
            return
        with self._as_owner() as (owner, namespace, tables):
            thaw_namespace(owner, namespace, tables, copy)

    @contextmanager
    def _as_owner(self) -> Iterator[tuple[Any, str, Tables]]:
        assert self._database is not None  # noqa: S101 - else it is a file
        assert self.component is not None  # noqa: S101
        tables = {f"notes_{name}": "" for name in (*_TABLES, *_MORE_TABLES)}
        with self._database.as_owner(self.component) as owner:
            yield owner, self._database.namespace, tables

    def close(self) -> None:
        """Close the history."""
        self._storage.close()


def _hash_of(row: tuple[Any, ...]) -> Any:
    return row[0]


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return "\0" not in text


@contextmanager
def _noting(problems: list[str]) -> Iterator[None]:
    try:
        yield
    except NotesError as error:
        problems.append(str(error))
