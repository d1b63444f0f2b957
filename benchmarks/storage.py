"""The storage of a home: files and SQLite beside PostgreSQL, in one run on one machine.

``--messages N`` sets the size of the archives, ``--seconds N`` how long the writers write, and
``--url URL`` names an empty database; without it, a server with its usual durability is started
for this run. Printed are a turn, a search by kind, sixteen writers, and the size over the text.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests")]

from _archive_work import PER_SESSION, Texts, queries  # noqa: E402
from _report import Report  # noqa: E402

from hermes_builtin.sessions import Conversations, SessionSearch  # noqa: E402
from hermes_builtin.sessions.archive import NewMessage, SessionFacts  # noqa: E402
from hermes_builtin.sessions.location import locate  # noqa: E402
from hermes_core import MemoryManager  # noqa: E402
from hermes_core.config import load_config  # noqa: E402

TURNS = 2000
KINDS = {"common": "common", "question": "question", "prefix": "prefix", "Chinese": "CJK"}
PROCESSES, THREADS = 4, 4
MOST_MILLISECONDS = 60
MOST_TIMES = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--url", default="")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="storage-bench-") as folder:
        files, server = Path(folder) / "files", Path(folder) / "server"
        for home in (files, server):
            home.mkdir()
        (server / "config.yaml").write_text(f"memory:\n  storage: {given.url or started()}\n")
        report = Report(f"Storage: {given.messages:,} messages")
        turns(report, files, server)
        filled = {home: fill(home, given.messages) for home in (files, server)}
        note(f"size over the text: SQLite {filled[files]:.2f}, PostgreSQL {filled[server]:.2f}")
        searches(report, files, server, given.messages)
        if given.seconds:
            writers(files, server, given.seconds)
        report.close()


def started() -> str:
    """The address of a new database on a server that waits for its disk at every commit."""
    from support import postgres

    server = postgres.start(fsync="on", full_page_writes="on", shared_buffers="256MB")
    with closing(server.admin()) as admin:
        admin.execute(f"CREATE DATABASE bench OWNER {postgres.OWNER}")
    return server.url("bench")


def note(text: str) -> None:
    print(f"  {text}", flush=True)


def p(values: list[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)] * 1000


def turns(report: Report, files: Path, server: Path) -> None:
    """A turn as a manager stores it, one storage after the other, turn by turn."""
    managers = {home: MemoryManager.from_config(home) for home in (files, server)}
    times: dict[Path, list[float]] = {home: [] for home in managers}
    texts = Texts()
    for manager in managers.values():
        manager.initialize_all("turns", platform="cli")
    for number in range(TURNS):
        question, answer = texts.message(number), texts.message(number + 1)
        for home, manager in managers.items():
            begin = time.perf_counter()
            manager.sync_all(question, answer)
            times[home].append(time.perf_counter() - begin)
    for manager in managers.values():
        manager.shutdown_all()
    ours, theirs = (statistics.median(times[home]) for home in (files, server))
    for name, home in (("SQLite", files), ("PostgreSQL", server)):
        note(
            f"a turn, {name}: median {p(times[home], 0.5):.2f} ms,"
            f" p99 {p(times[home], 0.99):.2f} ms"
        )
    report.at_most("a turn, times SQLite's", theirs / ours, MOST_TIMES)


def fill(home: Path, messages: int) -> float:
    """Fill an archive; returns its size over that of the text."""
    texts, total = Texts(), 0
    archive = locate(home).open()
    before = archive.stats().bytes
    for start in range(0, messages, PER_SESSION):
        said = [texts.message(number) for number in range(start, start + PER_SESSION)]
        total += sum(len(text.encode()) for text in said)
        made = [
            NewMessage(("user", "assistant")[at % 2], text, time.time())
            for at, text in enumerate(said)
        ]
        archive.append(SessionFacts(f"session-{start // PER_SESSION}", source="cli"), made)
    archive.close()
    archive = locate(home).open()
    size = archive.stats().bytes - before
    archive.close()
    return size / total


def searches(report: Report, files: Path, server: Path, messages: int) -> None:
    asked = queries(Texts(), messages)
    for name, home in (("SQLite", files), ("PostgreSQL", server)):
        conversations = Conversations(
            home, "now", {"provider_config": dict(load_config(home).memory)}
        )
        tool = SessionSearch(conversations)
        tool.call({"query": "warm"})
        for label, kind in KINDS.items():
            times = []
            for arguments in asked[kind]:
                begin = time.perf_counter()
                tool.call(dict(arguments))
                times.append(time.perf_counter() - begin)
            text = f"search, {name}, {label}: median {p(times, 0.5):.1f} ms, p95"
            if home is server:
                report.at_most(text, p(times, 0.95), MOST_MILLISECONDS)
            else:
                note(f"{text} {p(times, 0.95):.1f} ms")
        conversations.close()


def writers(files: Path, server: Path, seconds: float) -> None:
    for name, home in (("SQLite", files), ("PostgreSQL", server)):
        with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
            given = [(str(home), number, seconds) for number in range(PROCESSES)]
            times = [each for some in pool.starmap(write, given) for each in some]
        rate = len(times) / seconds
        note(
            f"{PROCESSES * THREADS} writers, {name}: {rate:,.0f} turns/s, "
            f"p50 {p(times, 0.5):.1f} ms, p99 {p(times, 0.99):.1f} ms"
        )


def write(home: str, process: int, seconds: float) -> list[float]:
    """Four threads that store turns, each in its own session; the time of each."""
    archive = locate(Path(home)).open()
    times: list[float] = []

    def one(thread: int) -> None:
        texts, end = Texts(), time.monotonic() + seconds
        facts = SessionFacts(f"writer-{process}-{thread}-{seconds}", source="cli")
        while time.monotonic() < end:
            turn = [
                NewMessage(role, texts.message(7), time.time()) for role in ("user", "assistant")
            ]
            begin = time.perf_counter()
            archive.append(facts, turn)
            times.append(time.perf_counter() - begin)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    archive.close()
    return times


if __name__ == "__main__":
    main()
