"""The contract: `MemoryProvider`, the class that plugin authors implement.

A minimal provider has four members (`name`, `is_available`, `initialize`,
`get_tool_schemas`); everything else has a neutral default. The host calls a provider in
this order::

    initialize -> [on_turn_start -> prefetch -> tool calls -> sync_turn -> queue_prefetch]*
               -> on_session_end -> shutdown

Every call is isolated and has a deadline: a method that raises or hangs costs the agent
that one answer, never the turn. ``initialize``, tool calls, hooks and ``shutdown`` always
run on one and the same thread, recall and writes on one other each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from hermes_core.recall import RecallStatus

#: Counts up when a host may ask more of a provider; conformance reports name it.
CONTRACT_VERSION: Final = "1.0"


class MemoryProvider(ABC):
    """One memory backend. Subclass it and offer it through an entry point.

    Accept unknown keywords (``**kwargs``) where a signature shows them: hosts pass more
    over time. Keep all files below ``hermes_home``.
    """

    #: Set to 2 to promise that text returned by `on_pre_compress` is durable, and that it
    #: raises when called with ``require_checkpoint=True`` and the checkpoint failed.
    pre_compress_checkpoint_api_version: int = 1

    #: Set to True to promise that a write which returned has reached the backend, and that
    #: it raises otherwise. Without it "returned" is all that the host can count as delivered.
    confirms_delivery: bool = False

    @property
    @abstractmethod
    def name(self) -> str:
        """Short identifier, the same as the entry point's. ``builtin`` is reserved."""

    @abstractmethod
    def is_available(self) -> bool:
        """Whether it is configured, installed and has its credentials.

        Asked before activation. No network, no writes.
        """

    def unavailable_reason(self) -> str:
        """One line that a person can act on, when `is_available` is False."""
        return ""

    @abstractmethod
    def initialize(self, session_id: str, **kwargs: Any) -> None:
        """Connect, create, warm up. Called once per session start.

        Args:
            session_id: The session that begins.
            **kwargs: Always ``hermes_home``, ``platform`` ("cli", "telegram", "cron", ...),
                ``agent_context`` ("primary", "subagent", "cron", "flush"),
                ``agent_identity`` (the profile) and ``agent_workspace``. When known:
                ``parent_session_id``, ``user_id``, ``user_id_alt``, ``user_name``,
                ``chat_id``, ``chat_name``, ``chat_type``, ``thread_id``,
                ``session_title`` and ``provider_config``. Ignore what you don't know.
        """

    def initialize_for_inspection(self, session_id: str, **kwargs: Any) -> None:
        """Like `initialize`, for a look only: no network, no workers."""
        self.initialize(session_id, **kwargs)

    def system_prompt_block(self) -> str:
        """Static text for the system prompt: the same bytes for the whole session."""
        return ""

    def prefetch(self, query: str, *, session_id: str = "") -> str:
        """Recall what helps with ``query``, within the turn's budget; "" if nothing."""
        return ""

    def queue_prefetch(self, query: str, *, session_id: str = "") -> None:
        """After a turn: start the recall for the next one."""

    def recall_status(self) -> RecallStatus | None:
        """What the last `prefetch` injected."""
        return None

    def sync_turn(
        self,
        user_content: str,
        assistant_content: str,
        *,
        session_id: str = "",
        messages: list[dict[str, Any]] | None = None,
    ) -> None:
        """Persist a completed turn. Delivered at least once.

        Name ``turn_id: str`` (stable over retries) or ``attempt: int`` (from 1) as
        parameters to receive them too.
        """

    @abstractmethod
    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """The tools it offers to the model, as OpenAI function schemas; [] for none."""

    def handle_tool_call(self, tool_name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Run one of its own tools. A JSON string, for good and for bad arguments."""
        return '{"error": "this provider has no tools"}'

    def shutdown(self) -> None:
        """Flush and close. May be called twice, and without `initialize`."""

    def on_turn_start(self, turn_number: int, message: str, **kwargs: Any) -> None:
        """A turn begins. Keywords may be remaining_tokens, model, platform, tool_count."""

    def on_session_end(self, messages: list[dict[str, Any]]) -> None:
        """The session really ends; ``messages`` is the whole conversation."""

    def on_session_switch(
        self,
        new_session_id: str,
        *,
        parent_session_id: str = "",
        reset: bool = False,
        rewound: bool = False,
        **kwargs: Any,
    ) -> None:
        """The session id changes in a running process (/new, /resume, /branch, ...)."""

    def on_pre_compress(self, messages: list[dict[str, Any]]) -> str:
        """Old messages are about to be discarded; text for the summary, or ""."""
        return ""

    def on_delegation(
        self, task: str, result: str, *, child_session_id: str = "", **kwargs: Any
    ) -> None:
        """On the parent: a subagent has completed its task."""

    def on_memory_write(
        self, action: str, target: str, content: str, metadata: dict[str, Any] | None = None
    ) -> None:
        """The built-in notes changed: action add, replace or remove; target memory or user."""

    def get_config_schema(self) -> list[dict[str, Any]]:
        """The fields of its set-up: key, description, secret, required, default, ..."""
        return []

    def save_config(self, values: dict[str, Any], hermes_home: str) -> None:
        """Write the non-secret values to the provider's own place; atomic, mode 0600."""

    def backup_paths(self) -> list[str]:
        """State that it keeps outside ``hermes_home``; callable without `initialize`."""
        return []
