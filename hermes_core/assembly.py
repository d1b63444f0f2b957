"""Puts a `MemoryManager` together as config.yaml describes it."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_core.activation import activate, activate_builtin, deadlines_of, settings_rows
from hermes_core.config import Config, load_config
from hermes_core.discovery import find_observer
from hermes_core.errors import ConfigError, HermesError, HomeError
from hermes_core.home import resolve_home
from hermes_core.loading import load_observer
from hermes_core.setting_up import recover

if TYPE_CHECKING:
    from hermes_core.manager import MemoryManager

logger = logging.getLogger("hermes_core")


def assemble(
    kind: type[MemoryManager], home: str | os.PathLike[str] | None = None
) -> MemoryManager:
    """Build a manager; what is wrong is logged and kept in its ``problems``."""
    problems: list[HermesError] = []
    known = False
    try:
        folder = resolve_home(home)
        problems += _recovered(folder)
        config = load_config(folder)
        known = True
    except HomeError as error:
        problems.append(error)
        given = home or os.environ.get("HERMES_HOME") or "~/.hermes"
        folder = Path(os.path.abspath(os.path.expanduser(given)))  # noqa: PTH100, PTH111
        config = Config(folder)
    except ConfigError as error:
        problems.append(error)
        config = Config(folder)
    manager = kind(deadlines=deadlines_of(config), home=folder)
    # Whether writes need approval is not known without config.yaml: better ask.
    settings = config.memory if known else {"write_approval": True}
    manager.add_provider(activate_builtin(config), provider_config=settings)
    activation = activate(config)
    manager.when_closed(activation.lease.release)
    if activation.error is not None:
        problems.append(activation.error)
    elif activation.provider is not None and not manager.add_provider(
        activation.provider, provider_config=activation.settings and activation.settings.values
    ):
        problems.append(HermesError(manager.refusals[-1], where="memory.provider"))
    manager.setting_rows = tuple(settings_rows(activation))
    problems += _observe(manager, config)
    manager.problems = tuple(problems)
    manager._warnings = (*config.own_warnings, *activation.warnings)  # noqa: SLF001 - ours to build
    for problem in manager.problems:
        logger.error("memory: %s", problem)
    for warning in manager.warnings:
        logger.warning("memory: %s", warning)
    return manager


def _recovered(home: Path) -> list[HermesError]:
    """Finish a set-up that was interrupted; what stands in its way is a problem of ours."""
    try:
        recover(home)
    except ConfigError:
        return []  # said when config.yaml is read
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
