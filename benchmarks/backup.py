"""A backup of a large home while four processes write turns: how long the slowest turn takes.

``--messages N`` sets the size of the archive; ``--home DIR`` names a home that is filled once, and
copied by each run. Each writer stores a turn every 5 ms, during a backup and then as long without
one. The backup is restored, and every turn that was stored before it began has to be there.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from multiprocessing.sharedctypes import SynchronizedArray
from multiprocessing.synchronize import Event
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]

from _archive_work import PER_SESSION, Texts  # noqa: E402

from hermes_builtin.sessions.archive import EVERYBODY, NewMessage, SessionFacts  # noqa: E402
from hermes_builtin.sessions.location import locate  # noqa: E402
from hermes_core import MemoryManager  # noqa: E402

WRITERS = 4
QUIET_SECONDS = 10.0
PAUSE = 0.005
MOST_MILLISECONDS = 50
FILLED = "filled"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--folder", default=None, help="where the homes are; on a real disk")
    parser.add_argument("--home", type=Path, help="a home that is filled once, and copied")
    parser.add_argument("--fill", action="store_true", help="fill the home, and measure nothing")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="backup-bench-", dir=given.folder) as folder:
        home, file = Path(folder) / "home", Path(folder) / "backup.zip"
        kept = given.home or home
        if not (kept / FILLED).exists():
            fill(kept, given.messages)
        if given.fill:
            return
        if kept != home:
            shutil.copytree(kept, home)
        size = sum(each.stat().st_size for each in home.rglob("*") if each.is_file())
        print(f"home: {given.messages:,} messages, {size / 1e6:,.0f} MB", flush=True)
        slowest, stored, seconds = measured(home, lambda: run("backup", home, str(file)))
        # As long as the backup took: the slowest of more turns is slower.
        quiet, _, _ = measured(home, lambda: time.sleep(max(QUIET_SECONDS, seconds)))
        print(f"backup: {seconds:.1f} s, {file.stat().st_size / 1e6:,.0f} MB", flush=True)
        shown("without a backup", quiet)
        shown("during the backup", slowest)
        at = time.perf_counter()
        run("restore", home, str(file), "--into", str(Path(folder) / "new"))
        print(f"restore: {time.perf_counter() - at:.1f} s")
        check(Path(folder) / "new", given.messages, stored)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1000
        print(f"peak memory of a child: {peak:,.0f} MB")
        worst = max(slowest) * 1000
        if worst > MOST_MILLISECONDS:
            sys.exit(
                f"the slowest turn during the backup took {worst:.0f} ms, without one"
                f" {max(quiet) * 1000:.0f} ms; at most {MOST_MILLISECONDS} ms are allowed"
            )


def fill(home: Path, messages: int) -> None:
    texts = Texts()
    home.mkdir()
    with closing(locate(home).open()) as archive:
        for number in range(messages // PER_SESSION):
            said = [
                NewMessage(
                    "user" if each % 2 == 0 else "assistant",
                    texts.message(number * PER_SESSION + each),
                    1e9 + number,
                )
                for each in range(PER_SESSION)
            ]
            archive.append(SessionFacts(f"old-{number}", source="cli"), said)
        archive.check(newest=0)  # which puts all of them into the index
    (home / FILLED).write_text(f"{messages}\n")


def run(command: str, home: Path, *arguments: str) -> None:
    script = Path(sys.executable).with_name("hermes-plugins")
    subprocess.run([script, "--home", home, command, *arguments], check=True)


def measured(home: Path, work: object) -> tuple[list[float], list[int], float]:
    """The times of all turns while something runs; how many each stored before it; its time."""
    assert callable(work)
    fork = multiprocessing.get_context("fork")
    told, stop, queue = fork.Array("i", WRITERS), fork.Event(), fork.Queue()
    name = os.urandom(3).hex()
    agents = [
        fork.Process(target=write, args=((home, name), each, told, stop, queue))
        for each in range(WRITERS)
    ]
    for each in agents:
        each.start()
    while min(told) < 50:
        time.sleep(0.1)
    before, at = list(told), time.perf_counter()
    work()
    seconds = time.perf_counter() - at
    stop.set()
    times = [each for _ in agents for each in queue.get()]
    for each in agents:
        each.join()
    return times, before, seconds


def write(
    where: tuple[Path, str],
    number: int,
    told: SynchronizedArray[int],
    stop: Event,
    queue: multiprocessing.Queue[list[float]],
) -> None:
    home, name = where
    manager = MemoryManager.from_config(home)
    manager.initialize_all(f"new-{number}-{name}")
    times = []
    while not stop.is_set():
        at = time.perf_counter()
        manager.sync_all(f"question {number} {len(times)}", "an answer of some words")
        times.append(time.perf_counter() - at)
        told[number] = len(times)
        time.sleep(PAUSE)
    manager.shutdown_all()
    queue.put(times[50:])


def shown(what: str, times: list[float]) -> None:
    ordered = sorted(each * 1000 for each in times)
    late = ordered[int(len(ordered) * 0.999)]
    print(
        f"turn {what}: median {statistics.median(ordered):.2f} ms, 99.9 % {late:.1f} ms,"
        f" slowest {ordered[-1]:.1f} ms ({len(ordered):,} turns)",
        flush=True,
    )


def check(home: Path, messages: int, stored: list[int]) -> None:
    """Every message of before is there, and every turn that was stored when it began."""
    with closing(locate(home).open()) as archive:
        sessions = list(archive.sessions(EVERYBODY))
        old = sum(each.messages for each in sessions if each.id.startswith("old-"))
        assert old == messages // PER_SESSION * PER_SESSION, old
        for number, turns in enumerate(stored):
            found = max(each.messages for each in sessions if each.id.startswith(f"new-{number}-"))
            assert found >= 2 * turns, (found, turns)
    print("verified: every message is in the restored home")


if __name__ == "__main__":
    main()
