"""The storage of a home: files and SQLite beside PostgreSQL, in one run on one machine.

``--parts`` chooses what is measured:

- ``turns``: a turn as a manager stores it, times SQLite's
- ``growth``: for each of ``--messages``, how long filling takes, the size over the text, searches
  by kind, and the memory of whoever searches
- ``writers``: sixteen writers in four processes for ``--seconds``
- ``crashes``: the server is killed (kill -9) and started again five times while four processes
  store turns; then every turn must be there once and in order

``--url URL`` names an empty database; without it, a server that waits for its disk at each commit
is started for this run in ``--folder``, which must be on a disk. ``crashes`` needs that one.

``--prepared FOLDER`` keeps the archives of ``growth`` and their server's data there. What is there
already is not filled again: the next run measures the searches only.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import resource
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.synchronize import Event

    from support.postgres_faults import OwnServer

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests")]

from _archive_work import PER_SESSION, Texts, queries  # noqa: E402
from _report import Report  # noqa: E402

from hermes_builtin.sessions import Conversations, SessionSearch  # noqa: E402
from hermes_builtin.sessions.archive import EVERYBODY, NewMessage, SessionFacts  # noqa: E402
from hermes_builtin.sessions.location import locate  # noqa: E402
from hermes_core import MemoryManager  # noqa: E402
from hermes_core.config import load_config  # noqa: E402

PARTS = ("turns", "growth", "writers", "crashes")
TURNS = 2000
KINDS = {"common": "common", "question": "question", "prefix": "prefix", "Chinese": "CJK"}
PROCESSES, THREADS = 4, 4
KILLS, UP_SECONDS, DOWN_SECONDS, PAUSE_SECONDS = 5, 3.0, 1.0, 0.05
MOST_MILLISECONDS = 60
MOST_TIMES = 4
MOST_MEGABYTES = 250
#: In a home whose archive is filled: how many bytes of text it has.
FILLED = "filled"
SPAWN = multiprocessing.get_context("spawn")


class Homes(NamedTuple):
    """A home with files, and one whose storage is PostgreSQL."""

    files: Path
    server: Path

    def named(self) -> dict[str, Path]:
        return {"SQLite": self.files, "PostgreSQL": self.server}


class Given(NamedTuple):
    """What the command line says."""

    parts: tuple[str, ...]
    messages: tuple[int, ...]
    seconds: float
    url: str
    folder: Path
    prepared: Path | None


def main() -> None:
    given = arguments()
    tempfile.tempdir = str(given.folder)  # the server's folder, too
    report = Report("Storage: files and SQLite beside PostgreSQL")
    work = {"turns": turns, "growth": growth, "writers": writers, "crashes": crashes}
    for part in given.parts:
        work[part](report, given)
    report.close()


def arguments() -> Given:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--messages", nargs="+", type=int, default=[10_000, 100_000])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--url", default="")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--prepared", type=Path)
    given = parser.parse_args()
    return Given(
        tuple(given.parts), tuple(given.messages), given.seconds, given.url, given.folder,
        given.prepared,
    )  # fmt: skip


@contextmanager
def homes(given: Given, namespace: str) -> Iterator[Homes]:
    """Two empty homes."""
    url = given.url or started()
    with tempfile.TemporaryDirectory(prefix="storage-bench-") as folder:
        made = Homes(Path(folder) / "files", Path(folder) / "server")
        for home in made:
            home.mkdir()
        (made.server / "config.yaml").write_text(
            f"memory:\n  storage: {url}\n  storage_namespace: {namespace}\n"
        )
        yield made


def started() -> str:
    """The address of a database on the server of this run, which waits for its disk."""
    from support import postgres

    server = postgres.start(fsync="on", full_page_writes="on", shared_buffers="256MB")
    with closing(server.admin()) as admin:
        if not admin.execute("SELECT 1 FROM pg_database WHERE datname = 'bench'").fetchone():
            admin.execute(f"CREATE DATABASE bench OWNER {postgres.OWNER}")
    return server.url("bench")


def note(text: str) -> None:
    print(f"  {text}", flush=True)


def p(values: list[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)] * 1000


# -- a turn -------------------------------------------------------------------------------------


def turns(report: Report, given: Given) -> None:
    """A turn as a manager stores it, one storage after the other, turn by turn."""
    with homes(given, "turns") as made:
        managers = {name: MemoryManager.from_config(home) for name, home in made.named().items()}
        times: dict[str, list[float]] = {name: [] for name in managers}
        texts = Texts()
        for manager in managers.values():
            manager.initialize_all("turns", platform="cli")
        for number in range(TURNS):
            question, answer = texts.message(number), texts.message(number + 1)
            for name, manager in managers.items():
                begin = time.perf_counter()
                manager.sync_all(question, answer)
                times[name].append(time.perf_counter() - begin)
        for manager in managers.values():
            manager.shutdown_all()
    for name, taken in times.items():
        note(f"a turn, {name}: median {p(taken, 0.5):.2f} ms, p99 {p(taken, 0.99):.2f} ms")
    ours, theirs = (statistics.median(taken) for taken in times.values())
    report.at_most("a turn, times SQLite's", theirs / ours, MOST_TIMES)


# -- growth -------------------------------------------------------------------------------------


class Taken(NamedTuple):
    """How long one search took, and how much of a processor it used, here and at the server."""

    wall: float
    here: float
    server: float


class Searched(NamedTuple):
    """What a process saw that searched an archive."""

    indexing: float
    first: dict[str, list[Taken]]
    searches: dict[str, list[Taken]]
    megabytes: float


def growth(report: Report, given: Given) -> None:
    with tempfile.TemporaryDirectory(prefix="storage-bench-") as temporary:
        folder = (given.prepared or Path(temporary)).absolute()
        Path(temporary).chmod(0o711)  # a server that root starts runs as another user
        with growth_server(given, folder) as server:
            for messages in given.messages:
                print(f" {messages:,} messages", flush=True)
                for name, home in growth_homes(given, folder, server, messages).named().items():
                    measure(report, name, home, messages, server.pid if server else 0)


@contextmanager
def growth_server(given: Given, folder: Path) -> Iterator[OwnServer | None]:
    """A server whose data are in a folder, and stay there; none if an address is given."""
    if given.url:
        yield None
        return
    from support.postgres_faults import OwnServer

    settings = {"fsync": "on", "full_page_writes": "on", "autovacuum": "on"}
    server = OwnServer(folder / "server", **settings, shared_buffers="1GB", max_wal_size="1GB")
    if server.data.exists():
        server.start()
    else:
        server.create()
    try:
        yield server
    finally:
        server.stop()


def growth_homes(given: Given, folder: Path, server: OwnServer | None, messages: int) -> Homes:
    """Two homes for so many messages; empty ones, unless they were filled before."""
    made = Homes(folder / f"{messages}" / "files", folder / f"{messages}" / "server")
    for home in made:
        home.mkdir(parents=True, exist_ok=True)
    url, name = given.url, f"growth_{messages}"
    if server is not None:
        url = server.server.tcp_url(name)
        with closing(server.server.admin()) as admin:
            if not (made.server / FILLED).exists():
                admin.execute(f"DROP DATABASE IF EXISTS {name}")
                admin.execute(f"CREATE DATABASE {name} OWNER hermes")
    if not (made.files / FILLED).exists():
        for each in made.files.glob("state.db*"):
            each.unlink()
    (made.server / "config.yaml").write_text(
        f"memory:\n  storage: {url}\n  storage_namespace: growth-{messages}\n"
    )
    return made


def measure(report: Report, name: str, home: Path, messages: int, server: int) -> None:
    """Search an archive, after filling it if need be."""
    if not (home / FILLED).exists():
        filled(name, home, messages)
    with SPAWN.Pool(1) as pool:
        found = Searched(*pool.apply(searched, (str(home), messages, server)))
    note(f"{name}: the rest of the index in {found.indexing:.0f} s")
    for label, taken in found.searches.items():
        wall = [each.wall for each in taken]
        used = [each.here + each.server for each in taken]
        there = [each.server for each in taken]
        first = [each.wall for each in found.first[label]]
        note(
            f"search, {name}, {label}: median {p(wall, 0.5):.1f} ms; processor: median"
            f" {p(used, 0.5):.1f} ms (server {p(there, 0.5):.1f} ms), p95 {p(used, 0.95):.1f} ms;"
            f" the first time after a start: p95 {p(first, 0.95):.1f} ms"
        )
        if name == "PostgreSQL":
            report.at_most(f"search, {name}, {label}, p95", p(wall, 0.95), MOST_MILLISECONDS)
        else:
            note(f"search, {name}, {label}, p95 {p(wall, 0.95):.1f} ms")
    report.at_most(f"memory of a search, {name}, MB", found.megabytes, MOST_MEGABYTES)
    size(name, home)


def filled(name: str, home: Path, messages: int) -> None:
    """Fill an archive, a session at a time."""
    texts, begin, cpu, text = Texts(), time.perf_counter(), time.process_time(), 0
    with closing(locate(home).open()) as archive:
        for start in range(0, messages, PER_SESSION):
            said = [
                NewMessage(("user", "assistant")[at % 2], texts.message(start + at), time.time())
                for at in range(PER_SESSION)
            ]
            text += sum(len(each.content.encode()) for each in said)
            archive.append(SessionFacts(f"session-{start // PER_SESSION}", source="cli"), said)
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    (home / FILLED).write_text(str(text))
    note(
        f"{name}: filled in {seconds:.0f} s, {messages / seconds:,.0f} messages/s,"
        f" processor {cpu:.0f} s"
    )


def size(name: str, home: Path) -> None:
    """Print the size over that of the text. In PostgreSQL, it is that of all namespaces."""
    text = int((home / FILLED).read_text())
    with closing(locate(home).open()) as archive:
        stats = archive.stats()
    note(f"{name}: {stats.messages:,} messages, size over the text {stats.bytes / text:.2f}")


def searched(home: str, messages: int, server: int) -> tuple[Any, ...]:
    """How long the first search takes, which indexes what is not yet; others by kind; memory.

    All searches are made twice. A server that has just started reads its tables from the disk, or
    from the system's cache, the first time.
    """
    place = Path(home)
    settings = {"provider_config": dict(load_config(place).memory)}
    conversations = Conversations(place, "now", settings)
    tool = SessionSearch(conversations)
    begin = time.perf_counter()
    tool.call({"query": "warm"})
    indexing = time.perf_counter() - begin
    first, times = (searched_once(tool, messages, server) for _ in range(2))
    conversations.close()
    return indexing, first, times, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def searched_once(tool: SessionSearch, messages: int, server: int) -> dict[str, list[Taken]]:
    """How long each search took, by kind."""
    asked = queries(Texts(), messages)
    times: dict[str, list[Taken]] = {label: [] for label in KINDS}
    for label, kind in KINDS.items():
        for call in asked[kind]:
            begin, cpu, there = time.perf_counter(), time.process_time(), used_by(server)
            tool.call(dict(call))
            wall, here = time.perf_counter() - begin, time.process_time() - cpu
            times[label].append(Taken(wall, here, used_by(server) - there))
    return times


def used_by(server: int) -> float:
    """How much of a processor the children of a server have used, in seconds; on Linux only."""
    children = Path(f"/proc/{server}/task/{server}/children")
    if not server or not children.exists():
        return 0.0
    total = 0
    for child in children.read_text().split():
        with suppress(OSError):
            total += int(Path(f"/proc/{child}/schedstat").read_text().split()[0])
    return total / 1e9


# -- many writers -------------------------------------------------------------------------------


def writers(report: Report, given: Given) -> None:  # noqa: ARG001 - there is no target
    with homes(given, "writers") as made:
        for name, home in made.named().items():
            with SPAWN.Pool(PROCESSES) as pool:
                work = [(str(home), number, given.seconds) for number in range(PROCESSES)]
                times = [each for some in pool.starmap(write, work) for each in some]
            note(
                f"{PROCESSES * THREADS} writers, {name}: {len(times) / given.seconds:,.0f}"
                f" turns/s, p50 {p(times, 0.5):.1f} ms, p99 {p(times, 0.99):.1f} ms"
            )


def write(home: str, process: int, seconds: float) -> list[float]:
    """Four threads that store turns, each in its own session; the time of each."""
    archive = locate(Path(home)).open()
    times: list[float] = []

    def one(thread: int) -> None:
        texts, end = Texts(), time.monotonic() + seconds
        facts = SessionFacts(f"writer-{process}-{thread}", source="cli")
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


# -- a server that is killed --------------------------------------------------------------------


def crashes(report: Report, given: Given) -> None:
    """Kill the server while turns are stored; then look for each of them."""
    if given.url:
        note("crashes: left out, since only a server of this run may be killed")
        return
    with homes(given, "crashes") as made:
        server = Postmaster()
        stop, results = SPAWN.Event(), SPAWN.Queue()
        running = [
            SPAWN.Process(target=talk, args=(str(made.server), number, stop, results), daemon=True)
            for number in range(PROCESSES)
        ]
        for process in running:
            process.start()
        try:
            for number in range(KILLS):
                time.sleep(UP_SECONDS)
                server.kill()
                time.sleep(DOWN_SECONDS)
                begin = time.perf_counter()
                server.start()
                taken = time.perf_counter() - begin
                note(f"kill {number + 1}: the server is back after {DOWN_SECONDS + taken:.1f} s")
            time.sleep(UP_SECONDS)
            stop.set()
            told = dict(results.get(timeout=300) for _ in running)
            for process in running:
                process.join()
            compared(report, made.server, told)
        finally:
            server.end()


def talk(home: str, process: int, stop: Event, results: Any) -> None:
    """Store turns until told to stop; puts how many."""
    logging.disable()  # of turns that wait in the spool
    manager = MemoryManager.from_config(Path(home))
    manager.initialize_all(f"crash-{process}", platform="cli")
    count = 0
    while not stop.is_set():
        manager.sync_all(f"question {count} of {process}", f"answer {count} of {process}")
        count += 1
        time.sleep(PAUSE_SECONDS)  # a model's answer takes longer
    manager.shutdown_all()
    results.put((process, count))


def compared(report: Report, home: Path, told: dict[int, int]) -> None:
    settings = {"provider_config": dict(load_config(home).memory)}
    with closing(Conversations(home, "now", settings)) as conversations:
        waited = conversations.spool.waiting().turns
        error = conversations.spool.hand_over(conversations.archive)
        if error is not None:
            raise error
        lost = doubled = displaced = 0
        for process, count in told.items():
            session = conversations.archive.session(f"crash-{process}", EVERYBODY)
            messages = conversations.archive.messages(session) if session else ()
            there = [each.content for each in messages]
            wanted = [
                f"{kind} {number} of {process}"
                for number in range(count)
                for kind in ("question", "answer")
            ]
            lost += len(set(wanted) - set(there))
            doubled += len(there) - len(set(there))
            displaced += lost == doubled == 0 and there != wanted
    note(f"{KILLS} kills, {sum(told.values()):,} turns; {waited:,} of them waited in the spool")
    report.at_most("messages that were lost", lost, 0)
    report.at_most("messages that are there twice", doubled, 0)
    report.at_most("conversations out of order", displaced, 0)


class Postmaster:
    """The server of this run as our own child, to be killed and started again on its folder."""

    def __init__(self) -> None:
        from support import postgres

        self._server = postgres.start()
        self._data = self._server.folder / "data"
        self._command = shlex.split((self._data / "postmaster.opts").read_text())
        self._identity = postgres._identity()  # noqa: SLF001 - it refuses root
        pid_file = self._data / "postmaster.pid"
        os.kill(int(pid_file.read_text().split()[0]), signal.SIGINT)
        while pid_file.exists():
            time.sleep(0.05)
        self._started = self.start()

    def kill(self) -> None:
        self._started.kill()
        self._started.wait()

    def start(self) -> subprocess.Popen[bytes]:
        """Start it. It refuses as long as processes of the killed one have not ended."""
        while True:
            with (self._server.folder / "log").open("ab") as log:
                self._started = subprocess.Popen(
                    self._command, stdout=log, stderr=log, cwd="/", **self._identity
                )
            while self._started.poll() is None:
                with suppress(Exception), closing(self._server.admin()):
                    return self._started
                time.sleep(0.05)
            time.sleep(0.1)

    def end(self) -> None:
        self._started.send_signal(signal.SIGQUIT)
        self._started.wait()


if __name__ == "__main__":
    main()
