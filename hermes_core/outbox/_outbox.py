"""The outbox of one home in one process: shared by its managers, with one worker thread."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from time import monotonic, sleep
from typing import Final, TypeVar

from hermes_core.dispatch import HookCalls, ProviderAdapter
from hermes_core.errors import HermesError
from hermes_core.outbox._layout import Origin, Stream
from hermes_core.outbox._leftovers import Revive, Revived, deliver_left, who
from hermes_core.outbox._route import Mailbox, Route, StandIn
from hermes_core.outbox._store import OutboxStore

logger = logging.getLogger("hermes_core")

DEFAULT_MAX_MB: Final = 256

_R = TypeVar("_R", bound=Route)

#: How often to look for what other processes have left, and for what hangs.
_POLL_SECONDS: Final = 15.0
#: The same while there is room to give back.
_TIDYING_SECONDS: Final = 0.05
#: The same while another process has a stream of ours.
_IMPATIENT_SECONDS: Final = 0.5


class Outbox:
    """Keeps writes until the external provider has taken them, and sees to it that it does."""

    def __init__(
        self, home: Path, *, max_mb: float = DEFAULT_MAX_MB, durable: bool = False
    ) -> None:
        self.home = home
        self.store = OutboxStore(
            home / "outbox.db", max_bytes=int(max_mb * 1_000_000), durable=durable
        )
        self._routes: dict[Route, Revive | None] = {}
        self._uses = 0
        self._start_anew()

    def _start_anew(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._reviving: threading.Thread | None = None
        self._stand_ins: list[Route] = []
        self._untidy = True

    # -- for managers ---------------------------------------------------------------------

    def mailbox(
        self,
        origin: Origin,
        adapter: ProviderAdapter,
        hooks: HookCalls,
        revive: Revive | None = None,
    ) -> Mailbox:
        """A way in, for one session. What waits for it from before is delivered first."""
        box = Mailbox(self, origin, adapter, hooks)
        with self.here()._lock:  # noqa: SLF001 - ours
            self._routes[box] = revive
        try:
            box.stream = self.store.find(origin)
            if self.store.waiting():
                self.wake()
        except HermesError as error:
            logger.error("memory: the outbox can't be read: %s", error)  # noqa: TRY400
        return box

    def leave(self, box: Route) -> None:
        """The session is over, or the manager goes: what is left waits for others."""
        self.here()
        for route in (box, *self._stand_ins):
            if route.adapter is box.adapter and (route is box or route.busy):
                route.leave()
        with self._lock:
            self._routes.pop(box, None)

    def flush(self, boxes: Iterable[Route], timeout: float, *, once: bool = False) -> bool:
        """Whether all of these boxes' writes are delivered, after at most ``timeout`` seconds.

        Args:
            boxes: Those to look at; ones that were left, too.
            timeout: How long to try.
            once: Give up when a delivery fails.
        """
        self.here()
        boxes = [*boxes]
        end = monotonic() + timeout
        failures = sum(box.failures for box in boxes)
        while True:
            left = self.unfinished(boxes)
            if not left:
                return True
            failed = sum(box.failures for box in boxes) > failures
            if monotonic() >= end or (once and failed):
                return False
            self._hurry([box for box in left if not box.busy])
            sleep(max(min(0.2 if failed else 0.002, end - monotonic()), 0))

    def unfinished(self, boxes: Iterable[_R]) -> list[_R]:
        """Those of which something waits, or is under way."""
        return [box for box in boxes if box.busy or self.store.count(box.stream)]

    def _hurry(self, boxes: list[Route]) -> None:
        if not boxes:
            return
        self.store.hurry(box.stream for box in boxes)
        for box in boxes:
            box.due = 0.0
            box.kick()
        self.wake()

    # -- counted use ----------------------------------------------------------------------

    def use(self) -> None:
        """One user more: a manager, or a delivery under way."""
        with _SHARED_LOCK:
            self._uses += 1
            if self._uses == 1:  # somebody comes back to one that was closed
                _SHARED.setdefault(self.home, self)

    def unuse(self) -> None:
        """One user less; the last one closes the file."""
        with _SHARED_LOCK:
            self._uses -= 1
            if self._uses > 0:
                return
            if _SHARED.get(self.home) is self:  # else a new one is in use already
                del _SHARED[self.home]
        with self._lock:  # one that is just being started can't be waited for
            thread, self._thread = self._thread, None
        self._wake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(1.0)
        self.store.close()

    def here(self) -> Outbox:
        """This outbox, in this process: a forked child has no thread and no claim of ours."""
        if self._pid != os.getpid():
            self._uses = len(self._routes)
            self._start_anew()
            self.store.held.clear()
            for route in self._routes:
                route.forget()
        return self

    # -- the worker -----------------------------------------------------------------------

    def wake(self) -> None:
        """Look now."""
        self.watched()
        self._wake.set()

    def watched(self) -> None:
        """See to it that there is somebody who looks, every now and then."""
        self.here()
        with self._lock:
            if self._thread is None and self._uses > 0:
                self._thread = threading.Thread(
                    target=self._work, name="memory-outbox", daemon=True
                )
                self._thread.start()

    def _work(self) -> None:
        me = threading.current_thread()
        wait = 0.0
        while self._thread is me:
            self._wake.wait(wait)
            self._wake.clear()
            if self._thread is not me:
                return
            try:
                wait = self._look()
            except HermesError as error:
                logger.error("memory: the outbox can't be read: %s", error)  # noqa: TRY400
                wait = _POLL_SECONDS

    def _look(self) -> float:
        """See to what is due; gives the seconds until there is something to do again."""
        now = self.store.clock()
        soonest = now + _POLL_SECONDS
        with self._lock:
            routes = dict(self._routes)
        streams = self.store.waiting()
        for stream in streams:
            due = max(stream.due, max((r.due for r in routes if r.stream == stream.id), default=0))
            if due > now:
                soonest = min(soonest, due)
            elif not self._see_to(stream, routes):
                soonest = min(soonest, now + _IMPATIENT_SECONDS)
        self._watch([route for route in routes if route.busy])
        if streams:
            self._untidy = True
        elif self._untidy:
            self._untidy = self.store.tidy()
            soonest = now + (_TIDYING_SECONDS if self._untidy else _POLL_SECONDS)
        return max(soonest - now, 0.001)

    def _see_to(self, stream: Stream, routes: dict[Route, Revive | None]) -> bool:
        """Have a stream delivered; False if somebody else has it now."""
        for route in routes:
            if route.origin == stream.origin:
                return route.busy or route.kick() is not None
        relatives = [
            route for route in routes if route.origin[:2] == stream.origin[:2] and route.open
        ]
        revive = next((routes[route] for route in relatives if routes[route]), None)
        if revive is not None:
            return self._revive(stream, revive)
        for route in relatives:
            if who(route.origin) == who(stream.origin):
                stand_in = StandIn(self, stream.origin, route.adapter, route._hooks)  # noqa: SLF001
                stand_in.stream = stream.id
                self._stand_ins = [*(each for each in self._stand_ins if each.busy), stand_in]
                return stand_in.kick() is not None
        return True  # it waits for a session of its own

    def _watch(self, busy: list[Route]) -> None:
        """Keep our claims, and notice calls that hang."""
        self.store.renew()
        for route in busy:
            route.adapter.hangs()

    # -- what other sessions left ---------------------------------------------------------

    def _revive(self, stream: Stream, revive: Revive) -> bool:
        """Deliver a stream through an instance of its own, one stream at a time."""
        if self._reviving is not None and self._reviving.is_alive():
            return False
        if not self.store.take(stream.id):
            return False
        self.use()
        self._reviving = threading.Thread(
            target=self._deliver_left, args=(stream, revive), name="memory-leftovers", daemon=True
        )
        self._reviving.start()
        return True

    def fresh(self, origin: Origin, revive: Revive) -> Revived:
        """An instance of its own for an origin; some plugins have only one for all."""
        revived = revive(origin)
        with self._lock:
            used = any(each.adapter.provider is revived.adapter.provider for each in self._routes)
        if used:
            revived.close()
            raise HermesError(
                f"{origin.provider} has a single instance, which another session uses",
                hint="when no agent runs: hermes-plugins outbox retry",
            )
        return revived

    def _deliver_left(self, stream: Stream, revive: Revive) -> None:
        try:
            deliver_left(self, stream, revive)
        except HermesError as error:
            logger.warning("memory: writes of an earlier session wait: %s", error)
        finally:
            self.wake()
            self.unuse()


# One worker for all managers of a home: two would deliver the same write twice.
_SHARED_LOCK: Final = threading.RLock()
_SHARED: Final[dict[Path, Outbox]] = {}

if hasattr(os, "register_at_fork"):  # another thread may hold it, and a child has none
    os.register_at_fork(after_in_child=_SHARED_LOCK._at_fork_reinit)  # type: ignore[attr-defined]  # noqa: SLF001


def open_outbox(home: Path, *, max_mb: float = DEFAULT_MAX_MB, durable: bool = False) -> Outbox:
    """The outbox of a home. Every call needs an `Outbox.unuse`."""
    with _SHARED_LOCK:
        outbox = _SHARED.get(home)
        if outbox is None:
            outbox = _SHARED[home] = Outbox(home, max_mb=max_mb, durable=durable)
        outbox.here().use()
        return outbox
