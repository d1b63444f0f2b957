"""Activates a provider in a child process, to see whether it would work."""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from hermes_core.activation import Activation, activate, deadlines_of, settings_rows
from hermes_core.apart import Tell, run_apart
from hermes_core.config import Config, Selection, load_config
from hermes_core.doctor._finding import PROBLEM, Finding
from hermes_core.errors import HermesError, describe
from hermes_core.loading import counted
from hermes_core.manager import MemoryManager
from hermes_core.names import BUILTIN, split_choice
from hermes_core.provider import MemoryProvider
from hermes_core.schema import Field
from hermes_core.settings import Sources

_DOCTOR_SECONDS: Final = 120.0


@dataclasses.dataclass(frozen=True, slots=True)
class Trial:
    """What came of it: ``problems`` is empty if everything works.

    ``confirms`` says whether what the provider has taken has reached its backend, ``probes``
    whether it can ask its service (`ask_service`);
    ``own_name`` is what the provider calls itself, ``registers`` what its plugin registers
    besides; both are known as soon as it could be loaded.
    """

    provider_name: str = ""
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    traceback: str = ""
    settings: tuple[dict[str, Any], ...] = ()
    shown: dict[str, str] = dataclasses.field(default_factory=dict)
    confirms: bool = False
    probes: bool = False
    own_name: str = ""
    registers: str = ""


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
    seconds = deadlines_of(config).initialize + _DOCTOR_SECONDS
    arguments = {"home": str(config.home), "write": write, "fix": fix}
    apart = run_apart(
        config, "hermes_core.doctor._provider:tell_findings", arguments, seconds=seconds
    )
    if not apart.problem:
        return apart.rows
    what, _, detail = apart.problem.partition(": ")
    todo = "look at its log, or run: hermes-plugins disable"
    return [*apart.rows, Finding(what, PROBLEM, detail, todo).told()]


def ask_service(config: Config) -> str:
    """What stands between a provider and its service, by its own probe; "" if nothing does."""
    deadlines = deadlines_of(config)
    seconds = deadlines.initialize + deadlines.tool
    arguments = {"home": str(config.home)}
    apart = run_apart(
        config, "hermes_core.doctor._provider:tell_refusals", arguments, seconds=seconds
    )
    return apart.problem or "; ".join(str(row["detail"]) for row in apart.rows)


def _try(config: Config, choice: str, setting: dict[str, str] | None = None) -> Trial:
    names = [f"plugin {choice or config.selection.name}"] if choice or config.selection.name else []
    if not choice:
        names += [f"observer {name}" for name in config.observers]
    what = " or ".join(names) or "the built-in"
    arguments = {"home": str(config.home), "choice": choice, "setting": setting}
    apart = run_apart(config, "hermes_core.trial:attempt", arguments, what=what)
    if apart.problem:
        return Trial(problems=(apart.problem,))
    return Trial(**{key: _frozen(value) for key, value in apart.rows[0].items()})


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def attempt(tell: Tell, home: str, choice: str, setting: dict[str, str] | None) -> None:
    """The child's side."""
    folder = Path(home)
    try:
        if setting:
            result = _one_setting(folder, choice, **setting)
        else:
            result = _provider_alone(folder, choice) if choice else _as_an_agent(folder)
    except BaseException as error:  # noqa: BLE001 - the answer is the only way to tell
        result = _answer([error])
    tell(result)


def _as_an_agent(home: Path) -> dict[str, Any]:
    manager = MemoryManager.from_config(home)
    external = [each.name for each in manager.providers if each.name != BUILTIN]
    result = _answer(list(manager.problems), manager.warnings, *external)
    shown = _status_config(manager)
    provider = _external(manager)
    return {
        **result,
        "settings": list(manager.setting_rows),
        "shown": shown,
        "confirms": getattr(provider, "confirms_delivery", False) is True,
        "probes": callable(getattr(provider, "probe", None)),
    }


def _external(manager: MemoryManager) -> MemoryProvider | None:
    return next((each for each in manager.providers if each.name != BUILTIN), None)


def _status_config(manager: MemoryManager) -> dict[str, str]:
    """What a provider wants to have shown of itself."""
    tell = getattr(_external(manager), "get_status_config", None)
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
    learnt = {"own_name": activation.own_name, "registers": counted(activation.registered)}
    return {**result, "settings": settings_rows(activation), **learnt}


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
