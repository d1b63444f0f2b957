"""The contract as pluggy hookspecs: one for each method of `MemoryProvider`, same names.

pluggy passes neither keyword-only arguments nor ``**kwargs``, so a spec has positional
parameters only, and ``**kwargs`` is one mapping ``extra``. Providers don't implement these
themselves (`hermes_core.dispatch` adapts them); observers do, with `hookimpl`. What a
provider gives is an `Outcome`, never None; a hook call gives a list of them, the built-in's first,
and `handle_tool_call` the one of the tool's owner.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import pluggy

if TYPE_CHECKING:
    from hermes_core.dispatch import Outcome

PROJECT: Final = "hermes_memory"

hookspec: Final = pluggy.HookspecMarker(PROJECT)
hookimpl: Final = pluggy.HookimplMarker(PROJECT)

Messages: TypeAlias = list[dict[str, Any]]


class Policy(Enum):
    """Whom a hook reaches and what becomes of the answers."""

    COLLECT = "collect"  # every provider, built-in first; the non-empty answers are joined
    NOTIFY = "notify"  # every provider; there is no answer
    TARGETED = "targeted"  # one provider
    REVERSE = "reverse"  # every provider, the external one first


#: Arguments that name things: they must arrive as they are, whatever looks like a secret in them.
IDENTITIES: Final = ("session_id", "child_session_id", "parent_session_id")


class Lane(StrEnum):
    """On which thread of its own an external provider is called."""

    MAIN = "main"
    RECALL = "recall"
    WRITE = "write"


class HookRule(NamedTuple):
    """How the host treats one hook.

    ``deadline`` names a field of `Deadlines`; ``returns`` are the types that the contract
    allows, and ``neutral`` stands in for the answer of a provider that failed. ``masks`` says
    which secrets are taken out of what an external provider gets: "all", those that are
    "known" to the store (in what the model addressed to it), or none.
    """

    policy: Policy
    lane: Lane = Lane.MAIN
    deadline: str = "hook"
    returns: tuple[type, ...] = ()
    neutral: Any = None
    masks: str = ""


HOOKS: Final[Mapping[str, HookRule]] = {
    "is_available": HookRule(Policy.TARGETED, deadline="available", returns=(bool,), neutral=False),
    "unavailable_reason": HookRule(
        Policy.TARGETED, deadline="available", returns=(str,), neutral=""
    ),
    "initialize": HookRule(Policy.NOTIFY, deadline="initialize"),
    "initialize_for_inspection": HookRule(Policy.NOTIFY, deadline="initialize"),
    "system_prompt_block": HookRule(Policy.COLLECT, returns=(str,), neutral=""),
    "prefetch": HookRule(
        Policy.COLLECT, Lane.RECALL, "prefetch", returns=(str,), neutral="", masks="all"
    ),
    "queue_prefetch": HookRule(Policy.NOTIFY, Lane.RECALL, masks="all"),
    "recall_status": HookRule(Policy.COLLECT, Lane.RECALL),
    "sync_turn": HookRule(Policy.NOTIFY, Lane.WRITE, "write", masks="all"),
    "get_tool_schemas": HookRule(Policy.COLLECT, returns=(list, tuple), neutral=()),
    "handle_tool_call": HookRule(
        Policy.TARGETED, deadline="tool", returns=(str, dict, list), masks="known"
    ),
    "shutdown": HookRule(Policy.REVERSE, deadline="shutdown"),
    "on_turn_start": HookRule(Policy.NOTIFY, masks="all"),
    "on_session_end": HookRule(Policy.NOTIFY, Lane.WRITE, "write", masks="all"),
    "on_session_switch": HookRule(Policy.NOTIFY, Lane.WRITE, "write"),
    "on_pre_compress": HookRule(Policy.COLLECT, returns=(str,), neutral="", masks="all"),
    "on_delegation": HookRule(Policy.NOTIFY, Lane.WRITE, "write", masks="all"),
    "on_memory_write": HookRule(Policy.NOTIFY, Lane.WRITE, "write", masks="all"),
    "get_config_schema": HookRule(Policy.TARGETED, returns=(list, tuple), neutral=()),
    "save_config": HookRule(Policy.TARGETED),
    "backup_paths": HookRule(Policy.COLLECT, returns=(list, tuple), neutral=()),
}


class MemoryHooks:
    """The hookspecs. `MemoryProvider` documents what each method is for."""

    @hookspec
    def is_available(self) -> Outcome | None:
        """Whether the provider can be activated."""

    @hookspec
    def unavailable_reason(self) -> Outcome | None:
        """Why it can't be."""

    @hookspec
    def initialize(self, session_id: str, extra: Mapping[str, Any]) -> Outcome | None:
        """A session starts."""

    @hookspec
    def initialize_for_inspection(
        self, session_id: str, extra: Mapping[str, Any]
    ) -> Outcome | None:
        """A session starts, for a look only."""

    @hookspec
    def system_prompt_block(self) -> Outcome | None:
        """Static text for the system prompt."""

    @hookspec
    def prefetch(self, query: str, session_id: str) -> Outcome | None:
        """Recall for the coming turn."""

    @hookspec
    def queue_prefetch(self, query: str, session_id: str) -> Outcome | None:
        """Start the recall for the next turn."""

    @hookspec
    def recall_status(self) -> Outcome | None:
        """What the last prefetch injected."""

    @hookspec
    def sync_turn(
        self,
        user_content: str,
        assistant_content: str,
        session_id: str,
        messages: Messages | None,
    ) -> Outcome | None:
        """Persist a completed turn."""

    @hookspec
    def get_tool_schemas(self) -> Outcome | None:
        """The tools that it offers."""

    @hookspec(firstresult=True)
    def handle_tool_call(
        self, tool_name: str, args: dict[str, Any], extra: Mapping[str, Any]
    ) -> Outcome | None:
        """Run a tool; None from everyone but its owner."""

    @hookspec
    def shutdown(self) -> Outcome | None:
        """Flush and close."""

    @hookspec
    def on_turn_start(
        self, turn_number: int, message: str, extra: Mapping[str, Any]
    ) -> Outcome | None:
        """A turn begins."""

    @hookspec
    def on_session_end(self, messages: Messages) -> Outcome | None:
        """The session ends."""

    @hookspec
    def on_session_switch(
        self,
        new_session_id: str,
        parent_session_id: str,
        reset: bool,
        rewound: bool,
        extra: Mapping[str, Any],
    ) -> Outcome | None:
        """The session id changes."""

    @hookspec
    def on_pre_compress(self, messages: Messages, extra: Mapping[str, Any]) -> Outcome | None:
        """Messages are about to be discarded."""

    @hookspec
    def on_delegation(
        self, task: str, result: str, child_session_id: str, extra: Mapping[str, Any]
    ) -> Outcome | None:
        """A subagent completed."""

    @hookspec
    def on_memory_write(
        self, action: str, target: str, content: str, metadata: dict[str, Any] | None
    ) -> Outcome | None:
        """The built-in notes changed."""

    @hookspec
    def get_config_schema(self) -> Outcome | None:
        """The fields of its set-up."""

    @hookspec
    def save_config(self, values: dict[str, Any], hermes_home: str) -> Outcome | None:
        """Write its non-secret values."""

    @hookspec
    def backup_paths(self) -> Outcome | None:
        """State outside hermes_home."""
