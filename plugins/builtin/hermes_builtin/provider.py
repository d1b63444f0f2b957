"""The built-in provider: first in every manager, and not removable."""

from __future__ import annotations

from typing import Any

from hermes_core import MemoryProvider


class BuiltinProvider(MemoryProvider):
    """What an agent remembers without any backend."""

    @property
    def name(self) -> str:
        """The reserved name."""
        return "builtin"

    def is_available(self) -> bool:
        """It needs nothing."""
        return True

    def initialize(self, session_id: str, **kwargs: Any) -> None:
        """There is nothing to connect to."""

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """No tools."""
        return []
