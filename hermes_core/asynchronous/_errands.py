"""Calls that may take long, made in order on a thread beside the event loop.

Not the loop's default executor: its threads are joined at exit, and two of them would turn
the order of a conversation round.
"""

from __future__ import annotations

import os
import threading
from asyncio import AbstractEventLoop, CancelledError, Future, get_running_loop
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Any, Final, NamedTuple, TypeVar

from hermes_core.dispatch import Job

T = TypeVar("T")

_NAME: Final = "memory-async"


class Errand(NamedTuple):
    """A call, and the loop on which somebody waits for it."""

    job: Job
    loop: AbstractEventLoop
    answer: Future[Any]

    def run(self) -> None:
        """Make the call, unless nobody wants it any more, and bring the answer."""
        if not self.job.claim():
            return
        self.job.run()
        with suppress(RuntimeError):  # its loop is closed: there is nobody to tell
            self.loop.call_soon_threadsafe(self._hand_in)

    def _hand_in(self) -> None:
        if self.answer.done():  # cancelled
            return
        try:
            self.answer.set_result(self.job.result())
        except Exception as error:  # noqa: BLE001 - raised where it is awaited
            self.answer.set_exception(error)


class Errands:
    """One daemon thread that makes calls one after the other, for any loop that asks.

    It starts with the first call. After `end` it goes when it has nothing more to do; whoever
    calls then still gets an answer.
    """

    def __init__(self) -> None:
        self._over = False
        self._start_anew()

    def _start_anew(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._waiting: deque[Errand] = deque()
        self._thread: threading.Thread | None = None

    async def ask(self, call: Callable[[], T]) -> T:
        """What ``call`` gives. If its caller is cancelled before it begins, it never does."""
        errand = self.hand_over(call)
        try:
            return await errand.answer  # type: ignore[no-any-return]
        except CancelledError:
            errand.job.claim()
            raise

    async def tell(self, call: Callable[[], None]) -> None:
        """Have ``call`` made, whatever becomes of its caller."""
        await self.hand_over(call).answer

    def hand_over(self, call: Callable[[], Any]) -> Errand:
        """Put a call behind those that wait, and return at once."""
        loop = get_running_loop()
        # A manager's calls have deadlines of their own.
        errand = Errand(Job(call, inf), loop, loop.create_future())
        if self._pid != os.getpid():  # a forked child has no thread of ours
            self._start_anew()
        with self._changed:
            self._waiting.append(errand)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=_NAME, daemon=True)
                self._thread.start()
            self._changed.notify()
        return errand

    def end(self) -> None:
        """Let the thread go when it has nothing more to do."""
        with self._changed:
            self._over = True
            self._changed.notify()

    def _work(self) -> None:
        while (errand := self._next()) is not None:
            errand.run()
            del errand  # or its answer would be kept until the next

    def _next(self) -> Errand | None:
        with self._changed:
            while not self._waiting and not self._over:
                self._changed.wait()
            if self._waiting:
                return self._waiting.popleft()
            self._thread = None
            return None
