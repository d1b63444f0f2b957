"""What a failed delivery means, and when to retry it.

Is the service unreachable, or is this one write bad? The answer decides what happens to the writes
behind it. While the service is unreachable, everything waits and the order is kept. A bad write
must not hold up the others.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, Final

from hermes_core.errors import DeadlineExceeded, ProviderPaused, WriteRefused
from hermes_core.outbox.records import FailureLimits

# Client errors that concern all writes, and that a person or time can solve: a key that expired, a
# limit that was reached.
_MAY_PASS: Final = frozenset({401, 403, 408, 429})
_CLIENT_ERRORS: Final = 400
_SERVER_ERRORS: Final = 500
_NO_STATUS: Final = 600
#: A skipped write that still fails after so many seconds has failed permanently. It is also the
#: longest wait that a service can ask for.
DAY: Final = 86_400.0

#: How many seconds a write waits at most, while it keeps its place.
LONGEST_WAIT: Final = 60.0
#: A write is suspect after so many failures that may be its own fault, or after so many in all.
#: Three, since one failure is an accident and each costs a call. Ten for errors that say that the
#: service is in trouble: after some four minutes, it is worth a call to find out for which writes.
SUSPECT: Final = FailureLimits(faults=3, attempts=10)
#: How many seconds a skipped write waits before it is retried, at first and at most.
SKIPPED_WAIT: Final = 60.0
LONGEST_SKIPPED_WAIT: Final = 3600.0
#: A skipped write fails permanently after a day, and not before it failed so often: then it waits
#: an hour between two attempts, and has failed for two hours whatever the clock says.
DAY_FAULTS: Final = SUSPECT.faults + 6


class Fault(Enum):
    """Whose fault a failed delivery is."""

    BACKEND = "backend"  # no write would be accepted now
    WRITE = "write"  # the error does not say: perhaps this write alone
    REFUSED = "refused"  # this write, and no retry helps


def fault_of(error: BaseException) -> Fault:
    """Return whose fault an error of a provider is.

    The outermost exception that says anything decides; SDKs wrap what their transport raises.
    """
    for each in _chain(error):
        found = _by_type(each) or _by_cause(each)
        if found is not None:
            return found
    return Fault.WRITE


def retry_after(error: BaseException) -> float:
    """Return how many seconds the service asked us to wait, at most a day; 0.0 if it did not."""
    for each in _chain(error):
        value = _attribute(each, "retry_after")
        if isinstance(value, int | float) and value > 0:
            return float(min(value, DAY))
    return 0.0


def back_off(attempts: int, chance: Callable[[], float] = random.random) -> float:
    """Return the seconds until the next attempt: doubled each time, up to a minute, with jitter."""
    # With jitter, since the agents that a service's restart cut off would all come back at once.
    return float(min(2.0 ** min(attempts, 10), LONGEST_WAIT) * (0.5 + chance()))


def skipped_wait(faults: int) -> float:
    """Return the seconds until a skipped write is retried: doubled each time, up to an hour."""
    return min(SKIPPED_WAIT * 2.0 ** min(max(faults - SUSPECT.faults, 0), 10), LONGEST_SKIPPED_WAIT)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception and what caused it, as a traceback shows them."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)


def _by_type(error: BaseException) -> Fault | None:
    if isinstance(error, WriteRefused | NotImplementedError):
        return Fault.REFUSED
    status = _status(error)
    if status is not None:
        refused = status < _SERVER_ERRORS and status not in _MAY_PASS
        return Fault.REFUSED if refused else Fault.BACKEND
    trouble = isinstance(error, OSError | DeadlineExceeded | ProviderPaused)
    return Fault.BACKEND if trouble else None


def _by_cause(error: BaseException) -> Fault | None:
    """What a plugin based on `hermes_core.service` says about an error."""
    from hermes_core.service import BackendError, Cause  # noqa: PLC0415 - only after a failure

    if not isinstance(error, BackendError):
        return None
    # What is missing may concern this write alone, or the place of all writes. A refusal of the
    # content is a `WriteRefused`; other refusals may concern all writes, too.
    unclear = error.cause in (Cause.MISSING, Cause.REFUSED)
    return Fault.WRITE if unclear else Fault.BACKEND


def _status(error: BaseException) -> int | None:
    """The HTTP status of an error, from where SDKs store it; None if there is none."""
    response = _attribute(error, "response")
    found = (
        _attribute(error, "status_code"),
        _attribute(response, "status_code"),
        _attribute(error, "status"),
    )
    for value in found:
        if isinstance(value, int) and _CLIENT_ERRORS <= value < _NO_STATUS:
            return value
    return None


def _attribute(owner: Any, name: str) -> Any:
    """An attribute of a plugin's exception, whose properties may raise."""
    try:
        return getattr(owner, name, None)
    except Exception:  # noqa: BLE001 - the plugin's own code
        return None
