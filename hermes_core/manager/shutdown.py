"""The end of a manager: deliver what waits, shut the providers down, release what it used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

from hermes_core.dispatch import Deadlines, HookCalls, ProviderAdapter

if TYPE_CHECKING:
    from hermes_core.outbox.writer import OutboxWriter


class Shutdown:
    """Ends one manager, once, and knows what was not finished.

    Args:
        hooks: Calls the providers.
        deadlines: How long it may take.
    """

    def __init__(self, hooks: HookCalls, deadlines: Deadlines) -> None:
        self._hooks = hooks
        self._deadlines = deadlines
        self._closing: list[Callable[[], None]] = []
        self.begun = False
        self.state: dict[str, Any] = {
            "status": "not_started",
            "abandoned_writes": 0,
            "abandoned_prefetches": 0,
            "active_tasks": 0,
            "waiting_writes": 0,
        }

    def when_closed(self, close: Callable[[], None]) -> None:
        """Call ``close`` at the end."""
        self._closing.append(close)

    def run(self, adapters: Sequence[ProviderAdapter], writes: OutboxWriter | None) -> None:
        """Deliver within the deadline, then shut down; the built-in comes first in ``adapters``."""
        self.begun = True
        self.state["status"] = "draining"
        seconds = self._deadlines.shutdown
        end = monotonic() + seconds
        if writes is not None:
            # Three quarters for deliveries, the rest for the providers' own `shutdown`. A host
            # kills a process that takes much longer, and what waits is safe in the outbox.
            writes.finish(seconds * 3 / 4)
        self._record_unfinished(adapters, writes)
        # The external provider first: it may still read the notes or the archive.
        for adapter in reversed(adapters):
            left = max(end - monotonic(), seconds / 4)
            adapter.deadlines = self._deadlines._replace(shutdown=left)
            self._hooks.only(adapter, "shutdown")()
            adapter.close(max(end - monotonic(), 0))
        if writes is not None:
            # After the workers: a delivery that ends late is still recorded.
            writes.close(max(end - monotonic(), seconds / 4))
        self._hooks.close()
        for close in self._closing:
            close()

    def _record_unfinished(
        self, adapters: Sequence[ProviderAdapter], writes: OutboxWriter | None
    ) -> None:
        """Record what is not finished, before the providers are shut down."""
        external = next((each for each in adapters if not each.inline), None)
        prefetches, active = external.unfinished() if external is not None else (0, 0)
        waiting = writes.waiting() if writes is not None else 0
        self.state |= {
            "status": "timed_out" if prefetches or active or waiting else "drained",
            "abandoned_prefetches": prefetches,
            "active_tasks": active,
            "waiting_writes": waiting,
        }
