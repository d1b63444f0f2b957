"""The external provider, proved instead of believed: it is loaded, started and asked.

This runs in a child process, since all of it is the plugin's code.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from inspect import iscoroutine
from pathlib import Path
from typing import Any, Final

from hermes_core.activation import Activation, activate, activate_builtin, deadlines_of
from hermes_core.config import Config, load_config
from hermes_core.discovery import pin_problem, scan
from hermes_core.dispatch import ProviderAdapter
from hermes_core.dispatch._lane import Lane
from hermes_core.dispatch._loop import EventLoop
from hermes_core.dispatch._signature import Invocation
from hermes_core.doctor._dependencies import examine_dependencies
from hermes_core.doctor._finding import OK, PROBLEM, WARNING, Finding
from hermes_core.errors import ConfigError, describe
from hermes_core.masking import masked
from hermes_core.settings import ProviderConfigError

SCRATCH: Final = "hermes-doctor"
_RECALL_SECONDS: Final = 10.0


def examine_builtin(config: Config, *, fix: bool) -> Iterator[Finding]:
    """What the built-in says of its own files."""
    builtin = activate_builtin(config)
    diagnose = getattr(builtin, "diagnose", None)
    if diagnose is None:
        return
    for row in diagnose(config.home, fix=fix):
        yield Finding(*row)


def examine_conflicts(config: Config) -> Iterator[Finding]:
    """Names that two owners claim, and plugins that are broken."""
    for each in scan(config.home, config.selection, everything=True):
        if each.state == "conflict":
            todo = f"choose: hermes-plugins enable {each.name}@OWNER"
            yield Finding(f"plugin {each.name}", PROBLEM, each.problem, todo)
        elif each.state == "broken" and not each.loadable:
            yield Finding(f"plugin {each.name}", WARNING, each.problem, "tell its author")


def examine_provider(config: Config, *, write: bool) -> Iterator[Finding]:
    """The provider that config.yaml names."""
    name = config.selection.name
    if not name:
        yield Finding("external provider", OK, "none is chosen, which is fine")
        return
    activation = activate(config)
    if activation.info is not None:
        changed = pin_problem(activation.info, config.selection)
        if config.selection.pin is None:
            yield Finding("pin", OK, f"not pinned; hermes-plugins enable {name} pins it")
        else:
            state = WARNING if changed else OK
            todo = f"if that was meant: hermes-plugins enable {name}" if changed else ""
            yield Finding("pin", state, changed or "as it was enabled", todo)
        yield from examine_dependencies(activation.info)
    if activation.provider is None:
        yield from _not_active(name, activation)
        return
    yield Finding(f"plugin {name}", OK, "loads, is set up and available")
    for warning in activation.warnings:
        yield Finding(f"plugin {name}", WARNING, warning.removeprefix(f"plugin {name}: "), "")
    for finding in _started(config, name, activation, write=write):
        yield finding._replace(detail=masked(finding.detail, activation.secrets))


def _not_active(name: str, activation: Activation) -> Iterator[Finding]:
    error = activation.error
    if isinstance(error, ProviderConfigError):
        for problem in error.problems:
            yield Finding("setting", PROBLEM, problem, f"run: hermes-plugins setup {name}")
    elif error is not None:
        todo = error.hint or "tell its author, or run: hermes-plugins disable"
        yield Finding(f"plugin {name}", PROBLEM, error.what, todo)


def _started(
    config: Config, name: str, activation: Activation, *, write: bool
) -> Iterator[Finding]:
    deadlines = deadlines_of(config)
    assert activation.provider is not None  # noqa: S101 - the caller looked
    values = activation.settings.values if activation.settings else None
    adapter = ProviderAdapter(activation.provider, name, deadlines=deadlines, config=values)
    try:
        outcome = adapter.initialize(SCRATCH, _scratch(config.home))
        if outcome.error is not None:
            yield Finding("initialize", PROBLEM, describe(outcome.error), "see its documentation")
            return
        yield Finding("initialize", OK, f"{outcome.seconds:.2f} s")
        if callable(getattr(activation.provider, "probe", None)):
            # It writes where it can remove what it wrote; our marker might stay among memories.
            yield from _probe(activation.provider, deadlines.tool, write=write)
        elif write:
            yield from _write(adapter)
        adapter.shutdown()
    finally:
        adapter.close(1)


def _scratch(home: Path) -> dict[str, Any]:
    return {
        "hermes_home": str(home), "platform": "cli", "agent_context": "primary",
        "agent_identity": SCRATCH, "agent_workspace": "hermes", "user_id": SCRATCH,
    }  # fmt: skip


def _probe(provider: Any, deadline: float, *, write: bool) -> Iterator[Finding]:
    lane, loop = Lane("doctor-probe"), EventLoop("doctor-probe-loop")

    def ask() -> tuple[bool, str]:
        result = Invocation(provider.probe)(write)
        result = loop.run(result, deadline) if iscoroutine(result) else result
        return bool(result.ok), str(result.detail)

    try:
        ok, detail = lane.call(ask, deadline)
    except Exception as error:  # noqa: BLE001 - the plugin's own code
        ok, detail = False, describe(error)
    finally:
        lane.close()
        loop.close()
    todo = "" if ok else "see its documentation"
    yield Finding("probe", OK if ok else PROBLEM, detail, todo)


def _write(adapter: ProviderAdapter) -> Iterator[Finding]:
    """A marker in, and out again: asked for by another word, which a provider may repeat."""
    number = f"{time.time_ns():x}"
    asked, marker = f"question-{number}", f"answer-{number[::-1]}"
    text = f"This is a test entry of hermes-plugins doctor: {asked} has the {marker}"
    outcome = adapter.sync_turn(text, "Understood.", SCRATCH, None)
    if outcome.error is not None:
        yield Finding("write", PROBLEM, describe(outcome.error), "the backend does not take turns")
        return
    end = time.monotonic() + _RECALL_SECONDS
    while time.monotonic() < end:
        recalled = adapter.prefetch(asked, SCRATCH)
        if marker in str(recalled.value or ""):
            yield Finding("write", OK, "a marker was written and recalled")
            return
        time.sleep(0.5)
    yield Finding(
        "write",
        WARNING,
        "accepted, not yet recallable",
        "try again in a while; some backends take minutes",
    )


def examine(home: Path, *, write: bool, fix: bool) -> Iterator[Finding]:
    """All that needs the code of providers, the built-in's first."""
    try:
        config = load_config(home)
    except ConfigError:
        yield from examine_builtin(Config(home), fix=fix)
        detail = "not known while config.yaml can't be read"
        yield Finding("external provider", WARNING, detail, "correct config.yaml")
        return
    yield from examine_builtin(config, fix=fix)
    yield from examine_conflicts(config)
    yield from examine_provider(config, write=write)


def tell_findings(
    tell: Callable[[dict[str, Any]], None], home: str, *, write: bool, fix: bool
) -> None:
    """The child's side of `hermes_core.trial.run_doctor`."""
    try:
        for finding in examine(Path(home), write=write, fix=fix):
            tell(finding.told())
    except Exception as error:  # noqa: BLE001 - a plugin's, or ours; what was found before counts
        tell(Finding("doctor", PROBLEM, describe(error), "please report it").told())


def tell_refusals(tell: Callable[[dict[str, Any]], None], home: str) -> None:
    """The child's side of `hermes_core.trial.ask_service`: what a provider's probe finds wrong."""
    config = load_config(Path(home))
    activation = activate(config)
    if activation.provider is None or not callable(getattr(activation.provider, "probe", None)):
        return
    for finding in _started(config, config.selection.name, activation, write=False):
        if finding.state == PROBLEM:
            tell({"detail": masked(finding.detail, activation.secrets)})
