"""hermes-plugins: the memory layer of a Hermes-style AI agent.

The names below are the public API. They are imported when first used, so that importing
one of them costs no more than it must.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from hermes_core.asynchronous import AsyncMemoryManager
    from hermes_core.context import StreamScrubber
    from hermes_core.discovery import ProviderInfo, discover
    from hermes_core.dispatch import Deadlines, HookHealth, Outcome
    from hermes_core.errors import (
        CheckpointError,
        ConfigError,
        DatabaseError,
        ForeignDatabase,
        HermesError,
        HomeError,
        ProviderConflictError,
        ProviderLoadError,
        ProviderUnavailableError,
        SecretsError,
        UnknownProviderError,
    )
    from hermes_core.hookspecs import hookimpl
    from hermes_core.loading import load_provider
    from hermes_core.manager import MemoryManager
    from hermes_core.provider import MemoryProvider
    from hermes_core.recall import RecallStatus

__all__ = [
    "AsyncMemoryManager",
    "CheckpointError",
    "ConfigError",
    "DatabaseError",
    "Deadlines",
    "ForeignDatabase",
    "HermesError",
    "HomeError",
    "HookHealth",
    "MemoryManager",
    "MemoryProvider",
    "Outcome",
    "ProviderConflictError",
    "ProviderInfo",
    "ProviderLoadError",
    "ProviderUnavailableError",
    "RecallStatus",
    "SecretsError",
    "StreamScrubber",
    "UnknownProviderError",
    "__version__",
    "discover",
    "hookimpl",
    "load_provider",
]

__version__ = "0.1.0"

_HOMES: Final = {
    "AsyncMemoryManager": "asynchronous",
    "CheckpointError": "errors",
    "ConfigError": "errors",
    "DatabaseError": "errors",
    "Deadlines": "dispatch",
    "ForeignDatabase": "errors",
    "HermesError": "errors",
    "HomeError": "errors",
    "HookHealth": "dispatch",
    "MemoryManager": "manager",
    "MemoryProvider": "provider",
    "Outcome": "dispatch",
    "ProviderConflictError": "errors",
    "ProviderInfo": "discovery",
    "ProviderLoadError": "errors",
    "ProviderUnavailableError": "errors",
    "RecallStatus": "recall",
    "SecretsError": "errors",
    "StreamScrubber": "context",
    "UnknownProviderError": "errors",
    "discover": "discovery",
    "hookimpl": "hookspecs",
    "load_provider": "loading",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
