"""Which external provider runs: the one path from config.yaml to a provider that is ready.

`MemoryManager.from_config`, ``status`` and ``enable`` all go through here, so that what
they say can't differ from what happens.
"""

from __future__ import annotations

from dataclasses import dataclass

from hermes_core.config import Config
from hermes_core.discovery import ProviderInfo, find_provider, pin_problem, scan
from hermes_core.dispatch import Deadlines, ProviderAdapter
from hermes_core.errors import (
    HermesError,
    ProviderConflictError,
    ProviderUnavailableError,
    describe,
)
from hermes_core.loading import load_provider
from hermes_core.names import BUILTIN, normalise
from hermes_core.provider import MemoryProvider


@dataclass(frozen=True, slots=True)
class Activation:
    """What came of activating the chosen provider: the provider, or the error."""

    info: ProviderInfo | None = None
    provider: MemoryProvider | None = None
    error: HermesError | None = None
    warning: str = ""


def deadlines_of(config: Config) -> Deadlines:
    """Our deadlines, with those of the configuration put over them."""
    return Deadlines(**config.deadlines)


def activate_builtin(config: Config) -> MemoryProvider:
    """The built-in, which is found through its entry point like every other provider."""
    return load_provider(find_provider(BUILTIN, scan(config.home, config.selection)))


def chosen(config: Config) -> ProviderInfo | None:
    """The external provider that the configuration names, or None.

    Raises:
        HermesError: There is no such provider, several claim its name, or it is no longer
            the one that was enabled.
    """
    selection = config.selection
    if not selection.name:
        return None
    found = scan(config.home, selection)
    if not any(each.loadable for each in found if each.key == normalise(selection.name)):
        found = scan(config.home, selection, everything=True)
    info = find_provider(selection.choice, found)
    problem = pin_problem(info, selection)
    pin = selection.pin
    if problem and (selection.strict or (pin is not None and not info.owned_by(pin.owner))):
        raise ProviderConflictError(problem, where=f"plugin {info.name}")
    return info


def activate(config: Config) -> Activation:
    """Load the provider that the configuration names, and ask whether it is available.

    Never raises for a plugin's fault: the built-in has to go on.
    """
    info = None
    try:
        info = chosen(config)
        if info is None:
            return Activation()
        changed = pin_problem(info, config.selection)
        warning = f"plugin {info.name}: {changed}" if changed else ""
        deadlines = deadlines_of(config)
        provider = load_provider(info, config.home, deadline=deadlines.load)
        require_available(info, provider, deadlines)
    except HermesError as error:
        return Activation(info, error=error)
    return Activation(info, provider, warning=warning)


def require_available(info: ProviderInfo, provider: MemoryProvider, deadlines: Deadlines) -> None:
    """Raise `ProviderUnavailableError` unless the provider says that it can work."""
    adapter = ProviderAdapter(provider, info.name, deadlines=deadlines)
    try:
        outcome = adapter.is_available()
        if outcome.value:
            return
        if outcome.error is not None:
            raise ProviderUnavailableError(
                f"is_available failed: {describe(outcome.error)}",
                where=f"plugin {info.name}",
                hint="that is the plugin's fault: tell its author",
            ) from outcome.error
        reason = adapter.unavailable_reason().value
    finally:
        adapter.close(0)
    raise ProviderUnavailableError(
        f"is not available: {reason or 'it gives no reason'}",
        where=f"plugin {info.name}",
        hint="its documentation says what it needs: credentials, a server, a setting",
    )
