"""Activates a provider in a child process, to see whether it would work.

A plugin may hang, exit, crash the interpreter or leave servers behind when it loads. Here
none of that reaches us: the child has a deadline, and all that it started ends with it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Sequence
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
    request = {"path": sys.path, "home": str(config.home), "choice": choice}
    process = subprocess.Popen(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", _CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=os.name == "posix",
    )
    plugin = f"plugin {choice or config.selection.name}"
    try:
        output, _ = process.communicate(json.dumps(request).encode(), timeout=limit)
    except subprocess.TimeoutExpired:
        return Trial(problems=(f"{plugin}: no end after {limit:g} s",))
    finally:
        _end(process)
    try:
        return Trial(**{key: _frozen(value) for key, value in json.loads(output).items()})
    except ValueError:
        code = process.returncode
        return Trial(
            problems=(f"{plugin}: it ended the process that loaded it (exit code {code})",)
        )


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the child and whatever it has started."""
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


def child(request: dict[str, Any]) -> NoReturn:
    """The child's side: the answer goes to stdout, which the plugin does not get to see."""
    answer = os.dup(1)
    os.dup2(2, 1)
    try:
        home, choice = Path(request["home"]), request["choice"]
        result = _provider_alone(home, choice) if choice else _as_an_agent(home)
    except BaseException as error:  # noqa: BLE001 - the answer is the only way to tell
        result = _answer([error])
    os.write(answer, json.dumps(result).encode())
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
