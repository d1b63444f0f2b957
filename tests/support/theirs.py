"""Plugins as people write them for hermes-agent."""

from __future__ import annotations

from textwrap import dedent

PROVIDER = """
from agent.memory_provider import MemoryProvider

class Theirs(MemoryProvider):
    @property
    def name(self):
        return "{name}"

    def is_available(self):
        return True

    def initialize(self, session_id, **kwargs):
        pass

    def get_tool_schemas(self):
        return []

{methods}
def register(ctx):
{registers}    ctx.register_memory_provider(Theirs())
"""


def their_source(name: str = "theirs", methods: str = "", registers: str = "") -> str:
    """A module with a provider for hermes-agent, with more methods, registering more."""
    return PROVIDER.format(name=name, methods=_indented(methods), registers=_indented(registers))


def _indented(text: str) -> str:
    lines = dedent(text).strip("\n").splitlines()
    return "".join(f"    {line}\n" for line in lines)
