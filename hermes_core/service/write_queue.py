"""Queued writes in this process, for a host without an outbox."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Final

from hermes_core.dispatch.worker import Worker
from hermes_core.errors import HermesError, WriteRefused, describe
from hermes_core.service.failures import BackendError, Cause

logger = logging.getLogger(__name__)

# More than a thousand turns in memory means that the service is down for long: then the host waits
# instead of losing a turn.
_WAITING: Final = 1_000
# With the pauses below, six tries take about 16 seconds.
_TRIES: Final = 6
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0
# While the queue closes, its host waits at most a few seconds in all.
_HURRIED_PAUSE: Final = 0.2
_FULL_SECONDS: Final = 30.0
#: Causes that affect every write and pass, or that a person fixes. They don't count as a try:
#: dropping one write would only lose it. A write that fails by itself is dropped after some
#: tries, because it would block all others.
_PASSING: Final = frozenset({Cause.UNREACHABLE, Cause.QUOTA, Cause.WRONG_KEY})


class WriteQueue:
    """Runs writes in order on one thread, and retries each several times.

    While the service is unreachable, writes stay queued. hermes-agent has no outbox: what is
    still queued when its process ends is lost, and the log says so. In a forked child the queue
    is empty: the parent's writes stay with the parent.

    Args:
        name: The plugin's name, for the log and the thread.
        waiting: How many writes may be queued before `put` waits.
        tries: How often to try a write that fails by itself.
        pause: Seconds before the second try. Each further pause is twice as long.
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
        self._worker = Worker(f"{self._name}-writes")
        self._room = threading.Semaphore(self._waiting)
        self._lock = threading.Lock()
        self._unfinished = 0
        self._hurry = threading.Event()
        self._is_over = threading.Event()

    def put(self, what: str, run: Callable[[int], None], *, seconds: float = _FULL_SECONDS) -> None:
        """Queue a write; ``run`` receives the number of the attempt.

        Raises:
            HermesError: The queue stays full for ``seconds``, or it is closed.
        """
        if self._pid != os.getpid():
            self._reset()
        if not self._room.acquire(timeout=seconds):
            raise HermesError(
                f"{self._waiting} writes are queued already; {what} was not queued",
                where=self._name,
                hint="check that its server is running",
            )
        # Under the lock: `close` must count this write, or this write must see that it is closed.
        with self._lock:
            if self._is_over.is_set():
                self._room.release()
                raise HermesError(f"it is shut down; {what} was not queued", where=self._name)
            # Counted here and not by the worker's queue: the write that runs now is not delivered
            # either.
            self._unfinished += 1
            self._worker.submit(partial(self._write, what, run))

    def close(self, seconds: float) -> int:
        """Wait for queued writes for at most ``seconds``, and return how many were left.

        Those are not started later: the session they belong to may be over, and another begun.
        """
        if self._pid != os.getpid() or self._is_over.is_set():
            return 0
        # Two events: `_hurry` ends the long pauses, so that every write gets another try;
        # `_is_over` ends the tries.
        self._hurry.set()
        self._worker.flush(seconds)
        with self._lock:
            self._is_over.set()
            self._worker.close()
            left = self._unfinished
        if left:
            logger.error("%s: %d writes were not delivered before the end", self._name, left)
        return left

    def _write(self, what: str, run: Callable[[int], None]) -> None:
        # When the write starts, not when it is done: at most one is running, and a slow one must
        # not make the host wait earlier.
        self._room.release()
        try:
            self._try_until_done(what, run)
        finally:
            with self._lock:
                self._unfinished -= 1

    def _try_until_done(self, what: str, run: Callable[[int], None]) -> None:
        attempt = failed = 0
        while not self._is_over.is_set():
            attempt += 1
            try:
                run(attempt)
            except Exception as error:  # noqa: BLE001 - the plugin's own code
                last = describe(error)
                logger.warning("%s: %s failed (try %d): %s", self._name, what, attempt, last)
                refused = isinstance(error, WriteRefused)  # no further try helps
                failed = self._tries if refused else failed + (not _passes(error))
            else:
                return
            if failed >= self._tries:
                logger.error("%s: %s is lost: this host has no outbox", self._name, what)
                return
            self._rest(attempt)

    def _rest(self, attempt: int) -> None:
        """Wait before the next try; only briefly once the queue is closing."""
        pause = min(self._pause * 2 ** min(attempt - 1, 10), _LONGEST_PAUSE)
        if self._hurry.is_set():
            self._is_over.wait(min(pause, _HURRIED_PAUSE))
        else:
            self._hurry.wait(pause)


def _passes(error: Exception) -> bool:
    return isinstance(error, BackendError) and error.cause in _PASSING
