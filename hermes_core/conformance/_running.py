"""What runs in a process beside the kit, and may be left behind: threads, and other processes."""

from __future__ import annotations

import gc
import os
import subprocess
import threading
from typing import Final, NamedTuple

from hermes_core.children import TOKEN, marked

#: The kit's own threads: those that call, and those that load.
_OURS: Final = ("kit-", "load-")


class Running(NamedTuple):
    """What ran at one moment."""

    threads: frozenset[threading.Thread]
    processes: frozenset[int]

    @classmethod
    def now(cls) -> Running:
        """What runs now."""
        return cls(frozenset(threading.enumerate()), frozenset(_processes()))

    def new_threads(self) -> list[str]:
        """The names of threads that have come since, and stayed."""
        new = [each.name for each in threading.enumerate() if each not in self.threads]
        return [name for name in new if not name.startswith(_OURS)]

    def new_processes(self) -> list[int]:
        """The processes that have come since, and stayed."""
        return sorted(set(_processes()) - self.processes)


def _processes() -> list[int]:
    """The processes that this one has started: seen by the system (Linux), or by Python."""
    token = os.environ.get(TOKEN, "")
    seen = [each for each in marked(token) if each != os.getpid()] if token else []
    known = [each for each in gc.get_objects() if isinstance(each, subprocess.Popen)]
    return [*seen, *(each.pid for each in known if each.poll() is None)]
