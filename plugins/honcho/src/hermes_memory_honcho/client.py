"""Honcho's SDK as this plugin uses it: one connection pool, no retries, a deadline for all."""

from __future__ import annotations

import math
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

import httpx
from honcho import Honcho, Peer, Session  # type: ignore[import-untyped]
from honcho.api_types import (  # type: ignore[import-untyped]
    MessageCreateParams,
    SessionConfiguration,
)
from honcho.http.exceptions import (  # type: ignore[import-untyped]
    BadRequestError,
    HonchoError,
    NotFoundError,
    UnprocessableEntityError,
    create_error_from_response,
)
from honcho.session import SessionPeerConfig  # type: ignore[import-untyped]

from hermes_core.service import BackendError, Cause, failure, parse_retry_after
from hermes_memory_honcho.settings import HonchoSettings

# A proxy may send a date in the far future; after an hour it is worth another request.
_LONGEST_PAUSE: Final = 3600.0
#: What a proxy says of a request that its server may still carry out.
_UNSURE: Final = frozenset({408, 502, 504})
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
    "SessionConfiguration",
    "SessionPeerConfig",
    "TimedClient",
    "UnprocessableEntityError",
    "never_arrived",
]


class TimedClient(httpx.Client):
    """A pool of connections whose requests end when the time of their caller does.

    The SDK has one timeout for everything, and tries again by itself: a message could be there
    twice. What is to be tried again, the host tries again. While the server has asked for a pause
    (``Retry-After``), nothing is sent.
    """

    def __init__(self, settings: HonchoSettings) -> None:
        super().__init__(
            base_url=settings.address, timeout=settings.timeout, verify=_certificates()
        )
        # Per thread: recall, writes and tools use one pool with different deadlines at the same
        # time.
        self._mine = threading.local()
        self._pause_ends = 0.0

    def honcho(self, settings: HonchoSettings, workspace: str) -> Honcho:
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

    @property
    def pause(self) -> float:
        """Seconds for which the server still wants to be left alone."""
        return max(0.0, self._pause_ends - time.monotonic())

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """All requests of this block, together, take no longer."""
        before = getattr(self._mine, "end", None)
        end = time.monotonic() + seconds
        # Nested blocks: the inner one never extends the outer one.
        self._mine.end = end if before is None else min(end, before)
        try:
            yield
        finally:
            self._mine.end = before

    @contextmanager
    def request_timeout(self, seconds: float) -> Iterator[None]:
        """Each request of this block may take so long."""
        self._mine.patience = seconds
        try:
            yield
        finally:
            self._mine.patience = None

    def read(self, settings: HonchoSettings, path: str) -> Any:
        """What a GET says, with nothing made on the way: the SDK makes the workspace first.

        Raises:
            HonchoError: The server says no.
        """
        key = {"Authorization": f"Bearer {settings.key or 'local'}"}
        # Not through the SDK: its client creates the workspace first, and `status` must not write.
        response = self.get(f"{settings.address}/v3/workspaces/{path}", headers=key)
        if response.is_error:
            raise create_error_from_response(response.status_code, response.text[:200])
        return response.json()

    def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        """Send a request, in the time that is left."""
        if self.pause:
            raise failure(Cause.QUOTA, service="honcho", where=self._address,
                          detail=f"rate limit: no requests for {self.pause:.0f} s",
                          retry_after=self.pause)  # fmt: skip
        request.extensions["timeout"] = httpx.Timeout(self._seconds(request)).as_dict()
        response = super().send(request, **options)
        if response.is_error:
            # An error without a pause does not end the pause that another request asked for.
            # Two threads may write `_pause_ends` at once; either value is a pause that the server
            # asked for.
            ends = time.monotonic() + _pause_of(response)
            self._pause_ends = max(self._pause_ends, ends)
        return response if options.get("stream") else _checked(response, self._address)

    @property
    def _address(self) -> str:
        return str(self.base_url).rstrip("/")

    def _seconds(self, request: httpx.Request) -> float:
        given = request.extensions.get("timeout", {}).get("read")
        seconds = float(getattr(self._mine, "patience", None) or given or math.inf)
        left = getattr(self._mine, "end", None) or math.inf
        left -= time.monotonic()
        if left <= 0:
            raise httpx.ReadTimeout("no time is left")
        return min(left, seconds)


@cache
def _certificates() -> ssl.SSLContext:
    """Whom to trust; reading that takes longer than all else of a start, so it is read once."""
    return httpx.create_ssl_context()


def never_arrived(error: HonchoError) -> bool:
    """Whether a request that failed was certainly not carried out, and will not be."""
    # No connection, so no request was sent. After a read timeout the server may still carry it out.
    if isinstance(error.__cause__, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout):
        return True
    if isinstance(error.__cause__, BackendError):  # ours: it was not sent, or not to Honcho
        return True
    # The server itself has answered with an error: it rolls the request back.
    return bool(error.status) and error.status not in _UNSURE


def _pause_of(response: httpx.Response) -> float:
    """How long the server wants to be left alone: in seconds, or until a date."""
    return min(parse_retry_after(response.headers.get("Retry-After", "")), _LONGEST_PAUSE)


def _checked(response: httpx.Response, address: str) -> httpx.Response:
    """An answer that can be Honcho's. The SDK would take a wrong address for an empty memory.

    Raises:
        BackendError: It is somebody else's: a web page, or an address that there is not.
    """
    is_json = "json" in response.headers.get("Content-Type", "")
    if response.status_code == httpx.codes.NOT_FOUND and not (
        is_json and _says_what_is_missing(response)
    ):
        # The SDK treats every 404 as "not there yet", so a wrong address would look like an empty
        # memory.
        raise failure(Cause.TOO_OLD, service="honcho", where=address, hint=_OTHER_PLACE)
    if response.content and not is_json and not response.is_error:
        detail = f"{response.status_code}, and not what a Honcho server says"
        raise failure(
            Cause.REFUSED,
            service="honcho",
            where=address,
            detail=detail,
            hint=_OTHER_PLACE,
            final=False,
        )
    return response


def _says_what_is_missing(response: httpx.Response) -> bool:
    """Whether it says what is not there, and not only that there is no such address."""
    try:
        said = response.json()
    except ValueError:
        return False
    return isinstance(said, dict) and said.get("detail") not in (None, _NO_ROUTE)
