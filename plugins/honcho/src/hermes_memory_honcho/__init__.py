"""Honcho as memory of an agent: the plugin ``honcho``.

Importing this package imports neither the plugin's code nor Honcho's SDK.
"""

from __future__ import annotations

from typing import Any


def register(ctx: Any) -> None:
    """What the entry point names: give the host a provider."""
    from hermes_memory_honcho.provider import HonchoProvider  # noqa: PLC0415 - see above

    ctx.register_memory_provider(HonchoProvider())
