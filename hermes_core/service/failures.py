"""Why a request to a service failed, in one line: the cause, and what to do."""

from __future__ import annotations

import math
import time
from email.utils import mktime_tz, parsedate_tz
from enum import StrEnum
from typing import Final

from hermes_core.errors import HermesError, WriteRefused


# A plugin translates the exceptions of its SDK to one of these. The outbox and `WriteQueue` decide
# by the cause whether all writes wait or only this one, so a new cause needs a rule there, too.
class Cause(StrEnum):
    """Why a request to a service failed."""

    WRONG_KEY = "the key was refused"
    FORBIDDEN = "the key is not allowed to do this"
    UNREACHABLE = "can't be reached"
    SLOW = "did not answer in time"
    QUOTA = "the limit of requests or of the plan is reached"
    TOO_OLD = "the server is too old or too new for this plugin"
    REFUSED = "the request was refused"
    MISSING = "what was asked for is not there"
    BROKEN = "the server failed"


# A hint says what a person can do now. "writes are kept" where that is what people worry about.
_HINTS: Final = {
    Cause.WRONG_KEY: "check the key: hermes-plugins setup {service}",
    Cause.FORBIDDEN: "use a key that has the right: hermes-plugins setup {service}",
    Cause.UNREACHABLE: "check that it is running and that its address is right; writes are kept",
    Cause.SLOW: "try again, or hermes-plugins config set memory.{service}.timeout SECONDS",
    Cause.QUOTA: "wait, or check your plan; writes are kept",
    Cause.TOO_OLD: "upgrade the server, or the plugin: pip install -U hermes-memory-{service}",
    Cause.REFUSED: "see: hermes-plugins log",
    Cause.MISSING: "check the name or id",
    Cause.BROKEN: "check the server's log; writes are kept",
}

# Not a row: 4xx is REFUSED, 5xx is BROKEN. 405, 410 and 426 come from a server that has other
# routes than the plugin expects. 502 and 503 are what a proxy says while its server is down.
_OF_STATUS: Final = {
    401: Cause.WRONG_KEY,
    402: Cause.QUOTA,
    403: Cause.FORBIDDEN,
    404: Cause.MISSING,
    405: Cause.TOO_OLD,
    408: Cause.SLOW,
    410: Cause.TOO_OLD,
    426: Cause.TOO_OLD,
    429: Cause.QUOTA,
    502: Cause.UNREACHABLE,
    503: Cause.UNREACHABLE,
    504: Cause.SLOW,
}
_SERVER_ERRORS: Final = 500
# Services quote the whole request in a validation error; a line for a person has no room for it.
_DETAIL: Final = 200


class BackendError(HermesError):
    """A request to a service failed. ``cause`` says why.

    ``retry_after`` is how many seconds the service asked us to wait; 0 if it did not.
    """

    def __init__(
        self,
        what: str,
        *,
        cause: Cause,
        where: str = "",
        hint: str = "",
        retry_after: float = 0.0,
    ) -> None:
        super().__init__(what, where=where, hint=hint)
        self.cause = cause
        self.retry_after = retry_after


class RefusedError(BackendError, WriteRefused):
    """A service refused the content of a request: the same request can't succeed later."""


def failure(
    cause: Cause,
    *,
    service: str,
    where: str = "",
    detail: str = "",
    hint: str = "",
    retry_after: float = 0.0,
    final: bool = True,
) -> BackendError:
    """Return the error to raise.

    Args:
        cause: Why the request failed.
        service: The plugin's name.
        where: The address that was asked.
        detail: The message of the service or its SDK; long ones are cut.
        hint: What to do; by default the hint of the cause.
        retry_after: Seconds that the service asks to wait before the next attempt.
        final: Whether `Cause.REFUSED` is about the content. Pass False for another reason, such
            as a wrong address or setting: then the same write may succeed later.

    Returns:
        A `BackendError`; for a final `Cause.REFUSED` a `RefusedError`, a `WriteRefused` too.
    """
    said = " ".join(detail.split())
    said = said if len(said) <= _DETAIL else f"{said[:_DETAIL]}…"
    what = f"{cause}: {said}" if said else str(cause)
    place = f"{service} at {where}" if where else service
    # Only a `WriteRefused` is stored as failed permanently, so it has to be certain that the
    # content is the reason.
    kind = RefusedError if cause is Cause.REFUSED and final else BackendError
    advice = hint or _HINTS[cause].format(service=service)
    return kind(what, cause=cause, where=place, hint=advice, retry_after=retry_after)


def parse_retry_after(retry_after: str) -> float:
    """Return the seconds of a ``Retry-After`` header (a number or a date), or 0.0."""
    try:
        seconds = float(retry_after)
    except ValueError:
        moment = parsedate_tz(retry_after)
        seconds = mktime_tz(moment) - time.time() if moment else 0.0
    # A server may send "inf" or "nan", which `float` accepts: waiting for ever would lose the
    # writes.
    return max(0.0, seconds) if math.isfinite(seconds) else 0.0


def cause_of_status(status: int) -> Cause:
    """Return the cause that an HTTP status stands for."""
    fallback = Cause.BROKEN if status >= _SERVER_ERRORS else Cause.REFUSED
    return _OF_STATUS.get(status, fallback)
