"""What a plugin's ``register(ctx)`` gets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class PluginContext:
    """Collects the memory provider, and records what else a plugin registers.

    Plugins probe with ``hasattr``, so these are real methods and there is no catch-all.
    Only the memory provider is used here; ``registered`` says what was not.
    """

    def __init__(self) -> None:
        self.providers: list[Any] = []
        self.registered: dict[str, int] = {}

    def register_memory_provider(self, provider: Any) -> None:
        """Offer a memory provider: an instance, or a class without arguments."""
        self.providers.append(provider)

    def register_tool(self, *args: Any, **kwargs: Any) -> None:
        """Recorded, not run."""
        self._record("tool")

    def register_hook(self, *args: Any, **kwargs: Any) -> None:
        """Recorded, not run."""
        self._record("hook")

    def register_cli_command(self, *args: Any, **kwargs: Any) -> None:
        """Recorded, not run."""
        self._record("cli command")

    def register_command(self, *args: Any, **kwargs: Any) -> None:
        """Recorded, not run."""
        self._record("command")

    def register_context_engine(self, *args: Any, **kwargs: Any) -> None:
        """Recorded, not run."""
        self._record("context engine")

    def register_skill(self, *args: Any, **kwargs: Any) -> None:
        """Recorded, not run."""
        self._record("skill")

    def register_auxiliary_task(self, *args: Any, **kwargs: Any) -> None:
        """Recorded, not run."""
        self._record("auxiliary task")

    def register_middleware(self, *args: Any, **kwargs: Any) -> None:
        """Recorded, not run."""
        self._record("middleware")

    def register_platform(self, *args: Any, **kwargs: Any) -> None:
        """Recorded, not run."""
        self._record("platform")

    def register_system_prompt_section(self, *args: Any, **kwargs: Any) -> None:
        """Recorded, not run."""
        self._record("system prompt section")

    @property
    def llm(self) -> None:
        """There is no model here."""
        return None

    def _record(self, kind: str) -> None:
        self.registered[kind] = self.registered.get(kind, 0) + 1


def counted(registered: Mapping[str, int]) -> str:
    """What a plugin registers, in words: 3 tools, 1 hook."""
    return ", ".join(
        f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in registered.items()
    )
