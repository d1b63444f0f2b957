"""Web servers that are not what somebody takes them for."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

PAGE = "<p>Welcome!</p>"
NO_ROUTE = '{"detail": "Not Found"}'


class Answer(NamedTuple):
    """What a server says to everything; ``pause`` is in seconds, before each character.

    ``retry_after`` is the header of that name, if not empty.
    """

    status: int
    body: str
    pause: float = 0.0
    retry_after: str = ""


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """A server that always says the same; gives its address."""

    class Handler(_Handler):
        said = answer

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    said: Answer

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(self.said.status)
        kind = "text/html" if self.said.body.startswith("<") else "application/json"
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(self.said.body)))
        if self.said.retry_after:
            self.send_header("Retry-After", self.said.retry_after)
        self.end_headers()
        try:
            self._say()
        except OSError:  # nobody listens any more
            self.close_connection = True

    do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815 - http.server's names

    def _say(self) -> None:
        if not self.said.pause:
            self.wfile.write(self.said.body.encode())
            return
        for char in self.said.body:
            time.sleep(self.said.pause)
            self.wfile.write(char.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""
