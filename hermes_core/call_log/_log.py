"""Adding calls, and the thread that writes them."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue
from time import time
from typing import ClassVar, Final

from hermes_core.call_log._call import Call, path_of
from hermes_core.call_log._file import CallFile, is_damage
from hermes_core.database import close_before_forks
from hermes_core.errors import DatabaseError, HermesError, describe

logger = logging.getLogger("hermes_core")


class CallLog:
    """One user's hold on the log of a home. All users in one process share one thread."""

    __slots__ = ("_closed", "_writer")

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._closed = False

    @classmethod
    def of(cls, home: Path) -> CallLog:
        """The log of a home. Every call needs a `close`."""
        return cls(_WRITERS.take(path_of(home.absolute())))

    def add(self, call: Call) -> None:
        """Have a call written soon. Costs a microsecond, never waits, never raises.

        When the disk can't keep up, the oldest that wait are dropped and counted.
        """
        if not self._closed:
            self._writer.add(call)

    def listener(
        self, provider: str, session: Callable[[], str]
    ) -> Callable[[str, str, float, int, str], None]:
        """What a provider's adapter tells of each call, as it goes into the log."""

        def note(hook: str, outcome: str, seconds: float, size: int, error: str) -> None:
            began = time() - seconds
            self.add(Call(began, provider, hook, session(), outcome, seconds, size, error))

        return note

    def close(self) -> None:
        """Let go. The last one to do so waits up to a second until all is written."""
        if not self._closed:
            self._closed = True
            _WRITERS.give_back(self._writer)


class Writer:
    """Calls that wait, and a thread that writes them, started with the first.

    `add` takes no lock, since nobody may ever wait for a log: appending to a deque, counting
    with `itertools.count` and putting into a `SimpleQueue` are each one step.
    """

    MOST_WAITING: ClassVar = 10_000
    #: With so many, the thread waits no longer: who calls a provider is not to be slowed down.
    HURRY: ClassVar = 5_000
    BATCH: ClassVar = 500
    SECONDS: ClassVar = 0.5
    RETRY_SECONDS: ClassVar = 5.0
    CLOSE_SECONDS: ClassVar = 1.0

    def __init__(self, path: Path) -> None:
        self.path = path
        self.users = 0
        self._told: set[str] = set()
        self._begin()
        close_before_forks(self)

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._waiting: deque[Call] = deque()
        self._drops = count()
        self._looks = 0  # how often we looked at it, which counts too
        self._lost = 0  # of the dropped, those that the file knows of
        self._batch: list[Call] = []
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._awake = False
        self._closed = False
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._mutex = threading.Lock()
        self._file = CallFile(self.path)

    # -- whoever calls a provider --------------------------------------------------------------

    def add(self, call: Call) -> None:
        """Queue a call."""
        waiting = self._waiting
        waiting.append(call)
        size = len(waiting)
        if size > self.MOST_WAITING:
            try:  # not suppress(), which costs more than all the rest
                waiting.popleft()
                next(self._drops)
            except IndexError:  # the thread has just taken all
                pass
        if not self._awake:
            self._rouse()
        elif size == self.HURRY:
            self._bell.put(None)

    def _rouse(self) -> None:
        if self._thread is not None:
            self._awake = True
            self._bell.put(None)
        elif self._starting.acquire(blocking=False):  # else somebody is about to
            try:
                if self._thread is None:
                    self._start()
            finally:
                self._starting.release()

    def _start(self) -> None:
        self._awake = True
        self._thread = threading.Thread(target=self._work, name="hermes-call-log", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # no more threads for now, or the interpreter is ending
            self._thread = None
            self._awake = False

    def close(self) -> None:
        """Have the rest written, and the thread ended, unless that takes too long."""
        self._closed = True
        self._bell.put(None)
        if self._thread is not None:
            with suppress(RuntimeError):  # another thread is only just starting it
                self._thread.join(self.CLOSE_SECONDS)

    def before_fork(self) -> None:
        """Wait for the batch that is being written, and close the file."""
        self._mutex.acquire()
        self._file.close()

    def after_fork(self) -> None:
        """Go on; a child begins with nothing, since what waits is its parent's."""
        if self._pid == os.getpid():
            self._mutex.release()
        else:
            self._begin()

    # -- the thread ----------------------------------------------------------------------------

    def _work(self) -> None:
        pause = self.SECONDS
        while True:
            self._sleep(pause)
            closing = self._closed
            pause = self.SECONDS if self._write_all() else self.RETRY_SECONDS
            if closing:
                with self._mutex:
                    self._file.close()
                return

    def _sleep(self, pause: float) -> None:
        """Wait until there is something, and then a little for more of it."""
        if not self._batch:
            self._awake = False
            if not self._waiting and not self._closed:
                self._bell.get()
            self._awake = True
        if not self._closed:
            with suppress(Empty):
                self._bell.get(timeout=pause)

    def _write_all(self) -> bool:
        """Whether all that waited is written."""
        while self._batch or self._waiting:
            self._fill()
            news: list[str] = []
            with self._mutex:
                written = self._write(news)
            for each in news:  # without the lock: a handler of somebody else's gets it
                self._tell(each)
            if not written:
                return False
        return True

    def _fill(self) -> None:
        with suppress(IndexError):
            while len(self._batch) < self.BATCH:
                self._batch.append(self._waiting.popleft())

    def _write(self, news: list[str]) -> bool:
        """Whether the batch is written. What a person should know is added to ``news``."""
        dropped = next(self._drops) - self._looks
        self._looks += 1
        lost = dropped - self._lost
        try:
            self._store(lost, news)
        except (HermesError, OSError) as error:
            news.append(f"calls are not logged for now: {describe(error)}")
            return False
        self._batch.clear()
        self._lost = dropped
        if lost:
            news.append(
                "more calls came than could be written; `hermes-plugins log` says how many"
                " are missing"
            )
        return True

    def _store(self, lost: int, news: list[str]) -> None:
        try:
            self._file.write(self._batch, lost)
        except DatabaseError as error:
            if not is_damage(error):
                raise
            aside = self._file.set_aside()
            if aside is not None:
                news.append(f"was damaged: it is {aside} now, and a new log is begun")
            self._file.write(self._batch, lost)

    def _tell(self, news: str) -> None:
        """Log something, but each thing only once."""
        if news not in self._told:
            self._told.add(news)
            logger.warning("%s: %s", self.path, news)


class Writers:
    """The writers of this process by their files, each ended when its last user lets go."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._writers: dict[Path, Writer] = {}

    def take(self, path: Path) -> Writer:
        """The writer of a file, with one more user."""
        close_before_forks(self)
        with self._lock:
            writer = self._writers.get(path) or Writer(path)
            self._writers[path] = writer
            writer.users += 1
            return writer

    def give_back(self, writer: Writer) -> None:
        """One user less."""
        with self._lock:
            writer.users -= 1
            if writer.users:
                return
            del self._writers[writer.path]
        writer.close()

    def before_fork(self) -> None:
        """Let nobody be in the middle of something that a child could not finish."""
        self._lock.acquire()

    def after_fork(self) -> None:
        """Go on."""
        self._lock.release()


# Who shares a file in this process is a fact of the process.
_WRITERS: Final = Writers()
