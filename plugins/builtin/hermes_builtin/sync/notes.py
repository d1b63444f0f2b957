"""Notes of several machines as one set of entries: an observed-remove set.

Every line that adds a note is the note's tag. A removal names the tags that its machine knew, so it
does not touch the same text that another machine adds at the same time. A replacement is a removal
and an addition in one line: if two machines replace the same note, both new notes stay.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple

from hermes_builtin.notes import (
    TARGETS,
    Author,
    Change,
    Notebook,
    Notes,
    NotesError,
    Person,
    previews,
)
from hermes_builtin.notes.entries import DELIMITER, render, split, text_hash
from hermes_builtin.notes.guard import find_secret
from hermes_builtin.notes.notes_text import MAX_BYTES
from hermes_builtin.sync.log import Line, MachineLog, Record, SyncError
from hermes_builtin.sync.state import State, Tag
from hermes_builtin.sync.values import checked_text
from hermes_core.storage.sql import Connection

SYNC: Final = "sync"
NOTE: Final = "note"
REMOVE: Final = "remove"
#: How many changes are looked at for the one that an interrupted run has made.
_RECENT: Final = 100
#: How many tags a line names when all of them are said again.
_TAGS: Final = 1000

Tell = Callable[[Record], Tag]


@dataclass(slots=True)
class NotesResult:
    """What happened to the notes, and what to say about it."""

    added: int = 0
    removed: int = 0
    sent: int = 0
    sent_removals: int = 0
    conflicts: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)


def note_hash(text: str) -> str:
    """What stands for a note in logs and in the state."""
    return text_hash(text)[:32]


def notebook_id(key: str) -> str:
    """What stands for a notebook in the state: the key of a user's contains the user's id."""
    return key if key in TARGETS else text_hash(key)[:32]


class _Conflict(NamedTuple):
    """Two notes that took the place of the same one, and the machines that wrote them."""

    notebook: str
    hashes: tuple[str, str]
    machines: tuple[str, str]


class NotesSync:
    """The notes of a home, and what the logs say about them."""

    def __init__(self, notes: Notes, state: State, result: NotesResult) -> None:
        self._notes = notes
        self._state = state
        self._result = result
        self._conflicts: list[_Conflict] = []

    # -- what happened here ---------------------------------------------------------------

    def publish(self, *, dry_run: bool = False) -> None:
        """Append what was added and removed here since the last time."""
        known = self._keys()
        rows = self._state.rows("SELECT DISTINCT notebook FROM notes")
        for notebook in dict.fromkeys([*known, *(each for (each,) in rows)]):
            if notebook in known:
                self._publish_notebook(known[notebook], dry_run=dry_run)
            else:
                self._publish_removals(notebook, dry_run=dry_run)

    def _keys(self) -> dict[str, str]:
        """The keys of all notebooks that this home has, or had, by what stands for them."""
        keys = [each.key for each in self._notes.all_notebooks()]
        keys += self._notes.history.targets() if self._notes.history.exists else []
        return {notebook_id(key): key for key in keys}

    def _live(self, notebook: str) -> dict[str, list[Tag]]:
        """The notes that there are by what the logs say, with their tags."""
        found: dict[str, list[Tag]] = {}
        query = "SELECT hash, machine, seq FROM notes WHERE notebook = ? ORDER BY machine, seq"
        for hashed, machine, seq in self._state.rows(query, notebook):
            found.setdefault(hashed, []).append(Tag(machine, seq))
        return found

    def _local(self, book: Notebook) -> dict[str, str]:
        if book.text.exists:
            with book.text.locked():
                # What somebody did to the file since is part of the history, too.
                self._notes.history.catch_up(book.key, *book.text.look())
        return {note_hash(each): each for each in book.read().entries}

    def _publish_notebook(self, key: str, *, dry_run: bool) -> None:
        book, live = self._notes.book(key), self._live(notebook_id(key))
        if not book.text.exists and live:
            self._read_again(key, dry_run=dry_run)
            return
        local = self._local(book)
        new = self._shareable(book, {h: t for h, t in local.items() if h not in live})
        gone = {hashed: tags for hashed, tags in live.items() if hashed not in local}
        again = self._lost(live, local)
        if again and not dry_run:
            self._write_again(key, again)
        if not new and not gone:
            return
        history = self._history(key)
        replaced = _successors(history, gone, new)
        known = {hashed for entries in history for hashed in entries}
        # A home whose history is lost has not forgotten its notes.
        erased = {hashed for hashed in gone if history and hashed not in known}
        self._result.sent += len(new)
        self._result.sent_removals += len(gone.keys() - replaced.keys())
        if not dry_run:
            self._write(key, new, gone, replaced, erased)

    def _write(
        self,
        key: str,
        new: Mapping[str, str],
        gone: Mapping[str, list[Tag]],
        replaced: Mapping[str, str],
        erased: AbstractSet[str],
    ) -> None:
        origins = self._notes.history.recorded_origins(new.values())
        with self._state.publishing() as publish, self._state.transaction() as database:
            for hashed, text in new.items():
                tags = [tag for old, by in replaced.items() if by == hashed for tag in gone[old]]
                record = {
                    **self._record(key, text, origins),
                    **({"replaces": [[*each] for each in tags]} if tags else {}),
                    "text": text,
                }
                self._fold_note(database, publish(record), record)
            for hashes in (gone.keys() - replaced.keys() - erased, erased):
                if removed := [tag for old in sorted(hashes) for tag in gone[old]]:
                    publish(_removal(removed, erase=hashes is erased))
                    _remove(database, removed)
            if erased:
                self._state.set(erase="yes")

    def _lost(
        self, live: Mapping[str, list[Tag]], local: Mapping[str, str]
    ) -> list[tuple[Tag, str]]:
        """The notes whose lines our log has lost, with the tags that they keep."""
        lost = self._state.lost_now
        return [
            (tag, text)
            for hashed, text in local.items()
            for tag in live.get(hashed, ())
            if tag.seq > lost.get(tag.machine, tag.seq)
        ]

    def _write_again(self, key: str, lost: list[tuple[Tag, str]]) -> None:
        origins = self._notes.history.recorded_origins(text for _, text in lost)
        with self._state.publishing() as publish:
            for tag, text in lost:
                publish({**self._record(key, text, origins), "as": [*tag], "text": text})

    def _record(self, key: str, text: str, origins: Mapping[str, str]) -> dict[str, Any]:
        """What a line about a note begins with."""
        person = self._person(key)
        return {
            "type": NOTE,
            "notebook": key,
            **({"person": [*person]} if person else {}),
            **({"origin": origins[text]} if text in origins else {}),
        }

    def _publish_removals(self, notebook: str, *, dry_run: bool) -> None:
        """Append that a user's notebook is gone: `forget --user` leaves nothing of it."""
        tags = [tag for each in self._live(notebook).values() for tag in each]
        self._result.sent_removals += len(tags)
        if not dry_run:
            with self._state.publishing() as publish, self._state.transaction() as database:
                publish(_removal(tags, erase=True))
                _remove(database, tags)
                self._state.set(erase="yes")

    def _person(self, key: str) -> Person | None:
        try:
            return self._notes.owner(key) if "/" in key else None
        except NotesError:
            return None

    def _read_again(self, key: str, *, dry_run: bool) -> None:
        """A file that is missing is not an emptied one: have its notes read from the logs again."""
        self._result.messages.append(
            f"{self._notes.book(key).name} was missing; its notes are back from the shared folder"
        )
        if not dry_run:
            with self._state.transaction() as database:
                database.execute("DELETE FROM notes WHERE notebook = ?", (notebook_id(key),))
                database.execute("UPDATE logs SET notes = 0")

    def _shareable(self, book: Notebook, new: dict[str, str]) -> dict[str, str]:
        """Without notes that contain a secret: these never leave the machine."""
        held = [hashed for hashed, text in new.items() if find_secret(text) is not None]
        if held:
            self._result.messages.append(
                f"{book.name}: {len(held)} with a secret not shared (hermes-plugins memory edit)"
            )
        return {hashed: text for hashed, text in new.items() if hashed not in held}

    def _history(self, key: str) -> list[list[str]]:
        """The entries before and after each change, oldest first, as hashes."""
        if not self._notes.history.exists:
            return []
        found: list[list[str]] = []
        for change in self._notes.history.changes(key, limit=-1)[::-1]:
            if not found:
                found.append([note_hash(each) for each in split(change.before)])
            found.append([note_hash(each) for each in change.known.entries])
        return found

    # -- what happened elsewhere ----------------------------------------------------------

    def apply(self, logs: Iterable[MachineLog], *, dry_run: bool = False) -> None:
        """Read what other machines did, and do it here."""
        last: dict[str, int] = {}
        lines = [(log, line) for log in logs for line in self._unread(log, last)]
        if dry_run:
            kinds = [line.kind for _, line in lines]
            self._result.added += kinds.count(NOTE)
            self._result.removed += kinds.count(REMOVE)
        elif lines or self._state.get("token"):
            self._apply_and_store(lines)
        if not dry_run:
            with self._state.transaction():
                for machine, seq in last.items():
                    self._state.set_read(machine, "notes", seq)

    def _apply_and_store(self, lines: list[tuple[MachineLog, Line]]) -> None:
        # Committed before a notebook is changed: if this process ends before the state is stored,
        # the next one finds the change of the notebook by it.
        token = self._state.get("token") or f"sync-{os.urandom(4).hex()}"
        self._state.set(token=token)
        with self._state.transaction() as database:
            self._apply(database, lines, token)
            self._state.set(token="")

    def _unread(self, log: MachineLog, last: dict[str, int]) -> Iterator[Line]:
        for line in log.lines(self._state.read_up_to(log.machine, "notes")):
            last[log.machine] = line.seq
            if line.kind in (NOTE, REMOVE):
                yield line

    def _apply(
        self, database: sqlite3.Connection, lines: list[tuple[MachineLog, Line]], token: str
    ) -> None:
        keys = {*self._keys().values()}
        keys |= {str(line.record["notebook"]) for _, line in lines if line.kind == NOTE}
        before = {key: self._live(notebook_id(key)) for key in sorted(keys)}
        notes: dict[str, Record] = {}
        erased = self._erased(lines)
        for log, line in lines:
            tag = Tag.of(log.machine, line)
            if line.kind == NOTE:
                notes[note_hash(line.record["text"])] = line.record
                self._fold_note(database, tag, line.record)
            else:
                _remove(database, [Tag.read(each) for each in line.record["tags"]])
                if line.record.get("erase"):
                    self._state.set(erase="yes")
            self._state.set_read(log.machine, "notes", line.seq)
        texts = [str(each["text"]) for each in notes.values()]
        known = self._notes.history.recorded_origins(texts)
        for key, old in before.items():
            self._change(key, old, notes, erased.get(notebook_id(key), set()), token, known=known)

    def _erased(self, lines: list[tuple[MachineLog, Line]]) -> dict[str, set[str]]:
        """The notes that other machines have forgotten, by notebook."""
        rows = self._state.rows("SELECT machine, seq, notebook, hash FROM notes")
        known = {Tag(machine, seq): (notebook, hashed) for machine, seq, notebook, hashed in rows}
        # Lines of an earlier run are read again if it was interrupted, in any order.
        known |= {
            Tag.of(log.machine, line): (
                notebook_id(str(line.record["notebook"])),
                note_hash(line.record["text"]),
            )
            for log, line in lines
            if line.kind == NOTE
        }
        found: dict[str, set[str]] = {}
        for _, line in lines:
            if line.kind != REMOVE or not line.record.get("erase"):
                continue
            for tag in line.record["tags"]:
                if note := known.get(Tag.read(tag)):
                    found.setdefault(note[0], set()).add(note[1])
        return found

    def _forget(self, key: str, hashes: AbstractSet[str]) -> None:
        """Remove notes from a notebook and from its history."""
        self._result.removed += self._notes.forget(key, lambda text: note_hash(text) in hashes)
        if self._notes.history.exists:
            self._notes.database.erase_free_space()

    def _change(
        self,
        key: str,
        old: Mapping[str, Any],
        notes: Mapping[str, Record],
        erased: AbstractSet[str],
        token: str,
        *,
        known: Mapping[str, str],
    ) -> None:
        """Do to a notebook what the logs did since."""
        now = self._live(notebook_id(key))
        done, came = self._done(key, token)
        if now == old and not came:
            return
        book = self._notes.book(key)
        local = {note_hash(each): each for each in book.read().entries}
        added = [h for h in now if h not in old and h not in local and h not in done]
        # What an interrupted run has added may have been removed elsewhere since.
        gone = {h: None for h in {**old, **came} if h not in now}
        if forgotten := gone.keys() & erased:
            self._forget(key, forgotten)
        removed = [local[h] for h in gone if h in local and h not in forgotten]
        # Only what the logs have just said: the rest was here, and a person has removed it.
        texts = [str(notes[h]["text"]) for h in added if h in notes]
        if not texts and not removed:
            return
        for person in {tuple(notes[h]["person"]) for h in added if "person" in notes.get(h, ())}:
            self._notes.introduce(Person(*person))
        origins = {str(notes[h]["text"]): str(notes[h].get("origin", "")) for h in added}
        book.merge(texts, Author(SYNC, token), removed)
        # A log must not give authority to a text that this home has from somewhere else.
        self._notes.history.record_origins(
            {text: each for text, each in origins.items() if each and text not in known}, key
        )
        self._result.added += len(texts)
        self._result.removed += len(removed)

    def _done(self, key: str, token: str) -> tuple[set[str], dict[str, None]]:
        """The entries after an interrupted run, and those that nobody else has added since."""
        done: set[str] = set()
        came: dict[str, None] = {}
        if not self._notes.history.exists:
            return done, came
        changes: list[Change] = self._notes.history.changes(key, limit=_RECENT)
        for change in changes[::-1]:
            entries = [note_hash(each) for each in change.known.entries]
            new = dict.fromkeys(entries)
            for each in split(change.before):
                new.pop(note_hash(each), None)
            if change.who == SYNC and change.session == token:
                done.update(entries)
                came |= new
            else:
                came = {each: None for each in came if each not in new}
        return done, came

    def _fold_note(
        self, database: Connection | sqlite3.Connection, tag: Tag, record: Record
    ) -> None:
        hashed, key = note_hash(record["text"]), str(record["notebook"])
        replaces = [Tag.read(each) for each in record.get("replaces", ())]
        _remove(database, replaces)
        for old in replaces:
            row = (*old, *tag, hashed)
            done = database.execute("INSERT OR IGNORE INTO replaced VALUES (?, ?, ?, ?, ?)", row)
            others = self._state.rows(
                "SELECT by_machine, hash FROM replaced"
                " WHERE machine = ? AND seq = ? AND hash != ? AND by_machine != ?",
                *(*old, hashed, tag.machine),
            )
            if done.rowcount == 1:
                self._conflicts += [
                    _Conflict(key, (hashed, other), (tag.machine, machine))
                    for machine, other in others
                ]
        database.execute(
            "INSERT OR IGNORE INTO notes SELECT ?, ?, ?, ? WHERE NOT EXISTS"
            " (SELECT 1 FROM removed WHERE machine = ? AND seq = ?)",
            (*tag, notebook_id(key), hashed, *tag),
        )

    def report_conflicts(self) -> None:
        """Say which notes were replaced on two machines, if both are here."""
        for key, hashes, machines in dict.fromkeys(self._conflicts):
            book = self._notes.book(key)
            texts = {note_hash(each): each for each in book.read().entries}
            if all(each in texts for each in hashes):
                shown = previews([texts[each] for each in hashes])
                # An id ends with a random number, which says little to a person.
                names = [each.rpartition("-")[0] for each in machines]
                if len(set(names)) < len(names):
                    names = [*machines]
                pairs = zip(shown, names, strict=True)
                both = " and ".join(f'"{text}" ({name})' for text, name in pairs)
                self._result.conflicts.append(
                    f"{book.name}: {both} replace the same note; both are there"
                )

    def over_limit(self) -> Iterator[str]:
        """Say which notebooks have more than their limit now."""
        for book in self._notes.all_notebooks():
            page = book.read()
            if page.length > page.limit:
                yield (
                    f"{book.name} has {page.length:,} of {page.limit:,} characters: nothing was "
                    "left out; shorten it with: hermes-plugins memory edit"
                )


def kept_note(state: State, line: Line) -> Record | None:
    """What is left of a line about notes when texts are removed from our log."""
    if line.kind != NOTE:
        return line.record
    query = "SELECT 1 FROM notes WHERE machine = ? AND seq = ?"
    if state.rows(query, *Tag.of(state.machine, line)):
        return line.record
    if "replaces" not in line.record:
        return None
    return {"seq": line.seq, "type": REMOVE, "tags": line.record["replaces"]}


def all_removals(state: State) -> Iterator[Record]:
    """Every removal that is known, for a new log."""
    tags = [Tag(*row) for row in state.rows("SELECT machine, seq FROM removed")]
    for at in range(0, len(tags), _TAGS):
        yield _removal(tags[at : at + _TAGS], erase=False)


def _removal(tags: Iterable[Tag], *, erase: bool) -> dict[str, Any]:
    """A removal for the log, which says nothing of what is removed."""
    record = {"type": REMOVE, "tags": [[*each] for each in tags]}
    return {**record, "erase": True} if erase else record


def _remove(database: Connection | sqlite3.Connection, tags: Iterable[Tag]) -> None:
    for tag in tags:
        database.execute("INSERT OR IGNORE INTO removed VALUES (?, ?)", tuple(tag))
        database.execute("DELETE FROM notes WHERE machine = ? AND seq = ?", tuple(tag))


def check_note(line: Line) -> None:
    """Raise one of `UNUSABLE` unless a line about notes can be used."""
    record = line.record
    tags = record["tags"] if line.kind == REMOVE else record.get("replaces", ())
    _ = [Tag.read(each) for each in tags]
    if line.kind == NOTE:
        person = Person(*map(checked_text, record.get("person", ())))
        if record["notebook"] not in (*TARGETS, f"user/{person.folder}"):
            raise ValueError("no such notebook")
        checked_text(record.get("origin", ""))
        if not checked_text(record["text"]).strip():
            raise ValueError("a note without a text")


class FreeSpace:
    """How many bytes the files of the notebooks have left for notes of other machines."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._left: dict[str, int] = {}

    def take(self, log: MachineLog, notes: Iterable[tuple[str, int]]) -> None:
        """Use some of it for all notes of a log, or for none.

        Args:
            log: The log.
            notes: The key of the notebook of each note, and the bytes that it needs.

        Raises:
            SyncError: They are too many: the notebook could not be read any more.
        """
        left: dict[str, int] = {}
        for key, size in notes:
            left[key] = left.get(key, self._left_of(key)) - size
        for key, size in left.items():
            if size < 0:
                name = self._notes.book(key).name
                raise SyncError(
                    f"its notes are too many for {name}, so nothing of this machine was read",
                    where=str(log.folder),
                    hint="forget some on that machine (hermes-plugins forget), and sync there",
                )
        self._left |= left

    def _left_of(self, key: str) -> int:
        if key not in self._left:
            used = len(self._notes.book(key).text.read().encode())
            self._left[key] = MAX_BYTES - used
        return self._left[key]


def note_size(line: Line) -> tuple[str, int]:
    """The key of the notebook of a note, and how many bytes it needs there."""
    text = render([str(line.record["text"])]) + DELIMITER
    return str(line.record["notebook"]), len(text.encode())


def _successors(
    history: list[list[str]], gone: Iterable[str], new: Mapping[str, str]
) -> dict[str, str]:
    """Which of the new entries took the place of which that is gone, by the history."""
    following: dict[str, str] = {}
    for before, after in pairwise(history):
        old = [each for each in before if each not in after]
        added = [each for each in after if each not in before]
        if len(old) == len(added):
            following.update(zip(old, added, strict=True))
    found = {}
    for hashed in gone:
        here, steps = hashed, 0
        while here in following and here not in new and steps < len(following):
            here, steps = following[here], steps + 1
        if here in new:
            found[hashed] = here
    return found
