"""From an installed plugin to a provider that is ready.

- `loader`: imports a plugin and takes its provider, with a deadline and a cause for failures.
- `activation`: the only way from config.yaml to a provider that is set up and available.
- `context`: what a plugin's ``register(ctx)`` gets.
- `modules`: imports entry points and directory plugins.
- `requirements`: what a plugin declares that it needs.
- `compat`: hermes-agent's modules for plugins that were written for it.
"""

from __future__ import annotations

from hermes_core.loading.context import (
    PlatformActions,
    PluginContext,
    PluginManifest,
    PluginRegistration,
    PluginState,
    counted,
)
from hermes_core.loading.loader import LoadResult, load, load_command, load_observer, load_provider
from hermes_core.loading.modules import import_directory, import_value

__all__ = [
    "LoadResult",
    "PlatformActions",
    "PluginContext",
    "PluginManifest",
    "PluginRegistration",
    "PluginState",
    "counted",
    "import_directory",
    "import_value",
    "load",
    "load_command",
    "load_observer",
    "load_provider",
]
