"""A memory service that answers at once: it replays what our test servers answered before.

``python _replay.py honcho`` prints its address and serves until its input ends. After a POST to
``/_freeze`` nothing is worked out any more.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))


class Answer(NamedTuple):
    status: int
    body: bytes


class Replay:
    """Asks the server behind it, until it is told that it has heard enough."""

    def __init__(self, behind: str) -> None:
        self._behind = behind
        self._known: dict[tuple[str, str], Answer] = {}
        self._frozen = False
        self._opener = build_opener(ProxyHandler({}))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, request after request."""
        try:
            while line := await reader.readline():
                method, path, _ = line.decode().split(" ", 2)
                headers = {}
                while (field := await reader.readline()) not in (b"\r\n", b""):
                    name, _, value = field.decode().partition(":")
                    headers[name.lower()] = value.strip()
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                answer = await self._answer(method, path, headers, body)
                writer.write(_response(answer))
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, method: str, path: str, headers: Any, body: bytes) -> Answer:
        if path == "/_freeze":
            self._frozen = True
            return Answer(204, b"")
        if not self._frozen or (method, path) not in self._known:
            answer = await asyncio.to_thread(self._ask, method, path, headers, body)
            self._known[method, path] = answer
        return self._known[method, path]

    def _ask(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        passed = {k: v for k, v in headers.items() if k not in ("host", "content-length")}
        request = Request(self._behind + path, body or None, passed, method=method)
        try:
            with self._opener.open(request) as response:
                return Answer(response.status, response.read())
        except HTTPError as error:
            return Answer(error.code, error.read())


def _response(answer: Answer) -> bytes:
    head = (
        f"HTTP/1.1 {answer.status} OK\r\ncontent-type: application/json\r\n"
        f"content-length: {len(answer.body)}\r\n\r\n"
    )
    return head.encode() + answer.body


def _honcho() -> str:
    from support.honcho_server import HonchoServer

    return HonchoServer().start().url


def _mem0() -> str:
    from support.mem0_servers import Mem0Server

    return Mem0Server().__enter__().url


def _hindsight() -> str:
    from support.hindsight_server import HindsightServer

    return HindsightServer().__enter__().url


BEHIND: dict[str, Callable[[], str]] = {"honcho": _honcho, "mem0": _mem0, "hindsight": _hindsight}


async def main() -> None:
    replay = Replay(BEHIND[sys.argv[1]]())
    server = await asyncio.start_server(replay.serve, "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
