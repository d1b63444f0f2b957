"""What must be closed before a process forks."""

from __future__ import annotations

import os
from typing import Final, Protocol
from weakref import WeakSet


class Forkable(Protocol):
    """An object with connections or locks that a forked child must not inherit in use."""

    def before_fork(self) -> None:
        """Wait for what is going on, let nothing begin, and close connections."""

    def after_fork(self) -> None:
        """Go on, in the parent or in the child."""


class _ForkHandlers:
    """Calls every `Forkable` around a fork. Registers itself with Python when first used."""

    def __init__(self) -> None:
        self._all: WeakSet[Forkable] = WeakSet()
        self._waiting: list[Forkable] = []
        self._registered = False

    def add(self, holder: Forkable) -> None:
        if not self._registered and hasattr(os, "register_at_fork"):
            self._registered = True
            os.register_at_fork(
                before=self._before, after_in_parent=self._after, after_in_child=self._after
            )
        self._all.add(holder)

    def _before(self) -> None:
        self._waiting.extend(self._all)
        for holder in self._waiting:
            holder.before_fork()

    def _after(self) -> None:
        while self._waiting:
            self._waiting.pop().after_fork()


# Module state, since fork handlers belong to the process and Python can't unregister them.
_FORK_HANDLERS: Final = _ForkHandlers()


def close_before_fork(holder: Forkable) -> None:
    """Have ``before_fork`` and ``after_fork`` of an object called around each fork.

    SQLite's locks belong to a process, and its notes about them are copied into a child: even a
    new connection there would take no lock. So connections are closed before.
    """
    _FORK_HANDLERS.add(holder)
