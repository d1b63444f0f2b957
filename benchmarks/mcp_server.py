"""The MCP server: until its first answer, and `session_search` at 100,000 messages.

``--messages N``, ``--rounds N``; ``--here`` takes the venv that runs this. The search is measured
in a process without MCP, and over stdio from another process: the difference is what MCP costs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any

from _report import Report
from _venvs import ROOT, ours

HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "benchmark", "version": "1"},
}
STARTS = 7
WORDS = ("deploy", "invoice", "garden", "printer", "holiday", "password", "recipe", "train")

FILL = """
import random, sys
from hermes_core import MemoryManager
random.seed(1)
letters = "abcdefghijklmnopqrstuvwxyz"
words = ["".join(random.choices(letters, k=random.randint(3, 9))) for _ in range(20_000)]
words += %r * 20
memory = MemoryManager.from_config()
memory.initialize_all("fill", platform="cli")
for number in range(int(sys.argv[1]) // 2):
    text = [" ".join(random.choices(words, k=30)) for _ in range(2)]
    memory.sync_all(*text, session_id=f"s{number // 20}")
memory.shutdown_all()
"""

DIRECT = """
import json, sys
from time import perf_counter
from hermes_core import MemoryManager
memory = MemoryManager.from_config()
memory.initialize_all("ask", platform="cli")
seconds = []
for number in range(int(sys.argv[1])):
    word = %r[number %% 8]
    begin = perf_counter()
    memory.handle_tool_call("session_search", {"query": f"the {word}"})
    seconds.append(perf_counter() - begin)
print(json.dumps(seconds))
memory.shutdown_all()
"""


class Server:
    """`hermes-plugins mcp` over stdio."""

    def __init__(self, command: str, environment: dict[str, str]) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen([command, "mcp"], env=environment, **pipes)
        self._number = 0

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        self._send({"id": self._number, "method": method, "params": params})
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            if answer.get("id") == self._number:
                return answer
        raise SystemExit("the server has ended")

    def ready(self) -> None:
        self._send({"method": "notifications/initialized"})

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._process.stdin.flush()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def started(command: str, environment: dict[str, str]) -> tuple[Server, float]:
    begin = perf_counter()
    server = Server(command, environment)
    server.ask("initialize", **HELLO)
    return server, perf_counter() - begin


def searches(server: Server, rounds: int) -> tuple[list[float], int]:
    server.ready()
    seconds, largest = [], 0
    for number in range(rounds):
        query = {"query": f"the {WORDS[number % len(WORDS)]}"}
        begin = perf_counter()
        answer = server.ask("tools/call", name="session_search", arguments=query)
        seconds.append(perf_counter() - begin)
        text = answer["result"]["content"][0]["text"]
        assert json.loads(text)["count"], text[:200]
        largest = max(largest, len(text))
    return seconds, largest


def installed() -> str:
    venv = ours()
    venv.install(f"{ROOT}[mcp]")
    return venv.python


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--here", action="store_true")
    given = parser.parse_args()
    python = sys.executable if given.here else installed()
    command = str(Path(python).with_name("hermes-plugins"))
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "HERMES_HOME": home, "HOME": home}
        fill = [python, "-c", FILL % (list(WORDS),), str(given.messages)]
        subprocess.run(fill, env=environment, check=True)
        starts = []
        for _ in range(STARTS):
            server, seconds = started(command, environment)
            server.close()
            starts.append(seconds)
        direct = [python, "-c", DIRECT % (WORDS,), str(given.rounds)]
        output = subprocess.run(direct, env=environment, check=True, capture_output=True).stdout
        server, _ = started(command, environment)
        over_mcp, largest = searches(server, given.rounds)
        server.close()
    report = Report(f"MCP over stdio, {given.messages:,} messages")
    bare = json.loads(output)
    report.samples({"start until the first answer": starts, "search, in the process": bare,
                    "search, over MCP": over_mcp})  # fmt: skip
    print(f"  {'largest answer, characters':44} {largest:,}")
    report.at_most("start until the first answer, s", median(starts), 1)
    report.at_most("search over MCP, p95 in ms", quantiles(over_mcp, n=20)[-1] * 1e3, 50)
    report.close()


if __name__ == "__main__":
    main()
