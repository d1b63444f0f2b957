"""Work that waits for a quiet moment, so that nobody's turn pays for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import Final

#: A model takes longer than this to answer; turns without one come faster.
_SECONDS: Final = 0.25


class QuietWork:
    """Takes one step after the other on a thread, while nothing else happens.

    The thread is started when there is work, and ends when there is none left.

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

    def stir(self, *, has_work: bool) -> None:
        """Something happens now: the quiet begins anew."""
        self._stirred = monotonic()
        if has_work and (self._thread is None or not self._thread.is_alive()):
            self._begin()

    def end(self) -> None:
        """Stop, after the step that is being taken."""
        thread, self._thread = self._thread, None
        if thread is not None and thread.is_alive():  # a fork leaves it dead, its event as it was
            self._ended.set()
            thread.join()

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
