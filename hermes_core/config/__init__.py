"""config.yaml: read, validate, and write back with everything else in it kept.

Import `hermes_core.config.editor` to change it: listing does not need that module.
"""

from __future__ import annotations

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
