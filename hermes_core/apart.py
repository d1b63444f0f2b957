"""Runs what uses plugins in a child process.

A plugin may hang, exit, crash the interpreter or leave servers behind. Here none of that
reaches us: the child has a deadline, and all that it started ends with it.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

from hermes_core.activation import deadlines_of
from hermes_core.config import Config
from hermes_core.errors import describe
from hermes_core.names import BUILTIN

# The parent's import path comes first: it is where the plugin was found.
_CHILD: Final = (
    "import json, sys; request = json.load(sys.stdin); sys.path[:] = request['path']; "
    "from hermes_core.apart import child; child(request)"
)
_START_SECONDS: Final = 10.0

# In the environment of the child and, unless they clear it, of all that it starts.
_TOKEN: Final = "HERMES_PLUGINS_TRIAL"  # noqa: S105 - a name

#: What a child says last, if it came to its end; with a reason if that was an error.
_ENDED: Final = "ended"

#: Takes a row of a child's answer to its parent.
Tell = Callable[[dict[str, Any]], None]
Progress = Callable[[], object]


class Apart(NamedTuple):
    """What a function in a child process told, and why it did not come to its end, if so."""

    rows: list[dict[str, Any]]
    problem: str = ""


def run_apart(
    config: Config,
    function: str,
    arguments: dict[str, Any],
    *,
    seconds: float = 0.0,
    what: str = "",
    progress: Progress | None = None,
) -> Apart:
    """Have a function that uses plugins run in a child process.

    Args:
        config: What config.yaml says.
        function: Which, as ``module:name``. It gets a `Tell` for each row of its answer.
        arguments: What else it gets.
        seconds: How long it may take, besides loading the plugins.
        what: Whose fault it is if it does not end.
        progress: What it has done so far; while that changes, it may go on.
    """
    limit = _limit(config) + seconds
    what = what or f"plugin {config.selection.name or BUILTIN}"
    request = {"function": function, "arguments": arguments}
    code, rows = _asked(request, config, limit, progress)
    if rows and _ENDED in rows[-1]:
        return Apart(rows[:-1], rows[-1][_ENDED])
    if code is None:
        return Apart(rows, f"{what}: no end after {limit:g} s")
    return Apart(rows, f"{what}: it ended the process that loaded it (exit code {code})")


def _limit(config: Config) -> float:
    deadlines = deadlines_of(config)
    return _START_SECONDS + deadlines.load * (1 + len(config.observers)) + 2 * deadlines.available


def _asked(
    request: dict[str, Any], config: Config, limit: float, progress: Progress | None
) -> tuple[int | None, list[dict[str, Any]]]:
    """A child's exit code, None if it did not end; and the rows of its answer."""
    with tempfile.TemporaryDirectory(prefix="hermes-trial-", ignore_cleanup_errors=True) as folder:
        answer = Path(folder, "answer.jsonl")
        request = {"path": sys.path, "answer": str(answer), **request}
        code = _run_child(request, {"HERMES_HOME": str(config.home)}, limit, progress)
        try:
            lines = answer.read_bytes().splitlines()
        except OSError:
            return code, []
    return code, [row for line in lines if isinstance(row := _parsed(line), dict)]


def _parsed(line: bytes) -> Any:
    """What a line says; None if the child ended before it was complete."""
    try:
        return json.loads(line)
    except ValueError:
        return None


def _run_child(
    request: dict[str, Any], environment: dict[str, str], limit: float, progress: Progress | None
) -> int | None:
    """Run the child, and end all that it leaves behind; gives its exit code."""
    token = secrets.token_hex(16)
    process = subprocess.Popen(  # noqa: S603 - our own interpreter
        [sys.executable, "-P", "-c", _CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=os.name == "posix",
        env={**os.environ, **environment, _TOKEN: token},
    )
    try:
        # Written at once and waited for by its exit: a process that it leaves behind may
        # hold its pipes open for ever.
        with suppress(BrokenPipeError):
            if process.stdin is not None:
                process.stdin.write(json.dumps(request).encode())
                process.stdin.close()
        return _exit_code(process, limit, progress)
    finally:
        _end(process)
        _end_marked(token)


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


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the child and its process group."""
    if os.name == "posix":
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            process.kill()
    else:
        subprocess.run(  # noqa: S603
            ["taskkill", "/T", "/F", "/PID", str(process.pid)],  # noqa: S607
            check=False,
            capture_output=True,
        )
    process.wait()


def _end_marked(token: str) -> None:
    """End what went into a session of its own, where the system shows it (Linux)."""
    mark = f"{_TOKEN}={token}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (folder / "environ").read_bytes():
                os.kill(int(folder.name), signal.SIGKILL)


def child(request: dict[str, Any]) -> NoReturn:
    """The child's side: each row goes to a file as it comes, since a plugin may end us."""
    module, _, name = request["function"].partition(":")
    with Path(request["answer"]).open("a", encoding="utf-8") as answer:

        def tell(row: dict[str, Any]) -> None:
            answer.write(json.dumps(row) + "\n")
            answer.flush()

        try:
            getattr(import_module(module), name)(tell, **request["arguments"])
            tell({_ENDED: ""})
        except BaseException as error:  # noqa: BLE001 - the answer is the only way to tell
            tell({_ENDED: describe(error)})
    os._exit(0)  # a plugin's threads must not hold us up
