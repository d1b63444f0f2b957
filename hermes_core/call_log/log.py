"""The call log's file and the worker that writes it: `CallLog` is what a manager uses."""

from __future__ import annotations

import math
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import count
from pathlib import Path
from time import time  # bound before a plugin can replace it
from typing import ClassVar, Final, NamedTuple

from hermes_core.dispatch.worker import Worker
from hermes_core.errors import DatabaseError, HermesError, describe, one_line
from hermes_core.storage.forks import close_before_fork
from hermes_core.storage.logger import logger
from hermes_core.storage.sqlite import SqliteFile
from hermes_core.storage.sqlite_connection import Schema

#: Some weeks of a busy agent. Enough for the percentiles of `status`, small enough to scan.
MAX_ROWS: Final = 100_000
#: 18 MB: with long errors, there are fewer rows. Free pages are used again.
MAX_PAGES: Final = 4400
_PRUNE_ROWS: Final = 1000
#: The WAL is written back after so many pages, a megabyte.
_CHECKPOINT_PAGES: Final = 250

#: A fork and `close` wait for a write, so a write must not wait for other processes for long.
_BUSY_SECONDS: Final = 0.5

# Names and errors come from plugins: without a limit, one row could fill the file.
_NAME_CHARACTERS: Final = 100
_ERROR_CHARACTERS: Final = 200
#: Integers up to here survive a conversion to a float and to JSON in every reader.
_LARGEST: Final = 1 << 53

_INSERT: Final = (
    "INSERT INTO calls (at, provider, hook, session, outcome, seconds, bytes, error)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)


class LoggedCall(NamedTuple):
    """One call of a provider, without its content.

    Attributes:
        at: When it began, in Unix seconds.
        provider: The provider's name.
        hook: The method.
        session: The session; "" outside of any.
        outcome: "ok", "error", "late" (no answer within its deadline) or "paused" (not called,
            since the provider has failed too often).
        seconds: How long it took.
        bytes: The size of what was passed, or of what recall returned; 0 if unknown.
        error: What went wrong, in one line and without secrets. 200 characters are stored.
    """

    at: float
    provider: str
    hook: str
    session: str
    outcome: str
    seconds: float
    bytes: int
    error: str = ""


def path_of(home: Path) -> Path:
    """Return the path of a home's call log."""
    return home / "logs" / "memory-calls.db"


def _create_tables(database: sqlite3.Connection) -> None:
    database.execute(
        "CREATE TABLE calls (id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL,"
        " provider TEXT NOT NULL, hook TEXT NOT NULL, session TEXT NOT NULL,"
        " outcome TEXT NOT NULL, seconds REAL NOT NULL, bytes INTEGER NOT NULL,"
        " error TEXT NOT NULL)"
    )
    # Numbers continue to grow in a new file, so that a reader that follows the log misses nothing.
    first = int(time() * 1_000_000)
    database.execute("INSERT INTO sqlite_sequence VALUES ('calls', ?)", (first,))
    database.execute("CREATE TABLE lost (calls INTEGER NOT NULL, at REAL NOT NULL)")


SCHEMA: Final = Schema(
    "the log of calls",
    application_id=0x4850434C,  # "HPCL"
    migrations=(_create_tables,),
)


class CallLog:
    """One user of a home's call log. All users in one process share one worker."""

    __slots__ = ("_closed", "_writer")

    def __init__(self, writer: CallWriter) -> None:
        self._writer = writer
        self._closed = False

    @classmethod
    def of(cls, home: Path) -> CallLog:
        """Return the log of a home. Every call needs a `close`."""
        return cls(_WRITERS.acquire(path_of(home.absolute())))

    def add(self, call: LoggedCall) -> None:
        """Have a call written soon. Takes a microsecond, never waits, never raises.

        If the disk can't keep up, the oldest waiting calls are dropped and counted.
        """
        if not self._closed:
            self._writer.add(call)

    def listener(
        self, provider: str, session: Callable[[], str]
    ) -> Callable[[str, str, float, int, str], None]:
        """Return a listener for a provider's adapter that adds each call to the log."""

        def listen(hook: str, outcome: str, seconds: float, size: int, error: str) -> None:
            began = time() - seconds
            self.add(LoggedCall(began, provider, hook, session(), outcome, seconds, size, error))

        return listen

    def close(self) -> None:
        """Stop using the log. The last user waits up to a second until everything is written."""
        if not self._closed:
            self._closed = True
            _WRITERS.release(self._writer)


class CallWriter:
    """Queues calls, and writes them on a worker that starts with the first call.

    `add` takes no lock, since nobody may ever wait for a log: appending to a deque and counting
    with `itertools.count` are atomic.
    """

    MAX_WAITING: ClassVar = 10_000
    #: With so many, the worker gathers no more calls, or it would soon have to drop some.
    HURRY: ClassVar = 5_000
    BATCH: ClassVar = 500
    #: How long the worker gathers calls before it writes them.
    SECONDS: ClassVar = 0.5
    RETRY_SECONDS: ClassVar = 5.0
    CLOSE_SECONDS: ClassVar = 1.0

    def __init__(self, path: Path) -> None:
        self.path = path
        self.users = 0
        self._logged: set[str] = set()
        self._file = CallFile(path, self._note_damage)
        self._worker = Worker("hermes-call-log", step=self._step)
        self._reset()
        close_before_fork(self)

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._waiting: deque[LoggedCall] = deque()
        # `next` on a counter is atomic. Reading it counts, too, so those reads are subtracted.
        self._drops = count()
        self._drop_reads = 0
        self._lost = 0  # the dropped calls that the file knows of
        self._batch: list[LoggedCall] = []
        #: Whether the worker will look at the queue without being woken up.
        self._awake = False
        self._gathered = False
        self._messages: list[str] = []

    # -- on any thread ---------------------------------------------------------------------

    def add(self, call: LoggedCall) -> None:
        """Queue a call."""
        waiting = self._waiting
        waiting.append(call)
        size = len(waiting)
        if size > self.MAX_WAITING:
            try:  # suppress() would cost more than everything else here
                waiting.popleft()
                next(self._drops)
            except IndexError:  # the worker has just taken all
                pass
        if not self._awake:
            self._awake = self._worker.wake()
        elif size == self.HURRY:
            self._worker.wake()

    def close(self) -> None:
        """Write the rest and end the worker, unless that takes too long."""
        if self._worker.alive:
            with suppress(RuntimeError):  # the interpreter is ending
                self._worker.submit(self._finish)
            self._worker.stop(self.CLOSE_SECONDS)

    def before_fork(self) -> None:
        """Nothing to do: the file waits for the batch that is being written."""

    def after_fork(self) -> None:
        """Start with an empty queue in a child: what waits is written by its parent."""
        if self._pid != os.getpid():
            self._reset()

    # -- on the worker ---------------------------------------------------------------------

    def _step(self) -> float | None:
        """Gather calls for a moment, then write them; the worker sleeps if there are none."""
        if not self._batch:
            # In this order: a call that is added after the look finds nobody awake, and wakes us.
            self._awake = False
            if not self._waiting:
                self._gathered = False
                return None
            self._awake = True
        if not self._gathered:
            self._gathered = True
            return self.SECONDS
        if not self._write_all():
            return self.RETRY_SECONDS
        self._gathered = False
        return 0.0

    def _finish(self) -> None:
        self._write_all()
        self._file.close()

    def _write_all(self) -> bool:
        """Whether all that waited is written."""
        # A batch that could not be written stays in `_batch` and is tried again before newer calls,
        # so the rows are in order.
        while self._batch or self._waiting:
            with suppress(IndexError):
                while len(self._batch) < self.BATCH:
                    self._batch.append(self._waiting.popleft())
            written = self._write()
            while self._messages:  # without the file's lock: the host's log handlers run here
                self._log_once(self._messages.pop(0))
            if not written:
                return False
        return True

    def _write(self) -> bool:
        """Whether the batch is written."""
        dropped = next(self._drops) - self._drop_reads
        self._drop_reads += 1
        lost = dropped - self._lost
        try:
            self._file.write(self._batch, lost)
        except (HermesError, OSError) as error:
            self._messages.append(f"calls are not logged for now: {describe(error)}")
            return False
        self._batch.clear()
        self._lost = dropped
        if lost:
            self._messages.append(
                "more calls came than could be written; `hermes-plugins log` shows how many"
                " are missing"
            )
        return True

    def _note_damage(self, name: str) -> None:
        aside = self.path.with_name(name)
        self._messages.append(f"was damaged: renamed to {aside}, and a new log was created")

    def _log_once(self, message: str) -> None:
        if message not in self._logged:
            self._logged.add(message)
            logger.warning("%s: %s", self.path, message)


class _Writers:
    """The writers of this process by their files, each closed when its last user releases it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._writers: dict[Path, CallWriter] = {}

    def acquire(self, path: Path) -> CallWriter:
        """Return the writer of a file, with one more user."""
        close_before_fork(self)
        with self._lock:
            writer = self._writers.get(path) or CallWriter(path)
            self._writers[path] = writer
            writer.users += 1
            return writer

    def release(self, writer: CallWriter) -> None:
        """Count one user less."""
        with self._lock:
            writer.users -= 1
            if writer.users:
                return
            del self._writers[writer.path]
        writer.close()

    def before_fork(self) -> None:
        """Let no thread be in the middle of a change that a child could not finish."""
        self._lock.acquire()

    def after_fork(self) -> None:
        """Let threads go on."""
        self._lock.release()


# Module state, since the managers of a process that share a file must share its writer.
_WRITERS: Final = _Writers()


class CallFile:
    """Writes calls to the file, and limits its size.

    Args:
        path: The file.
        on_new_file: Called with the new name of a damaged file, after a new one was created.
    """

    def __init__(self, path: Path, on_new_file: Callable[[str], None] | None = None) -> None:
        self._on_new_file = on_new_file
        self._file = SqliteFile(
            path,
            SCHEMA,
            pragmas={"wal_autocheckpoint": _CHECKPOINT_PAGES},
            wait_seconds=_BUSY_SECONDS,
            set_aside=True,
            keep_all_damaged=False,
            on_new_file=self._note_new_file,
        )

    def write(self, calls: Sequence[LoggedCall], lost: int) -> None:
        """Store calls, and how many were dropped.

        Raises:
            DatabaseError: They could not be stored; none of them was.
        """

        def work(database: sqlite3.Connection) -> None:
            database.executemany(_INSERT, map(_row, calls))
            if lost:
                _count_lost(database, lost)
            _prune(database)

        try:
            self._file.change(work)
        except DatabaseError:
            self.close()
            raise

    def close(self) -> None:
        """Close the file; the next write opens it again."""
        self._file.close()

    def _note_new_file(self, damaged: str) -> None:
        # A log that somebody removed needs no message: it is created again.
        if damaged and self._on_new_file is not None:
            self._on_new_file(damaged)


def damage_hint(home: Path) -> str:
    """What to do about a log that can't be read."""
    return f"remove it, it is only a log: {path_of(home)}"


def forget_calls(
    home: Path, matches: Callable[[str], bool], sessions: Collection[str], *, delete: bool
) -> int:
    """Find calls of some sessions, or with a text in their error; empty these two fields.

    The rows stay: their numbers say how many there are.

    Returns:
        How many rows there are.
    """
    path = path_of(home)
    if not path.exists():
        return 0
    wanted = {one_line(name[:_NAME_CHARACTERS]) for name in sessions}
    file = SqliteFile(path, SCHEMA, damage_hint=damage_hint(home))

    def work(database: sqlite3.Connection) -> int:
        rows = database.execute("SELECT id, session, error FROM calls").fetchall()
        found = [
            (number,)
            for number, session, error in rows
            if (session and session in wanted) or matches(session) or matches(error)
        ]
        if delete:
            database.execute("PRAGMA secure_delete = 1")
            database.executemany("UPDATE calls SET session = '', error = '' WHERE id = ?", found)
        return len(found)

    try:
        found = file.change(work)
        if delete:
            file.erase_free_space()
    finally:
        file.close()
    return found


def _row(call: LoggedCall) -> tuple[float | int | str, ...]:
    """Return what SQLite can store: a bad value must not prevent the others being written."""
    at, provider, hook, session, outcome, seconds, size, error = call
    return (
        _number(at),
        _name(provider),
        _name(hook),
        _name(session),
        _name(outcome),
        _number(seconds),
        int(min(max(_number(size), 0), _LARGEST)),
        one_line(error[:_ERROR_CHARACTERS]) if error else "",
    )


@lru_cache(maxsize=64)  # a conversation has a dozen
def _name(name: str) -> str:
    return one_line(name[:_NAME_CHARACTERS])


def _number(value: float) -> float:
    try:
        return value if math.isfinite(value) else 0
    except OverflowError:  # an integer beyond all floats
        return 0


def _count_lost(database: sqlite3.Connection, calls: int) -> None:
    now = time()
    counted = database.execute("UPDATE lost SET calls = calls + ?, at = ?", (calls, now))
    if not counted.rowcount:
        database.execute("INSERT INTO lost VALUES (?, ?)", (calls, now))


def _prune(database: sqlite3.Connection) -> None:
    """Delete the oldest rows. No other rows are deleted, so their numbers tell how many exist."""
    while True:
        oldest, newest = database.execute(
            "SELECT (SELECT min(id) FROM calls), (SELECT max(id) FROM calls)"
        ).fetchone()
        if oldest is None:
            return
        over = newest - oldest + 1 - MAX_ROWS
        if _pages(database) > MAX_PAGES:
            over = max(over, _PRUNE_ROWS)
        if over <= 0:
            return
        database.execute("DELETE FROM calls WHERE id < ?", (oldest + min(over, _PRUNE_ROWS),))


def _pages(database: sqlite3.Connection) -> int:
    """Return how many pages are in use."""
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    (free,) = database.execute("PRAGMA freelist_count").fetchone()
    return int(pages - free)
