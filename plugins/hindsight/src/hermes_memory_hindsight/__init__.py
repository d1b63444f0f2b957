"""Hindsight as the memory of an agent: the plugin ``hindsight``.

Importing this package imports neither the plugin's code nor Hindsight's SDK.
"""

from __future__ import annotations

from typing import Any


def register(ctx: Any) -> None:
    """The entry point: returns a provider for the host."""
    from hermes_memory_hindsight.provider import HindsightProvider  # noqa: PLC0415 - see above

    ctx.register_memory_provider(HindsightProvider())
