"""Every change to the notes, and where each note comes from.

A change is noted right before its temporary file takes the notebook's place, and the note is
never touched again: the rename itself says that it was made. As long as the temporary file is
there, it was not.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from hermes_builtin.notes.entries import (
    KnownText,
    NotesError,
    parse,
    render,
    split,
    text_hash,
)
from hermes_builtin.notes.history_file import (
    FILE_EDIT,
    FOUND,
    Matches,
    NotesDatabase,
)
from hermes_builtin.sessions.session_text import SessionText
from hermes_core.privacy.origin import ASSISTANT, PERSON, USER, is_external, lowest
from hermes_core.storage.logger import SafeLogger
from hermes_core.storage.sql import Connection

logger = SafeLogger(logging.getLogger("hermes_builtin"), {})

#: From this share of its words on, an edited text is still the one that it was.
_MOSTLY: Final = 0.6
#: Characters of it that are compared.
_JUDGED: Final = 10_000

# Thousands of changes are years of notes. Pruning rarely, so that most changes are one statement.
KEPT: Final = 5000
_PRUNED_EVERY: Final = 100

#: What the change before it left.
_EARLIER: Final = (
    "(SELECT after FROM changes earlier WHERE {earlier} AND earlier.target = changes.target"
    " AND earlier.id < changes.id ORDER BY earlier.id DESC LIMIT 1)"
)
_NEWEST: Final = (
    "SELECT id, at, inode FROM changes WHERE {own} AND target = ? ORDER BY id DESC LIMIT 1"
)
_INSERT: Final = (
    "INSERT INTO changes"
    " (target, who, action, session, before, after, entries, inode, temporary, at)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
#: More than there are.
_ALL: Final = 2**62
#: SQLite takes at least 999 values in a statement.
_VALUES: Final = 500


class Change(NamedTuple):
    """One change: who made it, when, and the file's text before and after.

    ``seen`` are the entries in a text that somebody else wrote, as JSON.
    """

    target: str
    who: str
    action: str
    session: str
    before: str
    after: str
    seen: str | None = None
    inode: int = 0
    temporary: str = ""
    id: int = 0
    at: float = 0.0

    @property
    def known(self) -> KnownText:
        """The state that it left."""
        return KnownText(self.after, entries_of(self.after, self.seen), self.inode)

    @property
    def made(self) -> bool:
        """Whether it was made, and not only begun. Only the newest can be unmade."""
        # No second commit marks a change as made: the rename that makes it removes the temporary
        # name.
        return not (self.temporary and os.path.lexists(self.temporary))


class HistoryRecord(NamedTuple):
    """A change in the record, and the state that it leaves."""

    id: int
    at: float
    known: KnownText

    @property
    def row(self) -> tuple[int, float, int]:
        """What distinguishes it from any other."""
        return self.id, self.at, self.known.inode


class History:
    """The changes of the notes; callers hold the notebook's lock.

    They are in the order of their numbers: the clock is for people, and may jump.
    """

    def __init__(self, file: NotesDatabase, clock: Callable[[], float] = time.time) -> None:
        self._file = file
        self._clock = clock
        self._own = file.of_home("changes")
        self._earlier = _EARLIER.format(earlier=file.of_home("earlier"))
        # The newest change as last seen, compared by its row: usually no text has to be read from
        # the file.
        self._latest: dict[str, HistoryRecord] = {}

    @property
    def exists(self) -> bool:
        """Whether anything has ever been noted."""
        return self._file.exists

    # -- noting ---------------------------------------------------------------------------

    def begin(
        self, change: Change, entries: list[str], origins: Mapping[str, str] | None = None
    ) -> HistoryRecord:
        """Record a change whose temporary file is ready.

        Args:
            change: The change.
            entries: Those that there will be.
            origins: Where the new ones come from.
        """
        with self._file.transaction() as database:
            # Also right if the change fails: it is about the text, wherever it stands.
            self._record(database, change.target, origins or {})
            return self._insert(database, change, entries)

    def restore(
        self, target: str, changes: Iterable[Change], origins: Iterable[Mapping[str, str]]
    ) -> None:
        """Record the changes of a notebook of another home, with their times, oldest first.

        Args:
            target: The notebook.
            changes: What happened there. The notebook has no history here.
            origins: Where its entries come from, some at a time.
        """
        with self._file.transaction() as database:
            for some in origins:
                self._record(database, target, some)
            earlier = ""
            for each in changes:
                before = None if each.before == earlier else each.before
                self._file.insert(database, _INSERT, (*each[:4], before, *each[5:9], each.at))
                earlier = each.after

    def finish(self, target: str, noted: HistoryRecord) -> None:
        """The change was made."""
        self._latest[target] = noted
        if noted.id % _PRUNED_EVERY == 0:
            with self._file.transaction() as database:
                self._prune(database, target)

    def forget(self, number: int) -> None:
        """The change was not made."""
        with self._file.opened() as database:
            database.execute("DELETE FROM changes WHERE id = ?", (number,))

    def separated(self, target: str, text: str, inode: int) -> bool:
        """Record that an edit of others now has its separators; False if there is none."""
        last = self.last(target)
        if last is None or last.who != FILE_EDIT:
            return False
        with self._file.opened() as database:
            database.execute(
                "UPDATE changes SET after = ?, entries = NULL, inode = ? WHERE id = ?",
                (text, inode, last.id),
            )
        return True

    def catch_up(self, target: str, text: str, inode: int) -> list[str]:
        """Make the record agree with the file; returns the entries in it.

        A change that was noted but not made is forgotten. A text that nobody noted is
        somebody's edit of the file; what was there before we first looked is nobody's.
        """
        known = self._up_to_date(target, text)
        if known is not None:
            return known.entries
        with self._file.transaction() as database:
            newest = self._newest(target)
            unmade = newest if newest is not None and not newest.made else None
            if unmade is not None:
                self.forget(unmade.id)
            last = self.last(target)
            entries = parse(text, last.known if last else None, inode)
            if text != (last.after if last else ""):
                # Stored because it can't be derived: how an appended text was divided depends on
                # what came before.
                seen = json.dumps(entries, ensure_ascii=False) if text else None
                action, before = ("edit", last.after) if last else (FOUND, text)
                edit = Change(target, FILE_EDIT, action, "", before, text, seen, inode)
                self._insert(database, edit, entries)
                recorded = self._recorded(database, entries)
                before_it = set(last.known.entries if last else ())
                gone = self._recorded(database, before_it.difference(entries))
                origins = {
                    each: ASSISTANT if action == FOUND else edited_origin(each, gone)
                    for each in entries
                    if each not in recorded
                }
                self._record(database, target, origins)
        if unmade is not None:
            with suppress(OSError):
                # After the commit: as long as the record exists, the file must exist, or the change
                # would count as made.
                os.unlink(unmade.temporary)  # noqa: PTH108
        return entries

    def targets(self) -> list[str]:
        """The notebooks that the record knows."""
        with self._file.opened() as database:
            rows = database.execute(f"SELECT DISTINCT target FROM changes WHERE {self._own}")  # noqa: S608
            return [name for (name,) in rows.fetchall()]

    def matching(self, matches: Matches) -> list[tuple[int, str, list[str]]]:
        """The changes that have an entry which matches: number, notebook and those entries."""
        with self._file.opened() as database:
            rows = database.execute(
                f"SELECT id, target, before, after, entries FROM changes WHERE {self._own}"  # noqa: S608
            ).fetchall()
        found = [(number, target, _entries_of(*texts)) for number, target, *texts in rows]
        return [
            (number, target, having)
            for number, target, entries in found
            if (having := [each for each in entries if matches(each)])
        ]

    def erase(self, target: str, matches: Matches, inode: int = 0) -> int:
        """Remove entries that match from all changes of a notebook; returns how many had one.

        ``inode`` is the notebook's file, if it has just been written without these entries: then
        the newest change is the one that left it.
        """
        numbers = [number for number, each, _ in self.matching(matches) if each == target]
        with self._file.transaction() as database:
            self._file.overwrite_deleted(database)
            for number in numbers:
                _erase_in(database, number, matches)
            if inode:
                database.execute(
                    "UPDATE changes SET inode = ? WHERE id ="  # noqa: S608
                    f" (SELECT max(id) FROM changes WHERE {self._own} AND target = ?)",
                    (inode, target),
                )
        self._latest.pop(target, None)
        return len(numbers)

    def drop(self, target: str) -> int:
        """Delete all changes of a notebook; returns how many there were."""
        with self._file.transaction() as database:
            self._file.overwrite_deleted(database)
            which = f"DELETE FROM changes WHERE {self._own} AND target = ?"  # noqa: S608
            return database.execute(which, (target,)).rowcount

    def count(self, target: str) -> int:
        """How many changes of a notebook are recorded."""
        with self._file.opened() as database:
            which = f"SELECT count(*) FROM changes WHERE {self._own} AND target = ?"  # noqa: S608
            row = database.execute(which, (target,))
            return int(row.fetchone()[0])

    def of_sessions(self, sessions: Collection[str], *, clear: bool = False) -> int:
        """How many changes were made in some sessions; with ``clear``, no longer say so."""
        query = f"SELECT id, session FROM changes WHERE {self._own} AND session != ''"  # noqa: S608
        with self._file.transaction() as database:
            found = [
                (number,)
                for number, session in database.execute(query).fetchall()
                if session in sessions
            ]
            if clear:
                database.executemany("UPDATE changes SET session = '' WHERE id = ?", found)
        return len(found)

    def _up_to_date(self, target: str, text: str) -> KnownText | None:
        """What is known of the text, if the newest change left it; else None.

        The text of the newest change is read only if it is not the one seen last.
        """
        with self._file.opened() as database:
            row = database.execute(_NEWEST.format(own=self._own), (target,)).fetchone()
            latest = self._latest.get(target)
            if latest is None or latest.row != row:
                newest = self._newest(target)
                if newest is None or not newest.made:
                    return None
                latest = self._latest[target] = HistoryRecord(newest.id, newest.at, newest.known)
            return latest.known if latest.known.text == text else None

    # -- looking --------------------------------------------------------------------------

    def entries(self, target: str, text: str, inode: int) -> list[str]:
        """The entries that are in a file, without noting anything.

        Notes can be read whatever has become of their history.
        """
        if not text:
            return []
        try:
            last = self._newest(target) if self.exists else None
            if last is not None and last.after != text and not last.made:
                last = self.last(target)
        except (NotesError, OSError) as error:
            logger.warning("notes: %s", error)
            last = None
        return parse(text, last.known if last else None, inode)

    def origins(self, target: str, entries: Collection[str]) -> dict[str, str]:
        """Where entries come from, without noting anything."""
        if not entries or not self.exists:
            return dict.fromkeys(entries, ASSISTANT)
        try:
            with self._file.opened() as database:
                found = self._recorded(database, entries)
            if len(found) < len(set(entries)):
                last = self.last(target)
                # What our last look at the file did not show is somebody's edit.
                seen = set(last.known.entries if last else entries)
                gone = self.recorded_origins(seen.difference(entries))
                found |= {
                    each: ASSISTANT if each in seen else edited_origin(each, gone)
                    for each in entries
                    if each not in found
                }
        except (NotesError, OSError) as error:
            logger.warning("notes: %s", error)
            return dict.fromkeys(entries, ASSISTANT)
        return found

    def recorded_origins(self, texts: Iterable[str]) -> dict[str, str]:
        """Where texts come from, as far as it was recorded."""
        with self._file.opened() as database:
            return self._recorded(database, texts)

    def record_origins(self, origins: Mapping[str, str], target: str = "memory") -> None:
        """Record where texts of a notebook come from, whether they are notes already or not."""
        with self._file.transaction() as database:
            self._record(database, target, origins)

    def before(self, change: Change) -> list[str]:
        """The entries that there were before a change."""
        earlier = self._made("target = ? AND id < ?", change.target, change.id)
        return parse(change.before, earlier[0].known if earlier else None)

    def last(self, target: str) -> Change | None:
        """The newest change of a notebook."""
        return next(iter(self._made("target = ?", target)), None)

    def changes(
        self, target: str | None = None, limit: int = 50, *, before: int = 0
    ) -> list[Change]:
        """The newest changes first; with ``before``, those before the one with this number."""
        older, numbers = ("id < ?", [before]) if before else ("TRUE", [])
        if target is None:
            return self._made(older, *numbers, limit=limit)
        return self._made(f"target = ? AND {older}", target, *numbers, limit=limit)

    def as_of(self, target: str, at: float) -> Change | None:
        """The change that left a notebook as it was at a time; None if there was none yet."""
        return next(iter(self._made("target = ? AND at <= ?", target, at)), None)

    def newest(self, targets: Collection[str]) -> Change | None:
        """The newest change of these notebooks, but for what was there before us."""
        marks = ", ".join("?" * len(targets))
        found = self._made(f"action != ? AND target IN ({marks})", FOUND, *targets)
        return next(iter(found), None)

    def change(self, number: int) -> Change | None:
        """One change."""
        if not 0 < number < 2**63:
            return None
        return next(iter(self._made("id = ?", number)), None)

    def _newest(self, target: str) -> Change | None:
        """The newest change that was noted, made or not."""
        return next(iter(self._rows("target = ?", target, limit=1)), None)

    def _made(self, where: str, *values: object, limit: int = 1) -> list[Change]:
        """Changes that were made; of each of the two notebooks one may not have been."""
        if limit < 0:
            return [change for change in self._rows(where, *values, limit=limit) if change.made]
        # Two more than wanted: at most one change per notebook is begun and not made.
        rows = self._rows(where, *values, limit=limit + 2)
        return [change for change in rows if change.made][:limit]

    def _rows(self, where: str, *values: object, limit: int) -> list[Change]:
        with self._file.reading() as database:
            rows = database.execute(
                "SELECT target, who, action, session,"  # noqa: S608
                f" coalesce(before, {self._earlier}, ''), after, entries, inode, temporary, id, at"
                f" FROM changes WHERE {self._own} AND {where} ORDER BY id DESC LIMIT ?",
                (*values, limit if limit >= 0 else _ALL),
            ).fetchall()
        return [Change(*row) for row in rows]

    def _insert(self, database: Connection, change: Change, entries: list[str]) -> HistoryRecord:
        # NULL means "what the change before it left": every text is stored once.
        before = change.before if change.action == FOUND else None
        at = self._clock()
        number = self._file.insert(database, _INSERT, (*change[:4], before, *change[5:9], at))
        return HistoryRecord(number, at, KnownText(change.after, entries, change.inode))

    def _recorded(self, database: Connection, texts: Iterable[str]) -> dict[str, str]:
        """The origins of those texts that have one."""
        texts_by_hash = {text_hash(text): text for text in texts}
        found: dict[str, str] = {}
        hashes = list(texts_by_hash)
        own = self._file.of_home("origins")
        for start in range(0, len(hashes), _VALUES):
            some = hashes[start : start + _VALUES]
            marks = ", ".join("?" * len(some))
            query = f"SELECT hash, origin FROM origins WHERE {own} AND hash IN ({marks})"  # noqa: S608
            for hashed, origin in database.execute(query, some).fetchall():
                text = texts_by_hash[hashed]
                # The same text may be in several notebooks.
                found[text] = lowest((found.get(text, str(origin)), str(origin)))
        return found

    def _record(self, database: Connection, target: str, origins: Mapping[str, str]) -> None:
        known = self._recorded(database, origins)
        for text, origin in origins.items():
            settled = origin_after_repeat(known.get(text), origin)
            self._file.put_origin(database, target, text_hash(text), settled)

    def _prune(self, database: Connection, target: str) -> None:
        """Drop the oldest changes of a notebook; the first one left gets its own `before`."""
        row = database.execute(
            f"SELECT id FROM changes WHERE {self._own} AND target = ?"  # noqa: S608
            " ORDER BY id DESC LIMIT 1 OFFSET ?",
            (target, KEPT),
        ).fetchone()
        if row is None:
            return
        (oldest,) = row
        database.execute(
            # The oldest row that stays loses its predecessor, so it gets its text first.
            f"UPDATE changes SET before = {self._earlier} WHERE before IS NULL AND id ="  # noqa: S608
            f" (SELECT min(id) FROM changes WHERE {self._own} AND target = ? AND id > ?)",
            (target, oldest),
        )
        database.execute(
            f"DELETE FROM changes WHERE {self._own} AND target = ? AND id <= ?",  # noqa: S608
            (target, oldest),
        )


def _entries_of(before: str | None, after: str, seen: str | None) -> list[str]:
    """All entries in the texts of a change."""
    return [*(split(before) if before else ()), *entries_of(after, seen)]


def entries_of(after: str, seen: str | None) -> list[str]:
    """How a text was divided; as its separators do, if that was not recorded or can't be read."""
    recorded = divided(seen) if seen else None
    return split(after) if recorded is None else recorded


def divided(seen: str) -> list[str] | None:
    """The entries of a record of how a text was divided; None if it can't be read."""
    try:
        entries = json.loads(seen)
    except ValueError:
        return None
    is_right = isinstance(entries, list) and all(isinstance(each, str) for each in entries)
    return entries if is_right else None


def _erase_in(database: Connection, number: int, matches: Matches) -> None:
    before, after, seen = database.execute(
        "SELECT before, after, entries FROM changes WHERE id = ?", (number,)
    ).fetchone()
    entries = entries_of(after, seen)
    database.execute(
        # Without `entries`: the text has its separators now, however it was divided before.
        "UPDATE changes SET before = ?, after = ?, entries = NULL WHERE id = ?",
        (
            None if before is None else render([e for e in split(before) if not matches(e)]),
            render([each for each in entries if not matches(each)]),
            number,
        ),
    )


def origin_after_repeat(known: str | None, origin: str) -> str:
    """The origin of a text that has been noted before: authority does not rise by repeating it.

    Only who has authority gives it: the user who says the words, or the person who writes them.
    """
    if known is None or origin in (USER, PERSON):
        return origin
    return lowest((known, origin))


def edited_origin(text: str, gone: Mapping[str, str]) -> str:
    """The origin of a text that a person wrote in the place of others.

    If it is mostly one that strangers wrote, it stays theirs.
    """
    external = [each for each in gone.items() if is_external(each[1])]
    if not external:
        return PERSON
    # A file may have anything in it, and a long text takes long to judge.
    found = SessionText().judge(text[:_JUDGED], replaced=external)
    return found.origin if is_external(found.origin) and found.share >= _MOSTLY else PERSON
