"""Mem0's platform and a self-hosted Mem0 server, over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlsplit
from uuid import UUID

import httpx

from hermes_core.service import BackendError, Cause, cause_of_status, failure, parse_retry_after
from hermes_memory_mem0.calls import SERVICE, held_in_time, seconds_left
from hermes_memory_mem0.memories import (
    AddResult,
    EventState,
    Mem0Memory,
    Message,
    Owner,
    dated,
    memories_in,
    memory_of,
)
from hermes_memory_mem0.sdk import Sdk

# -----------------------------------------------------------------------------------------------
# Requests to the platform and to a Mem0 server: each has a deadline, each failure one line


class _Upstream(NamedTuple):
    """What one of the codes means that a Mem0 server has for what is behind it."""

    cause: Cause
    detail: str
    hint: str


_DATABASE: Final = "start the server's database, or look at the server's log; writes wait"
_MODELS: Final = "check model and embeddings on the server's configuration page; writes wait"

#: A Mem0 server answers 502 for everything that fails behind it, with one of these codes.
_UPSTREAM: Final = {
    "datastore_unavailable": _Upstream(Cause.BROKEN, "its database can't be reached", _DATABASE),
    "vector_store_unavailable": _Upstream(
        Cause.BROKEN, "its vector store can't be reached", _DATABASE
    ),
    "provider_unavailable": _Upstream(
        Cause.BROKEN, "its model or embeddings provider can't be reached or fails", _MODELS
    ),
    "provider_auth_failed": _Upstream(
        Cause.BROKEN, "its model or embeddings provider refused the server's key", _MODELS
    ),
    "provider_bad_request": _Upstream(
        Cause.REFUSED, "its model or embeddings provider refused the request", _MODELS
    ),
    "provider_rate_limited": _Upstream(
        Cause.QUOTA,
        "its model or embeddings provider limits the server's requests",
        "wait, or raise the limit at that provider; writes wait",
    ),
    "provider_timeout": _Upstream(
        Cause.SLOW, "its model or embeddings provider did not answer the server", _MODELS
    ),
}


class UpstreamError(BackendError):
    """A 502 of a Mem0 server that does not say what is behind it."""


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
            # Here and not in the constructor: each request gets what is left of its own call.
            "timeout": httpx.Timeout(seconds_left()).as_dict(),
        }
        try:
            response = super().send(request, **kwargs)
        except httpx.TimeoutException as error:
            raise self._failure(Cause.SLOW) from error
        except httpx.RequestError as error:
            raise self._failure(Cause.UNREACHABLE, str(error)) from error
        # A 404 for an unknown route means a wrong address or version; one for an unknown memory is
        # an answer.
        if response.status_code == httpx.codes.NOT_FOUND and not _says_what_is_missing(response):
            raise self._failure(Cause.TOO_OLD, hint="check its address, or upgrade the server")
        if response.is_error:
            reported = self._error_of(response)
            reported.retry_after = parse_retry_after(response.headers.get("Retry-After", ""))
            raise reported
        # A captive portal, a web page or a login redirect answers 200: the SDK would take it for
        # "no results", and search must not come back empty.
        if not _is_json(response):
            detail = f"{response.status_code}, and not what a Mem0 server says"
            place = response.headers.get("Location", "")
            hint = f"check its address {place}".strip()
            raise failure(
                Cause.REFUSED,
                service=SERVICE,
                where=self.address,
                detail=detail,
                hint=hint,
                final=False,
            )
        return response

    def failure_of(self, code: str) -> BackendError:
        """What stands behind a server, by the server's code for it."""
        known = _UPSTREAM[code]
        return self._failure(known.cause, f"502, {known.detail}", known.hint, final=False)

    def _error_of(self, response: httpx.Response) -> BackendError:
        if response.status_code == httpx.codes.BAD_GATEWAY:
            return self._bad_gateway(response)
        return self._failure(cause_of_status(response.status_code), _said(response))

    def _bad_gateway(self, response: httpx.Response) -> BackendError:
        """The server's own 502 has a code; one of a proxy means that the server is not there."""
        said: Any = None
        with suppress(ValueError):
            said = response.json()
        # nginx and cloud proxies answer 502 with HTML.
        if not isinstance(said, dict) or "detail" not in said:
            hint = "see that the Mem0 server behind that proxy runs; writes wait"
            return self._failure(Cause.UNREACHABLE, "502 from a proxy in front of it", hint)
        if said.get("code") in _UPSTREAM:
            return self.failure_of(said["code"])
        unknown = self._failure(Cause.BROKEN, _said(response))
        return UpstreamError(
            unknown.what, cause=unknown.cause, where=unknown.where, hint=unknown.hint
        )

    def _failure(
        self, cause: Cause, detail: str = "", hint: str = "", *, final: bool = True
    ) -> BackendError:
        return failure(
            cause, service=SERVICE, where=self.address, detail=detail, hint=hint, final=final
        )


def _is_json(response: httpx.Response) -> bool:
    """Whether it can be Mem0's: a web page or a redirection is somebody else's."""
    said = response.headers.get("Content-Type", "")
    return not response.content or "json" in said


def _says_what_is_missing(response: httpx.Response) -> bool:
    """Whether it says what is not there, and not only that the address is unknown."""
    return _is_json(response) and not _said(response).endswith(("404 Not Found", "404 "))


def _said(response: httpx.Response) -> str:
    """What the server says to it; its errors come in several shapes."""
    said: Any = response.text
    with suppress(ValueError):
        said = response.json()
    # In this order, and nested: {"detail": {"message": "..."}} becomes the innermost text.
    for key in ("detail", "error", "message"):
        if isinstance(said, dict) and said.get(key):
            said = said[key]
    return f"{response.status_code} {said}"


# -- Mem0's platform, through the SDK's own client ----------------------------------------------

_PAGE: Final = 200  # the platform returns no more at once
_EVENT_PAGES: Final = 20
_UNDERWAY: Final = ("PENDING", "RUNNING")


class Platform:
    """Memories on the platform.

    What a model shall extract facts from is queued there: ``add`` returns when it is taken.
    """

    extracts_at_once = False
    most_listed = 0

    def __init__(self, sdk: Sdk, key: str, address: str) -> None:
        self.where = address
        self._sdk = sdk
        self._key = key
        self._http = Client(address)
        self._client: Any = None
        self._opening = threading.Lock()

    def open(self) -> None:
        """Make the SDK's client, which asks the platform whether it knows the key."""
        with held_in_time(self._opening, self.where):
            if self._client is None:
                # Inside the lock: the constructor makes a request, and two threads would make two.
                made = self._sdk.MemoryClient
                self._client = made(api_key=self._key, host=self.where, client=self._http)

    @property
    def _opened(self) -> Any:
        if self._client is None:
            self.open()
        return self._client

    def add(
        self,
        owner: Owner,
        messages: Sequence[Message],
        marks: Mapping[str, str],
        *,
        infer: bool,
        said_at: float = 0.0,
    ) -> AddResult:
        """Hand messages over; without ``infer`` they are stored at once.

        A turn that comes late, or once more, has the time at which it was said.
        """
        answer = self._opened.add(
            list(messages),
            user_id=owner.user,
            agent_id=owner.agent,
            infer=infer,
            metadata=dict(marks),
            # The platform dates a memory by its arrival otherwise; "yesterday" in a turn that
            # waited in the outbox would then mean another day.
            **({"timestamp": int(said_at)} if said_at else {}),
        )
        if answer.get("status") == "FAILED":
            said = str(answer.get("message") or "")
            raise failure(Cause.BROKEN, service=SERVICE, where=self.where, detail=said)
        return AddResult(str(answer.get("event_id") or ""))

    def search(self, owner: Owner, query: str, limit: int, *, rerank: bool) -> list[Mem0Memory]:
        """What fits a question."""
        filters = {"user_id": owner.user}
        answer = self._opened.search(query, filters=filters, top_k=limit, rerank=rerank)
        return memories_in(answer)

    def marked(self, owner: Owner, marks: Mapping[str, str], text: str) -> list[Mem0Memory]:  # noqa: ARG002
        """By metadata, exactly."""
        filters = {"AND": [{"user_id": owner.user}, {"metadata": dict(marks)}]}
        found: list[Mem0Memory] = []
        # All pages: an old note that is overlooked would be stored a second time.
        for page in count(1):
            answer = self._opened.get_all(filters=filters, page=page, page_size=_PAGE)
            found += memories_in(answer)
            if not answer.get("next"):
                break
        return found

    def is_underway(self, owner: Owner, marks: Mapping[str, str]) -> bool:  # noqa: ARG002
        """Whether a queued event has these marks in what it was given."""
        self.open()
        # Bounded: a project may have very many old events, and those under way are new.
        query = ""
        for _ in range(_EVENT_PAGES):
            answer = self._http.get(f"/v1/events/{query}").json()
            found = answer if isinstance(answer, dict) else {}
            if any(_is_of(event, marks) for event in found.get("results") or ()):
                return True
            # Only the query of the link: our key goes to no other address.
            query = f"?{urlsplit(str(found.get('next') or '')).query}"
            if query == "?":
                break
        return False

    def event_state(self, event_id: str) -> EventState:
        """What became of an event. One that the platform has forgotten was done long ago."""
        self.open()
        try:
            event = self._http.get(f"/v1/event/{quote(event_id, safe='')}/").json()
        except BackendError as error:
            if error.cause is Cause.MISSING:
                return EventState.DONE
            raise
        status = event.get("status") if isinstance(event, dict) else ""
        if status in _UNDERWAY:
            return EventState.UNDERWAY
        # An unknown status counts as done: asking for ever would not help.
        return EventState.FAILED if status == "FAILED" else EventState.DONE

    def ask_model(self) -> None:
        """Nothing: it is the service's own."""

    def get(self, memory_id: str) -> Mem0Memory | None:
        """One memory; None for an id that the platform does not know or takes for none."""
        try:
            return memory_of(self._opened.get(memory_id))
        except BackendError as error:
            if error.cause in (Cause.MISSING, Cause.REFUSED):
                return None
            raise

    def update(self, memory_id: str, text: str, marks: Mapping[str, str] | None = None) -> None:
        """Replace the text of a memory."""
        more = {"metadata": dict(marks)} if marks else {}
        self._opened.update(memory_id, text=text, **more)

    def delete(self, memory_id: str) -> None:
        """Remove a memory."""
        self._opened.delete(memory_id)

    def all(self, owner: Owner) -> list[Mem0Memory]:
        """Every memory of a user."""
        found: list[Mem0Memory] = []
        for page in count(1):
            answer = self._opened.get_all(
                filters={"user_id": owner.user}, page=page, page_size=_PAGE
            )
            found += memories_in(answer)
            if not answer.get("next"):
                break
        return found

    def erase_history(self, ids: Sequence[str], is_gone: Callable[[str], bool]) -> bool:  # noqa: ARG002
        """The platform has no request for it."""
        return False

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


# -- A Mem0 server of one's own, over its REST interface, which the SDK's client can't speak ----

_MANY: Final = 100
_MOST_LISTED: Final = 1000  # the server refuses more
_NOBODY: Final = "hermes-probe"


class Server:
    """Memories on a server. It answers a write when the memories are stored."""

    extracts_at_once = True
    most_listed = _MOST_LISTED

    def __init__(self, key: str, address: str) -> None:
        self.where = address
        self._http = Client(address, {"X-API-Key": key} if key else None)

    def open(self) -> None:
        """Nothing: every request stands alone."""

    def add(
        self,
        owner: Owner,
        messages: Sequence[Message],
        marks: Mapping[str, str],
        *,
        infer: bool,
        said_at: float = 0.0,
    ) -> AddResult:
        """Store messages. An empty answer shows nothing: facts may have been lost."""
        body = {
            "messages": list(messages),
            "user_id": owner.user,
            "agent_id": owner.agent,
            "metadata": dated(marks, said_at),
            "infer": infer,
        }
        stored = memories_in(self._found("/memories", body))
        # Without a model there is no reason to store nothing, so this is an error; with one, there
        # may be no fact in the text.
        if not infer and not stored:
            detail = "it took a text and stored nothing"
            raise failure(Cause.BROKEN, service=SERVICE, where=self.where, detail=detail)
        return AddResult(is_shown=bool(stored))

    def search(self, owner: Owner, query: str, limit: int, *, rerank: bool) -> list[Mem0Memory]:  # noqa: ARG002
        """What fits a question; the server has no reranker."""
        body = {"query": query, "filters": {"user_id": owner.user}, "top_k": limit}
        return memories_in(self._found("/search", body))

    def marked(self, owner: Owner, marks: Mapping[str, str], text: str) -> list[Mem0Memory]:
        """By metadata, which only a search can ask for here: so with what it is about."""
        body = {
            "query": text,
            "filters": {"user_id": owner.user, **marks},
            "top_k": _MANY,
            # No lower limit of similarity: the marks alone decide.
            "threshold": 0.0,
        }
        return memories_in(self._found("/search", body))

    def is_underway(self, owner: Owner, marks: Mapping[str, str]) -> bool:  # noqa: ARG002
        """Never: nothing is queued."""
        return False

    def event_state(self, event_id: str) -> EventState:  # noqa: ARG002
        """Done: nothing is queued."""
        return EventState.DONE

    def ask_model(self) -> None:
        """Nothing: it is the service's own."""

    def get(self, memory_id: str) -> Mem0Memory | None:
        """One memory; None for an unknown id."""
        if not _is_id(memory_id):  # the database would fail with it, and so the server
            return None
        try:
            row = self._ask("GET", self._path(memory_id))
        except BackendError as error:
            if error.cause in (Cause.MISSING, Cause.REFUSED):
                return None
            raise
        return memory_of(row) if isinstance(row, Mapping) else None

    def update(self, memory_id: str, text: str, marks: Mapping[str, str] | None = None) -> None:
        """Replace the text of a memory."""
        more = {"metadata": dict(marks)} if marks else {}
        self._ask("PUT", self._path(memory_id), {"text": text, **more})

    def delete(self, memory_id: str) -> None:
        """Remove a memory."""
        self._ask("DELETE", self._path(memory_id))

    def all(self, owner: Owner) -> list[Mem0Memory]:
        """Every memory of a user, as many as the server lists at once."""
        asked: dict[str, str | int] = {"user_id": owner.user, "top_k": _MOST_LISTED}
        return memories_in(self._http.get("/memories", params=asked).json())

    def erase_history(self, ids: Sequence[str], is_gone: Callable[[str], bool]) -> bool:  # noqa: ARG002
        """The server has no request for it."""
        return False

    def forget(self, owner: Owner) -> None:
        """Remove all memories of a user, one by one: to remove them at once takes an admin."""
        asked: dict[str, str | int] = {"user_id": owner.user, "top_k": _MANY}
        gone: set[str] = set()
        while True:
            answer = self._http.get("/memories", params=asked).json()
            # A server may still list what it has just removed: only new ones are worth another
            # round.
            left = [each.id for each in memories_in(answer) if each.id not in gone]
            if not left:
                return
            for each in left:
                self.delete(each)
            gone.update(left)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _found(self, path: str, body: dict[str, Any]) -> Any:
        """An answer with memories, however few. Without, nothing was stored or looked for."""
        answer = self._ask("POST", path, body)
        if not isinstance(answer, Mapping) or not isinstance(answer.get("results"), list):
            detail = "it answers, and not as a Mem0 server does"
            hint = "check its address, or upgrade the server"
            raise failure(
                Cause.TOO_OLD, service=SERVICE, where=self.where, detail=detail, hint=hint
            )
        return answer

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        try:
            response = self._http.request(method, path, json=body)
        except UpstreamError as error:
            raise self._cause_of_502() from error
        return response.json() if response.content else None

    def _cause_of_502(self) -> BackendError:
        """Find out what caused a 502 without a code: ask for what only needs the database."""
        try:
            # Listing needs the database alone. If it works, the model or the embeddings have
            # failed.
            self._http.get("/memories", params={"user_id": _NOBODY, "top_k": 1})
        except BackendError:
            return self._http.failure_of("datastore_unavailable")
        return self._http.failure_of("provider_unavailable")

    def _path(self, memory_id: str) -> str:
        if not _is_id(memory_id):
            detail = f"ids of memories are UUIDs, and {memory_id[:80]!r} is not"
            raise failure(Cause.MISSING, service=SERVICE, where=self.where, detail=detail)
        return f"/memories/{quote(memory_id, safe='')}"


def _is_id(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
