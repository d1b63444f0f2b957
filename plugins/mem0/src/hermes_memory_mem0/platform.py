"""Mem0's platform, through the SDK's own client."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, Final

from hermes_core.backends import BackendError, Cause, failure
from hermes_memory_mem0.calls import SERVICE, patiently
from hermes_memory_mem0.http import Client
from hermes_memory_mem0.memories import Memory, Message, Owner, memories_in, memory_of
from hermes_memory_mem0.sdk import Sdk

_PAGE: Final = 200  # the platform gives no more at once
_UNDERWAY: Final = ("PENDING", "RUNNING")


class Platform:
    """Memories on the platform.

    What a model shall extract facts from is queued there: ``add`` returns when it is taken.
    """

    extracts_at_once = False

    def __init__(self, sdk: Sdk, key: str, address: str) -> None:
        self.where = address
        self._sdk = sdk
        self._key = key
        self._http = Client(address)
        self._client: Any = None
        self._opening = threading.Lock()

    def open(self) -> None:
        """Make the SDK's client, which asks the platform whether it knows the key."""
        with patiently(self._opening, self.where):
            if self._client is None:
                made = self._sdk.MemoryClient
                self._client = made(api_key=self._key, host=self.where, client=self._http)

    @property
    def _opened(self) -> Any:
        if self._client is None:
            self.open()
        return self._client

    def add(
        self, owner: Owner, messages: Sequence[Message], marks: Mapping[str, str], *, infer: bool
    ) -> str:
        """Hand messages over; without ``infer`` they are stored at once."""
        answer = self._opened.add(
            list(messages),
            user_id=owner.user,
            agent_id=owner.agent,
            infer=infer,
            metadata=dict(marks),
        )
        if answer.get("status") == "FAILED":
            said = str(answer.get("message") or "")
            raise failure(Cause.BROKEN, service=SERVICE, where=self.where, detail=said)
        return str(answer.get("event_id") or "")

    def search(self, owner: Owner, query: str, limit: int, *, rerank: bool) -> list[Memory]:
        """What fits a question."""
        filters = {"user_id": owner.user}
        answer = self._opened.search(query, filters=filters, top_k=limit, rerank=rerank)
        return memories_in(answer)

    def marked(self, owner: Owner, marks: Mapping[str, str], text: str) -> list[Memory]:  # noqa: ARG002
        """By metadata, exactly."""
        filters = {"AND": [{"user_id": owner.user}, {"metadata": dict(marks)}]}
        found: list[Memory] = []
        for page in count(1):
            answer = self._opened.get_all(filters=filters, page=page, page_size=_PAGE)
            found += memories_in(answer)
            if not answer.get("next"):
                break
        return found

    def is_underway(self, owner: Owner, marks: Mapping[str, str]) -> bool:  # noqa: ARG002
        """Whether a queued event has these marks in what it was given."""
        self.open()
        answer = self._http.get("/v1/events/").json()
        events = answer.get("results") if isinstance(answer, dict) else []
        return any(_is_of(event, marks) for event in events or ())

    def get(self, memory_id: str) -> Memory | None:
        """One memory; None for an id that the platform does not know or takes for none."""
        try:
            return memory_of(self._opened.get(memory_id))
        except BackendError as error:
            if error.cause in (Cause.MISSING, Cause.REFUSED):
                return None
            raise

    def update(self, memory_id: str, text: str, marks: Mapping[str, str] | None = None) -> None:
        """Give a memory another text."""
        more = {"metadata": dict(marks)} if marks else {}
        self._opened.update(memory_id, text=text, **more)

    def delete(self, memory_id: str) -> None:
        """Remove a memory."""
        self._opened.delete(memory_id)

    def forget(self, owner: Owner) -> None:
        """Remove a user with everything."""
        self._opened.delete_all(user_id=owner.user)
        with suppress(BackendError):  # the platform may have removed the user with the last memory
            self._opened.delete_users(user_id=owner.user)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


def _is_of(event: Any, marks: Mapping[str, str]) -> bool:
    """Whether an event is about to make memories with these marks."""
    if not isinstance(event, Mapping) or event.get("status") not in _UNDERWAY:
        return False
    payload = event.get("payload")
    given = (payload.get("metadata") if isinstance(payload, Mapping) else None) or event.get(
        "metadata"
    )
    return isinstance(given, Mapping) and all(given.get(key) == marks[key] for key in marks)
