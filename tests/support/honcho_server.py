"""A Honcho server for tests: the real one's endpoints, limits and answers, on loopback.

In a test it is a `HonchoServer`, in its own process `HonchoProcess`, which can be killed and
started again on the same file and port; by hand::

    python tests/support/honcho_server.py --port 8000 --file honcho.db --key secret

Every request and answer is held against Honcho's published description, where that is at hand:
what does not fit is a 500, and stays in `HonchoServer.faults`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qsl, urlsplit
from urllib.request import ProxyHandler, Request, build_opener

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.honcho_api import answer
from support.honcho_requests import Reply
from support.honcho_store import Refused, Store
from support.openapi import Contract, contract

_CONTROL = "/_behaviour"


@dataclass
class Behaviour:
    """What a server does besides serving; all of it may change while it runs.

    ``workspace`` is the only one that the key is for; ``refuse`` is a status that every request
    gets, with ``retry_after`` beside it; ``drop`` counts writes of messages that are kept and then
    not answered; ``held`` counts writes of messages that come to wait until `HonchoServer.release`
    while everything else is answered. While it is ``frozen`` nothing is answered, and all that was
    asked is carried out afterwards, whether or not somebody still listens. Without a ``database``
    only what is cached is answered; without a ``deriver`` conclusions and deletions wait.
    """

    key: str = ""
    workspace: str = ""
    delay: float = 0.0
    refuse: int = 0
    retry_after: str = ""
    drop: int = 0
    held: int = 0
    frozen: bool = False
    database: bool = True
    deriver: bool = True


@dataclass
class HonchoServer:
    """A server in this process. ``requests`` has the method and path of all that it was asked."""

    file: str = ":memory:"
    port: int = 0
    behaviour: Behaviour = field(default_factory=Behaviour)
    contract: Contract = field(default_factory=partial(contract, "honcho-3.0.12.json"))
    requests: list[tuple[str, str]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = Store(self.file)
        self._one_at_a_time = threading.Lock()
        self._stopped = threading.Event()
        self._released = threading.Event()
        self.carried_out = 0
        handler = type("Handler", (_Handler,), {"honcho": self})
        self._http = _Http(("127.0.0.1", self.port), handler)
        self.port = self._http.server_address[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> HonchoServer:
        threading.Thread(target=self.serve, name="honcho-server", daemon=True).start()
        return self

    def serve(self) -> None:
        self._http.serve_forever(poll_interval=0.02)

    def release(self) -> None:
        """Carry out the writes that were held."""
        self._released.set()

    def stop(self) -> None:
        """End; may be called twice."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        self._released.set()
        self._http.shutdown()
        self._http.server_close()
        with self._one_at_a_time:
            self.store.close()

    def served(
        self, method: str, path: str, body: Any, query: dict[str, str], key: str
    ) -> Reply | None:
        """The answer to a request; None if it gets none."""
        self.requests.append((method, path))
        is_write = method == "POST" and path.endswith("/messages")
        self._wait(is_write=is_write)
        if self._stopped.wait(self.behaviour.delay):
            return None
        refusal = self._refusal(method, path, body, key)
        if refusal is not None:
            return refusal
        with self._one_at_a_time:
            self.store.deriver = self.behaviour.deriver
            reply = self._carried_out(method, path, body, query)
            self.carried_out += is_write
        problem = "" if reply.status >= 400 else self._problem(method, path, body, query, reply)
        if problem:
            self.faults.append(problem)
            return Reply(500, {"detail": problem})
        if is_write and self.behaviour.drop:
            self.behaviour.drop -= 1
            return None
        return reply

    def _wait(self, *, is_write: bool) -> None:
        if is_write and self.behaviour.held:
            self.behaviour.held -= 1
            self._released.wait()
        while self.behaviour.frozen and not self._stopped.wait(0.01):
            pass

    def _refusal(self, method: str, path: str, body: Any, key: str) -> Reply | None:
        if self.behaviour.refuse:
            after = self.behaviour.retry_after
            headers = {"Retry-After": after} if after else {}
            return Reply(self.behaviour.refuse, {"detail": "refused for a test"}, headers)
        if self.behaviour.key and key != f"Bearer {self.behaviour.key}":
            return Reply(401, {"detail": "Invalid JWT"})
        asked = path.split("/")[3] if path.count("/") > 2 else (body or {}).get("id")
        if self.behaviour.workspace and asked != self.behaviour.workspace:
            return Reply(401, {"detail": "JWT not permissioned for this resource"})
        cached = (method, path) == ("POST", "/v3/workspaces")
        if not (self.behaviour.database or cached):
            return Reply(500, {"detail": "An unexpected error occurred"})
        return None

    def _carried_out(self, method: str, path: str, body: Any, query: dict[str, str]) -> Reply:
        self.store.begin()
        self.store.work()
        self.store.end(keep=True)
        self.store.begin()
        kept = False
        try:
            reply = answer(self.store, method, path, body, query)
            kept = True
        except Refused as refused:
            return Reply(refused.status, {"detail": refused.detail})
        finally:
            self.store.end(keep=kept)
        return reply

    def _problem(
        self, method: str, path: str, body: Any, query: dict[str, str], reply: Reply
    ) -> str:
        if reply.stream is not None or path.endswith("/upload"):  # no JSON
            return ""
        return self.contract.request_problem(
            method, path, query, body
        ) or self.contract.answer_problem(method, path, reply.status, reply.body)


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64


class _Handler(BaseHTTPRequestHandler):
    honcho: HonchoServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body of an answer leave together

    def _serve(self) -> None:
        url = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        body = self._body(self.rfile.read(length)) if length else None
        if url.path == _CONTROL:
            for name, value in (body or {}).items():
                setattr(self.honcho.behaviour, name, value)
            self._send(Reply(200, {"faults": self.honcho.faults}))
            return
        key = self.headers.get("Authorization") or ""
        reply = self.honcho.served(self.command, url.path, body, dict(parse_qsl(url.query)), key)
        if reply is None:
            self.close_connection = True
        else:
            self._send(reply)

    def _body(self, data: bytes) -> Any:
        """What was sent: JSON, or a form with a file."""
        kind = self.headers.get("Content-Type") or ""
        if not kind.startswith("multipart/"):
            return json.loads(data)
        form = message_from_bytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + data)
        parts = form.get_payload()
        assert isinstance(parts, list)
        return {
            str(each.get_param("name", header="content-disposition")): _decoded(each)
            for each in parts
            if isinstance(each, Message)
        }

    def _send(self, reply: Reply) -> None:
        data = b"" if reply.body is None else json.dumps(reply.body).encode()
        kind = "application/json"
        if reply.stream is not None:
            kind = "text/event-stream"
            events = [{"delta": {"content": each}, "done": False} for each in reply.stream]
            told = [*events, {"done": True}]
            data = "".join(f"data: {json.dumps(each)}\n\n" for each in told).encode()
        self.send_response(reply.status)
        self.send_header("Content-Type", kind)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815 - http.server's names

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except (ConnectionError, ValueError):  # the other side has gone, or we have
            self.close_connection = True

    def log_message(self, *args: Any) -> None:
        pass


def _decoded(part: Message) -> str:
    content = part.get_payload(decode=True)
    assert isinstance(content, bytes)
    return content.decode()


class HonchoProcess:
    """A server in a process of its own, which keeps what it knows in a file."""

    def __init__(self, file: Path, key: str = "") -> None:
        self._file = file
        self._key = key
        self._process: subprocess.Popen[str] | None = None
        self.port = 0
        # A machine's proxy is not asked for what is on the machine.
        self._open = build_opener(ProxyHandler({})).open

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> HonchoProcess:
        command = [sys.executable, __file__, "--port", str(self.port), "--file", str(self._file)]
        self._process = subprocess.Popen(
            [*command, "--key", self._key], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        return self

    @property
    def runs(self) -> bool:
        return self._process is not None

    def kill(self) -> None:
        """As a machine does that fails: nothing is finished."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def behave(self, **behaviour: Any) -> list[str]:
        """Change its behaviour; gives the faults that it has seen."""
        request = Request(self.url + _CONTROL, json.dumps(behaviour).encode(), method="POST")
        with self._open(request, timeout=10) as reply:
            faults: list[str] = json.load(reply)["faults"]
            return faults

    def ask(self, path: str, body: Any = None) -> Any:
        """What it answers to a POST."""
        data = json.dumps(body).encode() if body is not None else None
        headers = {"Authorization": f"Bearer {self._key}"}
        request = Request(f"{self.url}/v3/workspaces{path}", data, headers, method="POST")
        with self._open(request, timeout=10) as reply:
            return json.load(reply)

    def messages(self, workspace: str, session: str) -> list[dict[str, Any]]:
        """Everything that was said in a session; nothing if there is none yet."""
        found: list[dict[str, Any]] = []
        page, pages = 1, 1
        while page <= pages:
            path = f"/{workspace}/sessions/{session}/messages/list?page={page}&size=100"
            try:
                told = self.ask(path)
            except HTTPError as error:
                error.close()
                if error.code != 404:
                    raise
                return []
            found += told["items"]
            page, pages = page + 1, told["pages"]
        return found


def until(condition: Callable[[], object], seconds: float = 20.0) -> bool:
    """Wait for something to be true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return bool(condition())


def main() -> None:
    """Serve until it is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--file", default=":memory:")
    parser.add_argument("--key", default="")
    parser.add_argument("--delay", type=float, default=0.0)
    options = parser.parse_args()
    behaviour = Behaviour(key=options.key, delay=options.delay)
    server = HonchoServer(options.file, options.port, behaviour)
    print(server.port, flush=True)
    server.serve()


if __name__ == "__main__":
    main()
