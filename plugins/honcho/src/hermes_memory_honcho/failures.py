"""What an error of Honcho's SDK means."""

from __future__ import annotations

from typing import Any

from hermes_core.backends import BackendError, Cause, cause_of_status, failure


def explained(error: Exception, name: str, address: str) -> BackendError:
    """An error for a person. The SDK's are told by what they have, not by their class."""
    if isinstance(error.__cause__, BackendError):  # ours, which the SDK has wrapped
        return error.__cause__
    detail = str(error)
    if isinstance(error, ImportError):
        return failure(
            Cause.MISSING,
            service=name,
            detail=f"the SDK can't be imported: {detail}",
            hint="run: pip install 'honcho-ai>=2.7,<3'",
        )
    cause = _cause(error)
    if cause is Cause.REFUSED:
        detail = _told(getattr(error, "body", None)) or detail
    elif cause is Cause.AWAY:
        detail = str(error.__cause__ or "")
    elif cause is not Cause.BROKEN:
        detail = ""
    return failure(cause, service=name, where=address, detail=detail)


def _cause(error: Exception) -> Cause:
    status, code = getattr(error, "status", None), getattr(error, "code", None)
    if status is None:  # an answer that the SDK can't read
        return Cause.TOO_OLD if type(error).__module__.startswith("pydantic") else Cause.BROKEN
    if code == "timeout":
        return Cause.SLOW
    if code == "connection_error":
        return Cause.AWAY
    return cause_of_status(status)


def _told(body: Any) -> str:
    """What a server says of a request that it refuses, without repeating the request."""
    details = body.get("detail") if isinstance(body, dict) else None
    if not isinstance(details, list):
        return ""
    parts = [
        f"{'.'.join(map(str, each.get('loc', ())))}: {each.get('msg', '')}"
        for each in details
        if isinstance(each, dict)
    ]
    return "; ".join(parts)
