"""config.yaml: read, validate, and write back with everything else in it kept.

Writing is in `hermes_core.config.writing`, which listing has no need of.
"""

from __future__ import annotations

from hermes_core.config._reading import Config, Learnt, Pin, Selection, load_config, read_selection

__all__ = ["Config", "Learnt", "Pin", "Selection", "load_config", "read_selection"]
