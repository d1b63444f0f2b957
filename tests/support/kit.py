"""Plugins for the conformance kit to look at."""

from __future__ import annotations

from typing import Any

from hermes_core.discovery import ProviderInfo


def acme(entry_point: str = "hermes_memory_acme:AcmeProvider", **more: Any) -> ProviderInfo:
    """A provider called acme, wherever its class is; by default the scaffold's."""
    known = {"version": "1.0", "description": "A memory plugin.", "entry_point": entry_point}
    return ProviderInfo("acme", "entry-point", **{**known, **more})
