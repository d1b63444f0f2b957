"""config.yaml: read it, validate it, and change it without touching other parts of it.

Import `hermes_core.config.editor` to change it: listing does not need that module.
"""

from __future__ import annotations

# `list` imports this package, so what needs jsonschema, locks or the secrets stores (editor,
# settings, setup_journal) is not imported here.
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
