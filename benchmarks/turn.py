"""A whole turn with archive and outbox on, beside hermes-agent's manager, which keeps nothing.

Also how fast turns are kept while the backend is down, and that memory stays flat meanwhile.
"""

from __future__ import annotations

import json
from statistics import median

from _report import Report
from _venvs import ours, peer

ROUNDS = 7
TURNS = 2000
DOWN = 10_000

# Runs in either venv: the two managers have the same method names.
PROVIDER = """
import json, os, sys, tempfile, time
home = tempfile.mkdtemp(prefix="turn-bench-")
os.environ["HERMES_HOME"] = home
{imports}

class External(MemoryProvider):
    name = "ext"
    down = False
    def is_available(self): return True
    def initialize(self, session_id, **kwargs): pass
    def get_tool_schemas(self): return []
    {methods}

QUESTION = "How do we deploy the billing service, and who has to approve it? " * 3
ANSWER = "With make release, every second Monday; two people of the platform team approve. " * 3
"""
TURN = (
    PROVIDER
    + """
{manager}
manager.initialize_all("s1", platform="cli")

def turn(number):
    manager.on_turn_start(number, QUESTION)
    manager.prefetch_all(QUESTION, session_id="s1")
    manager.sync_all(f"{{number}} {{QUESTION}}", ANSWER, session_id="s1")
    manager.queue_prefetch_all(QUESTION, session_id="s1")

for number in range(200):
    turn(number)
manager.flush_pending(10)
cpu, wall = time.process_time(), time.perf_counter()
times = []
for number in range({turns}):
    begin = time.perf_counter()
    turn(number)
    times.append(time.perf_counter() - begin)
wall = (time.perf_counter() - wall) / {turns}
manager.flush_pending(30)
times.sort()
print(json.dumps({{"wall": wall, "median": times[len(times) // 2],
    "p99": times[len(times) * 99 // 100], "cpu": (time.process_time() - cpu) / {turns}}}))
manager.shutdown_all()
"""
)
NO_OP = """def on_turn_start(self, turn_number, message, **kwargs): pass
    def prefetch(self, query, *, session_id=""): return ""
    def queue_prefetch(self, query, *, session_id=""): pass
    def sync_turn(self, user_content, assistant_content, *, session_id="", messages=None): pass"""
COUNTING = """seen = 0
    def count(self): self.seen += 1
    def on_turn_start(self, turn_number, message, **kwargs): self.count()
    def prefetch(self, query, *, session_id=""): self.count(); return ""
    def queue_prefetch(self, query, *, session_id=""): self.count()
    def sync_turn(self, user_content, assistant_content, *, session_id="", messages=None):
        self.count()"""
FAILING = """def sync_turn(self, user_content, assistant_content, *, session_id="", messages=None):
        raise ConnectionError("down")"""

OUR_NAMES = "from hermes_core import MemoryManager, MemoryProvider"
OUR_MANAGER = """
from hermes_builtin import BuiltinProvider
manager = MemoryManager(home=home, log_calls=True)
manager.add_provider(BuiltinProvider())
manager.add_provider(External())
"""
THEIR_NAMES = """
from agent.memory_manager import MemoryManager
from agent.memory_provider import MemoryProvider
"""
THEIR_MANAGER = "manager = MemoryManager(); manager.add_provider(External())"
BACKLOG = (
    PROVIDER
    + """
{manager}
manager.initialize_all("s1", platform="cli")
def memory():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
import logging; logging.disable()
for number in range(500):
    manager.sync_all(f"{{number}} {{QUESTION}}", ANSWER)
before, wall = memory(), time.perf_counter()
for number in range({down}):
    manager.sync_all(f"{{number}} {{QUESTION}}", ANSWER)
wall = time.perf_counter() - wall
print(json.dumps({{"rate": {down} / wall, "grown": memory() - before,
    "file": os.path.getsize(home + "/outbox.db") / 1e6}}))
os._exit(0)
"""
)
ALONE = "manager = MemoryManager(home=home); manager.add_provider(External())"


def main() -> None:
    venvs = {
        "ours": (ours(), OUR_NAMES, OUR_MANAGER),
        "hermes-agent": (peer(), THEIR_NAMES, THEIR_MANAGER),
    }
    report = Report(f"A whole turn, archive and outbox on, {TURNS} turns x {ROUNDS}")
    for kind, methods in (("a no-op provider", NO_OP), ("one that counts", COUNTING)):
        results: dict[str, list[dict[str, float]]] = {name: [] for name in venvs}
        for _ in range(ROUNDS):
            for name, (venv, imports, manager) in venvs.items():
                code = TURN.format(imports=imports, manager=manager, methods=methods, turns=TURNS)
                results[name].append(json.loads(venv.run("-c", code)))
        for figure in ("wall", "median", "p99", "cpu"):
            rows = {f"{n}, {kind}, {figure}": [e[figure] for e in r] for n, r in results.items()}
            report.samples(rows)
        middle = {name: median(each["wall"] for each in r) for name, r in results.items()}
        ratio = middle["ours"] / middle["hermes-agent"]
        # In a loop without a model, the next turn waits for the delivery of this one.
        print(f"  ours / hermes-agent, {kind}, wall: {ratio:.2f}")
        if methods is COUNTING:
            report.at_most(f"ms of a turn, {kind}", middle["ours"] * 1000, 0.96)
    backlog = []
    for _ in range(ROUNDS):
        code = BACKLOG.format(imports=OUR_NAMES, manager=ALONE, methods=FAILING, down=DOWN)
        backlog.append(json.loads(venvs["ours"][0].run("-c", code)))
    rate = median(each["rate"] for each in backlog)
    report.at_least(f"turns kept per second, backend down, {DOWN} turns", rate, 5000)
    report.at_most("MB of memory that they took", median(e["grown"] for e in backlog), 8)
    report.close()


if __name__ == "__main__":
    main()
