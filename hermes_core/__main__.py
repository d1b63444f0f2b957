"""``python -m hermes_core`` is ``hermes-plugins``."""

from __future__ import annotations

from hermes_core.cli import main

main()
