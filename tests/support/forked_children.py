"""Child processes for tests that start many: forked from a server that has imported the kit.

An interpreter takes most of a second of CPU to start and import; a fork takes none. What a check
sees is the same, except at the very end of a process: use real processes for that.
"""

from __future__ import annotations

import multiprocessing
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from hermes_core.conformance.checks import FAMILIES
from hermes_core.storage.child import TOKEN
from hermes_core.storage.processes import end_tree

_PRELOADED = [
    "support.forked_children",
    "hermes_core.conformance._runner",
    *(f"hermes_core.conformance.checks.{family}" for family in FAMILIES),
]


def run_forked(
    call: Callable[[], object],
    environment: Mapping[str, str],
    limit: float,
    *,
    output: IO[bytes],
    cwd: Path,
    progress: Callable[[], object],
) -> int | None:
    """Like `run_child`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    env = {**environment, TOKEN: secrets.token_hex(16)}
    arguments = (call, env, output.name, str(cwd), list(sys.path))
    process = context.Process(target=_run, args=arguments)
    process.start()
    before = progress()
    while True:
        process.join(limit)
        now = progress()
        if process.exitcode is not None or now == before:
            break
        before = now
    code = process.exitcode
    end_tree(_Ended(process), grace=0)
    return code


class _Ended:
    """A process of multiprocessing with the methods of `subprocess.Popen`."""

    args = "forked"

    def __init__(self, process: Any) -> None:
        self._process = process
        self.pid: int = process.pid

    def poll(self) -> int | None:
        code: int | None = self._process.exitcode
        return code

    def wait(self, timeout: float | None = None) -> int | None:
        self._process.join(timeout)
        if self.poll() is None:
            raise subprocess.TimeoutExpired("forked", timeout or 0)
        return self.poll()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def _run(
    call: Callable[[], object],
    environment: Mapping[str, str],
    output: str,
    cwd: str,
    path: list[str],
) -> None:
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    sys.path[:] = path
    file = os.open(output, os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(file, stream)
    call()
