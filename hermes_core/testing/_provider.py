"""FakeProvider: a memory provider to test a host with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hermes_core.hookspecs import Messages
from hermes_core.provider import MemoryProvider
from hermes_core.recall import RecallStatus
from hermes_core.testing._script import Script


class FakeProvider(Script, MemoryProvider):
    """Implements the whole contract in memory, and can be used from several threads.

    Args:
        name: Its name.
        tools: Schemas of tools that it offers.
        confirms_delivery: What it promises of writes that returned.
        **answers: What a hook gives back: a value, or a function of the hook's arguments,
            which get their names from the contract. Without one it is what a provider
            gives that has nothing to say.
    """

    def __init__(
        self,
        name: str = "fake",
        *,
        tools: Iterable[dict[str, Any]] = (),
        confirms_delivery: bool = True,
        **answers: Any,
    ) -> None:
        self._name = name
        self.confirms_delivery = confirms_delivery
        offered = {"is_available": True, "get_tool_schemas": [*tools], "handle_tool_call": "{}"}
        super().__init__({**offered, **answers})

    # -- the contract ---------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    def is_available(self) -> bool:
        """True, unless told otherwise."""
        available: bool = self._take("is_available")
        return available

    def unavailable_reason(self) -> str:
        """See `answer`; so with all that follow."""
        reason: str = self._take("unavailable_reason")
        return reason

    def initialize(self, session_id: str, **kwargs: Any) -> None:
        """Recorded with all keywords."""
        self._take("initialize", session_id=session_id, **kwargs)

    def initialize_for_inspection(self, session_id: str, **kwargs: Any) -> None:
        """Recorded with all keywords."""
        self._take("initialize_for_inspection", session_id=session_id, **kwargs)

    def system_prompt_block(self) -> str:
        """Nothing, unless told otherwise."""
        text: str = self._take("system_prompt_block")
        return text

    def prefetch(self, query: str, *, session_id: str = "") -> str:
        """Nothing, unless told otherwise."""
        text: str = self._take("prefetch", query=query, session_id=session_id)
        return text

    def queue_prefetch(self, query: str, *, session_id: str = "") -> None:
        """Recorded."""
        self._take("queue_prefetch", query=query, session_id=session_id)

    def recall_status(self) -> RecallStatus | None:
        """None, unless told otherwise."""
        status: RecallStatus | None = self._take("recall_status")
        return status

    def sync_turn(
        self,
        user_content: str,
        assistant_content: str,
        *,
        session_id: str = "",
        messages: Messages | None = None,
        turn_id: str = "",
        attempt: int = 1,
    ) -> None:
        """Keep the turn, once for each ``turn_id``."""
        self._take(
            "sync_turn",
            user_content=user_content,
            assistant_content=assistant_content,
            session_id=session_id,
            messages=messages,
            turn_id=turn_id,
            attempt=attempt,
        )

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """The tools that it was made with."""
        schemas: list[dict[str, Any]] = self._take("get_tool_schemas")
        return schemas

    def handle_tool_call(self, tool_name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """An empty object, unless told otherwise."""
        answer: str = self._take("handle_tool_call", tool_name=tool_name, args=args, **kwargs)
        return answer

    def shutdown(self) -> None:
        """Recorded."""
        self._take("shutdown")

    def on_turn_start(self, turn_number: int, message: str, **kwargs: Any) -> None:
        """Recorded."""
        self._take("on_turn_start", turn_number=turn_number, message=message, **kwargs)

    def on_session_end(self, messages: Messages, *, event_id: str = "", attempt: int = 1) -> None:
        """Recorded."""
        self._take("on_session_end", messages=messages, event_id=event_id, attempt=attempt)

    def on_session_switch(
        self,
        new_session_id: str,
        *,
        parent_session_id: str = "",
        reset: bool = False,
        rewound: bool = False,
        **kwargs: Any,
    ) -> None:
        """Recorded."""
        self._take(
            "on_session_switch",
            new_session_id=new_session_id,
            parent_session_id=parent_session_id,
            reset=reset,
            rewound=rewound,
            **kwargs,
        )

    def on_pre_compress(self, messages: Messages, *, require_checkpoint: bool = False) -> str:
        """Nothing, unless told otherwise."""
        text: str = self._take(
            "on_pre_compress", messages=messages, require_checkpoint=require_checkpoint
        )
        return text

    def on_delegation(
        self,
        task: str,
        result: str,
        *,
        child_session_id: str = "",
        event_id: str = "",
        attempt: int = 1,
        **kwargs: Any,
    ) -> None:
        """Recorded."""
        self._take(
            "on_delegation",
            task=task,
            result=result,
            child_session_id=child_session_id,
            event_id=event_id,
            attempt=attempt,
            **kwargs,
        )

    def on_memory_write(
        self,
        action: str,
        target: str,
        content: str,
        metadata: dict[str, Any] | None = None,
        *,
        event_id: str = "",
        attempt: int = 1,
    ) -> None:
        """Recorded."""
        self._take(
            "on_memory_write",
            action=action,
            target=target,
            content=content,
            metadata=metadata,
            event_id=event_id,
            attempt=attempt,
        )

    def get_config_schema(self) -> list[dict[str, Any]]:
        """No fields, unless told otherwise."""
        fields: list[dict[str, Any]] = self._take("get_config_schema")
        return fields

    def save_config(self, values: dict[str, Any], hermes_home: str) -> None:
        """Recorded; nothing is written."""
        self._take("save_config", values=values, hermes_home=hermes_home)

    def backup_paths(self) -> list[str]:
        """None, unless told otherwise."""
        paths: list[str] = self._take("backup_paths")
        return paths
