"""Activates a provider in a child process, to see whether it would work.

A plugin may hang, exit, crash the interpreter or leave servers behind when it loads. Here
none of that reaches us: the child has a deadline, and all that it started ends with it.
"""

from __future__ import annotations

import dataclasses
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
from pathlib import Path
from typing import Any, Final, NoReturn

from hermes_core.activation import Activation, activate, deadlines_of, settings_rows
from hermes_core.config import Config, Selection, load_config
from hermes_core.doctor._finding import ENDED, PROBLEM, Finding
from hermes_core.errors import HermesError, describe
from hermes_core.manager import MemoryManager
from hermes_core.names import BUILTIN, split_choice
from hermes_core.schema import Field
from hermes_core.settings import Sources

# The parent's import path comes first: it is where the plugin was found.
_CHILD: Final = (
    "import json, sys; request = json.load(sys.stdin); sys.path[:] = request['path']; "
    "from hermes_core.trial import child; child(request)"
)
_START_SECONDS: Final = 10.0
_DOCTOR_SECONDS: Final = 120.0

# In the environment of the child and, unless they clear it, of all that it starts.
_TOKEN: Final = "HERMES_PLUGINS_TRIAL"  # noqa: S105 - a name


@dataclasses.dataclass(frozen=True, slots=True)
class Trial:
    """What came of it: ``problems`` is empty if everything works."""

    provider_name: str = ""
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    traceback: str = ""
    settings: tuple[dict[str, Any], ...] = ()
    shown: dict[str, str] = dataclasses.field(default_factory=dict)


def try_configured(config: Config) -> Trial:
    """Build a manager from config.yaml, as an agent would."""
    return _try(config, "")


def try_provider(config: Config, choice: str) -> Trial:
    """Activate the provider ``choice`` (name or name@owner), whatever config.yaml names."""
    return _try(config, choice)


def try_setting(config: Config, choice: str, key: str, value: str) -> Trial:
    """Whether a provider would take a value for one of its fields."""
    return _try(config, choice, {"key": key, "value": value})


def run_doctor(config: Config, *, write: bool, fix: bool) -> list[dict[str, Any]]:
    """Examine the built-in and the external provider, by using them."""
    request = {"doctor": True, "write": write, "fix": fix, "home": str(config.home)}
    limit = _limit(config) + deadlines_of(config).initialize + _DOCTOR_SECONDS
    code, answer = _asked(request, config, limit)
    rows = [row for line in answer.splitlines() if isinstance(row := _parsed(line), dict)]
    if not rows or rows[-1] != ENDED:
        detail = "no end" if code is None else f"it ended its process (exit code {code})"
        name = config.selection.name or BUILTIN
        todo = "look at its log, or run: hermes-plugins disable"
        return [*rows, Finding(f"plugin {name}", PROBLEM, detail, todo).told()]
    return rows[:-1]


def _limit(config: Config) -> float:
    deadlines = deadlines_of(config)
    return _START_SECONDS + deadlines.load * (1 + len(config.observers)) + 2 * deadlines.available


def _asked(request: dict[str, Any], config: Config, limit: float) -> tuple[int | None, bytes]:
    """A child's exit code, None if it did not end; and what it answers to a request."""
    with tempfile.TemporaryDirectory(prefix="hermes-trial-", ignore_cleanup_errors=True) as folder:
        answer = Path(folder, "answer.json")
        request = {"path": sys.path, "answer": str(answer), **request}
        code = _run_child(request, {"HERMES_HOME": str(config.home)}, limit)
        try:
            return code, answer.read_bytes()
        except OSError:
            return code, b""


def _parsed(answer: bytes) -> Any:
    """What an answer says; None if the child ended before it was complete."""
    try:
        return json.loads(answer)
    except ValueError:
        return None


def _try(config: Config, choice: str, setting: dict[str, str] | None = None) -> Trial:
    limit = _limit(config)
    names = [f"plugin {choice or config.selection.name}"] if choice or config.selection.name else []
    if not choice:
        names += [f"observer {name}" for name in config.observers]
    what = " or ".join(names) or "the built-in"
    request = {"home": str(config.home), "choice": choice, "setting": setting}
    code, answer = _asked(request, config, limit)
    told = _parsed(answer)
    if code is None:
        return Trial(problems=(f"{what}: no end after {limit:g} s",))
    if told is None:
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
    if request.get("doctor"):
        _examine(request)
    try:
        home, choice = Path(request["home"]), request["choice"]
        if request["setting"]:
            result = _one_setting(home, choice, **request["setting"])
        else:
            result = _provider_alone(home, choice) if choice else _as_an_agent(home)
    except BaseException as error:  # noqa: BLE001 - the answer is the only way to tell
        result = _answer([error])
    _tell(request, result)


def _examine(request: dict[str, Any]) -> NoReturn:
    """Tell each finding as it comes: the plugin may end us before the next."""
    from hermes_core.doctor._provider import examine  # noqa: PLC0415

    home, write, fix = Path(request["home"]), request["write"], request["fix"]
    with Path(request["answer"]).open("a", encoding="utf-8") as answer:

        def tell(row: dict[str, Any]) -> None:
            answer.write(json.dumps(row) + "\n")
            answer.flush()

        try:
            for finding in examine(home, write=write, fix=fix):
                tell(finding.told())
        except BaseException as error:  # noqa: BLE001 - the answer is the only way to tell
            tell(Finding("doctor", PROBLEM, _line(error), "please report it").told())
        tell(ENDED)
    os._exit(0)  # a plugin's threads must not hold us up


def _tell(request: dict[str, Any], result: dict[str, Any]) -> NoReturn:
    Path(request["answer"]).write_text(json.dumps(result), "utf-8")
    os._exit(0)  # a plugin's threads must not hold us up


def _as_an_agent(home: Path) -> dict[str, Any]:
    manager = MemoryManager.from_config(home)
    external = [each.name for each in manager.providers if each.name != BUILTIN]
    result = _answer(list(manager.problems), manager.warnings, *external)
    shown = _status_config(manager)
    return {**result, "settings": list(manager.setting_rows), "shown": shown}


def _status_config(manager: MemoryManager) -> dict[str, str]:
    """What a provider wants to have shown of itself."""
    external = next((each for each in manager.providers if each.name != BUILTIN), None)
    tell = getattr(external, "get_status_config", None)
    if not callable(tell):
        return {}
    values = {row["key"]: row["value"] for row in manager.setting_rows if not row["secret"]}
    try:
        return {str(key): str(value) for key, value in dict(tell(values)).items()}
    except Exception as error:  # noqa: BLE001 - the plugin's own code
        return {"get_status_config": f"failed: {describe(error)}"}


def _provider_alone(home: Path, choice: str) -> dict[str, Any]:
    config = load_config(home)._replace(selection=Selection(*split_choice(choice)))
    activation = activate(config)
    name = "" if activation.provider is None else activation.provider.name
    errors = [] if activation.error is None else [activation.error]
    result = _answer(errors, activation.warnings, name)
    return {**result, "settings": settings_rows(activation)}


def _one_setting(home: Path, choice: str, key: str, value: str) -> dict[str, Any]:
    config = load_config(home)._replace(selection=Selection(*split_choice(choice)))
    activation = activate(config, {key: value})
    if activation.error is not None and not activation.fields:
        return _answer([activation.error])
    field = next((each for each in activation.fields if each.key == key), None)
    row = next((each for each in settings_rows(activation) if each["key"] == key), None)
    problem = _refusal(choice, key, activation, field, row)
    if problem is not None or activation.info is None or field is None or row is None:
        return _answer([problem] if problem else [])
    stronger = Sources(config, activation.info).stronger(field, row["value"])
    return {**_answer([], [stronger] if stronger else []), "settings": [row]}


def _refusal(
    choice: str, key: str, activation: Activation, field: Field | None, row: dict[str, Any] | None
) -> HermesError | None:
    """Why a value can't be set, if it can't."""
    if field is None:
        names = ", ".join(each.key for each in activation.fields) or "none"
        return HermesError(f"{choice} has no field {key}; its fields are: {names}")
    if field.secret:
        return HermesError(
            f"{key} is a secret, and config.yaml is no place for it",
            hint=f"run: hermes-plugins secrets set {field.variable}",
        )
    if row is None:
        return HermesError(f"{key} does not apply now; it does if {field.condition}")
    return HermesError(row["problem"]) if row["problem"] else None


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
