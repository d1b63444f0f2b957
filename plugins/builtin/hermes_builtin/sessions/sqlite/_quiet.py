"""Work that waits for a quiet moment, so that nobody's turn pays for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import Final

from hermes_core.database import close_before_forks

#: A model takes longer than this to answer; turns without one come faster.
_SECONDS: Final = 0.25


class QuietWork:
    """Takes one step after the other on a thread, while nothing else happens.

    The thread is started when there is work, and ends when there is none left. There is one
    at most, however many call: `end` could not wait for another.

    Args:
        step: Does some of the work; whether there is more.
        seconds: So long must nothing have happened.
    """

    def __init__(self, step: Callable[[], bool], *, seconds: float = _SECONDS) -> None:
        self._step = step
        self._seconds = seconds
        self._stirred = 0.0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        close_before_forks(self)

    def stir(self, *, has_work: bool) -> None:
        """Something happens now: the quiet begins anew."""
        self._stirred = monotonic()
        # Somebody else may be about to begin, or a fork may wait for who calls us to be done.
        if has_work and self._lock.acquire(blocking=False):
            try:
                if self._thread is None or not self._thread.is_alive():
                    self._begin()
            finally:
                self._lock.release()

    def end(self) -> None:
        """Stop, after the step that is being taken."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is None or not thread.is_alive():  # a fork leaves it dead
                return
            self._ended.set()
        thread.join()

    def before_fork(self) -> None:
        """Let no thread be half started in the child."""
        self._lock.acquire()

    def after_fork(self) -> None:
        """Go on."""
        self._lock.release()

    def _begin(self) -> None:
        self._ended = ended = threading.Event()
        thread = threading.Thread(
            target=self._work, args=(ended,), name="hermes-quiet-work", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # no more threads, or the interpreter ends: the work can wait
            return
        self._thread = thread

    def _work(self, ended: threading.Event) -> None:
        more = True
        while more and not ended.is_set():
            noise = self._stirred + self._seconds - monotonic()
            if noise > 0:
                ended.wait(noise)
            else:
                more = self._step()
