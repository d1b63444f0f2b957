"""Honcho's SDK as this plugin uses it: one pool of connections, no retries, a deadline for all.

This is the only module that imports the SDK, and it is imported when a session starts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import httpx
from honcho import Honcho, Peer, Session  # type: ignore[import-untyped]
from honcho.api_types import MessageCreateParams  # type: ignore[import-untyped]
from honcho.http.exceptions import (  # type: ignore[import-untyped]
    BadRequestError,
    HonchoError,
    NotFoundError,
    UnprocessableEntityError,
)
from honcho.session import SessionPeerConfig  # type: ignore[import-untyped]

from hermes_core.backends import Cause, failure
from hermes_memory_honcho.settings import Settings

#: What a server says where it has no such address at all.
_NO_ROUTE: Final = "Not Found"
_OTHER_PLACE: Final = "check its address, or upgrade the server or the plugin"

__all__ = [
    "BadRequestError",
    "Honcho",
    "HonchoError",
    "MessageCreateParams",
    "NotFoundError",
    "Peer",
    "Session",
    "SessionPeerConfig",
    "UnprocessableEntityError",
    "Wire",
]


class Wire(httpx.Client):
    """A pool of connections whose requests end when the time of their caller does.

    The SDK has one timeout for everything, and tries again by itself: a message could be there
    twice. What is to be tried again, the host tries again.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(base_url=settings.address, timeout=settings.timeout)
        self._mine = threading.local()

    def honcho(self, settings: Settings, workspace: str) -> Honcho:
        """The SDK's client for a workspace. Nothing is asked yet."""
        return Honcho(
            # Without one the SDK would take the cloud's, from the environment.
            api_key=settings.key or "local",
            base_url=settings.address,
            workspace_id=workspace,
            timeout=settings.timeout,
            max_retries=0,
            http_client=self,
        )

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """All requests of this block, together, take no longer."""
        before = getattr(self._mine, "end", None)
        end = time.monotonic() + seconds
        self._mine.end = end if before is None else min(end, before)
        try:
            yield
        finally:
            self._mine.end = before

    def request(self, method: str, url: Any, **options: Any) -> httpx.Response:
        """Send a request, in the time that is left."""
        end = getattr(self._mine, "end", None)
        if end is not None:
            left = end - time.monotonic()
            if left <= 0:
                raise httpx.ReadTimeout("no time is left")
            options["timeout"] = min(left, options.get("timeout") or left)
        return _checked(super().request(method, url, **options), str(self.base_url).rstrip("/"))


def _checked(response: httpx.Response, address: str) -> httpx.Response:
    """An answer that can be Honcho's. The SDK would take a wrong address for an empty memory.

    Raises:
        BackendError: It is somebody else's: a web page, or an address that there is not.
    """
    is_json = "json" in response.headers.get("Content-Type", "")
    if response.status_code == httpx.codes.NOT_FOUND and not (is_json and _is_told(response)):
        raise failure(Cause.TOO_OLD, service="honcho", where=address, hint=_OTHER_PLACE)
    if response.content and not is_json and not response.is_error:
        detail = f"{response.status_code}, and not what a Honcho server says"
        raise failure(
            Cause.REFUSED, service="honcho", where=address, detail=detail, hint=_OTHER_PLACE
        )
    return response


def _is_told(response: httpx.Response) -> bool:
    """Whether it says what is not there, and not only that there is no such address."""
    try:
        said = response.json()
    except ValueError:
        return False
    return isinstance(said, dict) and said.get("detail") not in (None, _NO_ROUTE)
