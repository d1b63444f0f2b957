"""Honcho's SDK as this plugin uses it: one pool of connections, no retries, a deadline for all.

This is the only module that imports the SDK, and it is imported when a session starts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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

from hermes_memory_honcho.settings import Settings

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
        return super().request(method, url, **options)
