"""The engines of this process: one for each store, whoever uses it.

A local Qdrant folder can be open once. In one process there are often several providers on it:
the session's own, one that recalls, one that delivers what another session left.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from typing import Any, Final, Generic, NamedTuple, TypeVar

from hermes_core.backends import Cause, failure
from hermes_memory_mem0.calls import SERVICE, patiently

T = TypeVar("T")


class _Shared(NamedTuple, Generic[T]):
    engine: T
    config: Any
    users: int


class Engines(Generic[T]):
    """Opens an engine for the first who wants it, and closes it after the last."""

    def __init__(self, close: Callable[[T], None]) -> None:
        self._close = close
        self._lock: Final = threading.Lock()
        self._shared: dict[str, _Shared[T]] = {}

    def take(self, place: str, config: Any, make: Callable[[], T]) -> T:
        """The engine of a place; give it back with `release`.

        Raises:
            BackendError: It is open with other settings, or can't be had in time.
        """
        with patiently(self._lock, place):
            shared = self._shared.get(place)
            if shared is None:
                shared = _Shared(make(), config, 0)
                atexit.register(self._close_left)
            elif shared.config != config:
                raise failure(
                    Cause.REFUSED,
                    service=SERVICE,
                    where=place,
                    detail="another session in this process has it open with other settings",
                    hint="end that session first, or give this one another vector_path",
                )
            self._shared[place] = shared._replace(users=shared.users + 1)
            return shared.engine

    def release(self, place: str) -> None:
        """One user less."""
        with self._lock:
            shared = self._shared.pop(place, None)
            if shared is None:  # the process ends, and all are closed
                return
            if shared.users > 1:
                self._shared[place] = shared._replace(users=shared.users - 1)
                return
            self._close(shared.engine)
            if not self._shared:
                atexit.unregister(self._close_left)

    def _close_left(self) -> None:
        """At the end of a process that did not end its sessions: Qdrant complains otherwise."""
        while self._shared:
            _, shared = self._shared.popitem()
            self._close(shared.engine)
