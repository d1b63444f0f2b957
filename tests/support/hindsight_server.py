"""A small Hindsight server: what the real one, 1.1, answers to the requests that the plugin makes.

It remembers documents word for word and finds them by shared words. `tests/live` asks both the
same and compares. Faults are set while it runs.
"""

from __future__ import annotations

import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qs, unquote, urlsplit

_PATH = re.compile(r"/v1/default/banks/(?P<bank>[^/]+)(?P<rest>/.*)?")
_LONGEST_BANK = 192


class Request(NamedTuple):
    """What was asked, for tests to look at."""

    method: str
    path: str
    body: dict[str, Any]


class Refusal(Exception):  # noqa: N818 - an answer
    """An answer that is no success."""

    def __init__(self, status: int, detail: Any) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


class HindsightServer:
    """The server. Set `status`, `delay`, `answer` or `version` to have it misbehave."""

    def __init__(self, key: str = "") -> None:
        self.key = key
        self.version = "1.1.0"
        self.status = 0
        """Answer with this status, if not 0."""
        self.answer: bytes = b""
        """Answer with these bytes, if there are any."""
        self.delay = 0.0
        """Seconds that an answer takes."""
        self.banks: dict[str, dict[str, dict[str, Any]]] = {}
        """Documents by bank and id."""
        self.missions: dict[str, dict[str, Any]] = {}
        self.requests: list[Request] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

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
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def asked(self, ending: str) -> list[dict[str, Any]]:
        """The bodies of the requests whose path ends so."""
        return [each.body for each in self.requests if each.path.endswith(ending)]

    def texts(self, bank: str) -> list[str]:
        """What a bank remembers."""
        return [each["original_text"] for each in self.banks.get(bank, {}).values()]

    def respond(self, method: str, target: str, body: dict[str, Any], key: str) -> tuple[int, Any]:
        """Status and answer."""
        url = urlsplit(target)
        with self._lock:
            self.requests.append(Request(method, url.path, body))
            try:
                if self.status:
                    raise Refusal(self.status, "told to fail")
                return 200, self._answer(method, url.path, parse_qs(url.query), body, key)
            except Refusal as refusal:
                return refusal.status, {"detail": refusal.detail}

    def _answer(
        self, method: str, path: str, query: dict[str, list[str]], body: dict[str, Any], key: str
    ) -> Any:
        if path == "/version":
            return {"api_version": self.version, "features": _FEATURES}
        found = _PATH.fullmatch(path)
        if found is None:
            raise Refusal(404, "Not Found")
        if self.key and key != f"Bearer {self.key}":
            raise Refusal(401, "Invalid API key")
        bank, rest = unquote(found["bank"]), found["rest"] or ""
        if rest.startswith("/documents/"):
            return self._document(method, bank, unquote(rest.removeprefix("/documents/")))
        known = {
            ("POST", "/memories"): lambda: self._retain(bank, body),
            ("POST", "/memories/recall"): lambda: self._recall(bank, body),
            ("POST", "/reflect"): lambda: self._reflect(bank, body),
            ("GET", "/documents"): lambda: self._documents(bank, query),
            ("GET", "/memories/list"): lambda: self._memories(bank, query),
            ("PUT", ""): lambda: self._put(bank, body),
            ("DELETE", ""): lambda: self._drop(bank),
        }
        if (method, rest) not in known:
            raise Refusal(404, "Not Found")
        return known[method, rest]()

    def _retain(self, bank: str, body: dict[str, Any]) -> Any:
        if len(bank.encode()) > _LONGEST_BANK:
            raise Refusal(400, "Bank id is too long: at most 192 bytes of UTF-8 are allowed")
        for item in body["items"]:
            kept = {"original_text": item["content"], "tags": item.get("tags") or [],
                    "metadata": item.get("metadata") or {}}  # fmt: skip
            self.banks.setdefault(bank, {})[item["document_id"]] = kept
        return {
            "success": True, "bank_id": bank, "items_count": len(body["items"]),
            "async": body["async"], "operation_id": None, "operation_ids": None, "usage": None,
        }  # fmt: skip

    def _recall(self, bank: str, body: dict[str, Any]) -> Any:
        if not re.search(r"\w", body["query"]):
            raise Refusal(422, [{"msg": "Value error, query must contain at least one word"}])
        wanted = _words(body["query"])
        results = [
            {"id": name, "text": each["original_text"], "type": "world", "document_id": name}
            for name, each in self._bank(bank).items()
            if wanted & _words(each["original_text"])
        ]
        empty = ("trace", "entities", "chunks", "source_facts", "source_facts_truncated")
        return {"results": results, **dict.fromkeys(empty)}

    def _reflect(self, bank: str, body: dict[str, Any]) -> Any:
        wanted = _words(body["query"])
        found = [
            {"id": name, "text": each["original_text"], "type": "world"}
            for name, each in self.banks.get(bank, {}).items()
            if wanted & _words(each["original_text"])
        ]
        text = " ".join(each["text"] for each in found) or "Nothing is known about that."
        return {
            "text": text,
            "based_on": {"memories": found, "mental_models": [], "directives": []},
        }

    def _document(self, method: str, bank: str, name: str) -> Any:
        kept = self.banks.get(bank, {}).get(name)
        if kept is None:
            raise Refusal(404, "Document not found")
        if method == "DELETE":
            del self.banks[bank][name]
            return {"success": True, "message": "", "document_id": name, "memory_units_deleted": 1}
        return _listed(bank, name, kept) | {"original_text": kept["original_text"]}

    def _documents(self, bank: str, query: dict[str, list[str]]) -> Any:
        wanted = set(query.get("tags", ()))
        items = [
            _listed(bank, name, kept) | {"text_length": len(kept["original_text"])}
            for name, kept in self._bank(bank).items()
            if wanted <= set(kept["tags"])
        ]
        return {"items": items, "total": len(items), "limit": 100, "offset": 0}

    def _memories(self, bank: str, query: dict[str, list[str]]) -> Any:
        limit, offset = int(query["limit"][0]), int(query["offset"][0])
        units = [
            {"id": f"unit-{name}", "text": kept["original_text"], "fact_type": "world",
             "document_id": name, "mentioned_at": "2026-01-02T03:04:05+00:00",
             "tags": kept["tags"], "metadata": kept["metadata"]}
            for name, kept in self.banks.get(bank, {}).items()
        ]  # fmt: skip
        items = units[offset : offset + limit]
        return {"items": items, "total": len(units), "limit": limit, "offset": offset}

    def _bank(self, bank: str) -> dict[str, dict[str, Any]]:
        if bank not in self.banks:
            raise Refusal(404, f"Bank '{bank}' not found")
        return self.banks[bank]

    def _put(self, bank: str, body: dict[str, Any]) -> Any:
        self.missions.setdefault(bank, {}).update(body)
        self.banks.setdefault(bank, {})
        traits = {"skepticism": 3, "literalism": 3, "empathy": 3}
        mission = self.missions[bank].get("reflect_mission") or ""
        return {
            "bank_id": bank, "name": bank, "disposition": traits,
            "mission": mission, "background": mission,
        }  # fmt: skip

    def _drop(self, bank: str) -> Any:
        gone = self.banks.pop(bank, {})
        return {"success": True, "message": "", "deleted_count": len(gone)}


_FEATURES = dict.fromkeys(
    ("observations", "mcp", "worker", "bank_config_api", "bank_llm_health", "file_upload_api",
     "document_export_api", "document_import_api", "audit_log", "llm_trace",
     "store_document_text"), False,
)  # fmt: skip


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def _listed(bank: str, name: str, kept: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": name, "bank_id": bank, "content_hash": "", "created_at": "2026-01-01T00:00:00+00:00",
        "updated_at": "2026-01-01T00:00:00+00:00", "memory_unit_count": 1, "tags": kept["tags"],
    }  # fmt: skip


def _handler(server: HindsightServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else headers and body are 40 ms apart

        def _respond(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            key = self.headers.get("Authorization") or ""
            told = server.respond(self.command, self.path, json.loads(body or b"{}"), key)
            time.sleep(server.delay)
            data = server.answer or json.dumps(told[1]).encode()
            try:
                self.send_response(told[0])
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
            except ConnectionError:
                self.close_connection = True  # whoever asked has lost patience

        do_GET = do_POST = do_PUT = do_DELETE = _respond  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Nothing: a test's output is its own."""

    return Handler
