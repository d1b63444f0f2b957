"""The way of one stream to one instance of its provider, on that instance's write lane."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from hermes_core.dispatch import DELIVERY, Delivery, HookCalls, Job, ProviderAdapter
from hermes_core.errors import HermesError, ProviderPaused
from hermes_core.outbox._layout import Origin, Write
from hermes_core.outbox._store import LEASE_SECONDS

if TYPE_CHECKING:
    from hermes_core.outbox._outbox import Outbox

logger = logging.getLogger("hermes_core")

#: What no retry mends: the plugin can't take such a write.
_PROGRAMMING: Final = (TypeError, NotImplementedError)
_DAY: Final = 86_400.0
_LONGEST_WAIT: Final = 60.0

#: Delivered writes are removed together while they come fast, but within so many seconds.
_TOGETHER: Final = 64
_TOGETHER_SECONDS: Final = 0.05


def back_off(attempts: int, chance: Callable[[], float] = random.random) -> float:
    """Seconds until the next attempt: twice as long each time, up to a minute, with jitter."""
    return float(min(2.0 ** min(attempts, 10), _LONGEST_WAIT) * (0.5 + chance()))


class Route:
    """Delivers the writes of one stream, in order, while it is open.

    ``busy`` from the moment at which a delivery is queued until its last call has returned,
    however long that takes: no write is tried twice at once.

    Args:
        outbox: Where the writes are.
        origin: Whose they are.
        adapter: Calls the instance that is initialised for this origin.
        hooks: Where observers see the calls.
    """

    #: Whether it stays ours while nothing waits in it.
    keeps = False

    def __init__(
        self, outbox: Outbox, origin: Origin, adapter: ProviderAdapter, hooks: HookCalls
    ) -> None:
        self.outbox = outbox
        self.origin = origin
        self.adapter = adapter
        self.stream = 0
        self.busy = False
        self.open = True
        self.due = 0.0
        #: How often a delivery failed, for those who wait for one.
        self.failures = 0
        self.hooks = hooks
        self._held_until = 0.0
        self._done: list[int] = []
        self._last = 0

    def takes(self, write: Write) -> bool:  # noqa: ARG002 - a stand-in is choosier
        """Whether this instance is one that the write may go to."""
        return True

    def kick(self) -> bool:
        """Start to deliver, unless that is under way; False if somebody else has the stream."""
        with self.outbox.store.file.lock:
            if self.busy:
                return True
            if not self.open or not self._hold() or not self.outbox.begin(self.stream):
                return False
            self.busy = True
        self.start()
        return True

    def _hold(self) -> bool:
        """Whether the stream is ours, in this process: claimed for a while yet, or now."""
        store = self.outbox.store
        if store.clock() < self._held_until:
            return True
        held = store.take(self.stream)
        self._held_until = store.clock() + LEASE_SECONDS / 2 if held else 0.0
        return held

    def start(self) -> Job | None:
        """Queue the delivery on the provider's write lane."""
        self.due = 0.0
        self.outbox.watched()
        job = self.adapter.submit("sync_turn", self._deliver)
        if job is None:
            self._stop()
        return job

    def close(self) -> None:
        """Deliver nothing more. What is left is for whoever comes next."""
        with self.outbox.store.file.lock:
            self.open = False
            self.lend()

    def lend(self) -> None:
        """Let the stream go while nothing is under way."""
        if not self.busy:
            self._release()

    def forget(self) -> None:
        """This is a forked child: what was under way is the parent's."""
        self.busy, self._held_until = False, 0.0
        self._done, self._last = [], 0

    # -- on the write lane ----------------------------------------------------------------

    def _deliver(self) -> None:
        began = monotonic()
        try:
            while self.open and self.adapter.on_write_lane():
                write = self.outbox.store.next(self.stream, self._last)
                late = monotonic() - began > _TOGETHER_SECONDS
                if self._done and (write is None or late or len(self._done) >= _TOGETHER):
                    self._settle()
                    began = monotonic()
                if write is None:
                    if self._is_empty():
                        return
                elif not self._attempt(write):
                    break
        except HermesError as error:
            # What was delivered is remembered, and removed as soon as that can be done.
            self.due = self.outbox.store.clock() + _LONGEST_WAIT
            logger.error("memory: the outbox can't be used: %s", error)  # noqa: TRY400 - one line
        self._stop()

    def _settle(self) -> None:
        self.outbox.store.remove(self._done)
        self._done, self._last = [], 0

    def _is_empty(self) -> bool:
        """Look once more, while nobody can put anything in, and stop if there is nothing."""
        with self.outbox.store.file.lock:
            if self.outbox.store.next(self.stream) is not None:
                return False
            self._stop()
            return True

    def _stop(self) -> None:
        """The last call has returned: others, or we later, may go on."""
        with self.outbox.store.file.lock:
            with suppress(HermesError):
                self._settle()
            if not (self.keeps and self.open):
                self._release()
            self.busy = False
        self.outbox.wake_if_left(self)
        self.outbox.end(self.stream)

    def _release(self) -> None:
        if self._held_until:
            self._held_until = 0.0
            with suppress(HermesError):  # it runs out by itself
                self.outbox.store.release(self.stream)

    def _attempt(self, write: Write) -> bool:
        """Deliver one write; whether to go on with the next."""
        if not self.takes(write):
            self._postpone(write)
            return False
        self.adapter.rearm(write.hook)
        error = self._call(write)
        if error is None:
            self._done.append(write.id)
            self._last = write.id
            return True
        self.failures += 1
        if isinstance(error, ProviderPaused):  # it was not asked
            self._postpone(write)
            return False
        now = self.outbox.store.clock()
        failing = now - (write.failing_since or now)
        dead = isinstance(error, _PROGRAMMING) or failing >= _DAY
        wait = back_off(write.attempts)
        self.outbox.store.failed(write, self.adapter.told(error), now + wait, dead=dead)
        if dead:
            self._last = write.id
            logger.error(
                "memory provider %s: %s is given up: %s (run: hermes-plugins outbox show %d)",
                self.adapter.name, write.hook, self.adapter.told(error), write.id,
            )  # fmt: skip
            return True
        self.due = now + wait
        return False

    def _call(self, write: Write) -> Exception | None:
        if not self.adapter.restart():
            return ProviderPaused("its initialize has not succeeded yet")
        arguments: dict[str, Any] = json.loads(write.payload)
        token = DELIVERY.set(Delivery(write.event_id, write.attempts + 1))
        try:
            outcomes = self.hooks.only(self.adapter, write.hook)(**arguments)
        finally:
            DELIVERY.reset(token)
        own = (each.error for each in outcomes if each.provider == self.adapter.name)
        return next(own, None)

    def _postpone(self, write: Write) -> None:
        """Not now; that is no failure of the write's."""
        self.due = self.outbox.store.clock() + back_off(max(write.attempts, 1))
        self.outbox.store.postpone(self.stream, self.due)


class Mailbox(Route):
    """The route of a live manager's session: what it puts in goes out at once."""

    #: Taking the stream anew for every turn would cost more than all the rest.
    keeps = True

    def put(self, hook: str, event_id: str, payload: str) -> Job | None:
        """Keep a write, and start to deliver it.

        Raises:
            HermesError: It could not be kept.
        """
        outbox = self.outbox.here()
        store = outbox.store
        with store.file.lock:
            now = store.clock()
            if now < self._held_until:
                store.add(self.stream, (event_id, hook, payload))
            else:
                self.stream, held = store.put(self.origin, (event_id, hook, payload))
                self._held_until = now + LEASE_SECONDS / 2 if held else 0.0
            if self.busy or now < self.due:
                return None
            self.busy = bool(self._held_until) and outbox.begin(self.stream)
        if self.busy:
            return self.start()
        outbox.wake()  # another process has the stream: it delivers this, or we later
        return None


class StandIn(Route):
    """Delivers for another session of the same user, where no instance of its own can be made.

    Only what names its session itself.
    """

    def takes(self, write: Write) -> bool:
        """Turns and notes say which session they are of."""
        if write.hook == "sync_turn":
            return self.adapter.takes("sync_turn", "session_id")
        return write.hook == "on_memory_write"
