"""A model that needs no network: the OpenAI API, as far as memory engines use it, on loopback.

Embeddings are hashed bags of words, so that texts which share words are near each other. Facts are
cut from the prompt by answerers, of which each knows one engine's way of asking. What is asked in
a way that none of them knows is counted, since an engine that changed its prompt would otherwise
just remember nothing: a test asserts `facts > 0` and `unrecognised == 0`.

    with FakeModel() as model:
        engine(base_url=model.url)
        assert model.stats()["facts"] > 0

Or as a process: `python fake_model.py 8123`, and `GET /stats`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self

DIMENSIONS = 1536
_MOST_FACTS = 20
_LONGEST_FACT = 400
_FEWEST_WORDS = 3


class Prompt(NamedTuple):
    """What a chat completion was asked."""

    system: str
    user: str
    """The last message of the user."""
    body: dict[str, Any]
    """The whole request: messages, tools, response_format."""


class Answer(NamedTuple):
    """What the model says."""

    kind: str
    """Which answerer it was, for the counters."""
    content: str = ""
    facts: int = 0
    calls: Sequence[tuple[str, dict[str, Any]]] = ()
    """Tools that it calls: name and arguments."""


Answerer = Callable[[Prompt], Answer | None]


def facts_in(text: str) -> list[str]:
    """The statements of a text, in its words: no questions, nothing of one or two words."""
    sentences = (each.strip() for each in re.split(r"(?<=[.!?。])\s+|\n+", text))
    told = (each for each in sentences if not each.endswith("?") and _says_something(each))
    return [each[:_LONGEST_FACT] for each in dict.fromkeys(told)][:_MOST_FACTS]


def _says_something(sentence: str) -> bool:
    return len(sentence.split()) >= _FEWEST_WORDS or (not sentence.isascii() and len(sentence) > 1)


# Mem0 2.2: the additive extraction, one call for each turn.

_MEM0_NEW = re.compile(r"\n\n## New Messages\n(.*)\n\n## Observation Date\n", re.DOTALL)
_MEM0_SAID = re.compile(
    r"^(user|assistant|system): (.*?)(?=^(?:user|assistant|system): |\Z)", re.DOTALL | re.MULTILINE
)


def mem0_extraction(prompt: Prompt) -> Answer | None:
    """What Mem0 asks about a turn: the facts of what the user said."""
    new = _MEM0_NEW.search(prompt.user)
    if new is None or '"memory"' not in prompt.system:
        return None
    said = "\n".join(text for role, text in _MEM0_SAID.findall(new[1]) if role == "user")
    facts = facts_in(said)
    memory = [
        {"id": str(number), "text": fact, "attributed_to": "user"}
        for number, fact in enumerate(facts)
    ]
    return Answer("mem0.extraction", json.dumps({"memory": memory}), len(facts))


# The engines that the model can talk to. Another one: write its answerers above, name them here.
ANSWERERS: tuple[Answerer, ...] = (mem0_extraction,)


def embedding(text: str, dimensions: int = DIMENSIONS) -> list[float]:
    """A vector of length 1, the same for the same words in any order."""
    words = re.findall(r"\w+", text.casefold())
    counts = Counter(_place(word, dimensions) for word in words) or Counter([0])
    length = math.sqrt(sum(count * count for count in counts.values()))
    vector = [0.0] * dimensions
    for place, count in counts.items():
        vector[place] = count / length
    return vector


def _place(word: str, dimensions: int) -> int:
    digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") % dimensions


class FakeModel:
    """The server. Faults are set while it runs: `status`, `delay`, `dimensions`."""

    def __init__(
        self, port: int = 0, *, key: str = "", answerers: Sequence[Answerer] = ANSWERERS
    ) -> None:
        self.key = key
        """The key that it wants; any, if empty."""
        self.status = 0
        """Answer every request with this status, if not 0."""
        self.delay = 0.0
        """Seconds that an answer takes."""
        self.thawed = threading.Event()
        """While it is not set, connections are taken and nothing is answered."""
        self.thawed.set()
        self.reached = threading.Event()
        """Set as soon as a request has come."""
        self.flowing = threading.Event()
        """While it is not set, a stream stops behind its first word."""
        self.flowing.set()
        self.dimensions = DIMENSIONS
        """How long vectors are where a request does not say."""
        self._answerers = answerers
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def port(self) -> int:
        """Where it listens on 127.0.0.1."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """What clients call the base URL."""
        return f"http://127.0.0.1:{self.port}/v1"

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
        self.flowing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def serve(self) -> None:
        """Serve in this thread until the process ends."""
        self._server.serve_forever()

    def stats(self) -> dict[str, int]:
        """How often it was asked what: chat, embeddings, facts, unrecognised, and each kind."""
        with self._lock:
            return {"chat": 0, "embeddings": 0, "facts": 0, "unrecognised": 0} | self._counts

    def _count(self, **more: int) -> None:
        with self._lock:
            self._counts.update(more)

    def refuses(self, path: str) -> bool:
        """Whether a request is one too many: 429."""
        return False

    def answer(self, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """The answer to a POST, or None if there is no such path."""
        if path.endswith("/embeddings"):
            return self._embeddings(body)
        if path.endswith("/chat/completions"):
            return self._chat(body)
        return None

    def _embeddings(self, body: dict[str, Any]) -> dict[str, Any]:
        given = body["input"]
        texts = [given] if isinstance(given, str) else given
        size = body.get("dimensions") or self.dimensions
        self._count(embeddings=len(texts))
        packed = body.get("encoding_format") == "base64"
        vectors = (embedding(text, size) for text in texts)
        data = [
            {"object": "embedding", "index": at, "embedding": _packed(v) if packed else v}
            for at, v in enumerate(vectors)
        ]
        return {"object": "list", "data": data, "model": body.get("model", ""), "usage": _USAGE}

    def _chat(self, body: dict[str, Any]) -> dict[str, Any]:
        prompt = _prompt(body)
        answers = (answerer(prompt) for answerer in self._answerers)
        answer = next((each for each in answers if each is not None), None)
        if answer is None:
            answer = Answer("unrecognised", "All right.")
        self._count(chat=1, facts=answer.facts, **{answer.kind: 1})
        return _completion(answer, body)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        model = self

        class Handler(_Handler):
            fake = model

        return Handler


_USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}


def _packed(vector: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode("ascii")


def _prompt(body: dict[str, Any]) -> Prompt:
    messages = body.get("messages") or []
    systems = [_text(each) for each in messages if each.get("role") in {"system", "developer"}]
    users = [_text(each) for each in messages if each.get("role") == "user"]
    return Prompt("\n".join(systems), users[-1] if users else "", body)


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content)


def _completion(answer: Answer, body: dict[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer.content}
    if answer.calls:
        message["content"] = None
        message["tool_calls"] = [
            {
                # Unique in a conversation, which some clients insist on.
                "id": f"call_{len(body['messages'])}_{at}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for at, (name, arguments) in enumerate(answer.calls)
        ]
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": "tool_calls" if answer.calls else "stop",
    }
    return {
        "id": "chatcmpl-stand-in",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": body.get("model", ""),
        "choices": [choice],
        "usage": _USAGE,
    }


def _deltas(message: dict[str, Any]) -> list[dict[str, Any]]:
    """A message in pieces; the arguments of a tool call are cut in the middle."""
    words = re.findall(r"\S+\s*|\s+", message["content"] or "")
    pieces: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    pieces += [{"content": word} for word in words]
    for at, call in enumerate(message.get("tool_calls") or ()):
        name, text = call["function"]["name"], call["function"]["arguments"]
        half = len(text) // 2
        first = {**call, "index": at, "function": {"name": name, "arguments": text[:half]}}
        rest = {"index": at, "function": {"arguments": text[half:]}}
        pieces += [{"tool_calls": [first]}, {"tool_calls": [rest]}]
    return pieces


class _Handler(BaseHTTPRequestHandler):
    fake: FakeModel
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else an answer waits 40 ms for nothing

    def do_GET(self) -> None:
        if self.path == "/stats":
            self._send(200, self.fake.stats())
        elif self.path.endswith("/models"):
            model = {"id": "stand-in", "object": "model", "created": 0, "owned_by": "tests"}
            self._send(200, {"object": "list", "data": [model]})
        else:
            self._send(404, _error("no such path"))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.fake.reached.set()
        time.sleep(self.fake.delay)
        self.fake.thawed.wait()
        if self.fake.key and self.headers.get("Authorization") != f"Bearer {self.fake.key}":
            self._send(401, _error("Incorrect API key provided", "invalid_api_key"))
        elif self.fake.status:
            self._send(self.fake.status, _error("told to fail"))
        elif self.fake.refuses(self.path):
            self._send(429, _error("Rate limit reached for embeddings", "rate_limit_exceeded"))
        else:
            asked = json.loads(body)
            answer = self.fake.answer(self.path, asked)
            if answer and asked.get("stream"):
                self._stream(answer)
            else:
                self._send(200 if answer else 404, answer or _error("no such path"))

    def _stream(self, answer: dict[str, Any]) -> None:
        """Send a chat completion word by word, as server-sent events."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            for delta in _deltas(answer["choices"][0]["message"]):
                choice = {"index": 0, "delta": delta, "finish_reason": None}
                chunk = {**answer, "object": "chat.completion.chunk", "choices": [choice]}
                self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
                self.wfile.flush()
                self.fake.flowing.wait()
            self.wfile.write(b"data: [DONE]\n\n")
        except ConnectionError:
            pass

    def _send(self, status: int, answer: dict[str, Any]) -> None:
        data = json.dumps(answer).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except ConnectionError:
            self.close_connection = True  # whoever asked has lost patience

    def log_message(self, *_: object) -> None:
        """Nothing: a test's output is its own."""


def _error(message: str, code: str = "") -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "code": code}}


if __name__ == "__main__":
    FakeModel(int(sys.argv[1]) if len(sys.argv) > 1 else 0).serve()
