"""Servers that answer as Mem0's platform and as Mem0's own REST server do, on loopback.

Paths, shapes, statuses and their oddities are those of the published descriptions, against which
every request and every answer is checked where they are at hand (`Contract`); the self-hosted
server's oddities were seen on a real one. Nobody but Mem0 can run the platform: what it does
beyond its description is not known here.

In a test: `with Mem0Platform(key="k") as server`. As a process that can be killed:
`python mem0_servers.py platform --port 8123 --state FILE --key K`.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, NamedTuple, Self
from urllib.parse import parse_qsl, unquote, urlsplit

if __name__ == "__main__":  # a script finds its neighbours only here
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.mem0_store import Mem0Store, Row
from support.openapi import contract


class Asked(NamedTuple):
    """One request."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    headers: Mapping[str, str]


Answer = tuple[int, Any]
_PAGING = {"page": 1, "page_size": 100}
_DATABASE_CODES = ("datastore_unavailable", "vector_store_unavailable")
NOT_FOUND: Answer = (404, {"error": "Memory not found!"})


class Mem0Server:
    """A self-hosted server. Faults are set while it runs: `status`, `delay`, `deaf` and others."""

    contract_file: ClassVar[str] = "mem0-server.json"

    def __init__(self, *, port: int = 0, key: str = "", state: Path | None = None) -> None:
        self.key = key
        self.status = 0
        """Answer with this status, if not 0, and do nothing."""
        self.delay = 0.0
        """Seconds before an answer."""
        self.deaf = 0
        """So many writes are carried out without an answer: the connection is cut."""
        self.thawed = threading.Event()
        """While it is not set, connections are taken and nothing is answered."""
        self.thawed.set()
        self.embeds: Callable[[], bool] = lambda: True
        """Whether the next embedding is granted; a provider that limits requests says no."""
        self.broken = ""
        """The code of what fails behind it: the database, or (any other code) the models."""
        self.tells_codes = True
        """Whether a 502 has a code that says what failed; else all are alike."""
        self.store = Mem0Store(state)
        self.contract = contract(self.contract_file)
        self.problems: list[str] = []
        self.asked: list[Asked] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.thawed.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def serve(self) -> None:
        """Serve in this thread until the process ends."""
        self._server.serve_forever()

    def answer(self, asked: Asked) -> Answer:
        """Check a request, carry it out, check the answer."""
        self.asked.append(asked)
        if self.status:
            return self.status, {"detail": "told to fail"}
        if not self.is_let_in(asked.headers):
            return 401, {"detail": "Invalid API key."}
        # The contract does not list the parameters of the links to further pages of events.
        query = {} if asked.path == "/v1/events/" else asked.query
        problem = self.contract.request_problem(asked.method, asked.path, query, asked.body)
        if problem:
            self.problems.append(problem)
            return 422, {"detail": [{"loc": ["body"], "msg": problem, "type": "contract"}]}
        status, body = self.carried_out(asked)
        problem = self.contract.answer_problem(asked.method, asked.path, status, body)
        if problem:
            self.problems.append(f"{asked.method} {asked.path} answered: {problem}")
        return status, body

    def is_let_in(self, headers: Mapping[str, str]) -> bool:
        """Whether the key is right."""
        return not self.key or headers.get("X-API-Key") == self.key

    def carried_out(self, asked: Asked) -> Answer:
        """What the server does."""
        routes = {
            ("POST", "/memories"): self._added,
            ("GET", "/memories"): self._all,
            ("POST", "/search"): self._searched,
        }
        if self.broken in _DATABASE_CODES or (self.broken and asked.method == "POST"):
            return self._bad_gateway(self.broken)
        return routes.get((asked.method, asked.path), self._one)(asked)

    def _bad_gateway(self, code: str) -> Answer:
        """What the server says of everything that fails behind it."""
        if not self.tells_codes or code == "unknown":
            return 502, {"detail": "Upstream provider error.", "code": "unknown"}
        return 502, {"detail": f"It failed: {code}.", "code": code, "request_id": "0123abcd"}

    def _added(self, asked: Asked) -> Answer:
        if not any(asked.body.get(key) for key in ("user_id", "agent_id", "run_id")):
            return 400, {"detail": "At least one identifier is required."}
        if not self.embeds():  # of the messages, to look for what is known
            return self._bad_gateway("provider_rate_limited")
        new = self.store.add(asked.body, self.embeds)
        rows = [{"id": row["id"], "memory": row["memory"], "event": "ADD"} for row in new]
        return 200, {"results": rows}

    def _all(self, asked: Asked) -> Answer:
        return 200, {"results": self.store.of(asked.query)[: int(asked.query.get("top_k", 20))]}

    def _searched(self, asked: Asked) -> Answer:
        body = asked.body
        filters = dict(body.get("filters") or {})
        who = {key: filters.pop(key) for key in ("user_id", "agent_id", "run_id") if key in filters}
        if not who or not body["query"].strip():
            return 400, {"detail": "filters must contain at least one of: user_id, ..."}
        if not self.embeds():
            return self._bad_gateway("provider_rate_limited")
        threshold = body.get("threshold")
        least = 0.1 if threshold is None else threshold
        rows = self.store.of(who, filters)
        found = self.store.ranked(rows, body["query"], body.get("top_k") or 20, least)
        return 200, {"results": found}

    def _one(self, asked: Asked) -> Answer:
        memory_id = unquote(asked.path.removeprefix("/memories/"))
        if not _is_uuid(memory_id):  # the database's error, which the server does not know
            return self._bad_gateway("unknown")
        row = self.store.rows.get(memory_id)
        if asked.method == "GET":
            return 200, row  # null for an unknown one
        if row is None:
            return 404, {"detail": f"Memory with id {memory_id} not found"}
        if asked.method == "PUT":
            self.store.change(memory_id, asked.body)
            return 200, {"message": "Memory updated successfully!"}
        self.store.remove([memory_id])
        return 200, {"message": "Memory deleted successfully!"}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(_Handler):
            mem0 = server

        return Handler


class Mem0Platform(Mem0Server):
    """The platform. What a model shall extract is there after `lag` seconds."""

    contract_file: ClassVar[str] = "mem0-platform.json"
    lag = 0.0
    failing = 0
    """So many extractions fail, after the platform has taken them."""

    def fails(self) -> bool:
        """Whether the next extraction fails."""
        self.failing, before = max(self.failing - 1, 0), self.failing
        return before > 0

    def is_let_in(self, headers: Mapping[str, str]) -> bool:
        """Whether the key is right."""
        return not self.key or headers.get("Authorization") == f"Token {self.key}"

    def carried_out(self, asked: Asked) -> Answer:
        """What the platform does."""
        self.store.work(self.fails)
        routes = {
            ("GET", "/v1/ping/"): self._pinged,
            ("GET", "/v1/events/"): self._events,
            ("POST", "/v3/memories/add/"): self._added,
            ("POST", "/v3/memories/search/"): self._searched,
            ("POST", "/v3/memories/"): self._all,
            ("DELETE", "/v1/memories/"): self._forgotten,
        }
        if asked.path.startswith("/v1/event/"):
            return self._event(asked)
        if asked.path.startswith("/v2/entities/"):
            return _in_progress()
        return routes.get((asked.method, asked.path), self._one)(asked)

    def _pinged(self, _: Asked) -> Answer:
        who = {"org_id": "org-1", "project_id": "proj-1", "user_email": "a@example.com"}
        return 200, {"status": "ok", **who}

    def _event(self, asked: Asked) -> Answer:
        found = self.store.events.get(asked.path.removeprefix("/v1/event/").rstrip("/"))
        return (200, _without(found, "due")) if found else (404, {"error": "Event not found"})

    def _events(self, asked: Asked) -> Answer:
        rows = [_without(event, "due") for event in reversed(self.store.events.values())]
        return 200, _page(rows, int(asked.query.get("page", 1)))

    def _added(self, asked: Asked) -> Answer:
        body = asked.body
        if not any(body.get(key) for key in ("user_id", "agent_id", "run_id", "app_id")):
            return 400, {"error": "no entity ID supplied"}
        if body.get("infer", True):
            event = self.store.queue(body, self.lag)
            return 200, {"event_id": event["id"], "status": "PENDING"}
        new = self.store.add(body)
        rows = [{"id": r["id"], "data": {"memory": r["memory"]}, "event": "ADD"} for r in new]
        event_id = str(uuid.uuid4())
        return 200, {"message": "ok", "status": "SUCCEEDED", "event_id": event_id, "results": rows}

    def _searched(self, asked: Asked) -> Answer:
        who, metadata = _filters(asked.body["filters"])
        if not who:
            return 400, {"error": "no positively-scoped entity ID"}
        body = {"top_k": 10, "threshold": 0.1, **asked.body}
        rows = self.store.of(who, metadata)
        found = self.store.ranked(rows, body["query"], body["top_k"], body["threshold"])
        return 200, {"results": [_without(row, "hash") for row in found]}

    def _all(self, asked: Asked) -> Answer:
        who, metadata = _filters(asked.body["filters"])
        if not who:
            return 400, {"error": "no positively-scoped entity ID"}
        page, size = (int(asked.query.get(key, usual)) for key, usual in _PAGING.items())
        return 200, _page([_shown(row) for row in self.store.of(who, metadata)], page, size)

    def _forgotten(self, asked: Asked) -> Answer:
        self.store.remove([row["id"] for row in self.store.of(asked.query)])
        return _in_progress()

    def _one(self, asked: Asked) -> Answer:
        memory_id = unquote(asked.path.removeprefix("/v1/memories/").removesuffix("/"))
        if not _is_uuid(memory_id):
            return 400, {"error": "memory_id should be a valid UUID"}
        row = self.store.rows.get(memory_id)
        if row is None:
            return NOT_FOUND
        if asked.method == "DELETE":
            self.store.remove([memory_id])
            return 200, {"message": "Memory deleted successfully!"}
        if asked.method == "PUT":
            row = self.store.change(memory_id, asked.body)
        return 200, _shown(row)


def _shown(row: Row) -> Row:
    """A memory as the platform lists it: what is a run elsewhere is a session here."""
    return {**_without(row, "hash", "run_id"), "session_id": row["run_id"]}


def _page(rows: list[Row], page: int = 1, size: int = 100) -> Row:
    """A page, with the addresses of its neighbours."""
    end = page * size
    return {
        "count": len(rows),
        "next": f"https://api.mem0.ai/v3/memories/?page={page + 1}" if end < len(rows) else None,
        "previous": f"https://api.mem0.ai/v3/memories/?page={page - 1}" if page > 1 else None,
        "results": rows[end - size : end],
    }


def _in_progress() -> Answer:
    return 200, {"message": "Delete in progress.", "event_id": str(uuid.uuid4())}


def _filters(given: Mapping[str, Any]) -> tuple[Row, Row]:
    """Who, and which metadata; the plain form and the one with AND mean the same."""
    parts = given.get("AND", [given])
    flat = {key: value for part in parts for key, value in part.items()}
    metadata = flat.pop("metadata", {})
    known = {"user_id", "agent_id", "app_id", "run_id"}
    assert set(flat) <= known, f"the platform refuses unknown filters: {flat}"
    return flat, metadata


def _without(row: Mapping[str, Any], *keys: str) -> Row:
    return {key: value for key, value in row.items() if key not in keys}


def _is_uuid(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True


class _Handler(BaseHTTPRequestHandler):
    mem0: Mem0Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else an answer waits 40 ms for nothing

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = json.loads(raw) if raw else None
        query = dict(parse_qsl(parts.query))
        if parts.path == "/problems":  # for tests that run it as a process
            self._send(200, {"problems": self.mem0.problems})
            return
        time.sleep(self.mem0.delay)
        self.mem0.thawed.wait()
        asked = Asked(self.command, parts.path, query, body, dict(self.headers.items()))
        status, answer = self.mem0.answer(asked)
        if self.mem0.deaf and asked.path in ("/memories", "/v3/memories/add/"):
            self.mem0.deaf -= 1
            self.close_connection = True
            return
        self._send(status, answer)

    do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815 - http.server's names

    def _send(self, status: int, answer: Any) -> None:
        data = json.dumps(answer).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except ConnectionError:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Nothing."""


def main() -> None:
    """Serve as a process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["platform", "server"])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--key", default="")
    given = parser.parse_args()
    made = Mem0Platform if given.kind == "platform" else Mem0Server
    made(port=given.port, key=given.key, state=given.state).serve()


if __name__ == "__main__":
    main()
