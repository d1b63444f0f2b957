"""`MemoryManager`: the one object that an agent's loop calls.

It calls the built-in provider first and at most one external provider; no provider can break a
turn::

    manager = MemoryManager.from_config()
    manager.initialize_all("session-1", platform="cli")
    system_prompt += manager.build_system_prompt()
    ...
    manager.on_turn_start(1, message)
    recalled = manager.recall_block(message)
    ...                                       # the model; manager.handle_tool_call(...)
    manager.sync_all(message, answer)
    manager.queue_prefetch_all(message)
    ...
    manager.shutdown_all()
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any
from weakref import ref

from hermes_core.config.names import names_of, normalise
from hermes_core.dispatch import Deadlines, HookCalls, HookHealth, ProviderAdapter, TurnClock
from hermes_core.dispatch.caller import use_home
from hermes_core.dispatch.process_state import stores_turns
from hermes_core.errors import HermesError
from hermes_core.hookspecs import Messages
from hermes_core.manager.builtin import BuiltinCalls
from hermes_core.manager.compression import pre_compress, supports_checkpoints
from hermes_core.manager.notes import NoteWrites
from hermes_core.manager.prompts import as_typed, typed_messages, user_instruction
from hermes_core.manager.recall import CONTEXT_MAX_CHARS, Recall, Recollection, budget, joined
from hermes_core.manager.shutdown import Shutdown
from hermes_core.manager.tools import ToolRegistry
from hermes_core.privacy.origin import as_messages, of_message, of_provider
from hermes_core.provider import (
    BUILTIN,
    PRE_COMPRESS_CHECKPOINT_API_VERSION,
    MemoryProvider,
    describe_recalls,
)
from hermes_core.session import SessionContext
from hermes_core.storage.logger import logger
from hermes_core.storage.time_limit import START_SECONDS, TOOL_SECONDS, TURN_SECONDS, time_limit

if TYPE_CHECKING:
    from hermes_core.call_log import CallLog
    from hermes_core.manager.conversation import Conversation, ConversationSlot
    from hermes_core.outbox.writer import OutboxSettings, OutboxWriter
    from hermes_core.privacy import Redactor


@stores_turns("sync_all", "handle_tool_call", "on_session_end", "on_session_switch", "_write")
class MemoryManager:
    """Calls the built-in and at most one external provider, from session start to shutdown.

    One manager serves one conversation at a time; a process can have many managers.

    Args:
        external_prefetch_timeout: Seconds that recall may take per turn, as a number or as text.
        deadlines: Seconds for every other kind of call.
        reserved_tools: Tool names that the host uses itself.
        home: HERMES_HOME; by default the environment's.
        redactor: Masks secrets for the external provider; by default what looks like one.
        context_max_chars: How many characters the text of `recall_block` may have.
        log_calls: Whether to record calls, without their content, in logs/memory-calls.db.
    """

    def __init__(
        self,
        *,
        external_prefetch_timeout: float | str | None = None,
        deadlines: Deadlines | None = None,
        reserved_tools: Iterable[str] = (),
        home: str | os.PathLike[str] | None = None,
        redactor: Redactor | None = None,
        context_max_chars: int = CONTEXT_MAX_CHARS,
        log_calls: bool = False,
    ) -> None:
        self._redactor = redactor
        self._deadlines = deadlines or Deadlines()
        if external_prefetch_timeout is not None:
            self._deadlines = self._deadlines._replace(prefetch=budget(external_prefetch_timeout))
        self._home = home
        self._hooks = HookCalls()
        self._recall = Recall(self._hooks, context_max_chars)
        self._external: ProviderAdapter | None = None
        self._writes: OutboxWriter | None = None
        self._outbox_settings: OutboxSettings | None = None
        self._log_calls = log_calls
        self._call_log: CallLog | None = None
        self._tools = ToolRegistry(self._hooks, reserved_tools)
        # A placeholder: a host may ask for tools or recall before `initialize_all`.
        self._session = SessionContext()
        self._conversation_slot: ConversationSlot | None = None
        self._notes = NoteWrites(self.on_memory_write, lambda: self._session.parent_session_id)
        self._builtin = BuiltinCalls(self._hooks, self._notes)
        self._shutdown = Shutdown(self._hooks, self._deadlines)
        self._clock = TurnClock()
        #: Why the configuration, a provider or an observer could not be used.
        self.problems: tuple[HermesError, ...] = ()
        #: Why providers were refused.
        self.refusals: tuple[str, ...] = ()
        #: The external provider's settings and their sources; secrets without their values.
        self.setting_rows: tuple[dict[str, Any], ...] = ()
        self._warnings: tuple[str, ...] = ()

    @classmethod
    def from_config(cls, home: str | os.PathLike[str] | None = None) -> MemoryManager:
        """Build a manager as ``config.yaml`` describes it. It always has the built-in.

        A wrong configuration or a broken provider does not raise: it is listed in ``problems``.
        """
        from hermes_core.manager.from_config import assemble  # noqa: PLC0415 - discovery, YAML, jsonschema

        return assemble(cls, home)[0]

    def _configure(self, outbox: OutboxSettings, warnings: Iterable[str] = ()) -> None:
        """Set what config.yaml says of the outbox, before an external provider is added."""
        self._outbox_settings = outbox
        self._warnings = tuple(warnings)

    # -- providers ------------------------------------------------------------------------

    @property
    def providers(self) -> list[MemoryProvider]:
        """The providers, the built-in first."""
        return [adapter.provider for adapter in self._adapters()]

    def get_provider(self, name: str) -> MemoryProvider | None:
        """Return the provider of that name; None if there is none."""
        for adapter in self._adapters():
            if normalise(name) in (normalise(adapter.name), normalise(adapter.own_name)):
                return adapter.provider
        return None

    def add_provider(
        self,
        provider: MemoryProvider,
        *,
        name: str = "",
        provider_config: Mapping[str, Any] | None = None,
    ) -> bool:
        """Add the built-in, or one external provider; False if it was refused.

        Args:
            provider: A `MemoryProvider`, or anything that looks like one.
            name: Its name in this manager, if that is not ``provider.name``.
            provider_config: Its settings, which ``initialize`` receives.
        """
        own, name, reason = names_of(provider, name)
        if reason:
            return self._refuse(f"{type(provider).__name__}: {reason}")
        builtin = name == BUILTIN
        # At most one external provider: two would each get every turn, and the user could not tell
        # which one a recalled sentence came from.
        present = self._builtin.adapter if builtin else self._external
        if present is not None:
            return self._refuse(
                f"{name}: {present.name} is already active; only one external provider is allowed"
                if not builtin
                else "builtin: the built-in is already added"
            )
        adapter = ProviderAdapter(
            provider,
            name,
            deadlines=self._deadlines,
            # The built-in is our own code and local: no thread and no deadline, so that a turn is
            # on disk when `sync_all` returns.
            inline=builtin,
            config=provider_config,
            home=None if builtin else self._known_home(),
        )
        adapter.own_name = own
        self._hooks.add(adapter)
        if builtin:
            self._builtin.use(adapter, provider)
        else:
            self._external = adapter
            adapter.process_watch.protected = tuple(map(ref, (self, *self.providers[:1])))
            self._equip(adapter)
        self._tools.refresh(adapter)
        return True

    def _equip(self, adapter: ProviderAdapter) -> None:
        """Set the redactor and the outbox of an external provider."""
        from hermes_core.outbox.writer import OutboxSettings, OutboxWriter  # noqa: PLC0415
        from hermes_core.privacy import Redactor  # noqa: PLC0415 - not needed without one

        adapter.redactor = self._redactor if self._redactor is not None else Redactor()
        settings = self._outbox_settings or OutboxSettings()
        self._writes = OutboxWriter(adapter, self._hooks, self._home_folder, settings)
        if adapter.instance.home is not None:
            self.when_closed(use_home(adapter.instance.home, self))

    def add_observer(self, name: str, observer: Any) -> None:
        """Register an observer, which sees every hook call and can change its results."""
        self._hooks.observe(name, observer)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What works, but needs a person's attention."""
        starts = [
            f"provider {each.name}: receives no turns, because its initialize failed: "
            f"{each.error_text(each.start_error)}"
            for each in self._adapters()
            if each.start_error is not None
        ]
        undelivered = self._writes.warnings if self._writes is not None else []
        noticed = [line for each in self._adapters() for line in each.process_watch.noticed]
        own = (*self._tools.warnings, *self._builtin.warnings)
        return (*self._warnings, *noticed, *starts, *own, *undelivered)

    def _refuse(self, reason: str) -> bool:
        logger.warning("memory provider refused: %s", reason)
        self.refusals = (*self.refusals, reason)
        return False

    def _adapters(self) -> list[ProviderAdapter]:
        return [each for each in (self._builtin.adapter, self._external) if each is not None]

    # -- a session ------------------------------------------------------------------------

    def initialize_all(self, session_id: str, **kwargs: Any) -> None:
        """Start a session at every provider."""
        self._initialize("initialize", session_id, kwargs)

    def initialize_all_for_inspection(self, session_id: str, **kwargs: Any) -> None:
        """Like `initialize_all`, for inspection only: no network, no workers."""
        self._initialize("initialize_for_inspection", session_id, kwargs)

    @time_limit(START_SECONDS)
    def _initialize(self, hook: str, session_id: str, given: Mapping[str, Any]) -> None:
        home = str(self._home_folder())
        session = SessionContext.from_keywords(session_id, {"hermes_home": home, **given})
        self._session = session
        if self._log_calls and self._call_log is None and hook == "initialize":
            self._start_log()
        # An inspection and a subagent start no deliveries: the first must not write, and the turns
        # of the second do not go to the external provider.
        starts = hook == "initialize" and session.is_primary
        if starts and self._external is not None:
            # Plugins may read state.db in their `initialize`, which comes after the built-in's,
            # and may keep the process from opening files. `explain` asks as a subagent does.
            self._builtin.prepare()
        self._hooks.call(hook, session_id=session_id, extra=session.keywords())
        for adapter in self._adapters():
            self._tools.refresh(adapter)
        if starts and self._writes is not None:
            # Last: deliveries need a provider that knows its session.
            self._writes.begin(session)

    def build_system_prompt(self) -> str:
        """Return every provider's static text, joined by blank lines."""
        return joined(self._hooks.call("system_prompt_block"))

    @time_limit(TURN_SECONDS)
    def on_session_end(self, messages: Messages) -> None:
        """End the session; providers receive the whole conversation."""
        self._write("on_session_end", messages=typed_messages(messages))

    @time_limit(TURN_SECONDS)
    def on_session_switch(
        self,
        new_session_id: str,
        *,
        parent_session_id: str = "",
        reset: bool = False,
        rewound: bool = False,
        **kwargs: Any,
    ) -> None:
        """Continue with another session; earlier writes still belong to the old one."""
        if not new_session_id:  # there is no session that turns could belong to
            return
        # First, and on this thread: the next turn may arrive before the provider has handled the
        # change, and must carry the new id.
        self._session = self._session.switched(new_session_id, parent_session_id, kwargs)
        arguments = {
            "new_session_id": new_session_id,
            "parent_session_id": parent_session_id,
            "reset": reset,
            "rewound": rewound,
            "extra": kwargs,
        }
        self._builtin.call("on_session_switch", arguments)
        if self._external is not None and self._writes is not None:
            call = partial(self._hooks.only(self._external, "on_session_switch"), **arguments)
            self._writes.switch(new_session_id, parent_session_id, kwargs, call)

    def commit_session_boundary_async(
        self,
        messages: Messages,
        *,
        new_session_id: str,
        parent_session_id: str = "",
        reason: str = "new_session",
    ) -> None:
        """End the old session, then switch to the new one, in this order. Returns at once.

        Args:
            messages: The whole conversation of the old session.
            new_session_id: The session that begins.
            parent_session_id: The one that it follows, if that matters.
            reason: Why, for the providers.
        """
        # In the outbox's order: the end is queued for the old stream, the switch after it.
        self.on_session_end(messages)
        self.on_session_switch(
            new_session_id, parent_session_id=parent_session_id, reset=True, reason=reason
        )

    def conversation(
        self, session_id: str, *, end_session: bool = True, **who: Any
    ) -> Conversation:
        """Return a conversation, to be used in a ``with`` statement; it makes the calls for you.

        Args:
            session_id: The session that begins or is resumed.
            end_session: Whether leaving it ends the session; False if a later one resumes it.
            **who: As for `initialize_all`.
        """
        from hermes_core.manager.conversation import Conversation, ConversationSlot  # noqa: PLC0415 - the fence: hosts may do without

        if self._conversation_slot is None:
            self._conversation_slot = ConversationSlot()
        return Conversation(self, self._conversation_slot, session_id, who, end_session=end_session)

    # -- a turn ---------------------------------------------------------------------------

    @time_limit(TURN_SECONDS)
    def on_turn_start(self, turn_number: int, message: str, **kwargs: Any) -> None:
        """Report that a turn begins. Returns at once; recall and tools come after it.

        Args:
            turn_number: Which turn of the session it is.
            message: What the user said.
            **kwargs: Passed to providers that accept them, such as ``model``, ``platform`` and
                who wrote the message: ``author_id``, ``author_name``, ``author_is_bot``.
        """
        message = user_instruction(message) if isinstance(message, str) else message
        arguments = {"turn_number": turn_number, "message": message, "extra": kwargs}
        self._builtin.call("on_turn_start", arguments)
        # Queued, not awaited: its deadline would come on top of the budget of recall.
        self._post("on_turn_start", arguments)

    def prefetch_all(self, query: str, *, session_id: str = "") -> str:
        """Return what the providers recall for ``query``, joined by blank lines; "" if nothing.

        Providers are not called for a blank query, nor for a skill invoked without an instruction.
        """
        session_id = session_id or self._session.session_id
        return joined(self._recall.ask(query, session_id, self._builtin.methods))

    def recall_block(self, query: str, *, session_id: str = "") -> str:
        """Return what to append to the API copy of the user's message; "" if nothing was recalled.

        The text is fenced, labelled as recalled data, and of bounded length. It belongs neither to
        the system prompt nor to the stored message.
        """
        session = session_id or self._session.session_id
        return self._recall.recollect(query, session, self._builtin.methods).text

    def recall(self, query: str, *, session_id: str = "") -> Recollection:
        """Like `recall_block`, with every provider's answer and what was left out."""
        session = session_id or self._session.session_id
        return self._recall.recollect(query, session, self._builtin.methods)

    def queue_prefetch_all(self, query: str, *, session_id: str = "") -> None:
        """After a turn, let the providers start the recall for the next one. Returns at once."""
        asked = user_instruction(query)
        if not asked:
            return
        arguments = {"query": asked, "session_id": session_id or self._session.session_id}
        self._builtin.call("queue_prefetch", arguments)
        self._post("queue_prefetch", arguments)

    def recall_status_all(self) -> list[Any]:
        """Return what the last recall of each provider injected."""
        outcomes = self._hooks.call("recall_status")
        return [each.value for each in outcomes if each.value is not None]

    def describe_recall(self) -> str:
        """Return one line for a person about what the last recall injected; "" if nothing.

        For example ``🧠 Honcho — recalled 3 memories``. Call it after `prefetch_all`.
        """
        return "" if self._recall.skipped else describe_recalls(self.recall_status_all())

    @time_limit(TURN_SECONDS)
    def sync_all(
        self,
        user_content: str,
        assistant_content: str,
        *,
        session_id: str = "",
        messages: Messages | None = None,
        interrupted: bool = False,
        turn_author: Mapping[str, Any] | None = None,
    ) -> None:
        """Store a completed turn. Returns at once; an interrupted or half-empty turn is dropped.

        The archive stores a skill as the user typed it; the external provider receives the
        instruction, and nothing for a skill that was invoked without one.

        Args:
            user_content: What the user said.
            assistant_content: What the agent answered.
            session_id: The session, if it is not the current one.
            messages: The turn with the tools' part, or the whole conversation.
            interrupted: Whether the answer was cut off.
            turn_author: Who wrote ``user_content``: ``{"id", "name", "is_bot"}``. Passed to
                providers that accept it.
        """
        # As in hermes-agent: half a turn teaches a provider an answer without its question.
        texts = (user_content, assistant_content)
        if interrupted or not all(isinstance(each, str) and each.strip() for each in texts):
            for each in as_messages(messages or ()):  # it stays in the model's context
                if each.get("role") == "tool":
                    self.on_tool_result(
                        str(each.get("tool_name") or each.get("name") or ""), each.get("content")
                    )
            return
        turn: dict[str, Any] = {
            "user_content": as_typed(user_content),
            "assistant_content": assistant_content,
            "session_id": session_id or self._session.session_id,
            "messages": None if messages is None else typed_messages(messages),
            "turn_author": dict(turn_author) if isinstance(turn_author, Mapping) else None,
        }
        # The archive first. If the process dies before the outbox has the turn, `outbox backfill`
        # can still take it from the archive.
        with self._clock.turn() as said_at:
            self._builtin.call("sync_turn", turn)
        instruction = user_instruction(user_content)
        if not instruction:
            return
        if turn["turn_author"] and self._external is not None:
            # People choose their names themselves, so a name may contain a secret.
            turn["turn_author"] = dict(self._external.redact_session(turn["turn_author"]))
        self._send("sync_turn", {**turn, "user_content": instruction}, said_at)

    def supports_pre_compress_checkpoint(
        self, api_version: int = PRE_COMPRESS_CHECKPOINT_API_VERSION
    ) -> bool:
        """Return whether a provider promises durable checkpoints of this version."""
        return supports_checkpoints(self._adapters(), api_version)

    @time_limit(TURN_SECONDS)
    def on_pre_compress(
        self,
        messages: Messages,
        *,
        evidence_messages: Messages | None = None,
        require_checkpoint: bool = False,
        checkpoint_api_version: int = PRE_COMPRESS_CHECKPOINT_API_VERSION,
    ) -> str:
        """Before messages are discarded, return the providers' texts for the summary.

        Args:
            messages: What is about to be discarded.
            evidence_messages: What providers with checkpoints receive instead; by default what
                the user and the assistant said in ``messages``, as text.
            require_checkpoint: Whether to raise if no durable checkpoint was made.
            checkpoint_api_version: From which version on a provider counts as one with
                checkpoints.

        Raises:
            CheckpointError: A checkpoint was required, and no provider promises one or a
                provider could not make one. Don't compress.
        """
        outcomes = pre_compress(
            self._hooks,
            self._adapters(),
            messages,
            evidence_messages,
            required=require_checkpoint,
            api_version=checkpoint_api_version,
        )
        return joined(outcomes)

    @time_limit(TURN_SECONDS)
    def on_delegation(
        self, task: str, result: str, *, child_session_id: str = "", **kwargs: Any
    ) -> None:
        """Report that a subagent of this agent has completed its task."""
        self._write(
            "on_delegation",
            task=task,
            result=result,
            child_session_id=child_session_id,
            extra=kwargs,
        )

    @time_limit(TURN_SECONDS)
    def on_memory_write(
        self, action: str, target: str, content: str, metadata: dict[str, Any] | None = None
    ) -> None:
        """Report to the external provider that the notes changed."""
        known = dict(metadata or {})
        if self._builtin.methods is not None and self._writes is not None:
            known.setdefault("origin", self._builtin.methods.origin_of(content))
        arguments = {"action": action, "target": target, "content": content, "metadata": known}
        self._send("on_memory_write", arguments)

    def notify_memory_tool_write(
        self,
        tool_result: Any,
        tool_args: dict[str, Any],
        *,
        build_metadata: Callable[[], dict[str, Any]] | None = None,
    ) -> None:
        """Report a call of the host's own ``memory`` tool, and forward its writes as notes.

        A call that failed or waits for an approval forwards nothing. Neither does one that the
        built-in of this manager answered, because it forwards its own writes.

        Args:
            tool_result: What the tool returned: JSON text, or a mapping.
            tool_args: What it was called with.
            build_metadata: Returns the metadata of each write. ``old_text`` and
                ``previous_content`` are added where they are known.
        """
        self._notes.from_host(tool_result, tool_args, build_metadata)

    def note_origins(self) -> list[tuple[str, str]]:
        """Return the notes that an agent's prompt has, each with where it comes from."""
        return self._builtin.note_origins()

    def pending_nudge(self) -> str:
        """Return a reminder to take notes, for the next user message; "" most of the time."""
        return self._builtin.pending_nudge()

    def session_messages(self, session_id: str) -> Messages:
        """Return every message of an earlier session, to continue it; [] if there is none.

        Only the sessions that the tool ``session_search`` would show can be read.

        Raises:
            HermesError: The archive can't be read.
        """
        return self._builtin.session_messages(session_id)

    def review_prompt(self, messages: Messages) -> str:
        """Return what to send to a model in the background, with the memory tool, after a nudge."""
        return self._builtin.review_prompt(messages)

    # -- tools ----------------------------------------------------------------------------

    def get_all_tool_schemas(self) -> list[dict[str, Any]]:
        """Return the schemas of all tools, bare: name, description, parameters."""
        return self._tools.schemas()

    def get_all_tool_names(self) -> set[str]:
        """Return the names of all tools."""
        return self._tools.names()

    def has_tool(self, tool_name: str) -> bool:
        """Return whether a provider has that tool."""
        return self._tools.owner(tool_name) is not None

    @time_limit(TOOL_SECONDS)
    def handle_tool_call(self, tool_name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Run a tool at its owner. Always returns a JSON string.

        Args:
            tool_name: The tool.
            args: Its arguments.
            **kwargs: Passed to its owner, such as ``session_id``. ``task_id``, ``tool_call_id``
                and ``execution_context`` (by default "foreground") also go into the metadata of
                the notes that the tool writes. ``messages``, the turn so far, lets the memory
                tool know what the turn has read, like `on_tool_result`.
        """
        with self._notes.tool_call(kwargs):
            answer = self._tools.call(tool_name, args, kwargs)
        owner = self._tools.owner(tool_name)
        if tool_name == "memory" and owner == BUILTIN:
            self._notes.remember(answer)
        if owner not in (None, BUILTIN):
            session_id = str(kwargs.get("session_id") or "")
            self._builtin.read_external(answer, of_provider(str(owner)), session_id)
        return answer

    @time_limit(TURN_SECONDS)
    def on_tool_result(
        self, tool_name: str, content: Any, *, origin: str = "", session_id: str = ""
    ) -> None:
        """Report what one of your own tools returned, as soon as the model sees it.

        A note that is made of these words, and that the user did not say, is then external: see
        ``memory.external_notes``. Results of the tools that `handle_tool_call` runs need no
        report. A host that does not call this reports results at the end of the turn, with
        `sync_all`.

        Args:
            tool_name: The tool.
            content: Its result: text, or the content parts of a message.
            origin: ``web`` for a page, ``file`` for a file; by default guessed from the name.
            session_id: The session, if it is not the current one.
        """
        if self._tools.owner(tool_name) != BUILTIN:
            message = {"role": "tool", "name": tool_name, "origin": origin}
            self._builtin.read_external(content, of_message(message), session_id)

    # -- health and the end ---------------------------------------------------------------

    def health(self) -> dict[str, dict[str, HookHealth]]:
        """Return calls, failures and times of every hook of every provider and observer."""
        return dict(self._hooks.health())

    def flush_pending(self, timeout: float | None = None) -> bool:
        """Return whether every write is delivered, after at most ``timeout`` seconds.

        That includes what earlier processes left in this home for the external provider. Writes
        that wait for another attempt are retried at once, then with back-off. Writes that were
        set aside because they fail repeatedly don't count; `status` shows them.
        """
        if self._external is None or self._writes is None:
            return True
        end = monotonic() + (self._deadlines.write if timeout is None else timeout)
        # The outbox first: it hands writes to the workers, which are flushed with the time that is
        # left.
        delivered = self._writes.flush(max(end - monotonic(), 0))
        return self._external.flush(max(end - monotonic(), 0)) and delivered

    @property
    def shutdown_drain_state(self) -> dict[str, Any]:
        """What `shutdown_all` could not finish.

        ``status`` is not_started, draining, drained or timed_out. ``waiting_writes`` stay in the
        outbox and are delivered later, so ``abandoned_writes`` is always 0.
        """
        return dict(self._shutdown.state)

    def shutdown_all(self) -> None:
        """Deliver what waits, within the deadline, and shut the providers down.

        What could not be delivered stays in the outbox; what was delivered is removed from it.
        """
        if not self._shutdown.begun:
            self._shutdown.run(self._adapters(), self._writes)

    # -- ways to call ---------------------------------------------------------------------

    def _post(self, hook: str, arguments: Mapping[str, Any]) -> None:
        """Queue a call of the external provider, and return at once."""
        if self._external is not None:
            call = partial(self._hooks.only(self._external, hook), **arguments)
            self._external.post(hook, call)

    def _write(self, hook: str, **arguments: Any) -> None:
        """Send a write to the built-in now, and to the external provider through the outbox."""
        self._builtin.call(hook, arguments)
        self._send(hook, arguments)

    def _send(self, hook: str, arguments: Mapping[str, Any], said_at: float = 0.0) -> None:
        """Send a write to the external provider, if this is the agent itself.

        The words of a cron job or a subagent would corrupt what the provider knows about its user.
        """
        if self._shutdown.begun:
            # The only way to lose a write; nobody is left to deliver it, and status must not say
            # otherwise.
            logger.warning("memory: %s after shutdown_all is lost: the manager is shut down", hook)
        elif self._writes is not None and self._session.is_primary:
            self._writes.put(hook, arguments, said_at)

    def _start_log(self) -> None:
        """Record every call from now on."""
        from hermes_core.call_log import CallLog  # noqa: PLC0415 - not for a look only

        log = self._call_log = CallLog.of(self._home_folder())
        self.when_closed(log.close)
        for adapter in self._adapters():
            # The session as a function: it may change while the listener stays.
            adapter.listener = log.listener(adapter.name, lambda: self._session.session_id)

    def _home_folder(self) -> Path:
        if self._home is not None:
            return Path(os.path.abspath(os.path.expanduser(self._home)))  # noqa: PTH100, PTH111
        from hermes_core.storage.home import resolve_home  # noqa: PLC0415

        return resolve_home()

    def _known_home(self) -> Path | None:
        """The home; None if it can't be used. Whoever needs it raises the error."""
        with suppress(HermesError):
            return self._home_folder()
        return None

    def when_closed(self, close: Callable[[], None]) -> None:
        """Call ``close`` at the end of `shutdown_all`."""
        self._shutdown.when_closed(close)
