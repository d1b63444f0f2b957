"""Runs our own code in a child process, where a plugin may hang, exit or crash.

None of that reaches us: the child has a deadline, and all that it started ends with it.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

from hermes_core.processes import end_tree

# The parent's import path comes first: it is where the plugin was found.
_CHILD: Final = (
    "import json, sys; request = json.load(sys.stdin); sys.path[:] = request['path']; "
    "from importlib import import_module; "
    "getattr(import_module(request['module']), 'child')(request)"
)

Progress = Callable[[], object]

#: In the environment of the child and, unless they clear it, of all that it starts.
TOKEN: Final = "HERMES_PLUGINS_TRIAL"  # noqa: S105 - a name


def run_child(
    module: str,
    request: Mapping[str, Any],
    environment: Mapping[str, str],
    limit: float,
    *,
    output: int | IO[bytes] = subprocess.DEVNULL,
    cwd: Path | None = None,
    progress: Progress | None = None,
) -> int | None:
    """Run ``child(request)`` of a module, and end all that it leaves behind.

    Args:
        module: The module that has the function.
        request: What it is given; must be fit for JSON.
        environment: The child's whole environment.
        limit: Seconds until it is ended.
        output: Where its standard output and error go.
        cwd: Where it runs; by default where we do.
        progress: What it has done so far; while that changes, it may go on.

    Returns:
        Its exit code; None if it did not end in time.
    """
    token = secrets.token_hex(16)
    process = subprocess.Popen(  # noqa: S603 - our own interpreter
        [sys.executable, "-P", "-c", _CHILD],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=output,
        start_new_session=os.name == "posix",
        env={**environment, TOKEN: token},
        cwd=cwd,
    )
    try:
        # Written at once and waited for by its exit: a process that it leaves behind may
        # hold its pipes open for ever.
        with suppress(BrokenPipeError):
            if process.stdin is not None:
                told = {"path": sys.path, "module": module, **request}
                process.stdin.write(json.dumps(told).encode())
                process.stdin.close()
        return _exit_code(process, limit, progress)
    finally:
        end_tree(process, grace=0)
        for each in marked(token):
            with suppress(OSError):
                os.kill(each, signal.SIGKILL)


def _exit_code(
    process: subprocess.Popen[bytes], limit: float, progress: Progress | None
) -> int | None:
    """None if after the limit it still runs, and has come no further."""
    before = progress() if progress is not None else None
    while True:
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            now = progress() if progress is not None else None
            if now == before:
                return None
            before = now


def marked(token: str) -> list[int]:
    """The processes with that token in their environment, where the system shows it (Linux)."""
    mark = f"{TOKEN}={token}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return found
