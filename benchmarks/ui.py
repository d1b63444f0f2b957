"""The page with a large archive: how long browse and search take, and how much memory it needs.

Fills a home once (`--folder`, kept for the next run), starts `hermes-plugins ui` and asks it over
HTTP. Targets with 1,000,000 messages: 200 ms (p95), 150 MB.
"""

from __future__ import annotations

import argparse
import http.client
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import quote, urlsplit

from _archive_work import Texts
from _report import Report

from hermes_builtin.sessions.archive import NewMessage, SessionFacts
from hermes_builtin.sessions.sqlite import SqliteArchive

PER_SESSION = 50
ASKED = 100
SECONDS, MEGABYTES = 0.2, 150.0


def fill(home: Path, messages: int) -> None:
    home.mkdir(parents=True, exist_ok=True)
    done = home / f"filled-{messages}"
    if done.exists():
        return
    texts, archive = Texts(), SqliteArchive(home / "state.db")
    begin = time.time() - messages * 30
    for first in range(0, messages, PER_SESSION):
        said = [
            NewMessage(("user", "assistant")[n % 2], texts.message(n), begin + n * 30)
            for n in range(first, min(first + PER_SESSION, messages))
        ]
        facts = SessionFacts(f"talk-{first}", "cli", started=begin + first * 30)
        archive.append(facts, said)
        if first % 50_000 == 0:
            print(f"  {first:,} messages", flush=True)
    archive.index_pending()
    archive.close()
    done.touch()


class Client:
    """One connection to the page, with its cookie."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
        self._connection.request("GET", f"/?{parts.query}")
        answer = self._connection.getresponse()
        answer.read()
        self._cookie = answer.getheader("set-cookie").partition(";")[0]

    def seconds(self, path: str) -> float:
        begin = time.perf_counter()
        self._connection.request("GET", path, headers={"cookie": self._cookie})
        answer = self._connection.getresponse()
        answer.read()
        assert answer.status == 200, (path, answer.status)
        return time.perf_counter() - begin


def memory_of(process: int) -> float:
    """The largest amount of memory that a process had, in megabytes."""
    text = Path(f"/proc/{process}/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0]) / 1024


def paths(messages: int) -> dict[str, list[str]]:
    chance, texts = random.Random(3), Texts()
    rare = [f"zq{chance.randrange(messages)}x" for _ in range(ASKED)]
    middle = [" ".join(chance.choices(texts.words[300:2000], k=2)) for _ in range(ASKED)]
    at = time.time() - messages * 30
    day = [at + chance.random() * messages * 30 for _ in range(ASKED)]
    sessions = [PER_SESSION * chance.randrange(messages // PER_SESSION) for _ in range(ASKED)]
    return {
        "browse": ["/conversations"] * ASKED,
        "browse further": [f"/conversations?older={at!r}:{messages}" for at in day],
        "browse a day": [
            f"/conversations?since={time.strftime('%Y-%m-%d', time.localtime(at))}"
            f"&until={time.strftime('%Y-%m-%d', time.localtime(at))}"
            for at in day
        ],
        "search a rare word": [f"/conversations?query={each}" for each in rare],
        "search two words": [f"/conversations?query={quote(each)}" for each in middle],
        "search a frequent word": ["/conversations?query=commonword"] * 20,
        "read": [f"/conversations/talk-{each}" for each in sessions],
        "overview": ["/"] * 20,
        "live": ["/live"] * ASKED,
    }


def p95(values: list[float]) -> float:
    return sorted(values)[-(-len(values) * 95 // 100) - 1]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "hermes-ui")
    given = parser.parse_args()
    home = given.folder / str(given.messages)
    fill(home, given.messages)
    command = [sys.executable, "-P", "-u", "-m", "hermes_core", "ui", "--no-open"]
    report = Report(f"The page with {given.messages:,} messages")
    with subprocess.Popen(
        [*command, "--home", str(home)], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            client = Client(server.stdout.readline().split()[-1])
            client.seconds("/conversations?query=warm")
            measured = {
                name: [client.seconds(path) for path in some]
                for name, some in paths(given.messages).items()
            }
            report.samples(measured)
            for name, values in measured.items():
                report.at_most(f"{name}, p95 in seconds", p95(values), SECONDS)
            report.at_most("memory in MB", memory_of(server.pid), MEGABYTES)
        finally:
            server.terminate()
    report.close()


if __name__ == "__main__":
    main()
