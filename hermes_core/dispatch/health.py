"""Counts a provider's calls, and decides when to stop calling a hook that fails repeatedly."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Final, NamedTuple

from hermes_core.errors import AnswerLate, ProviderPaused
from hermes_core.hookspecs import HOOKS, Lane
from hermes_core.storage.logger import logger

#: Hooks with their own breaker. That one of them fails says nothing about the other or about
#: writes, and a warm-up that works does not mean that recall does.
_RECALL_HOOKS: Final = ("prefetch", "queue_prefetch")

#: A failure that took this long made its caller wait.
SLOW_SECONDS: Final = 0.25
#: How many different errors to remember, so that each is logged as a warning only once.
_MOST_WARNED: Final = 1_000


class HookHealth(NamedTuple):
    """The calls of one hook at one provider so far, and the state of its breaker."""

    calls: int
    failures: int
    last_error: str
    last_seconds: float
    p95_seconds: float
    breaker: str


class LossCounter:
    """Counts what could not be stored, and logs each: nobody may have to guess what is missing.

    Args:
        what: A turn, a note or a write.
        where: Whose it is, for the text.
    """

    __slots__ = ("_error", "_what", "_where", "count")

    def __init__(self, what: str, where: str = "") -> None:
        self.count = 0
        self._what = what
        self._where = where
        self._error = ""

    def add(self, error: str) -> None:
        """Count one more."""
        self.count += 1
        self._error = error
        logger.error("memory: %sa %s was not stored: %s", self._where, self._what, error)

    @property
    def text(self) -> str:
        """A warning for people; "" if everything was stored."""
        if not self.count:
            return ""
        if self.count == 1:
            return f"{self._where}a {self._what} was not stored: {self._error}"
        many = f"{self.count:,} {self._what}s were not stored"
        return f"{self._where}{many}; the last because of: {self._error}"


class HookStats:
    """Counts the calls of one hook."""

    __slots__ = ("_recent", "calls", "failures", "last_error", "last_seconds")

    _WINDOW: Final = 128

    def __init__(self) -> None:
        self.calls = 0
        self.failures = 0
        self.last_error = ""
        self.last_seconds = 0.0
        self._recent: deque[float] = deque(maxlen=self._WINDOW)

    def record(self, seconds: float, error: str = "") -> None:
        """Count one call."""
        self.calls += 1
        self.last_seconds = seconds
        self._recent.append(seconds)
        if error:
            self.failures += 1
            self.last_error = error

    def health(self, breaker: str) -> HookHealth:
        """Return the current figures."""
        ordered = sorted(self._recent)
        # The nearest rank of the last 128 calls: a list this short is sorted in microseconds, and
        # only when somebody asks.
        p95 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))] if ordered else 0.0
        return HookHealth(
            self.calls, self.failures, self.last_error, self.last_seconds, p95, breaker
        )


class Breaker:
    """Stops calls to a hook that fails repeatedly, and lets one through after a while.

    ``closed``: calls go through. ``open``: they don't, for ``cooldown`` seconds. Then
    ``half-open``: one call goes through, and its outcome decides.

    A failure that made the caller wait weighs more than one that came at once: two of them
    in a row open the breaker.
    """

    # Five fast failures cost a turn nothing, so the provider gets several chances. Two slow ones
    # have already cost two turns their whole budget.
    THRESHOLD: Final = 5
    SLOW_THRESHOLD: Final = 2
    COOLDOWN: Final = 30.0

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._failures = 0
        self._slow_failures = 0
        self._opened: float | None = None
        self._trial: float | None = None  # when the call began that decides about a half-open one
        self._lock = threading.Lock()

    @property
    def state(self) -> str:
        """closed, open or half-open."""
        if self._opened is None:
            return "closed"
        return "open" if self._clock() - self._opened < self.COOLDOWN else "half-open"

    def admits(self) -> bool:
        """Return whether a call may be made now; of a half-open breaker, one at a time may."""
        if self._opened is None:
            return True
        if self.state == "open":
            return False
        with self._lock:
            now = self._clock()
            # A trial whose outcome nobody recorded must not block the others for ever.
            if self._trial is not None and now - self._trial < self.COOLDOWN:
                return False
            self._trial = now
            return True

    def answered(self) -> None:
        """Record that a call ended, however it did: another one may be tried."""
        self._trial = None

    def succeeded(self) -> None:
        """Record a call that returned."""
        self._failures = self._slow_failures = 0
        self._opened = self._trial = None

    def failed(self, *, slow: bool = False) -> None:
        """Record a call that raised; ``slow`` if the caller had to wait for that."""
        self._failures += 1
        self._slow_failures += slow
        if self._failures >= self.THRESHOLD or self._slow_failures >= self.SLOW_THRESHOLD:
            self.trip()

    def trip(self) -> None:
        """Open at once, because a call hangs. The cooldown starts again."""
        # After the cooldown one more failure opens it again at once; only a success starts from
        # zero.
        self._failures = max(self._failures, self.THRESHOLD)
        self._opened = self._clock()
        self._trial = None


class CallStatistics:
    """The calls of one provider: figures and breakers by hook, and warnings in the log.

    Args:
        name: The provider's name, for the log.
        clock: Measures how long a breaker stays open.
    """

    def __init__(self, name: str, *, clock: Callable[[], float] = monotonic) -> None:
        self._name = name
        self._hooks: dict[str, HookStats] = {}
        # One per lane, not per hook: a call that hangs blocks every hook of its lane.
        self._breakers = {key: Breaker(clock=clock) for key in (*Lane, *_RECALL_HOOKS)}
        self._warned: set[tuple[str, str]] = set()

    def health(self) -> dict[str, HookHealth]:
        """Return the figures of each hook that was called."""
        return {
            hook: stats.health(self._breaker(hook).state)
            for hook, stats in self._hooks.copy().items()  # other threads go on meanwhile
        }

    def is_paused(self, hook: str) -> bool:
        """Return whether a hook is not to be called now; False means that the caller calls it."""
        # Nothing is warmed up while recall itself is paused.
        if hook == "queue_prefetch" and self._breaker("prefetch").state == "open":
            return True
        return not self._breaker(hook).admits()

    def succeeded(self, hook: str) -> None:
        """Close a hook's breaker without counting a call."""
        self._breaker(hook).succeeded()

    def record(self, hook: str, seconds: float, error: Exception | None, text: str = "") -> None:
        """Count one call, and log its ``error`` as ``text``."""
        stats = self._hooks.get(hook)
        if stats is None:
            # Without a lock: two threads that meet here lose one count, which nobody notices.
            stats = self._hooks[hook] = HookStats()
        stats.record(seconds, text)
        if error is None:
            self._breaker(hook).succeeded()
        else:
            if not isinstance(error, ProviderPaused):  # which says that there was no call
                self._breaker(hook).answered()
            self._warn(hook, text)

    def count_failure(self, hook: str, error: Exception, seconds: float, *, hangs: bool) -> None:
        """Let a failure count against the hook's breaker.

        A call that hangs opens it. Any other error does so only for recall: elsewhere an error
        is an answer, and costs nothing to receive again.
        """
        if isinstance(error, ProviderPaused | AnswerLate):
            return
        if hangs:
            self._breaker(hook).trip()
        elif hook in _RECALL_HOOKS:
            self._breaker(hook).failed(slow=seconds >= SLOW_SECONDS)

    def _breaker(self, hook: str) -> Breaker:
        return self._breakers[hook if hook in _RECALL_HOOKS else HOOKS[hook].lane]

    def _warn(self, hook: str, text: str) -> None:
        """Warn once for each way in which a hook fails; `health` has the count."""
        level = logging.DEBUG if (hook, text) in self._warned else logging.WARNING
        if len(self._warned) >= _MOST_WARNED:  # errors with a time or an id in them
            self._warned.clear()
        self._warned.add((hook, text))
        logger.log(level, "memory provider %s: %s failed: %s", self._name, hook, text)
