"""Mem0 as the memory of a Hermes agent. Importing this imports nothing of Mem0."""

from __future__ import annotations

from typing import Any

from hermes_memory_mem0.provider import Mem0Provider

__all__ = ["Mem0Provider", "register"]


def register(ctx: Any) -> None:
    """Offer the provider to a host: hermes-plugins or hermes-agent."""
    ctx.register_memory_provider(Mem0Provider())
