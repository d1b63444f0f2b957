"""Requests to the platform and to a Mem0 server: each has a deadline, each failure one line."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import httpx

from hermes_core.backends import BackendError, Cause, cause_of_status, failure
from hermes_memory_mem0.calls import SERVICE, seconds_left


class Client(httpx.Client):
    """An httpx client that raises what a person can read.

    Errors are made here and not where the SDK is called: the SDK turns some of them into a
    ``ValueError`` without a status, and logs others.
    """

    def __init__(self, address: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(base_url=address, headers=headers)
        self.address = address

    def send(self, request: httpx.Request, **kwargs: Any) -> httpx.Response:
        """Send a request, in the time that is left for it."""
        request.extensions = {
            **request.extensions,
            "timeout": httpx.Timeout(seconds_left()).as_dict(),
        }
        try:
            response = super().send(request, **kwargs)
        except httpx.TimeoutException as error:
            raise self._failure(Cause.SLOW) from error
        except httpx.RequestError as error:
            raise self._failure(Cause.AWAY, str(error)) from error
        if response.status_code == httpx.codes.NOT_FOUND and not _is_told(response):
            raise self._failure(Cause.TOO_OLD, hint="check its address, or upgrade the server")
        if response.is_error:
            raise self._failure(cause_of_status(response.status_code), _said(response))
        if not _is_json(response):
            detail = f"{response.status_code}, and not what a Mem0 server says"
            place = response.headers.get("Location", "")
            raise self._failure(Cause.REFUSED, detail, f"check its address {place}".strip())
        return response

    def _failure(self, cause: Cause, detail: str = "", hint: str = "") -> BackendError:
        return failure(cause, service=SERVICE, where=self.address, detail=detail, hint=hint)


def _is_json(response: httpx.Response) -> bool:
    """Whether it can be Mem0's: a web page or a redirection is somebody else's."""
    said = response.headers.get("Content-Type", "")
    return not response.content or "json" in said


def _is_told(response: httpx.Response) -> bool:
    """Whether it says what is not there, and not only that there is no such address."""
    return _is_json(response) and not _said(response).endswith(("404 Not Found", "404 "))


def _said(response: httpx.Response) -> str:
    """What the server says to it; its errors come in several shapes."""
    said: Any = response.text
    with suppress(ValueError):
        said = response.json()
    for key in ("detail", "error", "message"):
        if isinstance(said, dict) and said.get(key):
            said = said[key]
    return f"{response.status_code} {said}"
