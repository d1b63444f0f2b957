"""What a home knows of a shared folder: ``sync/<machine>.db``, and the machine's own log.

The state has no texts, only hashes and numbers: which line of which log said what, and how far each
log has been read. A line that this machine writes is stored together with the state that it leads
to (``outgoing``), then appended to the log, then removed here. So after a crash at any point the
same lines are appended again, if they are missing.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

from hermes_builtin.sync.log import (
    END,
    FORMAT,
    HEADER,
    VERSION,
    Line,
    MachineLog,
    Record,
    SyncError,
    encoded,
    seed,
    segment_name,
)
from hermes_builtin.sync.values import checked_seq, checked_text
from hermes_core.storage.files import replace_file, sync_folder
from hermes_core.storage.home import ensure_folder
from hermes_core.storage.sqlite import SqliteFile
from hermes_core.storage.sqlite_connection import Schema

#: Services copy a file as a whole when it grows, so a file must not become too large.
SEGMENT_BYTES: Final = 4_000_000
#: Lines that are stored before they are written and synced together.
_LINES: Final = 500

_SCHEMA: Final = Schema(
    "the state of a shared folder",
    application_id=0x48505331,  # "HPS1"
    migrations=(
        """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
-- How far the log of each machine has been read: for notes, and for conversations.
CREATE TABLE logs (machine TEXT PRIMARY KEY, notes INTEGER NOT NULL, sessions INTEGER NOT NULL)
    WITHOUT ROWID;
-- The lines of our own log, each by its own checksum, and those of them that may not be there yet.
CREATE TABLE own (seq INTEGER PRIMARY KEY, sum TEXT NOT NULL);
CREATE TABLE outgoing (
    number INTEGER PRIMARY KEY, segment INTEGER NOT NULL, before TEXT NOT NULL, sum TEXT NOT NULL,
    line BLOB NOT NULL
);
-- The notes that there are: which line of which log added each. The same text may be added twice.
CREATE TABLE notes (
    machine TEXT NOT NULL, seq INTEGER NOT NULL, notebook TEXT NOT NULL, hash TEXT NOT NULL,
    PRIMARY KEY (machine, seq)
) WITHOUT ROWID;
CREATE INDEX notes_of ON notes (notebook, hash);
-- Lines whose notes were removed; a removal may be read before what it removes.
CREATE TABLE removed (machine TEXT NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (machine, seq))
    WITHOUT ROWID;
-- What took the place of a note.
CREATE TABLE replaced (
    machine TEXT NOT NULL, seq INTEGER NOT NULL, by_machine TEXT NOT NULL, by_seq INTEGER NOT NULL,
    hash TEXT NOT NULL, PRIMARY KEY (machine, seq, by_machine, by_seq)
) WITHOUT ROWID;
-- The conversations as they were when they were last looked at, and whose title counts.
CREATE TABLE sessions (
    session TEXT PRIMARY KEY, messages INTEGER NOT NULL DEFAULT -1,
    active REAL NOT NULL DEFAULT 0, title TEXT NOT NULL DEFAULT '',
    stamp REAL NOT NULL DEFAULT 0, stamped_by TEXT NOT NULL DEFAULT '', ended REAL
) WITHOUT ROWID;
CREATE TABLE messages (
    session TEXT NOT NULL, id TEXT NOT NULL, machine TEXT NOT NULL, seq INTEGER NOT NULL,
    moment TEXT NOT NULL, PRIMARY KEY (session, id, machine, seq)
) WITHOUT ROWID;
-- Messages up to this line of a log are deleted; and messages that have another text now.
CREATE TABLE deleted (
    session TEXT NOT NULL, machine TEXT NOT NULL, seq INTEGER NOT NULL,
    PRIMARY KEY (session, machine)
) WITHOUT ROWID;
CREATE TABLE forgotten (session TEXT NOT NULL, id TEXT NOT NULL, PRIMARY KEY (session, id))
    WITHOUT ROWID;
-- Marks of the archive that have been seen.
CREATE TABLE marks (mark TEXT PRIMARY KEY) WITHOUT ROWID;
""",
    ),
)


class Tag(NamedTuple):
    """A line of a log: what it added is known by it."""

    machine: str
    seq: int

    @classmethod
    def of(cls, machine: str, line: Line) -> Tag:
        """The tag of a line: its own, or that of the lost line that it says again."""
        again = line.record.get("as")
        return cls(machine, line.seq) if again is None else cls.read(again)

    @classmethod
    def read(cls, pair: Any) -> Tag:
        """A tag that a record names.

        Raises:
            ValueError, TypeError: It is none.
        """
        machine, seq = pair
        return cls(checked_text(machine), checked_seq(seq))


class KnownPart(NamedTuple):
    """Which part of our log is in the folder as we wrote it.

    Attributes:
        seq: The number of its last line.
        is_ours: Whether nobody else has written into the log.
    """

    seq: int
    is_ours: bool


class State:
    """What a home knows of one shared folder, and its own log there.

    Args:
        path: The file of the state.
        shared: The shared folder.
    """

    def __init__(self, path: Path, shared: Path) -> None:
        self._file = SqliteFile(path, _SCHEMA)
        self.path = path
        self.shared = shared
        #: The end of each segment that this process has written: its last checksum, its size.
        self._ends: dict[int, tuple[str, int]] = {}
        self._unwritten = 0

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Commit everything done inside, or nothing."""
        with self._file.transaction() as database:
            yield database

    def close(self) -> None:
        """Close the file; no text of a line that was written is left in it."""
        if self.path.exists():  # it may have been renamed
            with self._file.writing() as database:
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._file.close()

    # -- values ---------------------------------------------------------------------------

    def get(self, key: str, default: str = "") -> str:
        """A value."""
        rows = self.rows("SELECT value FROM meta WHERE key = ?", key)
        return str(rows[0][0]) if rows else default

    def set(self, **values: object) -> None:
        """Store values."""
        with self.transaction() as database:
            rows = [(key, str(value)) for key, value in values.items()]
            database.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", rows)

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """What a query finds."""
        with self._file.writing() as database:
            return database.execute(query, values).fetchall()

    @property
    def machine(self) -> str:
        """The id of this machine in the folder."""
        return self.get("machine")

    @property
    def log(self) -> MachineLog:
        """Our own log."""
        return MachineLog(self.shared / self.machine)

    def read_up_to(self, machine: str, column: str) -> int:
        """How far the log of a machine was read; for our own, all that was written."""
        rows = self.rows(f"SELECT {column} FROM logs WHERE machine = ?", machine)  # noqa: S608
        return int(rows[0][0]) if rows else 0

    def set_read(self, machine: str, column: str, seq: int) -> None:
        """Store how far the log of a machine was read."""
        with self.transaction() as database:
            database.execute("INSERT OR IGNORE INTO logs VALUES (?, 0, 0)", (machine,))
            database.execute(
                f"UPDATE logs SET {column} = max({column}, ?) WHERE machine = ?",  # noqa: S608
                (seq, machine),
            )

    # -- writing our own log --------------------------------------------------------------

    def begin(self, machine: str, name: str) -> None:
        """Be a machine that has written nothing yet."""
        with self.transaction() as database:
            database.execute("DELETE FROM own")
            database.execute("DELETE FROM outgoing")
            self.set(machine=machine, name=name, seq=0, segment=0, sum="", size=0, rewriting="")
            self.set(checked="{}")
            self.set_read(machine, "notes", 0)

    def become(
        self,
        machine: str,
        known: KnownPart,
        removals: Callable[[State], Iterable[Record]],
    ) -> None:
        """Be another machine, and say again what our log does not say any more.

        If nobody else has written our log, its lost lines are said again under their numbers, so
        that it does not matter who has read them. Else these numbers are somebody else's.

        Args:
            machine: The new id.
            known: What our log still says.
            removals: What was removed and deleted, for the new log.
        """
        old, lost = self.machine, self.lost
        with self.transaction() as database:
            if known.is_ours:
                lost = {**lost, old: known.seq}
            else:
                for table in ("notes", "messages", "removed", "replaced"):
                    query = f"DELETE FROM {table} WHERE machine = ? AND seq > ?"  # noqa: S608
                    database.execute(query, (old, known.seq))
                query = "UPDATE deleted SET seq = ? WHERE machine = ? AND seq > ?"
                database.execute(query, (known.seq, old, known.seq))
                database.execute(
                    "UPDATE logs SET notes = min(notes, ?), sessions = min(sessions, ?)"
                    " WHERE machine = ?",
                    (known.seq, known.seq, old),
                )
            database.execute("UPDATE sessions SET messages = -1")
            self.begin(machine, self.get("name"))
            self.set(joined="again", lost=json.dumps(lost))
            tail = _Tail(self, database)
            for record in removals(self):
                tail.publish(record)
            tail.store()

    @property
    def lost(self) -> dict[str, int]:
        """The logs that we wrote before and that were damaged, and up to which line they are."""
        return dict(json.loads(self.get("lost", "{}")))

    @property
    def lost_now(self) -> dict[str, int]:
        """What is still to be said again."""
        return self.lost if self.get("joined") == "again" else {}

    @contextmanager
    def publishing(self) -> Iterator[Callable[[Record], Tag]]:
        """Append records to our log, together with what is stored inside of the block.

        Raises:
            SyncError: The log can't be written; the lines are appended by the next run.
        """
        with self.transaction() as database:
            database.execute("PRAGMA secure_delete = 1")
            tail = _Tail(self, database)
            yield tail.publish
            tail.store()
        self._unwritten += tail.lines
        if self._unwritten > _LINES:
            self.flush()

    def flush(self) -> None:
        """Append the lines that are not in the log yet, and sync it.

        Raises:
            SyncError: They can't be written.
            DivergedError: The log is not as we left it.
        """
        self._unwritten = 0
        rows = self.rows("SELECT segment, before, sum, line FROM outgoing ORDER BY number")
        for segment in dict.fromkeys(row[0] for row in rows):
            self._append(segment, [row[1:] for row in rows if row[0] == segment])
        if rows:
            with self.transaction() as database:
                database.execute("PRAGMA secure_delete = 1")
                database.execute("DELETE FROM outgoing")

    def _append(self, segment: int, rows: list[tuple[str, str, bytes]]) -> None:
        path = self.log.folder / segment_name(segment)
        if segment not in self._ends or self._ends[segment][0] != rows[0][0]:
            present = list(self.log.segment(segment)) if path.exists() else []
            sums = {each.sum for each in present}
            rows = [row for row in rows if row[1] not in sums]
            self._ends[segment] = (seed(self.machine, segment), 0)
            if present:
                self._ends[segment] = (present[-1].sum, present[-1].end)
        last, end = self._ends[segment]
        if not rows:
            return
        if rows[0][0] != last:
            raise DivergedError
        content = b"".join(row[2] for row in rows)
        try:
            ensure_folder(path.parent)
            _append_to(path, end, content)
        except OSError as error:
            raise SyncError(
                f"can't be written: {error.strerror or error}",
                where=str(path),
                hint="nothing is lost; run the same command again",
            ) from error
        self._ends[segment] = (rows[-1][1], end + len(content))

    def check_log(self) -> None:
        """Raise `DivergedError` unless our log is as we left it, and finish what was begun."""
        if rewriting := self.get("rewriting"):
            self._adopt_end(int(rewriting))
        self.flush()
        segment = int(self.get("segment", "0"))
        if not segment:
            return
        try:
            numbers = list(self.log.segments())
            last = list(self.log.segment(segment))[-1:]
        except FileNotFoundError:
            raise DivergedError from None
        expected = range(1, segment + 1)
        if numbers != [*expected] or not last or last[0].sum != self.get("sum"):
            raise DivergedError
        self._check_ended(numbers[:-1])

    def _check_ended(self, numbers: Iterable[int]) -> None:
        """Check the segments before the last one, if they are other files than the last time."""
        known = json.loads(self.get("checked", "{}"))
        now = {}
        for number in numbers:
            found = (self.log.folder / segment_name(number)).stat()
            now[str(number)] = [found.st_size, found.st_mtime_ns]
            if now[str(number)] != known.get(str(number)):
                last = list(self.log.segment(number))[-1:]
                if not last or last[0].kind != END or last[0].end != found.st_size:
                    raise DivergedError
        if now != known:
            self.set(checked=json.dumps(now))

    def known_part(self) -> KnownPart:
        """Up to which line our log in the folder is what we have written.

        Lines that are missing between others were erased. If the end is missing, it was lost.
        """
        sums: dict[int, str] = dict(self.rows("SELECT seq, sum FROM own"))
        segments = self.log.segments() if self.log.folder.is_dir() else {}
        known = 0
        for number, expected in zip(segments, count(1), strict=False):
            lines = list(self.log.segment(number))
            if number != expected or not lines or lines[0].seq != known:
                break
            for line in lines[1:]:
                if line.kind != END and sums.get(line.seq) not in _sums_of(line.record):
                    return KnownPart(known, is_ours=False)
                known = line.seq
            if lines[-1].kind != END:  # what follows can't be read
                break
        return KnownPart(known, is_ours=True)

    # -- removing texts from our own log --------------------------------------------------

    def rewrite(self, kept: Callable[[Line], Record | None]) -> int:
        """Write the segments again in which lines have to go; returns how many there were.

        Args:
            kept: What is left of a line; None for nothing.
        """
        numbers = self.log.segments() if self.log.folder.is_dir() else ()
        return sum(self._rewrite_segment(number, kept) for number in numbers)

    def _rewrite_segment(self, number: int, kept: Callable[[Line], Record | None]) -> bool:
        lines = list(self.log.segment(number))
        records = [(each, _kept_of(each, kept)) for each in lines]
        if all(record is each.record for each, record in records):
            return False
        content, before = [], seed(self.machine, number)
        for _, record in records:
            if record is not None:
                line, before = encoded(_without_sum(record), before)
                content.append(line)
        self.set(rewriting=number)
        path = self.log.folder / segment_name(number)
        try:
            replace_file(path, b"".join(content), mode=0o600)
        except OSError as error:
            raise SyncError(
                f"can't be written: {error.strerror or error}",
                where=str(path),
                hint="run the same command again: forgotten texts are still in this file",
            ) from error
        self._adopt_end(number)
        self._ends.pop(number, None)
        return True

    def _adopt_end(self, number: int) -> None:
        """Store where our log ends, if the segment that was written again is the last."""
        lines = list(self.log.segment(number))
        with self.transaction():
            if number == int(self.get("segment")) and lines and not self._has_outgoing():
                self.set(sum=lines[-1].sum, size=lines[-1].end)
            self.set(rewriting="")

    def _has_outgoing(self) -> bool:
        return bool(self.rows("SELECT 1 FROM outgoing LIMIT 1"))


class DivergedError(Exception):
    """Our log has other lines than those that this home has written."""


def _sums_of(record: Record) -> tuple[str, str]:
    """The checksum of a record as it is, and as it was before texts were removed from it."""
    return encoded(_without_sum(record), "")[1], str(record.get("of", ""))


def _kept_of(line: Line, kept: Callable[[Line], Record | None]) -> Record | None:
    if line.kind in (HEADER, END):
        return line.record
    left = kept(line)
    if left is None or left is line.record:
        return left
    now, before = _sums_of(line.record)
    return {**left, "of": before or now}


def _without_sum(record: Record) -> Record:
    return {key: value for key, value in record.items() if key != "sum"}


def _append_to(path: Path, end: int, content: bytes) -> None:
    """Append to a file behind its last whole line, and sync it."""
    is_new = not path.exists()
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)
    handle = os.open(path, flags, 0o600)
    try:
        os.ftruncate(handle, end)
        os.lseek(handle, end, os.SEEK_SET)
        written = 0
        while written < len(content):
            written += os.write(handle, content[written:])
        os.fsync(handle)
    finally:
        os.close(handle)
    if is_new:
        sync_folder(path.parent)


class _Tail:
    """The end of our log, to which records are appended."""

    def __init__(self, state: State, database: sqlite3.Connection) -> None:
        self._database = database
        self._state = state
        self._machine, self._name = state.machine, state.get("name")
        self._seq = int(state.get("seq"))
        self._segment = int(state.get("segment"))
        self._sum = state.get("sum")
        self._size = int(state.get("size"))
        self.lines = 0
        # Unless our own log has to be read again, all of it is known.
        self._current = [
            each
            for each in ("notes", "sessions")
            if state.read_up_to(self._machine, each) >= self._seq
        ]

    def publish(self, record: Record) -> Tag:
        """Append a record; returns the line that it is."""
        if not self._segment or self._size > SEGMENT_BYTES:
            self._begin_segment()
        self._seq += 1
        line = {"seq": self._seq, **record}
        self._add(line)
        own = (self._seq, encoded(line, "")[1])
        self._database.execute("INSERT INTO own VALUES (?, ?)", own)
        return Tag(self._machine, self._seq)

    def store(self) -> None:
        """Store where the end is now."""
        state = self._state
        if not self._segment:  # the others see that this machine takes part
            self._begin_segment()
        state.set(seq=self._seq, segment=self._segment, sum=self._sum, size=self._size)
        for column in self._current:
            state.set_read(self._machine, column, self._seq)

    def _begin_segment(self) -> None:
        if self._segment:
            self._add({"seq": self._seq, "type": END})
        self._segment, self._size = self._segment + 1, 0
        self._sum = seed(self._machine, self._segment)
        self._add(
            {
                "seq": self._seq,
                "type": HEADER,
                "format": FORMAT,
                "version": VERSION,
                "machine": self._machine,
                "name": self._name,
                "segment": self._segment,
                **({"replaces": [*replaced]} if (replaced := self._state.lost) else {}),
            }
        )

    def _add(self, record: Record) -> None:
        line, check = encoded(record, self._sum)
        self._database.execute(
            "INSERT INTO outgoing (segment, before, sum, line) VALUES (?, ?, ?, ?)",
            (self._segment, self._sum, check, line),
        )
        self._sum, self._size = check, self._size + len(line)
        self.lines += 1


# -- which state belongs to a folder ------------------------------------------------------------


def state_files(home: Path) -> list[Path]:
    """The states of all shared folders of a home."""
    return sorted((home / "sync").glob("*-[0-9a-f]*.db"))


def new_machine_id() -> str:
    """An id for this machine, with a part that people recognise."""
    host = re.sub("[^a-z0-9]+", "-", socket.gethostname().partition(".")[0].lower()).strip("-")
    return f"{host[:32] or 'machine'}-{os.urandom(4).hex()}"


def find_state(home: Path, shared: Path) -> Path | None:
    """The state of a folder, wherever it is mounted: it has the log of a machine that we are.

    Raises:
        SyncError: The folder was synced before, and our log in it is gone.
    """
    files = state_files(home)
    for path in files:
        if (shared / path.stem).is_dir():
            return path
    for path in files:
        state = State(path, shared)
        try:
            if state.get("path") != str(shared):
                continue
            # A run that ended before its first line was written.
            if state.rows(
                "SELECT 1 FROM outgoing WHERE segment = 1 AND before = ?", _seed_of(path)
            ):
                return path
            if int(state.get("segment", "0")):
                raise SyncError(
                    "the log of this machine is not in this folder any more",
                    where=str(shared),
                    hint=f"is its disk mounted? To begin again, remove {path}",
                )
        finally:
            state.close()
    return None


def _seed_of(path: Path) -> str:
    return seed(path.stem, 1)
