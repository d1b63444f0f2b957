"""One turn of the manager alone, with a no-op external provider, beside hermes-agent's."""

from __future__ import annotations

import json
from statistics import median

from _report import Report
from _venvs import ours, peer

ROUNDS = 7
TURNS = 2000

# Runs in either venv: the two managers have the same method names.
TURN = """
import json, sys, threading, time
{imports}

class NoOp(MemoryProvider):
    name = "noop"
    def is_available(self): return True
    def initialize(self, session_id, **kwargs): pass
    def get_tool_schemas(self): return []
    def on_turn_start(self, turn_number, message, **kwargs): pass
    def prefetch(self, query, *, session_id=""): return ""
    def queue_prefetch(self, query, *, session_id=""): pass
    def sync_turn(self, user_content, assistant_content, *, session_id="", messages=None): pass

manager = MemoryManager()
manager.add_provider(NoOp())
manager.initialize_all("s1", platform="cli")

def turn(number):
    manager.on_turn_start(number, "a question")
    manager.prefetch_all("a question", session_id="s1")
    manager.sync_all("a question", "an answer", session_id="s1")
    manager.queue_prefetch_all("a question", session_id="s1")

for number in range(200):
    turn(number)
manager.flush_pending(10)
started = []
start = threading.Thread.start
threading.Thread.start = lambda self: (started.append(1), start(self))[1]
cpu, wall = time.process_time(), time.perf_counter()
for number in range({turns}):
    turn(number)
manager.flush_pending(30)
print(json.dumps({{"wall": (time.perf_counter() - wall) / {turns},
    "cpu": (time.process_time() - cpu) / {turns}, "threads": len(started) / {turns}}}))
manager.shutdown_all()
"""
OURS = "from hermes_core import MemoryManager, MemoryProvider"
THEIRS = (
    "from agent.memory_manager import MemoryManager\n"
    "from agent.memory_provider import MemoryProvider"
)


def main() -> None:
    venvs = {"ours": (ours(), OURS), "hermes-agent": (peer(), THEIRS)}
    results: dict[str, list[dict[str, float]]] = {name: [] for name in venvs}
    for _ in range(ROUNDS):
        for name, (venv, imports) in venvs.items():
            code = TURN.format(imports=imports, turns=TURNS)
            results[name].append(json.loads(venv.run("-c", code)))
    report = Report(f"One turn of the manager, no-op provider, {TURNS} turns x {ROUNDS}")
    for kind in ("wall", "cpu"):
        report.samples({f"{n}, {kind}": [each[kind] for each in r] for n, r in results.items()})
    middle = {
        (name, kind): median(each[kind] for each in result)
        for name, result in results.items()
        for kind in ("wall", "cpu", "threads")
    }
    for kind in ("wall", "cpu"):
        ratio = middle["ours", kind] / middle["hermes-agent", kind]
        print(f"  ours / hermes-agent, {kind}: {ratio:.2f}")
    report.at_most("threads started per turn", middle["ours", "threads"], 0)
    report.close()


if __name__ == "__main__":
    main()
