"""One session of a conversation with the provider of a home, as an agent would have it.

Run in the environment of a plugin: ``converse.py HOME tell|ask``. Prints one JSON object.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from time import perf_counter
from typing import Any

FACT = "My favourite fruit is the mangosteen, and I keep a parrot called Quetzal."
TRUTH = "mangosteen"


def main() -> None:
    """Build a manager from the configuration, talk, and say how it went."""
    home, part = Path(sys.argv[1]), sys.argv[2]
    print(json.dumps(Session(home).run(part)))


class Session:
    """What happened at each step."""

    def __init__(self, home: Path) -> None:
        from hermes_core import MemoryManager

        self.report: dict[str, Any] = {"problems": [], "failures": {}, "seconds": {}}
        began = perf_counter()
        self.manager = MemoryManager.from_config(home)
        self.report["seconds"]["from_config"] = round(perf_counter() - began, 2)
        self.report["problems"] = [str(each) for each in self.manager.problems]
        external = [each for each in self.manager.providers if each.name != "builtin"]
        self.external = external[0] if external else None

    def run(self, part: str) -> dict[str, Any]:
        """A session: start, a turn or two, tools, end."""
        report, manager = self.report, self.manager
        if self.external is None:
            return {**report, "loads": False}
        report |= {"loads": True, "name": self.external.name}
        manager.initialize_all(f"session-{part}", platform="cli", user_id="somebody")
        report["own_tools"] = sorted(manager.get_all_tool_names() - {"memory", "session_search"})
        manager.build_system_prompt()
        if part == "tell":
            self._turn(1, FACT, "Noted: mangosteen, and Quetzal the parrot.")
            self._turn(2, "I live in Reykjavik and work at night.", "Noted.")
            report["recalls_in_session"] = self._recalls()
        else:
            report["recalls"] = self._recalls()
            report["tools"] = self._tools()
        manager.on_session_end([{"role": "user", "content": FACT}])
        report["flushed"] = manager.flush_pending(10)
        began = perf_counter()
        manager.shutdown_all()
        report["seconds"]["shutdown"] = round(perf_counter() - began, 2)
        self._look_back()
        return report

    def _turn(self, number: int, message: str, answer: str) -> None:
        manager = self.manager
        manager.on_turn_start(number, message)
        manager.recall_block(message)
        manager.sync_all(message, answer, messages=[{"role": "user", "content": message}])
        manager.queue_prefetch_all(message)
        manager.flush_pending(10)

    def _recalls(self) -> bool:
        """Whether the fact comes back, at once or for the next turn."""
        question = "Which is my favourite fruit?"
        for _ in range(3):
            outcomes = self.manager.recall(question).outcomes
            if any(TRUTH in str(each.value) for each in outcomes if each.provider != "builtin"):
                return True
            self.manager.queue_prefetch_all(question)
            self.manager.flush_pending(5)
        return False

    def _tools(self) -> dict[str, int]:
        """How the provider's own tools answer to what a model may send."""
        count = {"object": 0, "error": 0, "other": 0}
        for name in self.report["own_tools"]:
            answer = self.manager.handle_tool_call(name, {"query": "fruit", "content": FACT})
            try:
                value = json.loads(answer)
            except ValueError:
                count["other"] += 1
            else:
                failed = isinstance(value, dict) and value.get("error")
                count["error" if failed else "object"] += 1
        return count

    def _look_back(self) -> None:
        report = self.report
        name = next((each for each in self.manager.health() if each != "builtin"), "")
        health = self.manager.health().get(name, {})
        report["failures"] = {k: v.last_error for k, v in health.items() if v.failures}
        report["initialises"] = "initialize" not in report["failures"]
        report["seconds"] |= {k: round(v.last_seconds, 2) for k, v in health.items()}
        sync = health.get("sync_turn")
        report["stores"] = sync is not None and sync.calls > 0 and not sync.failures
        report["warnings"] = list(self.manager.warnings)
        ours = ("MainThread", "memory-", "load-", "outbox")
        report["threads_left"] = sorted(
            each.name for each in threading.enumerate() if not each.name.startswith(ours)
        )


if __name__ == "__main__":
    main()
