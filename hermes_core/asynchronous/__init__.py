"""`AsyncMemoryManager`: memory for an agent that runs on an event loop."""

from __future__ import annotations

from hermes_core.asynchronous._manager import AsyncMemoryManager

__all__ = ["AsyncMemoryManager"]
