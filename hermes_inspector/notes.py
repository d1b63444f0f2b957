"""The notes as a person looks at them: entries with their history, what waits, and the past."""

from __future__ import annotations

import difflib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from hermes_builtin.notes import (
    Change,
    History,
    Notebook,
    Notes,
    NotesError,
    OperationPlan,
    PendingWrite,
    entry_id,
)
from hermes_builtin.notes.entries import text_hash
from hermes_builtin.notes.guard import SECRET, without_secrets
from hermes_core import HermesError
from hermes_core.privacy.origin import is_external

#: Changes that are read at once to find out which of them made an entry.
_PAGE: Final = 100
#: Changes on one page of the timeline.
TIMELINE: Final = 30
_YEARS: Final = range(1971, 9000)
_WORDS: Final = re.compile(r"\s+|[^\s]+")


@dataclass(frozen=True, slots=True)
class ChangeInfo:
    """One change of a notebook.

    Attributes:
        id: Its number, for undo.
        at: When it was made.
        book: The key of the notebook.
        who: tool, command, page, "file edit", ...
        action: add, replace, remove, batch, edit, undo or found.
        session: The conversation in which it was made; "" if in none.
        added: The entries that it added.
        removed: The entries that it removed.
        origins: Where the added entries come from, in their order.
    """

    id: int
    at: float
    book: str
    who: str
    action: str
    session: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()

    def diff(self, mask: Callable[[str], str]) -> tuple[tuple[str, str], ...]:
        """Words of a replaced entry, each with "same", "removed" or "added"; () for others.

        Secrets are masked first: a part of one does not look like a secret.
        """
        if len(self.added) != 1 or len(self.removed) != 1:
            return ()
        return tuple(word_diff(mask(self.removed[0]), mask(self.added[0])))


@dataclass(frozen=True, slots=True)
class NoteEntry:
    """An entry of a notebook.

    Attributes:
        id: What commands call it.
        version: The hash of its text. Who changes it says which version they saw.
        text: The text; secrets in it are masked.
        origin: Where it comes from.
        external: Whether strangers may have written it.
        objection: Why the prompt does not get it; "" if it does.
        secret: Whether that is because of a secret.
        change: What made it; None if the history does not go back as far.
    """

    id: str
    version: str
    text: str
    origin: str = ""
    external: bool = False
    objection: str = ""
    secret: bool = False
    change: ChangeInfo | None = None


@dataclass(frozen=True, slots=True)
class Book:
    """A notebook.

    Attributes:
        key: What the history calls it: memory, user or user/FOLDER.
        name: MEMORY.md or USER.md.
        owner: Whose it is, if it is not the home's.
        place: Where it is.
        entries: What is in it.
        length: How many characters it has.
        limit: How many it may have.
        problem: Why it can't be read; "" if it can.
    """

    key: str
    name: str
    owner: str
    place: str
    entries: tuple[NoteEntry, ...] = ()
    length: int = 0
    limit: int = 1
    problem: str = ""

    @property
    def percent(self) -> int:
        """How full it is."""
        return min(100, self.length * 100 // max(self.limit, 1))


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """What a pending write would do."""

    action: str
    removed: str
    added: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class PendingNote:
    """A write that waits for approval."""

    id: str
    at: float
    book: str
    session: str
    reason: str
    origin: str
    changes: tuple[PlannedChange, ...]


@dataclass(frozen=True, slots=True)
class BlockedWrite:
    """A write that the guard refused."""

    id: str
    at: float
    book: str
    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class NotesView:
    """All notebooks, what waits and what was refused."""

    books: tuple[Book, ...]
    waiting: tuple[PendingNote, ...] = ()
    blocked: tuple[BlockedWrite, ...] = ()
    day: str = ""


# -- now ----------------------------------------------------------------------------------------


def notes_view(notes: Notes) -> NotesView:
    """The notes as they are now."""
    books = tuple(book_of(notes, each) for each in notes.all_notebooks())
    waiting = tuple(_waiting(*each) for each in notes.planned())
    blocked = tuple(
        BlockedWrite(each.id, each.at, each.target, without_secrets(each.text), each.reason)
        for each in notes.blocked()
    )
    return NotesView(books, waiting, blocked)


def book_of(notes: Notes, notebook: Notebook) -> Book:
    """One notebook, with the change that made each entry."""
    book = _empty(notes, notebook)
    try:
        page = notebook.read()
        findings = notebook.findings(page.entries)
        origins = notebook.origins(page.entries)
        made = _changes_that_made(notes.history, notebook.key, page.entries)
    except NotesError as error:
        return replace(book, problem=str(error))
    entries = []
    for text in page.entries:
        finding = findings.get(text)
        secret = finding is not None and finding.kind == SECRET
        entries.append(
            NoteEntry(
                entry_id(text),
                text_hash(text),
                without_secrets(text) if secret else text,
                origins[text],
                is_external(origins[text]),
                str(finding or ""),
                secret,
                made.get(text),
            )
        )
    return replace(book, entries=tuple(entries), length=page.length, limit=page.limit)


def _empty(notes: Notes, notebook: Notebook) -> Book:
    key = notebook.key
    owner = ""
    if "/" in key:
        try:
            person = notes.owner(key)
            owner = f"{person.user_id} ({person.platform})"
        except NotesError:
            owner = "unknown"
    return Book(key, notebook.name, owner, notebook.text.place, limit=notebook.limit)


def _changes_that_made(history: History, key: str, entries: Sequence[str]) -> dict[str, ChangeInfo]:
    """For each entry the newest change that added it."""
    wanted, found = set(entries), dict[str, ChangeInfo]()
    if not history.exists:
        return found
    for change, before in _with_before(history, key):
        after = change.known.entries
        for text in wanted.intersection(after).difference(before):
            found[text] = _info(change)
            wanted.discard(text)
        if not wanted:
            break
    return found


def _with_before(history: History, key: str) -> Iterator[tuple[Change, list[str]]]:
    """The changes of a notebook, newest first, each with the entries that were there before."""
    later: Change | None = None
    number = 0
    while page := history.changes(key, _PAGE, before=number):
        for change in page:
            if later is not None:
                yield later, change.known.entries
            later = change
        number = page[-1].id
    if later is not None:
        yield later, history.before(later)


def _info(change: Change) -> ChangeInfo:
    return ChangeInfo(
        change.id, change.at, change.target, change.who, change.action, change.session
    )


def _waiting(staged: PendingWrite, planned: list[OperationPlan]) -> PendingNote:
    changes = tuple(
        PlannedChange(
            each.wanted.action,
            without_secrets(each.goes),
            without_secrets(each.wanted.content),
            each.problem.text if each.problem else "",
        )
        for each in planned
    )
    return PendingNote(
        staged.id,
        staged.created_at,
        staged.target,
        staged.session,
        staged.reason,
        staged.origin,
        changes,
    )


# -- the past -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Timeline:
    """Some changes, newest first; ``older`` is the number to go on with, 0 at the end."""

    changes: tuple[ChangeInfo, ...] = ()
    older: int = 0
    books: tuple[str, ...] = field(default_factory=tuple)


def timeline(notes: Notes, key: str = "", before: int = 0, limit: int = TIMELINE) -> Timeline:
    """What was changed, when, by whom and in which conversation."""
    books = tuple(each.key for each in notes.all_notebooks())
    history = notes.history
    # A look must not create a history.
    if not history.exists:
        return Timeline(books=books)
    changes = history.changes(key or None, limit + 1, before=before)
    shown = tuple(change_info(history, each) for each in changes[:limit])
    return Timeline(shown, changes[limit - 1].id if len(changes) > limit else 0, books)


def change_info(history: History, change: Change) -> ChangeInfo:
    """A change with what it did, by entry: that is what undo takes back."""
    before, after = history.before(change), change.known.entries
    added = [each for each in after if each not in before]
    removed = [each for each in before if each not in after]
    origins = history.origins(change.target, added)
    return replace(
        _info(change),
        added=tuple(map(without_secrets, added)),
        removed=tuple(map(without_secrets, removed)),
        origins=tuple(origins[each] for each in added),
    )


def notes_on(notes: Notes, day: str) -> NotesView:
    """The notes as they were at the end of a day, such as 2026-11-18.

    Raises:
        HermesError: That is not a day.
    """
    end = day_start(day) + timedelta(days=1)
    at = min(end.timestamp(), time.time())
    books = []
    for notebook in notes.all_notebooks():
        change = notes.history.as_of(notebook.key, at) if notes.history.exists else None
        texts = change.known.entries if change else []
        entries = tuple(
            NoteEntry(entry_id(each), text_hash(each), without_secrets(each)) for each in texts
        )
        book = _empty(notes, notebook)
        books.append(replace(book, entries=entries, length=len(change.after) if change else 0))
    return NotesView(tuple(books), day=day)


def day_start(day: str) -> datetime:
    """When a day begins in the zone of this machine.

    Raises:
        HermesError: That is not a day.
    """
    try:
        found = datetime.strptime(day, "%Y-%m-%d")  # noqa: DTZ007 - the zone of this machine
        # What is outside can't be counted in seconds on every system.
        if found.year in _YEARS:
            return found
    except ValueError:
        pass
    raise HermesError("that is not a day", hint="write it as 2026-11-18")


# -- two versions -------------------------------------------------------------------------------


def became(notes: Notes, key: str, version: str) -> ChangeInfo | None:
    """The change that took the entry with this version away; None if it is not recorded."""
    if not notes.history.exists:
        return None
    for change, before in _with_before(notes.history, key):
        gone = set(before).difference(change.known.entries)
        if version in map(text_hash, gone):
            return change_info(notes.history, change)
    return None


def word_diff(old: str, new: str) -> Iterator[tuple[str, str]]:
    """Two texts as one, word by word, with "same", "removed" or "added"."""
    before, after = _WORDS.findall(old), _WORDS.findall(new)
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind == "equal":
            yield "same", "".join(before[a:b])
            continue
        if a < b:
            yield "removed", "".join(before[a:b])
        if c < d:
            yield "added", "".join(after[c:d])
