"""Puts a `MemoryManager` together as config.yaml describes it."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from hermes_core.activation import activate, activate_builtin, deadlines_of
from hermes_core.config import Config, load_config
from hermes_core.discovery import find_observer
from hermes_core.errors import ConfigError, HermesError
from hermes_core.home import resolve_home
from hermes_core.loading import load_observer

if TYPE_CHECKING:
    from hermes_core.manager import MemoryManager

logger = logging.getLogger("hermes_core")


def assemble(
    kind: type[MemoryManager], home: str | os.PathLike[str] | None = None
) -> MemoryManager:
    """Build a manager; what is wrong is logged and kept in its ``problems``."""
    folder = resolve_home(home)
    problems: list[HermesError] = []
    try:
        config = load_config(folder)
    except ConfigError as error:
        problems.append(error)
        config = Config(folder)
    manager = kind(deadlines=deadlines_of(config), home=folder)
    manager.add_provider(activate_builtin(config))
    activation = activate(config)
    if activation.error is not None:
        problems.append(activation.error)
    elif activation.provider is not None:
        manager.add_provider(activation.provider)
    problems += _observe(manager, config)
    manager.problems = tuple(problems)
    manager.warnings = (*config.warnings, *((activation.warning,) if activation.warning else ()))
    for problem in manager.problems:
        logger.error("memory: %s", problem)
    for warning in manager.warnings:
        logger.warning("memory: %s", warning)
    return manager


def _observe(manager: MemoryManager, config: Config) -> list[HermesError]:
    problems: list[HermesError] = []
    for name in config.observers:
        try:
            observer = load_observer(find_observer(name), deadlines_of(config).load)
            manager.add_observer(name, observer)
        except HermesError as error:
            problems.append(error)
    return problems
