"""config.yaml: read it, validate it, and change it without touching other parts of it.

Import `hermes_core.config.editor` to change it: listing does not need that module.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from hermes_core.config.config_file import Config, Selection, load_config, read_selection
    from hermes_core.config.lock_file import LockEntry, Pin, PluginFacts

__all__ = [
    "Config",
    "LockEntry",
    "Pin",
    "PluginFacts",
    "Selection",
    "load_config",
    "read_selection",
]

# Imported when a name is used: the manager needs `config.names` alone, and not PyYAML (10 ms).
# `list` uses these names, so what needs jsonschema, locks or secrets is not among them.
_LOCK_FILE: Final = frozenset({"LockEntry", "Pin", "PluginFacts"})


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "lock_file" if name in _LOCK_FILE else "config_file"
    value = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
    return value
