"""The contract as pluggy hookspecs, and the rule table (policy, lane, deadline, types).

There is one spec for each method of `MemoryProvider` and of the optional capabilities, with the
same name. pluggy passes neither keyword-only arguments nor ``**kwargs``, so a spec has positional
parameters only, and ``**kwargs`` is one mapping ``extra``. Providers don't implement these
themselves (`hermes_core.dispatch` adapts them); observers do, with `hookimpl`. A provider's
result is an `Outcome`, never None; a hook call returns a list of them, the built-in's first, and
`handle_tool_call` the one of the tool's owner.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import pluggy

if TYPE_CHECKING:
    from hermes_core.dispatch import Outcome
    from hermes_core.provider import ForgetRequest

PROJECT: Final = "hermes_memory"

hookspec: Final = pluggy.HookspecMarker(PROJECT)
hookimpl: Final = pluggy.HookimplMarker(PROJECT)

Messages: TypeAlias = list[dict[str, Any]]


class Policy(Enum):
    """Which providers a hook reaches, and what happens to their results."""

    COLLECT = "collect"  # every provider, built-in first; the non-empty results are joined
    NOTIFY = "notify"  # every provider; there is no result
    TARGETED = "targeted"  # one provider
    REVERSE = "reverse"  # every provider, the external one first


#: Arguments that identify something: never redacted, even if they look like a secret. A masked id
#: would file a turn under another session or author.
IDENTITIES: Final = (
    *("session_id", "child_session_id", "parent_session_id"),
    *("author_id", "turn_author"),
)

#: Arguments that earlier versions did not store with a write, and their values then. A write that
#: waited in the outbox during an upgrade is delivered with these.
ADDED: Final[Mapping[str, Mapping[str, Any]]] = {"sync_turn": {"turn_author": None}}


class Lane(StrEnum):
    """The thread on which an external provider is called.

    As in hermes-agent: everything that may share a resource with ``initialize`` (a database
    connection that belongs to its thread) runs on MAIN. Turns and the recall for the next one
    are background work, on WRITE; recall that a turn waits for is on RECALL.
    """

    MAIN = "main"
    RECALL = "recall"
    WRITE = "write"


class HookRule(NamedTuple):
    """How the host treats one hook.

    ``deadline`` names a field of `Deadlines`; ``returns`` are the types that the contract
    allows, and ``neutral`` is the value if the provider failed. ``masks`` says which secrets are
    removed from an external provider's arguments: "all", only those "known" to the secret store
    (in what the model addressed to the provider), or "" for none. A hook of an ``optional``
    capability has no default in `MemoryProvider`. An ``interactive`` one asks a person: it runs
    on the caller's thread, without a deadline.
    """

    policy: Policy
    lane: Lane = Lane.MAIN
    deadline: str = "hook"
    returns: tuple[type, ...] = ()
    neutral: Any = None
    masks: str = ""
    optional: bool = False
    interactive: bool = False


# One row per hook. A deadline names a field of `Deadlines`, so that a person can change it in
# config.yaml. Reads that the host repeats at will have "hook" (5 s). Whatever stores something has
# "write" (120 s): no turn waits for it, and a slow backend must not cause a second delivery.
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
    "queue_prefetch": HookRule(Policy.NOTIFY, Lane.WRITE, "write", masks="all"),
    "recall_status": HookRule(Policy.COLLECT, Lane.RECALL),
    "sync_turn": HookRule(Policy.NOTIFY, Lane.WRITE, "write", masks="all"),
    "get_tool_schemas": HookRule(Policy.COLLECT, returns=(list, tuple), neutral=()),
    "handle_tool_call": HookRule(
        Policy.TARGETED, deadline="tool", returns=(str, dict, list), masks="known"
    ),
    "shutdown": HookRule(Policy.REVERSE, deadline="shutdown"),
    "on_turn_start": HookRule(Policy.NOTIFY, masks="all"),
    "on_session_end": HookRule(Policy.NOTIFY, deadline="write", masks="all"),
    # No masks: its arguments are ids, and `redact_session` has masked the texts among its keywords.
    "on_session_switch": HookRule(Policy.NOTIFY, deadline="write"),
    "on_pre_compress": HookRule(Policy.COLLECT, returns=(str,), neutral="", masks="all"),
    "on_delegation": HookRule(Policy.NOTIFY, deadline="write", masks="all"),
    "on_memory_write": HookRule(Policy.NOTIFY, deadline="write", masks="all"),
    "get_config_schema": HookRule(Policy.TARGETED, returns=(list, tuple), neutral=()),
    "save_config": HookRule(Policy.TARGETED),
    "backup_paths": HookRule(Policy.COLLECT, returns=(list, tuple), neutral=()),
    # The optional capabilities: called by `setup`, activation and `checkup`, never during a turn.
    "probe": HookRule(Policy.TARGETED, deadline="tool", optional=True),
    "own_settings": HookRule(Policy.TARGETED, returns=(list, tuple), neutral=(), optional=True),
    "get_status_config": HookRule(Policy.TARGETED, returns=(dict,), optional=True),
    "post_setup": HookRule(Policy.TARGETED, optional=True, interactive=True),
    # No masks: what is to be forgotten may be a secret, and masked it would not be found.
    "forget": HookRule(Policy.TARGETED, deadline="write", optional=True),
    "list_memories": HookRule(Policy.TARGETED, deadline="tool", optional=True),
}


class MemoryHooks:
    """The hookspecs. `MemoryProvider` and `provider.CAPABILITIES` document each method."""

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
        """A session starts, for inspection only."""

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
        """What the last prefetch added."""

    @hookspec
    def sync_turn(
        self,
        user_content: str,
        assistant_content: str,
        session_id: str,
        messages: Messages | None,
        turn_author: dict[str, Any] | None,
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
        """The fields that `setup` asks for."""

    @hookspec
    def save_config(self, values: dict[str, Any], hermes_home: str) -> Outcome | None:
        """Write its non-secret values."""

    @hookspec
    def backup_paths(self) -> Outcome | None:
        """State outside hermes_home."""

    @hookspec
    def probe(self, write: bool) -> Outcome | None:
        """Test the backend."""

    @hookspec
    def own_settings(self, hermes_home: str) -> Outcome | None:
        """Settings from files that the host does not know."""

    @hookspec
    def get_status_config(self, provider_config: dict[str, Any]) -> Outcome | None:
        """Lines for ``status``."""

    @hookspec
    def post_setup(self, hermes_home: str, config: dict[str, Any]) -> Outcome | None:
        """Steps of `setup` beyond the schema."""

    @hookspec
    def forget(self, request: ForgetRequest) -> Outcome | None:
        """Find what a person wants to be forgotten, and delete it."""

    @hookspec
    def list_memories(self, cursor: str) -> Outcome | None:
        """A page of what the backend knows."""
