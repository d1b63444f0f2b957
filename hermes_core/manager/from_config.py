"""Builds a `MemoryManager` as config.yaml describes it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_core.call_log import CallLog
from hermes_core.config import Config, load_config
from hermes_core.config.setup_journal import recover
from hermes_core.config.storage import home_database
from hermes_core.discovery import ProviderInfo, find_observer
from hermes_core.dispatch import ProviderAdapter
from hermes_core.errors import ConfigError, HermesError, HomeError
from hermes_core.loading import load_observer
from hermes_core.loading.activation import (
    Activation,
    activate,
    activate_builtin,
    deadlines_of,
    installed_providers,
    settings_rows,
)
from hermes_core.manager import CONTEXT_MAX_CHARS
from hermes_core.outbox import DEFAULT_MAX_MB, FreshProvider, StreamKey
from hermes_core.outbox.writer import OutboxSettings
from hermes_core.privacy import Redactor
from hermes_core.secrets import Secrets
from hermes_core.storage.home import resolve_home
from hermes_core.storage.logger import logger

if TYPE_CHECKING:
    from hermes_core.manager import MemoryManager


def assemble(
    kind: type[MemoryManager],
    home: str | os.PathLike[str] | None = None,
    installed: list[ProviderInfo] | None = None,
) -> tuple[MemoryManager, Activation]:
    """Build a manager, and return it with the activation of its external provider.

    Problems are logged and stored in the manager's ``problems``.

    Args:
        kind: The manager's class.
        home: HERMES_HOME; by default the environment's.
        installed: The result of `installed_providers` for this home, if it is known.
    """
    problems: list[HermesError] = []
    known = False
    try:
        folder = resolve_home(home)
        # Before config.yaml is read: an interrupted `setup` may have to write it first.
        problems += _recovered(folder)
        config = load_config(folder)
        known = True
    except HomeError as error:
        problems.append(error)
        # The home can't be used, but the agent must still start. Whatever needs the folder
        # reports the error again.
        given = home or os.environ.get("HERMES_HOME") or "~/.hermes"
        folder = Path(os.path.abspath(os.path.expanduser(given)))  # noqa: PTH100, PTH111
        config = Config(folder)
    except ConfigError as error:
        problems.append(error)
        config = Config(folder)
    installed = installed_providers(config) if installed is None else installed
    # Before any plugin's code: what a plugin replaces in the standard library must not reach it.
    builtin = activate_builtin(config, installed)
    # Before the manager is built: its redactor needs the secrets of the active provider.
    activation = activate(config, installed=installed)
    limit = config.context_max_chars
    manager = kind(
        deadlines=deadlines_of(config),
        home=folder,
        redactor=_redactor(config, activation),
        context_max_chars=CONTEXT_MAX_CHARS if limit is None else limit,
        log_calls=True,
    )
    # Without config.yaml it is unknown whether writes need approval, and whether a user may see
    # the profile of another. So writes wait, and nobody sees one.
    unknown = {"write_approval": True, "user_notes": "per-user"}
    settings = config.memory if known else unknown
    manager.add_provider(builtin, provider_config=settings)
    # Registered before anything can fail below: variables that the provider needs are set in this
    # process's environment until then.
    manager.when_closed(activation.lease.release)
    manager._configure(  # noqa: SLF001 - of the same package
        outbox_settings(config, activation),
        (
            *config.own_warnings,
            *activation.warnings,
            *([] if config.redacts else ["memory.redact is off: secrets are not masked"]),
        ),
    )
    if activation.error is not None:
        problems.append(activation.error)
    elif activation.provider is not None and not manager.add_provider(
        activation.provider,
        name=activation.info.name if activation.info is not None else "",
        provider_config=activation.settings and activation.settings.values,
    ):
        problems.append(HermesError(manager.refusals[-1], where="memory.provider"))
    manager.setting_rows = tuple(settings_rows(activation))
    problems += _observe(manager, config)
    manager.problems = tuple(problems)
    for problem in manager.problems:
        logger.error("memory: %s", problem)
    for warning in manager.warnings:
        logger.warning("memory: %s", warning)
    return manager, activation


def outbox_settings(config: Config, activation: Activation) -> OutboxSettings:
    """Return how the writes of the active provider are stored."""
    return OutboxSettings(
        max_mb=DEFAULT_MAX_MB if config.outbox_max_mb is None else config.outbox_max_mb,
        durable=config.durable,
        owner=activation.info.owner if activation.info is not None else "",
        make_provider=partial(revive, config.home),
        database=home_database(config.home, config.memory),
    )


def revive(home: Path, origin: StreamKey) -> FreshProvider:
    """A fresh instance of the active provider, for writes of ``origin`` that wait.

    Raises:
        HermesError: The active provider is another one, or can't be activated.
    """
    return fresh_instance(load_config(home), origin)


def fresh_instance(
    config: Config,
    origin: StreamKey,
    installed: list[ProviderInfo] | None = None,
    redactor: Redactor | None = None,
) -> FreshProvider:
    """A fresh instance of the provider that a configuration names, for writes of ``origin``.

    Args:
        config: The configuration.
        origin: The stream that they belong to.
        installed: The result of `installed_providers`, if it is known.
        redactor: The result of `redactor_for`, if it is known.

    Raises:
        HermesError: It names another provider, or that can't be activated.
    """
    activation = activate(config, installed=installed)
    if activation.error is not None:
        raise activation.error
    provider, info = activation.provider, activation.info
    # The same name from another owner is a different program: it must not get these writes.
    if provider is None or info is None or (info.name, info.owner) != origin[:2]:
        activation.lease.release()
        raise HermesError(f"{origin.provider} of {origin.owner} is not active")
    adapter = ProviderAdapter(
        provider,
        info.name,
        deadlines=deadlines_of(config),
        config=activation.settings and activation.settings.values,
        home=config.home,
    )
    adapter.redactor = redactor or redactor_for(config, activation.secrets)
    log = CallLog.of(config.home)
    adapter.listener = log.listener(info.name, lambda: origin.session)

    def close() -> None:
        activation.lease.release()
        log.close()

    return FreshProvider(adapter, close)


def _redactor(config: Config, activation: Activation) -> Redactor:
    """Without a provider nothing leaves the machine, so don't ask the keyring."""
    if config.redacts and activation.provider is None:
        return Redactor()
    return redactor_for(config, activation.secrets)


def redactor_for(config: Config, secrets: Iterable[str]) -> Redactor:
    """Build the redactor of a home: it masks every stored secret and what looks like one.

    With ``memory.redact: false`` it masks nothing.

    Args:
        config: The home's configuration.
        secrets: Further secrets, such as those of the active provider.
    """
    if not config.redacts:
        return Redactor(formats=False)
    # All secrets of the home, not only those of the provider: a user may paste any of them.
    stored = Secrets(config.home, config.secrets_backend).values()
    return Redactor({*stored, *secrets})


def _recovered(home: Path) -> list[HermesError]:
    """Finish an interrupted setup; return why that is not possible."""
    try:
        recover(home)
    except ConfigError:
        # An unreadable config.yaml is one problem; two messages about it would look like two.
        return []  # reported when config.yaml is read
    except HermesError as error:
        return [error]
    return []


def _observe(manager: MemoryManager, config: Config) -> list[HermesError]:
    problems: list[HermesError] = []
    for name in config.observers:
        try:
            observer = load_observer(find_observer(name), deadlines_of(config).load)
            manager.add_observer(name, observer)
        except HermesError as error:
            problems.append(error)
    return problems
