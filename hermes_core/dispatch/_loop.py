"""The event loop on which an asynchronous provider's coroutines run."""

from __future__ import annotations

import os
import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from hermes_core.dispatch._lane import contained
from hermes_core.errors import DeadlineExceeded

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


class EventLoop:
    """One loop for all coroutines of a provider, since HTTP clients are bound to theirs.

    It has a thread of its own, started with the first coroutine.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._loop: AbstractEventLoop | None = None

    def run(self, coroutine: Coroutine[Any, Any, Any], deadline: float) -> Any:
        """Run a coroutine to its end and give its value; cancel it at its deadline.

        A little earlier, in truth: its caller leaves then, and a lane whose call has not
        returned would count as one that hangs.
        """
        import asyncio  # noqa: PLC0415 - 60 ms that synchronous providers don't pay

        loop = self._started()
        future = asyncio.run_coroutine_threadsafe(_contained(coroutine), loop)
        try:
            return future.result(deadline * 0.9)
        except TimeoutError:
            if future.done():  # its own, not ours
                raise
            if not loop.is_closed():  # else nobody is left to hear of it
                future.cancel()
            raise DeadlineExceeded(f"no answer within {deadline:g} s") from None

    def close(self) -> None:
        """Stop the loop; its thread closes it."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None and self._pid == os.getpid():
            loop.call_soon_threadsafe(loop.stop)

    def _started(self) -> AbstractEventLoop:
        import asyncio  # noqa: PLC0415

        if self._pid != os.getpid():  # a forked child has no thread for it
            self._reset()
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=_serve, args=(self._loop,), name=self._name, daemon=True
                ).start()
            return self._loop


async def _contained(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """An exit within a coroutine ends the call, not the loop."""
    try:
        return await coroutine
    except (SystemExit, KeyboardInterrupt) as error:
        raise contained(error) from error


def _serve(loop: AbstractEventLoop) -> None:
    import asyncio  # noqa: PLC0415

    try:
        loop.run_forever()
    finally:
        for task in asyncio.all_tasks(loop):
            # One that would not be cancelled was told of when its deadline passed.
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
        loop.close()
