"""A hundred turns with a fault in the middle: what arrives, in which order, how long turns take.

Each test prints its figures: turns acknowledged, lost, doubled and out of order, and p50 and p99 of
a turn during the fault, from the third on. benchmarks/faults.py compares how long with a target.
"""

import random
import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise
from statistics import quantiles

import pytest
import yaml
from support.mem0_places import KEY, MODES, opened
from support.mem0_processes import facts

from hermes_core import MemoryManager

TURNS = 100
BEGINS, ENDS = 20, 70


@pytest.fixture(params=MODES)
def place(request, home, installed):
    with opened(request.param, home) as made:
        settings = {key: value for key, value in made.config.items() if "key" not in key}
        memory = {"provider": "mem0", "mem0": {**settings, "timeout": 5}}
        config = {"memory": memory, "secrets": {"backend": "dotenv"}}
        (home / "config.yaml").write_text(yaml.safe_dump(config))
        (home / ".env").write_text(f"MEM0_API_KEY={KEY}\nMEM0_SERVER_KEY={KEY}\n")
        (home / ".env").chmod(0o600)
        yield made


class Frozen:
    """It takes connections, and answers nothing."""

    def begin(self, place):
        place.behind.thawed.clear()

    def end(self, place):
        place.behind.thawed.set()


class Down:
    """Every answer is 503."""

    def begin(self, place):
        place.behind.status = 503

    def end(self, place):
        place.behind.status = 0


class Limited:
    """One in five embeddings is refused by a rate limit; on the platform, one in five extractions.

    It lasts until everything is delivered. ``silent`` counts extractions that a server answered
    with success and no memories.
    """

    silent = 0

    def begin(self, place):
        chance = random.Random(15)
        refused = lambda *_: chance.random() < 1 / 5  # noqa: E731
        if place.mode == "oss":
            place.behind.refuses = lambda path: path.endswith("/embeddings") and refused()
        elif place.mode == "platform":
            place.behind.fails = refused
        else:
            place.behind.embeds = lambda: not refused()
            self._count(place.behind)

    def _count(self, server):
        added = server._added

        def counted(asked):
            answer = added(asked)
            self.silent += answer == (200, {"results": []})
            return answer

        server._added = counted

    def end(self, place):
        """Not before the end."""


class Cut:
    """Ten writes in a row are carried out, and their answers are lost."""

    def begin(self, place):
        place.behind.deaf = 10

    def end(self, place):
        place.behind.deaf = 0


def _a_turn(manager, number, line):
    began = time.perf_counter()
    manager.on_turn_start(number, line)
    manager.recall_block(f"What says {line.split()[0]}?")
    manager.sync_all(line, "Noted.")
    manager.queue_prefetch_all(line)
    manager.recall_status_all()
    return time.perf_counter() - began


def _figures(place, lines, took):
    rows = sorted(place.rows(), key=lambda row: row["created_at"])
    stored = [row["memory"] for row in rows]
    counts = Counter(stored)
    order = [stored.index(line) for line in lines if counts[line]]
    cuts = quantiles(took, n=100)
    return {
        "acknowledged": len(lines),
        "lost": sum(not counts[line] for line in lines),
        "doubled": sum(counts[line] > 1 for line in lines),
        "out of order": sum(one > other for one, other in pairwise(order)),
        "p50 ms": round(cuts[49] * 1e3, 1),
        "p99 ms": round(cuts[98] * 1e3, 1),
    }


@pytest.mark.parametrize("kind", [Frozen, Down, Limited, Cut], ids=lambda kind: kind.__name__)
def test_no_turn_is_lost_or_doubled_by_a_fault(home, place, kind, record_property):
    if kind is Cut and place.mode == "oss":
        pytest.skip("a write in the process has no answer that could be lost")
    fault = kind()
    manager = MemoryManager.from_config(home)
    assert not manager.problems
    manager.initialize_all("s1")
    lines, took = facts(TURNS), []
    for number, line in enumerate(lines):
        if number == BEGINS:
            fault.begin(place)
        if number == ENDS:
            fault.end(place)
        seconds = _a_turn(manager, number, line)
        if BEGINS + 2 <= number < ENDS:
            took.append(seconds)
        time.sleep(0.02)  # a model thinks in between
    delivered = manager.flush_pending(300)
    manager.shutdown_all()
    seen = _figures(place, lines, took) | {"silent": getattr(fault, "silent", 0)}
    told = ", ".join(f"{name} {value}" for name, value in seen.items())
    record_property("figures", f"Mem0 {place.mode}, {kind.__name__.lower()}: {told}")
    assert delivered
    listed = place.home / "mem0" / "unconfirmed.log"
    unconfirmed = len(listed.read_text().splitlines()) if listed.exists() else 0
    assert seen["lost"] <= unconfirmed, "a turn was lost, and status does not count it"
    assert seen["doubled"] == 0


def test_status_of_a_frozen_service_ends_and_says_so(home, place, record_property):
    place.behind.thawed.clear()
    command = [sys.executable, "-m", "hermes_core", "--home", str(home), "status"]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    seconds = time.perf_counter() - began
    place.behind.thawed.set()
    record_property("figures", f"Mem0 {place.mode}, status of a frozen service: {seconds:.1f} s")
    assert done.returncode == 1
    assert "did not answer" in done.stdout
