"""A Mem0 server of one's own, over its REST interface, which the SDK's client can't speak."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from hermes_core.backends import BackendError, Cause, failure
from hermes_memory_mem0.calls import SERVICE
from hermes_memory_mem0.http import Client
from hermes_memory_mem0.memories import Memory, Message, Owner, memories_in, memory_of

_MANY: Final = 100


class Server:
    """Memories on a server. It answers a write when the memories are stored."""

    extracts_at_once = True

    def __init__(self, key: str, address: str) -> None:
        self.where = address
        self._http = Client(address, {"X-API-Key": key} if key else None)

    def open(self) -> None:
        """Nothing: every request stands alone."""

    def add(
        self, owner: Owner, messages: Sequence[Message], marks: Mapping[str, str], *, infer: bool
    ) -> str:
        """Store messages."""
        body = {
            "messages": list(messages),
            "user_id": owner.user,
            "agent_id": owner.agent,
            "metadata": dict(marks),
            "infer": infer,
        }
        self._found("/memories", body)
        return ""

    def search(self, owner: Owner, query: str, limit: int, *, rerank: bool) -> list[Memory]:  # noqa: ARG002
        """What fits a question; the server has no reranker."""
        body = {"query": query, "filters": {"user_id": owner.user}, "top_k": limit}
        return memories_in(self._found("/search", body))

    def marked(self, owner: Owner, marks: Mapping[str, str], text: str) -> list[Memory]:
        """By metadata, which only a search can ask for here: so with what it is about."""
        body = {
            "query": text,
            "filters": {"user_id": owner.user, **marks},
            "top_k": _MANY,
            "threshold": 0.0,
        }
        return memories_in(self._found("/search", body))

    def is_underway(self, owner: Owner, marks: Mapping[str, str]) -> bool:  # noqa: ARG002
        """Never: nothing is queued."""
        return False

    def get(self, memory_id: str) -> Memory | None:
        """One memory; None for an unknown id."""
        try:
            row = self._ask("GET", _path(memory_id))
        except BackendError as error:
            if error.cause in (Cause.MISSING, Cause.REFUSED):
                return None
            raise
        return memory_of(row) if isinstance(row, Mapping) else None

    def update(self, memory_id: str, text: str, marks: Mapping[str, str] | None = None) -> None:
        """Give a memory another text."""
        more = {"metadata": dict(marks)} if marks else {}
        self._ask("PUT", _path(memory_id), {"text": text, **more})

    def delete(self, memory_id: str) -> None:
        """Remove a memory."""
        self._ask("DELETE", _path(memory_id))

    def forget(self, owner: Owner) -> None:
        """Remove all memories of a user, one by one: to remove them at once takes an admin."""
        answer = self._http.get("/memories", params={"user_id": owner.user, "top_k": _MANY})
        for each in memories_in(answer.json()):
            self.delete(each.id)

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
        response = self._http.request(method, path, json=body)
        return response.json() if response.content else None


def _path(memory_id: str) -> str:
    return f"/memories/{quote(memory_id, safe='')}"
