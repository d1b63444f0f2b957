"""A turn with the plugin in its own process (`isolation: process`), beside the same plugin in ours.

Both managers come from a config.yaml and take turns in one run. A turn is the four calls of an
agent, until everything is delivered; "waits" is only the part for which an agent waits.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from statistics import median

from hermes_core import MemoryManager

ROUNDS = 5
TURNS = 200
PLUGIN = """
from hermes_core import MemoryProvider

class External(MemoryProvider):
    name = "ext"
    seen = 0
    def is_available(self): return True
    def initialize(self, session_id, **kwargs): pass
    def get_tool_schemas(self): return []
    def on_turn_start(self, turn_number, message, **kwargs): self.seen += 1
    def prefetch(self, query, *, session_id=""): return "recalled " + query
    def queue_prefetch(self, query, *, session_id=""): self.seen += 1
    def sync_turn(self, user_content, assistant_content, *, session_id="", messages=None):
        self.seen += 1
"""
QUESTION = "How do we deploy the billing service, and who has to approve it? " * 3
ANSWER = "With make release, every second Monday; two people of the platform team approve. " * 3


def manager(isolation: str) -> MemoryManager:
    home = Path(tempfile.mkdtemp(prefix="isolation-bench-"))
    folder = home / "plugins" / "ext"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(PLUGIN)
    text = f"memory:\n  provider: ext\n  ext:\n    isolation: {isolation}\n"
    (home / "config.yaml").write_text(text)
    made = MemoryManager.from_config(home)
    made.initialize_all("s1", platform="cli")
    return made


def turn(made: MemoryManager, number: int) -> tuple[float, float]:
    """How long an agent waits, and how long it takes until all is delivered."""
    begin = time.perf_counter()
    made.on_turn_start(number, QUESTION)
    made.recall_block(QUESTION)
    made.sync_all(f"{number} {QUESTION}", ANSWER)
    made.queue_prefetch_all(QUESTION)
    waits = time.perf_counter() - begin
    made.flush_pending(30)
    return waits, time.perf_counter() - begin


def main() -> None:
    begin = time.perf_counter()
    ours = manager("none")
    first = time.perf_counter() - begin
    begin = time.perf_counter()
    theirs = manager("process")
    second = time.perf_counter() - begin
    found: dict[str, list[list[float]]] = {"none": [[], []], "process": [[], []]}
    for _ in range(ROUNDS):
        for name, made in (("none", ours), ("process", theirs)):
            times = [turn(made, number) for number in range(TURNS)]
            for kind in (0, 1):
                found[name][kind].append(median(each[kind] for each in times))
    for label, kind in (("an agent waits", 0), ("until delivered", 1)):
        plain, isolated = (median(found[name][kind]) for name in ("none", "process"))
        print(
            f"{label}: in-process {plain * 1000:.2f} ms, isolated {isolated * 1000:.2f} ms, "
            f"ratio {isolated / plain:.2f}"
        )
    print(f"from_config and start: in-process {first:.2f} s, isolated {second:.2f} s")
    print(f"load {os.getloadavg()[0]:.1f}")
    for made in (ours, theirs):
        made.shutdown_all()


if __name__ == "__main__":
    main()
