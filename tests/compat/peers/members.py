"""The public members of a release and their signatures."""

from __future__ import annotations

import inspect
from typing import Any

from peers.host import MemoryManager, MemoryProvider, memory_manager, memory_provider

_FUNCTIONS = {
    memory_manager: (
        "build_memory_context_block",
        "inject_memory_provider_tools",
        "memory_provider_tools_enabled",
        "memory_provider_tools_exposed",
        "normalize_tool_schema",
        "sanitize_context",
    ),
    memory_provider: (
        "INDICATOR_GLYPH",
        "PRE_COMPRESS_CHECKPOINT_API_VERSION",
        "RecallStatus",
        "TRIVIAL_PROMPT_RE",
        "ctx_bound",
        "is_trivial_prompt",
        "spawn_context_thread",
    ),
}


def members() -> dict[str, list[list[str]] | None]:
    """The parameters of every public member: name, kind, default. None: it is not a function."""
    found = {"MemoryManager()": _shape(MemoryManager)}
    for owner, prefix in ((MemoryManager, ""), (MemoryProvider, "MemoryProvider.")):
        found |= _of_class(owner, prefix)
    found |= _of_class(memory_manager.StreamingContextScrubber, "StreamingContextScrubber.")
    for module, names in _FUNCTIONS.items():
        there = {name: getattr(module, name) for name in names if hasattr(module, name)}
        found |= {name: _shape(value) for name, value in there.items()}
    return found


def _of_class(owner: type, prefix: str) -> dict[str, list[list[str]] | None]:
    names = [each for each in dir(owner) if not each.startswith("_")]
    return {f"{prefix}{name}": _shape(inspect.getattr_static(owner, name)) for name in names}


def _shape(value: Any) -> list[list[str]] | None:
    value = getattr(value, "__func__", value)  # of a class method or a static method
    if not callable(value):
        return None
    parameters = inspect.signature(value).parameters.values()
    return [[each.name, each.kind.name, repr(each.default)] for each in parameters]
