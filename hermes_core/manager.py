"""MemoryManager: the one object that an agent's loop calls.

Built-in first, at most one external provider, and a turn that no provider can break::

    manager = MemoryManager.from_config()
    manager.initialize_all("session-1", platform="cli")
    system_prompt += manager.build_system_prompt()
    ...
    manager.on_turn_start(1, message)
    recalled = manager.prefetch_all(message)
    ...                                       # the model; manager.handle_tool_call(...)
    manager.sync_all(message, answer)
    manager.queue_prefetch_all(message)
    ...
    manager.shutdown_all()
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

from hermes_core.dispatch import HookHealth, LateAnswer, Outcome
from hermes_core.errors import CheckpointError, describe
from hermes_core.hookspecs import Messages
from hermes_core.roster import PRIMARY, Roster

logger = logging.getLogger("hermes_core")


class Recollection(NamedTuple):
    """What would be injected for a question, from whom, and what was left out and why."""

    text: str
    outcomes: tuple[Outcome, ...]
    left_out: tuple[str, ...]


class MemoryManager(Roster):
    """Calls the built-in and at most one external provider through a turn's life.

    One manager serves one conversation at a time; a process may hold many.

    Args:
        external_prefetch_timeout: Seconds that recall may take per turn.
        deadlines: Seconds for every other kind of call.
        reserved_tools: Tool names that the host keeps for itself.
        home: HERMES_HOME, handed to providers; by default the environment's.
        redactor: Takes secrets out of what the external provider gets; by default those that
            are known by their looks.
        context_max_chars: How long the text of `recall_block` may be.
        log_calls: Whether calls are noted, without their content, in logs/memory-calls.db.
    """

    @classmethod
    def from_config(cls, home: str | os.PathLike[str] | None = None) -> MemoryManager:
        """A manager as ``config.yaml`` describes it. It always has the built-in.

        What is wrong with the configuration or with the external provider does not raise:
        it is logged, and kept in ``problems``.
        """
        from hermes_core.assembly import assemble  # noqa: PLC0415 - discovery, YAML, jsonschema

        return assemble(cls, home)

    # -- a session ------------------------------------------------------------------------

    def initialize_all(self, session_id: str, **kwargs: Any) -> None:
        """Start a session at every provider."""
        self._initialize("initialize", session_id, kwargs)

    def initialize_all_for_inspection(self, session_id: str, **kwargs: Any) -> None:
        """Like `initialize_all`, for a look only: no network, no workers."""
        self._initialize("initialize_for_inspection", session_id, kwargs)

    def _initialize(self, hook: str, session_id: str, given: Mapping[str, Any]) -> None:
        extra = {
            "hermes_home": str(self._home_folder()),
            "platform": "cli",
            "agent_context": PRIMARY,
            "agent_identity": "default",
            "agent_workspace": "hermes",
            **given,
        }
        self._session_id = session_id
        self._context = str(extra["agent_context"] or PRIMARY)
        if self._log_calls and self._call_log is None and hook == "initialize":
            self._start_log()
        self._hooks.call(hook, session_id=session_id, extra=extra)
        for adapter in self._adapters():
            self._toolbox.refresh(adapter)
        if self._writes is not None and self._context == PRIMARY and hook == "initialize":
            self._writes.begin(session_id, extra)

    def build_system_prompt(self) -> str:
        """Every provider's static text, joined by blank lines."""
        return _joined(self._hooks.call("system_prompt_block"))

    def on_session_end(self, messages: Messages) -> None:
        """The session ends; the whole conversation is handed over."""
        self._write("on_session_end", messages=_copied(messages))

    def on_session_switch(
        self,
        new_session_id: str,
        *,
        parent_session_id: str = "",
        reset: bool = False,
        rewound: bool = False,
        **kwargs: Any,
    ) -> None:
        """The session id changes; what was written before belongs to the old one."""
        if not new_session_id:
            return
        self._session_id = new_session_id
        arguments = {
            "new_session_id": new_session_id,
            "parent_session_id": parent_session_id,
            "reset": reset,
            "rewound": rewound,
            "extra": kwargs,
        }
        self._at_builtin("on_session_switch", arguments)
        if self._external is not None and self._writes is not None:
            call = partial(self._hooks.only(self._external, "on_session_switch"), **arguments)
            self._writes.switch(new_session_id, parent_session_id, kwargs, call)

    # -- a turn ---------------------------------------------------------------------------

    def on_turn_start(self, turn_number: int, message: str, **kwargs: Any) -> None:
        """A turn begins. Returns at once; recall and tools come after it."""
        arguments = {"turn_number": turn_number, "message": message, "extra": kwargs}
        self._at_builtin("on_turn_start", arguments)
        self._post("on_turn_start", arguments)

    def prefetch_all(self, query: str, *, session_id: str = "") -> str:
        """What the providers recall for ``query``, joined by blank lines; "" if nothing."""
        return _joined(
            self._hooks.call("prefetch", query=query, session_id=self._session(session_id))
        )

    def recall_block(self, query: str, *, session_id: str = "") -> str:
        """What to append to the API copy of the user's message; "" if nothing was recalled.

        Recalled data, fenced and labelled as such, of bounded length. It belongs neither to
        the system prompt nor to the stored message.
        """
        return self.recall(query, session_id=session_id).text

    def recall(self, query: str, *, session_id: str = "") -> Recollection:
        """Like `recall_block`, with what each provider said, and what was left out."""
        from hermes_core.context import Recalled, fenced  # noqa: PLC0415 - hosts may do without

        outcomes = self._hooks.call("prefetch", query=query, session_id=self._session(session_id))
        parts = [
            Recalled(each.provider, each.value, getattr(each.value, "question", ""))
            for each in outcomes
            if _has_text(each.value)
        ]
        block = fenced(parts, max_chars=self._context_max_chars, scan=self._objections)
        return Recollection(block.text, tuple(outcomes), block.left_out)

    def _objections(self, text: str) -> list[str]:
        return list(self._ask_builtin("objections", text) or ())

    def queue_prefetch_all(self, query: str, *, session_id: str = "") -> None:
        """After a turn: let the providers start the recall for the next. Returns at once."""
        arguments = {"query": query, "session_id": self._session(session_id)}
        self._at_builtin("queue_prefetch", arguments)
        self._post("queue_prefetch", arguments)

    def recall_status_all(self) -> list[Any]:
        """What the last recall of each provider injected."""
        outcomes = self._hooks.call("recall_status")
        return [each.value for each in outcomes if each.value is not None]

    def sync_all(
        self,
        user_content: str,
        assistant_content: str,
        *,
        session_id: str = "",
        messages: Messages | None = None,
        interrupted: bool = False,
    ) -> None:
        """A turn is complete. Returns at once; an interrupted or half-empty one is not kept."""
        if interrupted or not _has_text(user_content) or not _has_text(assistant_content):
            return
        self._write(
            "sync_turn",
            user_content=user_content,
            assistant_content=assistant_content,
            session_id=self._session(session_id),
            messages=None if messages is None else _copied(messages),
        )

    def on_pre_compress(self, messages: Messages, *, require_checkpoint: bool = False) -> str:
        """Messages are about to be discarded: the providers' texts for the summary.

        Raises:
            CheckpointError: It was required, and a provider that promises durable
                checkpoints could not make one. Don't compress.
        """
        extra = {"require_checkpoint": True} if require_checkpoint else {}
        outcomes = self._hooks.call("on_pre_compress", messages=_copied(messages), extra=extra)
        if require_checkpoint:
            self._require_checkpoints(outcomes)
        return _joined(outcomes)

    def _require_checkpoints(self, outcomes: list[Outcome]) -> None:
        promised = False
        for outcome in outcomes:
            provider = self.get_provider(outcome.provider)
            version = getattr(provider, "pre_compress_checkpoint_api_version", 1)
            if not isinstance(version, int) or version < 2:  # noqa: PLR2004
                continue
            promised = True
            if outcome.error is not None:
                where = f"provider {outcome.provider}"
                raise CheckpointError(describe(outcome.error), where=where) from outcome.error
        if not promised:
            raise CheckpointError("no provider promises durable checkpoints")

    def on_delegation(
        self, task: str, result: str, *, child_session_id: str = "", **kwargs: Any
    ) -> None:
        """A subagent of this agent has completed its task."""
        self._write(
            "on_delegation",
            task=task,
            result=result,
            child_session_id=child_session_id,
            extra=kwargs,
        )

    def on_memory_write(
        self, action: str, target: str, content: str, metadata: dict[str, Any] | None = None
    ) -> None:
        """The built-in notes changed: tell the external provider."""
        self._send(
            "on_memory_write",
            {"action": action, "target": target, "content": content, "metadata": metadata},
        )

    def pending_nudge(self) -> str:
        """A reminder to take notes, for the next user message; "" most of the time."""
        return str(self._ask_builtin("pending_nudge") or "")

    def review_prompt(self, messages: Messages) -> str:
        """What to send to a model in the background, with the memory tool, after a nudge."""
        return str(self._ask_builtin("review_prompt", messages) or "")

    # -- tools ----------------------------------------------------------------------------

    def get_all_tool_schemas(self) -> list[dict[str, Any]]:
        """The schemas of all tools, bare: name, description, parameters."""
        return self._toolbox.table.schemas()

    def get_all_tool_names(self) -> set[str]:
        """The names of all tools."""
        return self._toolbox.table.names()

    def has_tool(self, tool_name: str) -> bool:
        """Whether a provider has that tool."""
        return self._toolbox.table.owner(tool_name) is not None

    def handle_tool_call(self, tool_name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Run a tool at its owner. Always a JSON string."""
        return self._toolbox.call(tool_name, args, kwargs)

    # -- health and the end ---------------------------------------------------------------

    def health(self) -> dict[str, dict[str, HookHealth]]:
        """How every hook of every provider and observer has fared."""
        return dict(self._hooks.health())

    def flush_pending(self, timeout: float | None = None) -> bool:
        """Whether all that was written has been delivered, after at most ``timeout`` seconds.

        What waits for a second attempt is tried at once.
        """
        if self._external is None or self._writes is None:
            return True
        end = monotonic() + (self._deadlines.write if timeout is None else timeout)
        delivered = self._writes.flush(max(end - monotonic(), 0))
        return self._external.flush(max(end - monotonic(), 0)) and delivered

    def shutdown_all(self) -> None:
        """Deliver what waits, within the deadline, and shut the providers down.

        What could not be delivered stays in the outbox.
        """
        if self._closed:
            return
        self._closed = True
        end = monotonic() + self._deadlines.shutdown
        if self._writes is not None:
            self._writes.finish(self._deadlines.shutdown / 2)
        for adapter in reversed(self._adapters()):
            left = max(end - monotonic(), self._deadlines.shutdown / 4)
            adapter.deadlines = self._deadlines._replace(shutdown=left)
            self._hooks.only(adapter, "shutdown")()
            adapter.close(max(end - monotonic(), 0))
            adapter.end_processes()
        if self._writes is not None:
            self._writes.close()
        self._hooks.close()
        for close in self._closing:
            close()

    # -- ways to call ---------------------------------------------------------------------

    def _session(self, session_id: str) -> str:
        return session_id or self._session_id

    def _at_builtin(self, hook: str, arguments: Mapping[str, Any]) -> None:
        if self._builtin is not None:
            self._hooks.only(self._builtin, hook)(**arguments)

    def _post(self, hook: str, arguments: Mapping[str, Any]) -> None:
        """Have the external provider called, and go on."""
        if self._external is not None:
            call = partial(self._hooks.only(self._external, hook), **arguments)
            self._external.post(hook, call)

    def _write(self, hook: str, **arguments: Any) -> None:
        """To the built-in now; to the external provider by way of the outbox."""
        self._at_builtin(hook, arguments)
        self._send(hook, arguments)

    def _send(self, hook: str, arguments: Mapping[str, Any]) -> None:
        """To the external provider, if it may have it.

        A cron job's or a subagent's words would corrupt what it knows of its user.
        """
        if self._closed:
            logger.warning("memory: %s after shutdown_all is lost: the manager has ended", hook)
        elif self._writes is not None and self._context == PRIMARY:
            self._writes.put(hook, arguments)


def _joined(outcomes: list[Outcome]) -> str:
    return "\n\n".join(_labelled(each.value) for each in outcomes if _has_text(each.value))


def _labelled(value: str) -> str:
    """A text; one that answers an earlier question says so."""
    if isinstance(value, LateAnswer):
        return f"[recalled for the earlier question: {value.question}]\n{value}"
    return value


def _has_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _copied(messages: Messages) -> Messages:
    """A list of our own: the host goes on with its own, and providers may do what they like."""
    return [dict(each) if isinstance(each, dict) else each for each in messages or ()]
