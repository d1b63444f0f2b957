"""What an exception of the SDK, or of the HTTP client below it, means."""

from __future__ import annotations

import json
from typing import Any, Final

from hermes_core.backends import BackendError, Cause, cause_of_status, failure

_SERVICE: Final = "hindsight"
_NOT_FOUND: Final = 404
_CHECK_ADDRESS: Final = "check api_url, and the server's version: hermes-plugins setup hindsight"


def explained(error: Exception, url: str) -> BackendError:
    """The one line for a person."""
    if isinstance(error, ImportError):
        return failure(
            Cause.TOO_OLD,
            service=_SERVICE,
            detail=f"its SDK can't be imported ({error})",
            hint="pip install -U 'hindsight-client>=1.1,<2'",
        )
    status = getattr(error, "status", None)
    if isinstance(status, int) and status:
        return _of_status(error, status, url)
    cause, detail = _cause(error)
    hint = _CHECK_ADDRESS if cause is Cause.TOO_OLD else ""
    return failure(cause, service=_SERVICE, where=url, detail=detail, hint=hint)


def says_what_is_missing(error: Exception) -> bool:
    """Whether a server answered that a bank or document is not there.

    One that does not know the path says "Not Found": then the address is wrong.
    """
    if getattr(error, "status", None) != _NOT_FOUND:
        return False
    said = _detail(error).strip(" .").lower()
    return said.endswith("not found") and said != "not found"


def _of_status(error: Exception, status: int, url: str) -> BackendError:
    hint = _CHECK_ADDRESS if status == _NOT_FOUND else ""
    detail = _detail(error) or f"HTTP {status}"
    return failure(cause_of_status(status), service=_SERVICE, where=url, detail=detail, hint=hint)


def _detail(error: Exception) -> str:
    """What the server said: FastAPI puts it under ``detail``."""
    body = getattr(error, "body", None)
    try:
        told: Any = json.loads(body or "")
    except ValueError:
        return ""
    detail = told.get("detail", "") if isinstance(told, dict) else ""
    if isinstance(detail, list):
        detail = "; ".join(str(each.get("msg", each)) for each in detail if isinstance(each, dict))
    return str(detail)


def _cause(error: Exception) -> tuple[Cause, str]:
    import aiohttp  # noqa: PLC0415 - comes with the SDK

    told = f"{type(error).__name__}: {error}"
    if isinstance(error, TimeoutError):
        return Cause.SLOW, ""
    if isinstance(error, aiohttp.ClientConnectorError):
        return Cause.AWAY, error.strerror or str(error)
    if isinstance(error, aiohttp.ClientError | OSError):
        return Cause.AWAY, told
    if isinstance(error, ValueError):  # pydantic's, or JSON's
        return Cause.TOO_OLD, "its answer is not one that this plugin knows"
    return Cause.BROKEN, told
