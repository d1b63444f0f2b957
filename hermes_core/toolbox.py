"""The tools of a manager's providers: asked for, checked, and called at their owner."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from hermes_core.dispatch import HookCalls, ProviderAdapter
from hermes_core.errors import describe
from hermes_core.tools import ToolTable, tool_answer, tool_error

logger = logging.getLogger("hermes_core")


class Toolbox:
    """Knows which provider offers what now.

    Args:
        hooks: Where the providers are called.
        reserved: Tool names that the host keeps for itself.
    """

    def __init__(self, hooks: HookCalls, reserved: Iterable[str] = ()) -> None:
        self._hooks = hooks
        self._refused: dict[str, list[str]] = {}
        self._adapters: list[ProviderAdapter] = []
        self.table = ToolTable(reserved)

    @property
    def warnings(self) -> list[str]:
        """What was wrong with tools that are not offered."""
        return [each for told in self._refused.values() for each in told]

    def refresh(self, adapter: ProviderAdapter) -> None:
        """Ask a provider what it offers."""
        if adapter not in self._adapters:
            self._adapters.append(adapter)
        offered = self._hooks.only(adapter, "get_tool_schemas")()
        if offered.error is not None:
            return  # what it offered before is better than nothing
        errors = self.table.replace(adapter.name, offered.value, builtin=adapter.inline)
        told = [str(error) for error in errors]
        for each in told:
            if each not in self._refused.get(adapter.name, ()):
                logger.warning("tool refused: %s", each)
        self._refused[adapter.name] = told
        for every in self._adapters:
            every.tools = self.table.of(every.name)

    def call(self, tool_name: str, args: dict[str, Any], extra: Mapping[str, Any]) -> str:
        """Run a tool at its owner. Always a JSON string."""
        if self.table.owner(tool_name) is None:
            self._look_again()
        outcome = self._hooks.first("handle_tool_call", tool_name=tool_name, args=args, extra=extra)
        if outcome is None:
            return tool_error(f"no memory provider has the tool {tool_name!r}")
        if outcome.error is not None:
            return tool_error(f"{tool_name} of {outcome.provider} failed: {self._told(outcome)}")
        return tool_answer(outcome.value, outcome.provider)

    def _told(self, outcome: Any) -> str:
        owner = (each for each in self._adapters if each.name == outcome.provider)
        adapter = next(owner, None)
        return adapter.told(outcome.error) if adapter is not None else describe(outcome.error)

    def _look_again(self) -> None:
        """A provider may offer tools only some time after it was initialised."""
        for adapter in self._adapters:
            if not adapter.inline:
                self.refresh(adapter)
