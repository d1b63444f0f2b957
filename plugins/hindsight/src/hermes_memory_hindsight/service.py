"""The SDK, called from any thread: its client belongs to one event loop, which runs here."""

from __future__ import annotations

import json
import os
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

from hermes_core import HermesError, MemoryItem
from hermes_core.service import (
    BackendError,
    Cause,
    EventLoop,
    RecallResult,
    cause_of_status,
    failure,
    parse_retry_after,
)
from hermes_memory_hindsight.documents import Document
from hermes_memory_hindsight.settings import HindsightSettings

if TYPE_CHECKING:
    from hindsight_client import Hindsight

# -- What an exception of the SDK, or of the HTTP client below it, means ------------------------

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
    # By attribute: the SDK has an exception class per status, generated from its API.
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
    # FastAPI's own answer for an unknown route is exactly "Not Found"; Hindsight's names what is
    # missing.
    said = _detail(error).strip(" .").lower()
    return said.endswith("not found") and said != "not found"


def _of_status(error: Exception, status: int, url: str) -> BackendError:
    hint = _CHECK_ADDRESS if status == _NOT_FOUND else ""
    detail = _detail(error) or f"HTTP {status}"
    headers = getattr(error, "headers", None) or {}
    return failure(
        cause_of_status(status),
        service=_SERVICE,
        where=url,
        detail=detail,
        hint=hint,
        retry_after=parse_retry_after(headers.get("Retry-After", "")),
    )


def _detail(error: Exception) -> str:
    """What the server said: FastAPI puts it under ``detail``."""
    body = getattr(error, "body", None)
    try:
        answer: Any = json.loads(body or "")
    except ValueError:
        return ""
    detail = answer.get("detail", "") if isinstance(answer, dict) else ""
    if isinstance(detail, list):
        detail = "; ".join(str(each.get("msg", each)) for each in detail if isinstance(each, dict))
    return str(detail)


def _cause(error: Exception) -> tuple[Cause, str]:
    import aiohttp  # noqa: PLC0415 - comes with the SDK

    text = f"{type(error).__name__}: {error}"
    # Before OSError: a TimeoutError is one.
    if isinstance(error, TimeoutError):
        return Cause.SLOW, ""
    if isinstance(error, aiohttp.ClientConnectorError):
        return Cause.UNREACHABLE, error.strerror or str(error)
    if isinstance(error, aiohttp.ClientError | OSError):
        return Cause.UNREACHABLE, text
    if isinstance(error, ValueError):  # pydantic's, or JSON's
        return Cause.TOO_OLD, "its answer is not one that this plugin knows"
    return Cause.BROKEN, text


# -----------------------------------------------------------------------------------------------
# The SDK, asked from any thread: its client belongs to one event loop, and here is that loop

_T = TypeVar("_T")
_CLOSE_SECONDS: Final = 2.0
#: The loop waits a little longer than the client, whose error says more.
_PATIENCE: Final = 1.5
_AGENT: Final = "hermes-memory-hindsight"
_NOTES: Final = 500


class HindsightService:
    """A Hindsight server. The SDK's exceptions come through as they are."""

    def __init__(self, settings: HindsightSettings) -> None:
        self._settings = settings
        # By process: see `_client`. Built now: importing the SDK takes a second, and no turn should
        # wait for it.
        self._made = {os.getpid(): _client(settings)}
        self._loop = EventLoop("hindsight-loop")

    @property
    def _client(self) -> Hindsight:
        """This process's client: a forked child must not talk on its parent's connections."""
        return self._made.get(os.getpid()) or self._made.setdefault(
            os.getpid(), _client(self._settings)
        )

    def _run(self, asked: Coroutine[Any, Any, _T]) -> _T:
        # The loop cancels at nine tenths of its deadline, which is still after the client's own
        # timeout.
        found: _T = self._loop.run(asked, self._settings.timeout * _PATIENCE)
        return found

    def _run_on_what_is_there(self, asked: Coroutine[Any, Any, _T]) -> _T | None:
        """Like `_run`; None if the bank or document does not exist."""
        try:
            return self._run(asked)
        except Exception as error:
            if says_what_is_missing(error):
                return None
            raise

    def version(self) -> str:
        """What the server calls itself."""
        return str(self._run(self._client.aget_version()).api_version)

    def retain(self, bank: str, document: Document, *, queued: bool = False) -> None:
        """Store a document, or replace it. The bank is made if there is none.

        Args:
            bank: Where.
            document: What.
            queued: The server only notes it, and works it into memory later.
        """
        items = [document.item(self._settings.observation_scopes)]
        answer = self._run(self._client.aretain_batch(bank, items, retain_async=queued))
        if not answer.success:
            raise failure(
                Cause.REFUSED,
                service="hindsight",
                where=self._settings.api_url,
                detail="the server did not store the documents",
                final=False,
            )

    def recall(self, bank: str, query: str) -> list[str]:
        """The memories for a question; none if the bank does not exist yet."""
        if not _has_words(query):
            return []
        wanted = self._settings
        asked = self._client.arecall(
            bank,
            query,
            types=list(wanted.recall_types),
            max_tokens=wanted.recall_max_tokens,
            budget=wanted.recall_budget,
            tags=list(wanted.recall_tags) or None,
            tags_match=wanted.recall_tags_match,
            # Observations sum up many facts; both together would repeat each other.
            prefer_observations=True,
        )
        answer = self._run_on_what_is_there(asked)
        return [each.text for each in answer.results if each.text] if answer else []

    def reflect(self, bank: str, query: str) -> RecallResult:
        """An answer from all memories, and how many it was made of."""
        wanted = self._settings
        asked = self._client.areflect(
            bank,
            query,
            budget=wanted.recall_budget,
            tags=list(wanted.recall_tags) or None,
            tags_match=wanted.recall_tags_match,
            include_facts=True,
        )
        answer = self._run(asked)
        return RecallResult(answer.text or "", _memories_in(answer))

    def forget(self, bank: str, document_id: str) -> bool:
        """Remove a document; whether there was one."""
        asked = self._client.documents.delete_document(
            bank, document_id, _request_timeout=self._settings.timeout
        )
        return self._run_on_what_is_there(asked) is not None

    def documents(self, bank: str, tag: str) -> Sequence[str]:
        """The ids of the documents that have a tag."""
        asked = self._client.documents.list_documents(
            bank,
            tags=[tag],
            # Strict: without it, documents that have no tag at all match, too.
            tags_match="all_strict",
            limit=_NOTES,
            _request_timeout=self._settings.timeout,
        )
        answer = self._run_on_what_is_there(asked)
        return [each.id for each in answer.items] if answer else []

    def all_documents(self, bank: str, tag: str = "") -> list[str]:
        """The ids of all documents of a bank, or of those that have a tag."""
        found: list[str] = []
        while True:
            asked = self._client.documents.list_documents(
                bank,
                tags=[tag] if tag else None,
                tags_match="all_strict" if tag else None,
                limit=_NOTES,
                offset=len(found),
                _request_timeout=self._settings.timeout,
            )
            answer = self._run_on_what_is_there(asked)
            new = [each.id for each in answer.items] if answer else []
            found += [each for each in new if each not in found]
            if len(new) < _NOTES:
                return found

    def memories(self, bank: str, start: int) -> list[MemoryItem]:
        """Some memories of a bank, from a number on; none at the end, or if there is no bank."""
        asked = self._client.alist_memories(bank, limit=_NOTES, offset=start)
        answer = self._run_on_what_is_there(asked)
        return [_memory_item(each) for each in answer.items] if answer else []

    def text(self, bank: str, document_id: str) -> str:
        """The text of a document."""
        asked = self._client.documents.get_document(
            bank, document_id, _request_timeout=self._settings.timeout
        )
        return self._run(asked).original_text or ""

    def set_missions(self, bank: str) -> None:
        """Create a bank with the configured missions, or update it."""
        asked = self._client.acreate_bank(
            bank,
            reflect_mission=self._settings.bank_mission or None,
            retain_mission=self._settings.bank_retain_mission or None,
        )
        self._run(asked)

    def drop(self, bank: str) -> None:
        """Remove a bank with all that is in it."""
        self._run(self._client.adelete_bank(bank))

    def close(self) -> None:
        """Close the connections and end the loop."""
        # The server may be down and the loop may be closed: neither matters at the end of a
        # session.
        with suppress(HermesError, OSError, RuntimeError):
            self._loop.run(self._client.aclose(), _CLOSE_SECONDS)  # type: ignore[no-untyped-call]
        self._loop.close()


def _client(settings: HindsightSettings) -> Hindsight:
    from hindsight_client import Hindsight  # noqa: PLC0415 - a second, and for sessions only

    # One attempt: a turn can't wait for more, and the outbox repeats writes.
    return Hindsight(
        base_url=settings.api_url,
        api_key=settings.api_key or None,
        timeout=settings.timeout,
        user_agent=_AGENT,
        max_attempts=1,
    )


def _memory_item(unit: Any) -> MemoryItem:
    known = {
        "type": unit.fact_type,
        "document": unit.document_id,
        "context": unit.context,
        "date": unit.var_date,
        "entities": unit.entities,
        "tags": unit.tags,
        **(unit.metadata or {}),
    }
    known = {key: value for key, value in known.items() if value}
    return MemoryItem(unit.id, unit.text or "", _seconds(unit.mentioned_at), known)


def _seconds(date: str | None) -> float:
    try:
        return datetime.fromisoformat(date or "").timestamp()
    except ValueError:
        return 0.0


def _has_words(query: str) -> bool:
    """Whether the server would take a question: it wants a letter or a digit."""
    return any(map(str.isalnum, query))


def _memories_in(answer: Any) -> int:
    based_on = answer.based_on
    return len(based_on.memories or ()) if based_on is not None else 0
