"""Honcho as memory of an agent: the plugin ``honcho``.

Importing this package imports neither the plugin's code nor Honcho's SDK.
"""

from __future__ import annotations

from typing import Any


def register(ctx: Any) -> None:
    """The entry point: returns a provider for the host."""
    from hermes_memory_honcho.provider import HonchoProvider  # noqa: PLC0415 - see above

    ctx.register_memory_provider(HonchoProvider())
