"""`MemoryManager`, the object that an agent's loop calls, and what it consists of.

_manager       `MemoryManager`
asynchronous   `AsyncMemoryManager`, for an agent that runs on an event loop
from_config    builds a manager as config.yaml describes it
tools          the tool registry, and the writes of a host's own memory tool
prompts        what the user said: trivial prompts, expanded skills
"""

from __future__ import annotations

from hermes_core.manager._manager import CONTEXT_MAX_CHARS, MemoryManager, Recollection

__all__ = ["CONTEXT_MAX_CHARS", "MemoryManager", "Recollection"]
