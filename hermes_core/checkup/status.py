"""`status`, `enable`, `setup`, `config set`: whether a provider would work in an agent.

One sandboxed child process per command activates the provider with the same code as an agent,
so the two can't disagree. It scans the installed plugins once, and hashes the pinned one once.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from hermes_core.checkup.child_process import ChildResults, run_plugin_code
from hermes_core.checkup.deliveries import (
    ActiveProvider,
    DeliveryStatus,
    Problem,
    active_provider,
    delivery_status,
)
from hermes_core.checkup.doctor import PROBLEM, home_limits, start_provider
from hermes_core.checkup.forget import INTERRUPTED
from hermes_core.checkup.migration import was_interrupted
from hermes_core.checkup.replayed_turns import interrupted
from hermes_core.checkup.survey import JOURNAL
from hermes_core.config import Config, Selection, load_config
from hermes_core.config.fields import Field, active_fields, when
from hermes_core.config.names import normalise, split_choice
from hermes_core.config.settings import Sources, section_of
from hermes_core.config.setup_journal import SetupJournal, commit, unsaved
from hermes_core.discovery import ProviderInfo, find_provider, manifest_of
from hermes_core.dispatch import SingleProvider, as_builtin
from hermes_core.errors import ConfigError, HermesError, describe
from hermes_core.loading import counted
from hermes_core.loading.activation import (
    Activation,
    activate,
    deadlines_of,
    installed_providers,
    settings_rows,
)
from hermes_core.manager import MemoryManager
from hermes_core.manager.from_config import assemble
from hermes_core.privacy import mask_secrets
from hermes_core.provider import BUILTIN
from hermes_core.secrets import Secrets

#: How long `status` may take if a service does not answer.
STATUS_SECONDS: Final = 10.0
#: Of these, what the rest of the command may take on a busy machine: its start, the end of the
#: child process, and reading the outbox and the call log.
_ENDING_SECONDS: Final = 4.0
#: What is left for the service in any case, however long the plugin took to load.
_LEAST_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Inventory:
    """What is known before any plugin code runs.

    Attributes:
        builtin: The built-in.
        provider: The external provider that config.yaml names; None if it is not installed.
        active: The same, if it may be activated.
    """

    builtin: ProviderInfo
    provider: ProviderInfo | None = None
    active: ActiveProvider = field(default_factory=ActiveProvider)


@dataclass(frozen=True, slots=True)
class ProviderCheck:
    """The result of activating a provider.

    Attributes:
        provider_name: The provider's name; "" if it could not be activated.
        problems: Why it does not work; empty if it does.
        warnings: What a person should look at.
        traceback: Of the problems, for ``--debug``.
        settings: A row for each of its fields, without values of secrets.
        shown: The lines that it adds to ``status``.
        confirms: Whether a write that returned has reached its backend.
        probes: Whether it can test its backend.
        refused: What its probe found wrong, if it was called.
        own_name: What the provider calls itself, once loaded.
        registers: What its plugin registers besides, once loaded.
        withheld: Variables that are set, and that it does not get without a person's consent.
        installed: The installed providers, for a provider that config.yaml names.
    """

    provider_name: str = ""
    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()
    traceback: str = ""
    settings: tuple[dict[str, Any], ...] = ()
    shown: Mapping[str, str] = field(default_factory=dict)
    confirms: bool = False
    probes: bool = False
    refused: str = ""
    own_name: str = ""
    registers: str = ""
    withheld: tuple[str, ...] = ()
    installed: Inventory | None = None

    @property
    def what(self) -> str:
        """The first problem without its hint; "" if there is none."""
        return self.problems[0].what if self.problems else ""

    @property
    def hint(self) -> str:
        """What to do about the first problem, if that is known."""
        return self.problems[0].hint if self.problems else ""


@dataclass(frozen=True, slots=True)
class ProbeFailure:
    """What stands between a provider and its service."""

    detail: str


@dataclass(frozen=True, slots=True)
class HomeStatus:
    """Whether the memory of a home works; what `status` reports.

    Attributes:
        config: What config.yaml says; the defaults if it can't be read.
        check: The result of activating the provider.
        installed: What is installed.
        deliveries: The outbox and the calls of the last day.
        problems: What does not work; empty if everything does.
        warnings: What a person should look at.
    """

    config: Config
    check: ProviderCheck
    installed: Inventory
    deliveries: DeliveryStatus
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()

    @property
    def provider_works(self) -> bool:
        """Whether the external provider loads, answers and accepts writes."""
        # All three, since a provider that loads may still reject every write.
        loads = bool(self.check.provider_name)
        return loads and not self.check.refused and not self.deliveries.failing


def _refusing(check: ProviderCheck) -> Problem:
    """What a provider raised when it was started or probed, with its name."""
    name = check.provider_name
    named = check.refused.startswith((f"{name}: ", f"plugin {name}: "))
    what = check.refused if named else f"plugin {name}: {check.refused}"
    return Problem(what, "see: hermes-plugins doctor")


def home_status(home: Path) -> HomeStatus:
    """Check a home with the code that an agent runs, so that the two can't disagree."""
    try:
        config = load_config(home)
    except ConfigError as error:
        # The defaults: the built-in works without config.yaml, so the rest of the report is still
        # useful.
        config = Config(home)
        *others, last = error.problems
        check = ProviderCheck(problems=(*map(Problem, others), Problem(last, error.hint)))
    else:
        # With a probe: past deliveries do not show whether the service works now.
        check = check_configured(config, probe=True)
    # None if config.yaml is invalid or the child ended before it had scanned.
    installed = check.installed or installed_of(config)
    refused = check.refused
    # A provider without a probe proves nothing by loading: its old failures stay problems.
    deliveries = delivery_status(config, installed.active, answers=check.probes and not refused)
    full, limited = home_limits(home)
    problems = (
        *full,
        *_interrupted(home),
        *check.problems,
        *deliveries.problems,
        *([_refusing(check)] if refused else []),
    )
    own, foreign = map(Problem, check.warnings), map(Problem, _foreign_keys(config))
    warnings = (*limited, *own, *deliveries.warnings, *foreign)
    return HomeStatus(config, check, installed, deliveries, problems, warnings)


def _interrupted(home: Path) -> list[Problem]:
    found = []
    if (home / JOURNAL).exists():
        found.append(Problem(INTERRUPTED, "run: hermes-plugins forget"))
    if was_interrupted(home):
        found.append(Problem("a migration was interrupted", "run: hermes-plugins storage status"))
    found += [
        Problem(
            f"a replay to {each} was interrupted", f"run: hermes-plugins switch {each} --replay"
        )
        for each in interrupted(home)
    ]
    return found


def _foreign_keys(config: Config) -> list[str]:
    """Return one line for all keys of config.yaml that hermes-agent owns: it has a dozen."""
    foreign = [each for each in config.warnings if each not in config.own_warnings]
    # Each warning is "config.yaml:LINE: KEY: unknown key, ...".
    keys = ", ".join(each.split(": ")[1] for each in foreign)
    return [f"config.yaml: keys of other programs, ignored: {keys}"] if keys else []


def check_configured(
    config: Config, *, probe: bool = False, seconds: float = STATUS_SECONDS
) -> ProviderCheck:
    """Activate the provider that config.yaml names, as an agent would.

    Args:
        config: What config.yaml says.
        probe: Whether the provider is started and probes its service, too.
        seconds: The time for the whole command if the service does not answer. Set it to 0 to
            apply the deadlines of config.yaml instead.
    """
    # Wall clock, since the monotonic clocks of two processes need not agree.
    until = time.time() + seconds - _ENDING_SECONDS if probe and seconds else 0.0
    names = [f"plugin {config.selection.name}"] if config.selection.name else []
    names += [f"observer {name}" for name in config.observers]
    deadlines = deadlines_of(config)
    needed = (seconds or deadlines.initialize + deadlines.tool) if probe else 0.0
    done = run_plugin_code(
        config,
        partial(activate_configured, config.home, probe=probe, until=until),
        what=" or ".join(names) or "the built-in",
        seconds=needed,
    )
    return _combined(done)


def check_provider(
    config: Config, choice: str, grants: Sequence[str] | None = None
) -> ProviderCheck:
    """Activate the provider ``choice`` (name or name@owner), whatever config.yaml names.

    Args:
        config: What config.yaml says.
        choice: The provider.
        grants: The variables that it gets although they are not its own; by default those that
            a person granted to it before.
    """
    given = None if grants is None else tuple(grants)
    call = partial(activate_provider, config.home, choice, given)
    return _combined(run_plugin_code(config, call, what=f"plugin {choice}"))


def set_field(
    config: Config, choice: str, key: str, value: str
) -> tuple[ProviderCheck, ProviderCheck | None]:
    """Check a value for one of a provider's fields, and store it if it is valid.

    Returns:
        The field as it is now, in ``settings``, and in ``warnings`` what overrides it; or the
        problem for which nothing was changed. Then, if the value is stored but the plugin has not
        saved it, what it said; otherwise None.
    """
    call = partial(check_and_set_field, config.home, choice, key, value)
    deadlines = deadlines_of(config)  # it is activated twice
    seconds = deadlines.load + 2 * deadlines.available
    done: ChildResults[Inventory | ProviderCheck | ProbeFailure] = run_plugin_code(
        config, call, what=f"plugin {choice}", seconds=seconds
    )
    saving = [each for each in done.results if isinstance(each, ProviderCheck)][1:]
    if done.problem and not saving:  # it ended while it saved the value
        saving = [ProviderCheck(problems=(Problem(done.problem),))]
    return _combined(done), saving[0] if saving else None


def _combined(done: ChildResults[Inventory | ProviderCheck | ProbeFailure]) -> ProviderCheck:
    """One result of the lines that reached us, however far the child got."""
    installed = next((each for each in done.results if isinstance(each, Inventory)), None)
    check = next((each for each in done.results if isinstance(each, ProviderCheck)), None)
    if check is None:
        return ProviderCheck(problems=(Problem(done.problem),), installed=installed)
    failures = [each.detail for each in done.results if isinstance(each, ProbeFailure)]
    # The child may end during the probe, after the check itself was complete.
    refused = "; ".join([*failures, *filter(None, [done.problem])])
    return replace(check, refused=refused, installed=installed)


def installed_of(config: Config) -> Inventory:
    """What is installed, for a command in which no child process looked."""
    return _installed(config, installed_providers(config))


# -- in the child process ---------------------------------------------------------------------


def activate_configured(
    home: Path, *, probe: bool, until: float
) -> Iterator[Inventory | ProviderCheck | ProbeFailure]:
    """Build a manager as an agent does; then start the provider and probe its service.

    Args:
        home: HERMES_HOME.
        probe: Whether to probe.
        until: When the probe has to be done, as `time.time` counts; 0 for no such limit.
    """
    config = load_config(home)
    found = installed_providers(config)
    # Before any plugin code: if the plugin kills the process, `status` still knows what it is.
    yield _installed(config, found)
    try:
        manager, activation = assemble(MemoryManager, home, found)
        result = _as_an_agent(manager, activation, home)
    except BaseException as error:  # noqa: BLE001 - plugin code; the result says so
        yield _result([error])
        return
    yield result
    # Without a probe, too: a provider that loads may still not start.
    if probe and result.provider_name:
        seconds = max(until - time.time(), _LEAST_SECONDS) if until else 0.0
        for finding in start_provider(config, activation, write=False, seconds=seconds):
            if finding.state == PROBLEM:
                yield ProbeFailure(mask_secrets(finding.detail, activation.secrets))


def activate_provider(
    home: Path, choice: str, grants: tuple[str, ...] | None = None
) -> Iterator[ProviderCheck]:
    """Activate a provider, as `enable` does before it changes anything."""
    config = _choosing(load_config(home), choice)
    if grants is not None:
        given = {normalise(config.selection.name): grants}
        config = config._replace(selection=config.selection._replace(grants=given))
    activation = activate(config)
    name = "" if activation.provider is None else activation.provider.name
    errors = [] if activation.error is None else [activation.error]
    yield replace(
        _result(errors, activation.warnings, name),
        settings=tuple(settings_rows(activation)),
        own_name=activation.own_name,
        registers=counted(activation.registered),
        withheld=activation.withheld,
    )


def check_and_set_field(home: Path, choice: str, key: str, value: str) -> Iterator[ProviderCheck]:
    """Activate a provider with another value for a field; store the value if that is valid."""
    config = _choosing(load_config(home), choice)
    installed = installed_providers(config)
    # As an argument the value wins over every source, so exactly this value is checked.
    activation = activate(config, {key: value}, installed)
    activation.lease.release()
    if activation.error is not None and not activation.fields:
        yield _result([activation.error])
        return
    values = activation.settings.values if activation.settings is not None else {}
    current = active_fields(activation.fields, values)
    field = next((each for each in current if each.key == key), None)
    row = next((each for each in settings_rows(activation) if each["key"] == key), None)
    problem = _refusal(choice, key, activation, field, row)
    if problem is not None or activation.info is None or field is None or row is None:
        yield _result([problem] if problem else [])
        return
    name = activation.info.name
    path = ("memory", section_of(config, name, activation.own_name)[0], key)
    # Through the journal, so that ``save_config`` is called even if this process ends now.
    journal = SetupJournal(name, [(path, row["value"])], [])
    try:
        commit(home, Secrets(home, config.secrets_backend), journal, {})
    except HermesError as error:
        yield _result([error])
        return
    # Without the argument: what would win over config.yaml in a real agent.
    sources = Sources(config, activation.info, manifest_of(activation.info))
    stronger = sources.stronger(field, row["value"])
    settings = ({**row, "name": ".".join(path)},)
    yield replace(_result([], [stronger] if stronger else []), settings=settings)
    # The journal is there until the plugin has saved the value, too. If that fails now, the next
    # process that activates the plugin tries again.
    again = activate(_choosing(load_config(home), choice), installed=installed)
    if unsaved(home, name) is not None:
        yield _result([] if again.error is None else [again.error], again.warnings)


def _choosing(config: Config, choice: str) -> Config:
    """The configuration with another provider; without pins, since `enable` accepts a change."""
    known = config.selection
    selection = Selection(*split_choice(choice), facts=known.facts, grants=known.grants)
    return config._replace(selection=selection)


def _installed(config: Config, found: list[ProviderInfo]) -> Inventory:
    selection = config.selection
    same = [each for each in found if each.key == normalise(selection.name)]
    same = [each for each in same if not selection.owner or each.owned_by(selection.owner)]
    return Inventory(
        find_provider(BUILTIN, found),
        same[0] if same and selection.name else None,
        active_provider(config, found),
    )


def _as_an_agent(manager: MemoryManager, activation: Activation, home: Path) -> ProviderCheck:
    external = [each.name for each in manager.providers if each.name != BUILTIN]
    shown: dict[str, Any] = {}
    if external and activation.provider is not None:
        with SingleProvider(activation.provider, external[0]) as single:
            shown = {
                "shown": _status_lines(single, manager.setting_rows),
                "confirms": single.confirms_delivery,
                "probes": single.overrides("probe"),
            }
    # Last, so that the warnings say what these calls have changed in the process, too.
    return replace(
        _result(
            [*manager.problems, *_unusable(manager, home)],
            [*manager.warnings, *_of_builtin(manager, home)],
            *external,
        ),
        settings=tuple(manager.setting_rows),
        withheld=activation.withheld,
        **shown,
    )


def _unusable(manager: MemoryManager, home: Path) -> list[HermesError]:
    """Which files of the built-in can't be used."""
    builtin = as_builtin(manager.get_provider(BUILTIN))
    return [] if builtin is None else builtin.problems(home)


def _of_builtin(manager: MemoryManager, home: Path) -> list[str]:
    """What the built-in warns about, which an agent does not look at when it starts."""
    builtin = as_builtin(manager.get_provider(BUILTIN))
    return [] if builtin is None else builtin.warnings(home)


def _status_lines(single: SingleProvider, settings: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The lines that a provider adds to ``status``."""
    if not single.overrides("get_status_config"):
        return {}
    values = {row["key"]: row["value"] for row in settings if not row["secret"]}
    outcome = single.call("get_status_config", provider_config=values)
    if outcome.error is not None:
        return {"get_status_config": f"failed: {describe(outcome.error)}"}
    return {str(key): str(value) for key, value in (outcome.value or {}).items()}


def _refusal(
    choice: str, key: str, activation: Activation, field: Field | None, row: dict[str, Any] | None
) -> HermesError | None:
    """Why a value can't be set, if it can't."""
    if field is None:
        names = ", ".join(dict.fromkeys(each.key for each in activation.fields)) or "none"
        return HermesError(f"{choice} has no field {key}", hint=f"its fields are: {names}")
    if field.secret:
        return HermesError(
            f"{key} is a secret, which does not belong in config.yaml",
            hint=f"run: hermes-plugins secrets set {field.variable}",
        )
    if row is None:
        return HermesError(
            f"{key} does not apply now; it applies if {when(activation.fields, key)}",
            hint=f"run: hermes-plugins setup {choice}",
        )
    return HermesError(row["problem"]) if row["problem"] else None


def _result(
    errors: Sequence[BaseException], warnings: Sequence[str] = (), provider_name: str = ""
) -> ProviderCheck:
    return ProviderCheck(
        provider_name,
        tuple(Problem.of(error) for error in errors),
        warnings=tuple(warnings),
        traceback="".join("".join(traceback.format_exception(error)) for error in errors),
    )
