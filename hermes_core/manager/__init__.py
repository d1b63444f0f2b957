"""`MemoryManager`, the object that an agent's loop calls, and what it consists of.

_manager       `MemoryManager`
asynchronous   `AsyncMemoryManager`, for an agent that runs on an event loop
from_config    builds a manager as config.yaml describes it
recall         asks the providers, and fences what they answer
builtin        the built-in: its calls, and what it has beyond the contract
tools          the tool registry
notes          which writes of notes the external provider receives
prompts        what the user said: trivial prompts, expanded skills
compression    texts and checkpoints before messages are discarded
shutdown       the end: deliveries, providers, what is left
"""

from __future__ import annotations

from hermes_core.manager._manager import MemoryManager
from hermes_core.manager.recall import CONTEXT_MAX_CHARS, Recollection

__all__ = ["CONTEXT_MAX_CHARS", "MemoryManager", "Recollection"]
