"""Writes that wait in this process, for a host that has no outbox."""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from hermes_core.backends._failures import BackendError, Cause
from hermes_core.errors import HermesError, describe

logger = logging.getLogger(__name__)

_WAITING: Final = 1_000
_TRIES: Final = 6
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0
_HURRIED_PAUSE: Final = 0.2
_FULL_SECONDS: Final = 30.0
#: What holds for every write and passes, or is mended by a person: no fault of this one.
_PASSING: Final = frozenset({Cause.AWAY, Cause.QUOTA, Cause.WRONG_KEY})


class _Write(NamedTuple):
    what: str
    run: Callable[[int], None]


class WriteQueue:
    """Carries out writes in order, on one thread, and tries each several times.

    While the service is away, writes wait. hermes-agent keeps no outbox: what still waits here
    when its process ends is lost, and the log says so. A forked child has a queue of its own;
    what waited is its parent's.

    Args:
        name: Whose writes, for the log and the thread.
        waiting: So many may wait; then `put` waits.
        tries: So often a write is tried that fails by itself.
        pause: Seconds before the second try; each further pause is twice as long.
    """

    def __init__(
        self,
        name: str,
        *,
        waiting: int = _WAITING,
        tries: int = _TRIES,
        pause: float = _FIRST_PAUSE,
    ) -> None:
        self._name = name
        self._tries = tries
        self._pause = pause
        self._waiting = waiting
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._writes: queue.Queue[_Write | None] = queue.Queue(self._waiting)
        self._hurry = threading.Event()
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    def put(self, what: str, run: Callable[[int], None], *, seconds: float = _FULL_SECONDS) -> None:
        """Take a write; ``run`` is told which attempt it is.

        Raises:
            HermesError: The queue is full, and stays so; or it was closed.
        """
        if self._pid != os.getpid():
            self._reset()
        if self._is_over.is_set():
            raise HermesError(f"it is shut down; {what} was not taken", where=self._name)
        if self._thread is None:
            thread = threading.Thread(target=self._work, name=f"{self._name}-writes", daemon=True)
            self._thread = thread
            thread.start()
        try:
            self._writes.put(_Write(what, run), timeout=seconds)
        except queue.Full:
            raise HermesError(
                f"{self._writes.maxsize} writes wait already; {what} was not taken",
                where=self._name,
                hint="see that its server runs",
            ) from None

    def close(self, seconds: float) -> int:
        """Let what waits be written, for so long; gives how many writes were left.

        Those are not begun any more: whoever they were for may be gone, and somebody else there.
        """
        thread, self._thread = self._thread, None
        if thread is None or self._pid != os.getpid():
            return 0
        self._hurry.set()
        until = time.monotonic() + seconds
        asked_to_end = 0
        try:
            self._writes.put(None, timeout=seconds)
        except queue.Full:
            pass
        else:
            asked_to_end = 1
            thread.join(max(0.0, until - time.monotonic()))
        self._is_over.set()
        left = self._writes.unfinished_tasks - asked_to_end if thread.is_alive() else 0
        if left > 0:
            logger.error("%s: %d writes were not delivered before the end", self._name, left)
        return max(0, left)

    def _work(self) -> None:
        while not self._is_over.is_set():
            write = self._writes.get()
            try:
                if write is None:
                    return
                self._carry_out(write)
            finally:
                self._writes.task_done()

    def _carry_out(self, write: _Write) -> None:
        attempt = failed = 0
        while not self._is_over.is_set():
            attempt += 1
            try:
                write.run(attempt)
            except Exception as error:  # noqa: BLE001 - the plugin's own code
                last = describe(error)
                logger.warning("%s: %s failed (try %d): %s", self._name, write.what, attempt, last)
                failed += not _passes(error)
            else:
                return
            if failed >= self._tries:
                logger.error("%s: %s is lost: this host keeps no outbox", self._name, write.what)
                return
            self._rest(attempt)

    def _rest(self, attempt: int) -> None:
        """Pause after a try. At the end of the process there is no time for long ones."""
        pause = min(self._pause * 2 ** min(attempt - 1, 10), _LONGEST_PAUSE)
        if self._hurry.is_set():
            self._is_over.wait(min(pause, _HURRIED_PAUSE))
        else:
            self._hurry.wait(pause)


def _passes(error: Exception) -> bool:
    return isinstance(error, BackendError) and error.cause in _PASSING
