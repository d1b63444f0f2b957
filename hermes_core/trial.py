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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NoReturn

from hermes_core.activation import activate, deadlines_of
from hermes_core.config import Config, Selection, load_config
from hermes_core.names import split_choice

# The parent's import path comes first: it is where the plugin was found.
_CHILD: Final = (
    "import json, sys; request = json.load(sys.stdin); sys.path[:] = request['path']; "
    "from hermes_core.trial import child; child(request)"
)
_START_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of it. ``error`` is "" if the provider loads and is available."""

    provider_name: str = ""
    loaded: bool = False
    error: str = ""
    warning: str = ""
    traceback: str = ""


def try_activation(config: Config, choice: str = "") -> Trial:
    """Activate the provider that the configuration, or ``choice``, names."""
    deadlines = deadlines_of(config)
    limit = _START_SECONDS + deadlines.load + 2 * deadlines.available
    request = {"path": sys.path, "home": str(config.home), "choice": choice}
    process = subprocess.Popen(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", _CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=os.name == "posix",
    )
    try:
        output, _ = process.communicate(json.dumps(request).encode(), timeout=limit)
    except subprocess.TimeoutExpired:
        return Trial(error=f"plugin {choice or config.selection.name}: no end after {limit:g} s")
    finally:
        _end(process)
    try:
        return Trial(**json.loads(output))
    except ValueError:
        return Trial(
            error=f"plugin {choice or config.selection.name}: "
            f"it ended the process that loaded it (exit code {process.returncode})"
        )


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
        result = _activate(Path(request["home"]), request["choice"])
    except BaseException as error:  # noqa: BLE001 - the answer is the only way to tell
        result = {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
    os.write(answer, json.dumps(result).encode())
    os._exit(0)  # a plugin's threads must not hold us up


def _activate(home: Path, choice: str) -> dict[str, Any]:
    config = load_config(home)
    if choice:
        config = replace(config, selection=Selection(*split_choice(choice)))
    activation = activate(config)
    if activation.error is not None:
        shown = traceback.format_exception(activation.error)
        return {
            "loaded": activation.provider is not None,
            "error": str(activation.error),
            "traceback": "".join(shown),
        }
    name = str(activation.provider.name) if activation.provider is not None else ""
    return {"provider_name": name, "loaded": bool(name), "warning": activation.warning}
