"""A web server that says yes to everything and keeps what it was told."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Recording:
    """What a server at ``url`` was told; ``answers`` by path are given instead of {}."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.url = ""
        self.told: list[str] = []
        self.answers = answers


@contextmanager
def recording(answers: Mapping[str, Any] | None = None) -> Iterator[Recording]:
    """Such a server, while it runs."""
    record = Recording(answers or {})

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            record.told.append(self.rfile.read(length).decode())
            answer = json.dumps(record.answers.get(self.path.partition("?")[0], {})).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - http.server's names

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        record.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield record
        finally:
            server.shutdown()
            thread.join()
