"""Why a service did not do what it was asked, in one line: the cause, and what to do."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from hermes_core.errors import HermesError


class Cause(StrEnum):
    """What stands between us and a service."""

    WRONG_KEY = "the key was refused"
    FORBIDDEN = "the key is not allowed to do this"
    AWAY = "can't be reached"
    SLOW = "did not answer in time"
    QUOTA = "the limit of requests or of the plan is reached"
    TOO_OLD = "the server is too old or too new for this plugin"
    REFUSED = "the request was refused"
    MISSING = "what was asked for is not there"
    BROKEN = "the server failed"


_HINTS: Final = {
    Cause.WRONG_KEY: "check the key: hermes-plugins setup {service}",
    Cause.FORBIDDEN: "use a key that has the right: hermes-plugins setup {service}",
    Cause.AWAY: "see that it runs and that its address is right; what was to be written waits",
    Cause.SLOW: "try again, or hermes-plugins config set memory.{service}.timeout SECONDS",
    Cause.QUOTA: "wait, or look at your plan; what was to be written waits",
    Cause.TOO_OLD: "upgrade the server, or the plugin: pip install -U hermes-memory-{service}",
    Cause.REFUSED: "see: hermes-plugins log",
    Cause.MISSING: "check the name or id",
    Cause.BROKEN: "look at its log; what was to be written waits",
}

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
    502: Cause.AWAY,
    503: Cause.AWAY,
    504: Cause.SLOW,
}
_SERVER_ERRORS: Final = 500
_DETAIL: Final = 200


class BackendError(HermesError):
    """A service did not do what it was asked. ``cause`` says why."""

    def __init__(self, what: str, *, cause: Cause, where: str = "", hint: str = "") -> None:
        super().__init__(what, where=where, hint=hint)
        self.cause = cause


def failure(
    cause: Cause, *, service: str, where: str = "", detail: str = "", hint: str = ""
) -> BackendError:
    """The error that a person reads.

    Args:
        cause: Why.
        service: The plugin's name.
        where: The address that was asked.
        detail: What the service or its SDK said; the beginning of it is shown.
        hint: What to do, if the plugin knows better than the cause does.
    """
    said = " ".join(detail.split())
    said = said if len(said) <= _DETAIL else f"{said[:_DETAIL]}…"
    what = f"{cause}: {said}" if said else str(cause)
    place = f"{service} at {where}" if where else service
    return BackendError(
        what, cause=cause, where=place, hint=hint or _HINTS[cause].format(service=service)
    )


def cause_of_status(status: int) -> Cause:
    """What an HTTP status means."""
    fallback = Cause.BROKEN if status >= _SERVER_ERRORS else Cause.REFUSED
    return _OF_STATUS.get(status, fallback)
