"""Turns while a memory service is down or frozen: how long the agent waits.

A self-hosted Mem0 behind a `MemoryManager`, whose server gets a fault before the first turn. A turn
is on_turn_start, recall_block, sync_all, queue_prefetch_all and recall_status_all; a pause of 50 ms
stands for the model. The first two turns may wait for recall; p99 counts from the third on.
"""

from __future__ import annotations

import json
from statistics import quantiles

from _report import Report
from _venvs import ROOT, ours

TURNS = 150
TARGET_MS = 500

WORK = """
import json, logging, sys, tempfile, time
from pathlib import Path
sys.path.insert(0, {tests!r})
logging.disable()
from hermes_core import Deadlines, MemoryManager
from hermes_memory_mem0 import Mem0Provider
from support.mem0_servers import Mem0Server

def fails_alone(server):  # recall fails slowly, everything else works
    search = server._searched
    def slow(asked):
        time.sleep(10)
        return search(asked)
    server._searched = slow

FAULTS = {{
    "down": lambda server: setattr(server, "status", 503),
    "frozen": lambda server: server.thawed.clear(),
    "recall alone": fails_alone,
}}

def turns(fault):
    home = Path(tempfile.mkdtemp(prefix="faults-bench-"))
    with Mem0Server() as server:
        FAULTS[fault](server)
        (home / "mem0.json").write_text(json.dumps({{"mode": "self-hosted", "host": server.url}}))
        manager = MemoryManager(home=home, deadlines=Deadlines(shutdown=0.5))
        assert manager.add_provider(Mem0Provider())
        manager.initialize_all("s1")
        took = []
        for number in range({turns}):
            began = time.perf_counter()
            manager.on_turn_start(number, "Which city have I moved to?")
            manager.recall_block("Which city have I moved to?")
            manager.sync_all(f"Fact {{number}} is that I live in Lisbon.", "Noted.")
            manager.queue_prefetch_all("Which city have I moved to?")
            manager.recall_status_all()
            took.append(time.perf_counter() - began)
            time.sleep(0.05)
        manager.shutdown_all()
    return took

print(json.dumps({{fault: turns(fault) for fault in FAULTS}}))
"""


def main() -> None:
    here = ours()
    here.install(str(ROOT / "plugins" / "mem0"))
    code = WORK.format(tests=str(ROOT / "tests"), turns=TURNS)
    results = json.loads(here.run("-c", code).splitlines()[-1])
    report = Report(f"Turns while a Mem0 server has a fault, {TURNS} each")
    for fault, took in results.items():
        report.samples({f"{fault}, the first two turns": took[:2]})
        report.samples({f"{fault}, the others": took[2:]})
        p50, p99 = (1e3 * quantiles(took[2:], n=100)[at] for at in (49, 98))
        print(f"  {fault}, p50 of the others, ms                {p50:6.2f}")
        report.at_most(f"{fault}, p99 of the others, ms", p99, TARGET_MS)
    report.close()


if __name__ == "__main__":
    main()
