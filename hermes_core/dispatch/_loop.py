"""The event loop on which an asynchronous provider's coroutines run."""

from __future__ import annotations

import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from hermes_core.errors import DeadlineExceeded

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


class EventLoop:
    """One loop for all coroutines of a provider, since HTTP clients are bound to theirs.

    It has a thread of its own, started with the first coroutine.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: AbstractEventLoop | None = None

    def run(self, coroutine: Coroutine[Any, Any, Any], timeout: float) -> Any:
        """Run a coroutine to its end and give its value; cancel it after ``timeout``."""
        import asyncio  # noqa: PLC0415 - 60 ms that synchronous providers don't pay

        future = asyncio.run_coroutine_threadsafe(coroutine, self._started())
        try:
            return future.result(timeout)
        except TimeoutError:
            if future.done():  # its own, not ours
                raise
            future.cancel()
            raise DeadlineExceeded(f"no answer within {timeout:g} s") from None

    def close(self) -> None:
        """Stop the loop; its thread closes it."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)

    def _started(self) -> AbstractEventLoop:
        import asyncio  # noqa: PLC0415

        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=_serve, args=(self._loop,), name=self._name, daemon=True
                ).start()
            return self._loop


def _serve(loop: AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()
