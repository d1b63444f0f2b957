"""The way of one stream to one instance of its provider, on that instance's write lane."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Callable
from functools import lru_cache
from inspect import signature
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from hermes_core.dispatch import DELIVERY, Delivery, HookCalls, Job, ProviderAdapter
from hermes_core.errors import DatabaseError, DeadlineExceeded, ProviderPaused
from hermes_core.hookspecs import HOOKS, MemoryHooks
from hermes_core.outbox._layout import Origin, Write

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

#: How long after a look at our claim we may still be sure of it.
_SURE_SECONDS: Final = 30.0


def back_off(attempts: int, chance: Callable[[], float] = random.random) -> float:
    """Seconds until the next attempt: twice as long each time, up to a minute, with jitter."""
    return float(min(2.0 ** min(attempts, 10), _LONGEST_WAIT) * (0.5 + chance()))


class Route:
    """Delivers the writes of one stream, in order, while it is open.

    ``busy`` from the moment at which the stream is ours until its last call has returned,
    however long that takes: no write is tried twice at once.

    Args:
        outbox: Where the writes are.
        origin: Whose they are.
        adapter: Calls the instance that is initialised for this origin.
        hooks: Where observers see the calls.
    """

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
        #: The delivery on its way, or the last one.
        self.job: Job | None = None
        self._hooks = hooks
        self._done: list[Write] = []
        self._last = 0
        self._sure_until = 0.0

    def takes(self, write: Write) -> bool:  # noqa: ARG002 - a stand-in is choosier
        """Whether this instance is one that the write may go to."""
        return True

    def kick(self) -> Job | None:
        """Claim the stream and start to deliver, unless that is under way."""
        with self.outbox.store.file.lock:
            if self.busy or not self.open or not self.outbox.store.take(self.stream):
                return None
            self.own()
        return self.start()

    def own(self) -> None:
        """The stream is claimed, for this route."""
        self.outbox.use()
        self.busy = True
        self._sure_until = self.outbox.store.clock() + _SURE_SECONDS

    def start(self) -> Job | None:
        """Queue the delivery, of a stream that is ours, on the provider's write lane."""
        self.due = 0.0
        self.outbox.watched()
        self.job = job = self.adapter.submit("sync_turn", self._deliver)
        if job is None or (not self.open and job.claim()):
            self._let_go()
            return None
        return job

    def leave(self) -> None:
        """Begin nothing more. A delivery that waits for its lane might do so for ever."""
        self.open = False
        if self.busy and self.job is not None and self.job.claim():
            self._let_go()

    def unanswered(self) -> None:
        """The agent ends while a call runs: tell now, nobody will see what becomes of it."""
        if not self.busy:
            return
        error = DeadlineExceeded("no answer before the agent ended")
        self.adapter.failed(self.job.hook if self.job is not None else "sync_turn", error)
        self.outbox.store.note(self.stream, str(error))

    # -- on the write lane ----------------------------------------------------------------

    def _deliver(self) -> None:
        began = monotonic()
        try:
            while self.open and self.adapter.on_write_lane() and self._is_ours():
                renewals = self.outbox.store.file.renewals
                write = self.outbox.store.next(self.stream, self._last)
                if write is None:
                    if self._settled():
                        return
                    continue
                if not self.takes(write):
                    self._postpone(write)
                    break
                self.adapter.rearm(write.hook)
                if not self._attempt(write):
                    break
                renewed = renewals != self.outbox.store.file.renewals
                late = monotonic() - began > _TOGETHER_SECONDS
                if len(self._done) >= _TOGETHER or late or renewed:
                    if self._settled():
                        return
                    began = monotonic()
        except DatabaseError as error:
            # What was delivered is remembered, and removed as soon as that can be done.
            self.due = self.outbox.store.clock() + _LONGEST_WAIT
            logger.error("memory: the outbox can't be used: %s", error)  # noqa: TRY400 - one line
        finally:
            if self.busy:
                self._let_go()

    def _is_ours(self) -> bool:
        now = self.outbox.store.clock()
        if now >= self._sure_until:
            if not self.outbox.store.keeps(self.stream):
                return False
            self._sure_until = now + _SURE_SECONDS
        return True

    def _attempt(self, write: Write) -> bool:
        """Deliver one write; whether to go on with the next."""
        error = self._call(write)
        if error is None:
            self._done.append(write)
            self._last = write.id
            return True
        self.failures += 1
        if isinstance(error, ProviderPaused):  # it was not asked
            self._postpone(write, str(error))
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
        arguments = _arguments(write)
        if arguments is None:
            return TypeError("the outbox has it in a form that this version can't read")
        token = DELIVERY.set(Delivery(write.event_id, write.attempts + 1))
        try:
            return self._hooks.only(self.adapter, write.hook)(**arguments).error
        finally:
            DELIVERY.reset(token)

    def _postpone(self, write: Write, why: str = "") -> None:
        """Not now; that is no failure of the write's."""
        self.due = self.outbox.store.clock() + back_off(max(write.attempts, 1))
        self.outbox.store.postpone(self.stream, self.due)
        if why:
            self.outbox.store.note(self.stream, why)

    def _settled(self) -> bool:
        """Remove what was delivered; whether that was all, and the stream is let go."""
        empty = self.outbox.store.settle(self.stream, self._done, self._idle)
        self._done, self._last = [], 0
        if empty:
            self.outbox.unuse()
        return empty

    def forget(self) -> None:
        """This is a forked child: what was under way is the parent's."""
        self.busy, self.job = False, None
        self._done, self._last = [], 0

    def _idle(self) -> None:
        self.busy = False

    def _let_go(self) -> None:
        """Stop, with writes left: somebody else, or we later, may go on."""
        store = self.outbox.store
        try:
            with store.file.lock:
                store.release(self.stream, self._done)
                self._done, self._last = [], 0
                self.busy = False
        except DatabaseError:
            self.busy = False  # the claim runs out by itself
        self.outbox.wake()
        self.outbox.unuse()


def _arguments(write: Write) -> dict[str, Any] | None:
    """What to call a hook with; None if the row is damaged, or of another version."""
    try:
        found = json.loads(write.payload)
    except ValueError:
        return None
    fits = isinstance(found, dict) and write.hook in HOOKS
    return found if fits and found.keys() == _parameters(write.hook) else None


@lru_cache(maxsize=16)
def _parameters(hook: str) -> frozenset[str]:
    return frozenset(signature(getattr(MemoryHooks, hook)).parameters) - {"self"}


class Mailbox(Route):
    """The route of a live manager's session: what it puts in goes out at once."""

    def put(self, hook: str, event_id: str, payload: str) -> Job | None:
        """Keep a write, and start to deliver it.

        Raises:
            HermesError: It could not be kept.
        """
        store = self.outbox.here().store
        with store.file.lock:
            take = not self.busy and store.clock() >= self.due
            self.stream, held = store.put(
                self.origin, self.stream, (event_id, hook, payload), take=take
            )
            if not take:
                return self.job if self.busy else None
            if held:
                self.own()
        if held:
            return self.start()
        self.outbox.wake()  # another process has the stream: it, or we later
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
