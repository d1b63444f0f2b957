"""Activates a provider in a child process, to see whether it would work.

A plugin may hang, exit, crash the interpreter or leave servers behind when it loads. Here
none of that reaches us: the child has a deadline, and all that it started ends with it.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from hermes_core.activation import activate, deadlines_of
from hermes_core.config import Config, Selection, load_config
from hermes_core.errors import HermesError
from hermes_core.manager import MemoryManager
from hermes_core.names import BUILTIN, split_choice

# The parent's import path comes first: it is where the plugin was found.
_CHILD: Final = (
    "import json, sys; request = json.load(sys.stdin); sys.path[:] = request['path']; "
    "from hermes_core.trial import child; child(request)"
)
_START_SECONDS: Final = 10.0

# In the environment of the child and, unless they clear it, of all that it starts.
_TOKEN: Final = "HERMES_PLUGINS_TRIAL"  # noqa: S105 - a name


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of it: ``problems`` is empty if everything works."""

    provider_name: str = ""
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    traceback: str = ""


def try_configured(config: Config) -> Trial:
    """Build a manager from config.yaml, as an agent would."""
    return _try(config, "")


def try_provider(config: Config, choice: str) -> Trial:
    """Activate the provider ``choice`` (name or name@owner), whatever config.yaml names."""
    return _try(config, choice)


def _try(config: Config, choice: str) -> Trial:
    deadlines = deadlines_of(config)
    limit = _START_SECONDS + deadlines.load * (1 + len(config.observers)) + 2 * deadlines.available
    names = [f"plugin {choice or config.selection.name}"] if choice or config.selection.name else []
    if not choice:
        names += [f"observer {name}" for name in config.observers]
    what = " or ".join(names) or "the built-in"
    with tempfile.TemporaryDirectory(prefix="hermes-trial-", ignore_cleanup_errors=True) as folder:
        answer = Path(folder, "answer.json")
        request = {
            "path": sys.path,
            "home": str(config.home),
            "choice": choice,
            "answer": str(answer),
        }
        code = _run_child(request, {"HERMES_HOME": str(config.home)}, limit)
        if code is None:
            return Trial(problems=(f"{what}: no end after {limit:g} s",))
        try:
            told = json.loads(answer.read_bytes())
        except (OSError, ValueError):
            problem = f"{what}: it ended the process that loaded it (exit code {code})"
            return Trial(problems=(problem,))
    return Trial(**{key: _frozen(value) for key, value in told.items()})


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _run_child(request: dict[str, Any], environment: dict[str, str], limit: float) -> int | None:
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
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        _end(process)
        _end_marked(token)


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
    """The child's side: the answer goes to a file."""
    try:
        home, choice = Path(request["home"]), request["choice"]
        result = _provider_alone(home, choice) if choice else _as_an_agent(home)
    except BaseException as error:  # noqa: BLE001 - the answer is the only way to tell
        result = _answer([error])
    Path(request["answer"]).write_text(json.dumps(result), "utf-8")
    os._exit(0)  # a plugin's threads must not hold us up


def _as_an_agent(home: Path) -> dict[str, Any]:
    manager = MemoryManager.from_config(home)
    external = [each.name for each in manager.providers if each.name != BUILTIN]
    return _answer(list(manager.problems), manager.warnings, *external)


def _provider_alone(home: Path, choice: str) -> dict[str, Any]:
    config = load_config(home)._replace(selection=Selection(*split_choice(choice)))
    activation = activate(config)
    if activation.provider is None:
        return _answer([activation.error] if activation.error else [])
    return _answer([], (), activation.provider.name)


def _answer(
    errors: Sequence[BaseException], warnings: Sequence[str] = (), provider_name: str = ""
) -> dict[str, Any]:
    return {
        "provider_name": provider_name,
        "problems": [_line(error) for error in errors],
        "warnings": list(warnings),
        "traceback": "".join("".join(traceback.format_exception(error)) for error in errors),
    }


def _line(error: BaseException) -> str:
    return str(error) if isinstance(error, HermesError) else f"{type(error).__name__}: {error}"
