"""What is known about how a provider's hooks fare, and when to leave it alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Final, NamedTuple


class HookHealth(NamedTuple):
    """How one hook of one provider has fared so far."""

    calls: int
    failures: int
    last_error: str
    last_seconds: float
    p95_seconds: float
    breaker: str


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
        """The figures as they are now."""
        ordered = sorted(self._recent)
        p95 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))] if ordered else 0.0
        return HookHealth(
            self.calls, self.failures, self.last_error, self.last_seconds, p95, breaker
        )


class Breaker:
    """Stops calling what keeps failing, and tries again by itself.

    ``closed``: calls go through. ``open``: they don't, for ``cooldown`` seconds. Then
    ``half-open``: one call goes through, and its outcome decides.
    """

    THRESHOLD: Final = 5
    COOLDOWN: Final = 30.0

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._failures = 0
        self._opened: float | None = None

    @property
    def state(self) -> str:
        """closed, open or half-open."""
        if self._opened is None:
            return "closed"
        return "open" if self._clock() - self._opened < self.COOLDOWN else "half-open"

    def succeeded(self) -> None:
        """A call came back with an answer."""
        self._failures = 0
        self._opened = None

    def failed(self) -> None:
        """A call raised."""
        self._failures += 1
        if self._failures >= self.THRESHOLD:
            self.trip()

    def trip(self) -> None:
        """A call hangs: no second chance before the cooldown is over."""
        self._failures = max(self._failures, self.THRESHOLD)
        self._opened = self._clock()
