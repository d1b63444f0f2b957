"""Writes: turns at once or batched, notes as conclusions, results of subagents."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from sqlite3 import Connection
from typing import Any, Final, NamedTuple

from hermes_core.service import CompletedTurn, Delegation, Note, own_database
from hermes_memory_honcho.names import Entry, SessionAddress, Utterance
from hermes_memory_honcho.service import HonchoService
from hermes_memory_honcho.settings import HonchoSettings
from hermes_memory_honcho.texts import storable

# -- Turns that wait to be sent together: in a file below the home, until Honcho has them -------
#
# ``writeFrequency`` says how many are sent at once. What waits survives the process; whoever sends
# it takes it first, so that two processes don't send it twice.

_HELD_TABLE: Final = """
CREATE TABLE IF NOT EXISTS held (
    n INTEGER PRIMARY KEY, key TEXT UNIQUE, session TEXT, user TEXT, ai TEXT, workspace TEXT,
    content TEXT, since REAL, taken REAL NOT NULL DEFAULT 0, tries INTEGER NOT NULL DEFAULT 0)
"""
_SEND_SECONDS: Final = 300.0  # whoever took turns and has not sent them by then, has failed


class BufferedTurn(NamedTuple):
    """A turn that waits.

    Attributes:
        key: Its identity.
        place: Where it belongs.
        said: By whom, and what.
        facts: What is stored with it.
        again: It was taken before, and may have been sent.
        said_at: When, in seconds since the epoch.
    """

    key: str
    place: SessionAddress
    said: Sequence[Utterance]
    facts: Mapping[str, Any]
    again: bool = False
    said_at: float = 0.0


class TurnBuffer:
    """The turns of one workspace that wait."""

    def __init__(self, home: Path, workspace: str) -> None:
        self._path = home / "honcho" / "held.db"
        self._workspace = workspace

    def put(self, turn: BufferedTurn) -> int:
        """Store a turn; returns how many of its session wait."""
        content = json.dumps([turn.said, turn.facts, turn.said_at])
        with self._open() as db:
            db.execute(
                # IGNORE: the outbox delivers a turn again if it did not learn that it was stored.
                "INSERT OR IGNORE INTO held (key, session, user, ai, workspace, content, since)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (turn.key, *turn.place, self._workspace, content, time.time()),
            )
            counted = db.execute(
                "SELECT count(*) FROM held WHERE (session, user, ai, workspace) = (?, ?, ?, ?)",
                (*turn.place, self._workspace),
            )
            return int(counted.fetchone()[0])

    def take(
        self, place: SessionAddress | None = None, *, older: float = 0.0
    ) -> list[BufferedTurn]:
        """Take what waits, of one session or of all, to send it now."""
        if not self._path.exists():
            return []
        now = time.time()
        # It takes the write lock before the read: two processes must not take the same rows.
        with self._open() as db:
            rows = db.execute(
                "SELECT n, key, session, user, ai, content, tries FROM held"
                " WHERE workspace = ? AND taken < ? AND since <= ?"
                " AND (? OR (session, user, ai) = (?, ?, ?)) ORDER BY n",
                (self._workspace, now - _SEND_SECONDS, now - older,
                 place is None, *(place or SessionAddress("", "", ""))),
            ).fetchall()  # fmt: skip
            taken = [(now, row[0]) for row in rows]
            db.executemany("UPDATE held SET taken = ?, tries = tries + 1 WHERE n = ?", taken)
        return [_read(row) for row in rows]

    def sent(self, turns: Sequence[BufferedTurn]) -> None:
        """Honcho has them."""
        with self._open() as db:
            db.executemany("DELETE FROM held WHERE key = ?", [(each.key,) for each in turns])

    def give_back(self, turns: Sequence[BufferedTurn]) -> None:
        """They could not be sent, and wait again."""
        keys = [(each.key,) for each in turns]
        with self._open() as db:
            db.executemany("UPDATE held SET taken = 0 WHERE key = ?", keys)

    def forget(self, is_meant: Callable[[str], bool], *, delete: bool) -> int:
        """Count the turns that are meant, whatever their workspace; delete them if asked to."""
        return _forget_rows(self._path, _HELD_TABLE, "held", is_meant, delete=delete)

    def _open(self) -> AbstractContextManager[Connection]:
        return own_database(self._path, _HELD_TABLE)


def _read(row: tuple[Any, ...]) -> BufferedTurn:
    _, key, session, user, ai, content, tries = row
    said, facts, *more = json.loads(content)
    place, spoken = SessionAddress(session, user, ai), [Utterance(*each) for each in said]
    return BufferedTurn(key, place, spoken, facts, tries > 0, more[0] if more else 0.0)


# -- Which notes were mirrored, word for word ---------------------------------------------------
#
# hermes-agent names the note that goes by a part of its text. Among conclusions, which Honcho also
# draws itself, that part may be in one that was never a note: so a part is looked up here.

_MIRRORED_TABLE: Final = """
CREATE TABLE IF NOT EXISTS notes (
    workspace TEXT, user TEXT, content TEXT, PRIMARY KEY (workspace, user, content))
"""


class MirroredNotes:
    """The notes of one workspace that were sent to Honcho."""

    def __init__(self, home: Path, workspace: str) -> None:
        self._path = home / "honcho" / "notes.db"
        self._workspace = workspace

    def put(self, user: str, content: str) -> None:
        """Remember that a note was sent."""
        with self._open() as db:
            db.execute(
                "INSERT OR IGNORE INTO notes VALUES (?, ?, ?)", (self._workspace, user, content)
            )

    def remove(self, user: str, content: str) -> None:
        """A note was taken back."""
        with self._open() as db:
            db.execute(
                "DELETE FROM notes WHERE (workspace, user, content) = (?, ?, ?)",
                (self._workspace, user, content),
            )

    def meant(self, user: str, part: str, new: str) -> str:
        """The note that a part of it names, if only one has it; else the part itself.

        Args:
            user: Whose note.
            part: Some of its text, or all.
            new: What takes its place; an earlier attempt may have put it here.
        """
        if not self._path.exists():
            return part
        with self._open() as db:
            rows = db.execute(
                "SELECT content FROM notes WHERE (workspace, user) = (?, ?)"
                " AND instr(content, ?) AND content != ?",
                (self._workspace, user, part, new),
            ).fetchall()
        found = [content for (content,) in rows]
        return found[0] if len(found) == 1 and part != new else part

    def forget(self, is_meant: Callable[[str], bool], *, delete: bool) -> int:
        """Count the notes that are meant, whatever their workspace; delete them if asked to."""
        return _forget_rows(self._path, _MIRRORED_TABLE, "notes", is_meant, delete=delete)

    def _open(self) -> AbstractContextManager[Connection]:
        return own_database(self._path, _MIRRORED_TABLE)


def _forget_rows(
    path: Path, create: str, table: str, is_meant: Callable[[str], bool], *, delete: bool
) -> int:
    if not path.exists():
        return 0
    with own_database(path, create, erase=delete) as db:
        rows = db.execute(f"SELECT rowid, * FROM {table}").fetchall()  # noqa: S608 - a name of ours
        found = [(row[0],) for row in rows if any(map(is_meant, _texts(row[1:])))]
        if delete:
            db.executemany(f"DELETE FROM {table} WHERE rowid = ?", found)  # noqa: S608 - as above
    return len(found)


def _texts(cells: Sequence[Any]) -> Iterator[str]:
    """The texts of a row. Those of a turn are in JSON, which escapes letters."""
    for each in cells:
        if isinstance(each, str):
            yield each
            with suppress(ValueError):
                yield json.dumps(json.loads(each), ensure_ascii=False)


# -- Writes: turns at once or several together, notes as conclusions, results of subagents ------

_LEFT_SECONDS: Final = 3600.0  # who has not sent a turn after an hour will not any more


class Writer:
    """Sends the turns and notes of one agent to Honcho."""

    def __init__(self, service: HonchoService, settings: HonchoSettings, home: Path) -> None:
        self._service = service
        self._names = service.names
        self._settings = settings
        self._held = TurnBuffer(home, service.names.workspace)
        self._mirrored = MirroredNotes(home, service.names.workspace)
        self._places: dict[SessionAddress, None] = {}  # in their order
        self._looked_for_left = False

    def turn(self, turn: CompletedTurn) -> None:
        """A turn: now, or with the others of its session."""
        place = self._names.place(turn.session_id)
        said = [Utterance(place.user, turn.user), Utterance(place.ai, turn.assistant)]
        facts = {"session_id": turn.session_id}
        self._write(place, Entry(turn.id, said, facts, turn.attempt, turn.said_at))

    def delegation(self, delegation: Delegation) -> None:
        """What a subagent found out is something that the agent says."""
        place = self._names.place(delegation.session_id)
        text = f"A subagent was asked: {delegation.task}\n\nIt answered: {delegation.result}"
        facts = {"session_id": delegation.session_id, "child": delegation.child_session_id}
        said = [Utterance(place.ai, text)]
        entry = Entry(delegation.id, said, facts, delegation.attempt, delegation.said_at)
        self._write(place, entry)

    def note(self, note: Note) -> None:
        """A note of either notebook is something that the agent knows of the person."""
        place = self._names.place(note.session_id)
        content, old = storable(note.content.strip()), storable(note.old_text.strip())
        if old and not note.old_is_whole:
            old = self._mirrored.meant(place.user, old, content)
        if note.action in ("add", "replace") and content:
            self._keep(place, content, note)
        # The new text first, then the old one goes: an attempt that fails in between leaves both,
        # never none.
        if old and (note.action == "remove" or (note.action == "replace" and old != content)):
            self._drop(place.user, old)

    def _keep(self, place: SessionAddress, content: str, note: Note) -> None:
        may_be_there = note.attempt > 1 or note.action == "replace"
        known = may_be_there and self._service.find_conclusion(
            place.user, content, note.id, note.attempt
        )
        if not known:
            self._service.conclude(place.user, content, place, note.id)
        self._mirrored.put(place.user, content)

    def _drop(self, user: str, content: str) -> None:
        number = self._service.find_conclusion(user, content)
        if number:
            self._service.delete_conclusion(user, number)
        self._mirrored.remove(user, content)

    def end(self, session_id: str) -> None:
        """A session is over: send what waits of it, and of those that led to it."""
        for place in [*self._places, self._names.place(session_id)]:
            self._send(self._held.take(place))
            # Removed only after its turns were sent: if that raises, the next attempt of this write
            # sends them.
            self._places.pop(place, None)

    def _write(self, place: SessionAddress, entry: Entry) -> None:
        if not self._settings.save_messages:
            return
        if not self._looked_for_left:
            self._send(self._held.take(older=_LEFT_SECONDS))
            self._looked_for_left = True
        if self._settings.write_every == 1:
            self._service.add(place, [entry])
        else:
            self._hold(place, entry)

    def _hold(self, place: SessionAddress, entry: Entry) -> None:
        if entry.attempt > 1 and self._service.parts(place, entry.key):
            return  # it was sent, and only its confirmation got lost
        self._places[place] = None
        key, said, facts, _, said_at = entry
        waiting = self._held.put(BufferedTurn(key, place, said, facts, said_at=said_at))
        if 0 < self._settings.write_every <= waiting:
            self._send(self._held.take(place))

    def _send(self, turns: list[BufferedTurn]) -> None:
        """Send turns that waited, those of a session together."""
        left = list(turns)
        try:
            for place in dict.fromkeys(each.place for each in turns):
                here = [each for each in turns if each.place == place]
                self._service.add(place, [_entry(each) for each in here])
                self._held.sent(here)
                left = [each for each in left if each.place != place]
        finally:
            if left:
                self._held.give_back(left)


def _entry(turn: BufferedTurn) -> Entry:
    return Entry(turn.key, turn.said, turn.facts, 2 if turn.again else 1, turn.said_at)
