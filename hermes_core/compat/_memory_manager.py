"""``agent.memory_manager``: our manager and our fence, under hermes-agent's names."""

from __future__ import annotations

from typing import Any

from hermes_core.context import Recalled, StreamScrubber, fenced, without_fences
from hermes_core.manager import MemoryManager
from hermes_core.roster import CONTEXT_MAX_CHARS

__all__ = [
    "MemoryManager",
    "StreamingContextScrubber",
    "build_memory_context_block",
    "inject_memory_provider_tools",
    "memory_provider_tools_enabled",
    "normalize_tool_schema",
    "sanitize_context",
]

StreamingContextScrubber = StreamScrubber


def build_memory_context_block(raw_context: str) -> str:
    """Recalled text in a fence; "" if there is none."""
    if not raw_context or not raw_context.strip():
        return ""
    return fenced([Recalled("memory", raw_context)], max_chars=CONTEXT_MAX_CHARS).text


def sanitize_context(text: str) -> str:
    """A text without fences and what stood in them."""
    return without_fences(text)


def normalize_tool_schema(schema: Any) -> dict[str, Any] | None:
    """A tool's bare schema, unwrapped if need be; None if it has no name."""
    if isinstance(schema, dict) and schema.get("type") == "function":
        schema = schema.get("function", schema)
    if not isinstance(schema, dict):
        return None
    name = schema.get("name")
    return schema if isinstance(name, str) and name else None


def memory_provider_tools_enabled(enabled_toolsets: list[str] | None) -> bool:
    """Whether an agent with these toolsets is to have the tools of memory providers."""
    return enabled_toolsets is None or "memory" in enabled_toolsets


def inject_memory_provider_tools(agent: Any) -> int:
    """Give an agent the tools of its ``_memory_manager``; how many were new to it."""
    manager, tools = getattr(agent, "_memory_manager", None), getattr(agent, "tools", None)
    if not manager or tools is None:
        return 0
    present = {_name(tool) for tool in tools}
    wanted = memory_provider_tools_enabled(getattr(agent, "enabled_toolsets", None))
    if not wanted and "memory" not in present:
        return 0
    if getattr(agent, "valid_tool_names", None) is None:
        agent.valid_tool_names = set()
    before = len(tools)
    for schema in map(normalize_tool_schema, manager.get_all_tool_schemas()):
        if schema is not None and schema["name"] not in present:
            tools.append({"type": "function", "function": schema})
            agent.valid_tool_names.add(schema["name"])
            present.add(schema["name"])
    return len(tools) - before


def _name(tool: Any) -> Any:
    return (tool.get("function") or {}).get("name") if isinstance(tool, dict) else None
