"""How many functions of ours, in how many files, one `recall_block` and one `sync_all` call.

Counted in the steady state, with an external provider that does something; on the caller's thread,
and on all threads until the call's work is done. ``--list`` prints the functions.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from inspect import CO_GENERATOR
from pathlib import Path
from types import FrameType
from typing import Any

import hermes_core
from hermes_builtin import BuiltinProvider
from hermes_core import MemoryManager, MemoryProvider

CORE = str(Path(hermes_core.__file__).parent)
WARM_UP = 20


class Remembering(MemoryProvider):
    """Keeps turns in a list and recalls the last one."""

    name = "remembering"

    def __init__(self) -> None:
        self.turns: list[str] = []

    def is_available(self) -> bool:
        return True

    def initialize(self, session_id: str, **_: Any) -> None:
        self.turns.append(session_id)

    def prefetch(self, query: str, *, session_id: str = "") -> str:
        return f"{self.turns[-1]}, and you ask {query!r} in {session_id}"

    def sync_turn(self, user_content: str, assistant_content: str, **kwargs: Any) -> None:
        self.turns.append(f"{user_content} {assistant_content} {len(kwargs)}")

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        return []


class Calls:
    """Counts the calls of functions below ``hermes_core``, on threads that start after it."""

    def __init__(self) -> None:
        self.own: Counter[tuple[str, str]] = Counter()
        self.beside: Counter[tuple[str, str]] = Counter()
        self._counts = False
        self._caller = threading.get_ident()
        threading.setprofile(self._count)

    def _count(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        name = code.co_filename
        if not self._counts or event != "call" or not name.startswith(CORE):
            return
        resumed = code.co_flags & CO_GENERATOR and frame.f_lasti > 0
        if not code.co_name.startswith("<") and not resumed:  # a comprehension is not a call
            mine = threading.get_ident() == self._caller
            where = Path(name).relative_to(CORE).as_posix()
            (self.own if mine else self.beside)[where, code.co_qualname] += 1

    def count(self, call: Callable[[], Any], finish: Callable[[], Any]) -> None:
        """Count what ``call`` does here, and what other threads do until ``finish`` returns."""
        self.own.clear()
        self.beside.clear()
        self._counts = True
        sys.setprofile(self._count)
        call()
        sys.setprofile(None)
        finish()
        self._counts = False


def main() -> None:
    counted = Calls()
    with tempfile.TemporaryDirectory() as home:
        manager = MemoryManager(home=home)
        manager.add_provider(BuiltinProvider())
        manager.add_provider(Remembering())
        manager.initialize_all("s1", platform="cli")
        for number in range(WARM_UP):
            manager.recall_block(f"question {number}")
            manager.sync_all(f"question {number}", "answer")
        manager.flush_pending(10)
        calls = {
            "recall_block": lambda: manager.recall_block("How do we deploy?"),
            "sync_all": lambda: manager.sync_all("How do we deploy?", "With make release."),
        }
        for name, call in calls.items():
            counted.count(call, lambda: manager.flush_pending(10))
            both = counted.own + counted.beside
            print(
                f"{name}: {counted.own.total()} calls in {_files(counted.own)} files on the "
                f"caller's thread; {both.total()} in {_files(both)} until its work is done"
            )
            if "--list" in sys.argv:
                for (where, function), times in counted.own.items():
                    print(f"  {times:3} {where}: {function}")
                print("  on other threads:")
                for (where, function), times in counted.beside.items():
                    print(f"  {times:3} {where}: {function}")
        manager.shutdown_all()


def _files(counted: Counter[tuple[str, str]]) -> int:
    return len({where for where, _ in counted})


if __name__ == "__main__":
    main()
