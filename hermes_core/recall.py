"""What a provider says about its last recall."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RecallStatus:
    """What the last `MemoryProvider.prefetch` put into the prompt, for a status line."""

    provider_label: str
    count: int
    glyph: str = ""
