"""AsyncMemoryManager: `MemoryManager` for an agent that runs on an event loop.

One class that says every method once more, and not one that makes them up: hosts want
signatures that an editor and a type checker know. A test compares the two.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from hermes_core.asynchronous._errands import Errands
from hermes_core.manager import MemoryManager, Recollection
from hermes_core.roster import CONTEXT_MAX_CHARS

if TYPE_CHECKING:
    from hermes_core.dispatch import Deadlines, HookHealth
    from hermes_core.errors import HermesError
    from hermes_core.hookspecs import Messages
    from hermes_core.provider import MemoryProvider
    from hermes_core.redaction import Redactor
    from hermes_core.writes import OutboxSettings


class AsyncMemoryManager:
    """A `MemoryManager` whose methods are awaited, and never hold up the event loop.

    Methods have the names, arguments and meaning that they have there; properties are plain.
    Calls run one after the other, in the order in which they were made, on a thread of the
    manager's own. When a task that waits for one is cancelled, a call that tells something
    (``initialize_all``, ``sync_all``, ``on_...``, ``shutdown_all``) is made all the same; one
    that asks for something (recall, prompts, tools) is not, unless it has begun.

    Args:
        external_prefetch_timeout: As for `MemoryManager`; so are all others.
        deadlines: Seconds for every other kind of call.
        reserved_tools: Tool names that the host keeps for itself.
        home: HERMES_HOME, handed to providers; by default the environment's.
        redactor: Takes secrets out of what the external provider gets.
        context_max_chars: How long the text of `recall_block` may be.
        log_calls: Whether calls are noted, without their content, in logs/memory-calls.db.
    """

    def __init__(
        self,
        *,
        external_prefetch_timeout: float | None = None,
        deadlines: Deadlines | None = None,
        reserved_tools: Iterable[str] = (),
        home: str | os.PathLike[str] | None = None,
        redactor: Redactor | None = None,
        context_max_chars: int = CONTEXT_MAX_CHARS,
        log_calls: bool = False,
    ) -> None:
        manager = MemoryManager(
            external_prefetch_timeout=external_prefetch_timeout,
            deadlines=deadlines,
            reserved_tools=reserved_tools,
            home=home,
            redactor=redactor,
            context_max_chars=context_max_chars,
            log_calls=log_calls,
        )
        self._use(manager, Errands())

    def _use(self, manager: MemoryManager, errands: Errands) -> None:
        self._manager = manager
        self._errands = errands

    @classmethod
    def wrap(cls, manager: MemoryManager) -> Self:
        """One for a manager that is there already. Use that one no more yourself."""
        return cls._of(manager, Errands())

    @classmethod
    def _of(cls, manager: MemoryManager, errands: Errands) -> Self:
        self = cls.__new__(cls)
        self._use(manager, errands)
        return self

    @classmethod
    async def from_config(cls, home: str | os.PathLike[str] | None = None) -> Self:
        """A manager as ``config.yaml`` describes it; importing a plugin may take a while."""
        errands = Errands()
        errand = errands.hand_over(partial(MemoryManager.from_config, home))
        try:
            return cls._of(await errand.answer, errands)
        except BaseException:  # nobody will have it
            if not errand.job.claim():
                errands.hand_over(lambda: errand.job.value and errand.job.value.shutdown_all())
            errands.end()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.shutdown_all()

    # -- providers ------------------------------------------------------------------------

    @property
    def providers(self) -> list[MemoryProvider]:
        """The providers, the built-in first."""
        return self._manager.providers

    @property
    def problems(self) -> tuple[HermesError, ...]:
        """What kept the configuration, a provider or an observer from being used."""
        return self._manager.problems

    @property
    def refusals(self) -> tuple[str, ...]:
        """Why providers that were added were not taken."""
        return self._manager.refusals

    @property
    def setting_rows(self) -> tuple[dict[str, Any], ...]:
        """The external provider's fields: what is set, where from; no value of a secret."""
        return self._manager.setting_rows

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is used all the same, but should be looked at."""
        return self._manager.warnings

    async def get_provider(self, name: str) -> MemoryProvider | None:
        """The provider of that name."""
        return self._manager.get_provider(name)

    async def add_provider(
        self,
        provider: MemoryProvider,
        *,
        name: str = "",
        provider_config: Mapping[str, Any] | None = None,
        outbox: OutboxSettings | None = None,
    ) -> bool:
        """Add the built-in, or one external provider; False if it was refused."""
        add = partial(self._manager.add_provider, provider, name=name, outbox=outbox)
        return await self._errands.ask(lambda: add(provider_config=provider_config))

    async def add_observer(self, name: str, observer: Any) -> None:
        """Let an observer see, and change, what hooks give. A person's choice alone."""
        await self._errands.tell(lambda: self._manager.add_observer(name, observer))

    # -- a session ------------------------------------------------------------------------

    async def initialize_all(self, session_id: str, **kwargs: Any) -> None:
        """Start a session at every provider."""
        await self._errands.tell(partial(self._manager.initialize_all, session_id, **kwargs))

    async def initialize_all_for_inspection(self, session_id: str, **kwargs: Any) -> None:
        """Like `initialize_all`, for a look only: no network, no workers."""
        call = partial(self._manager.initialize_all_for_inspection, session_id, **kwargs)
        await self._errands.tell(call)

    async def build_system_prompt(self) -> str:
        """Every provider's static text, joined by blank lines."""
        return await self._errands.ask(self._manager.build_system_prompt)

    async def on_session_end(self, messages: Messages) -> None:
        """The session ends; the whole conversation is handed over."""
        await self._errands.tell(partial(self._manager.on_session_end, _as_now(messages)))

    async def on_session_switch(
        self,
        new_session_id: str,
        *,
        parent_session_id: str = "",
        reset: bool = False,
        rewound: bool = False,
        **kwargs: Any,
    ) -> None:
        """The session id changes; what was written before belongs to the old one."""
        call = partial(
            self._manager.on_session_switch,
            new_session_id,
            parent_session_id=parent_session_id,
            reset=reset,
            rewound=rewound,
            **kwargs,
        )
        await self._errands.tell(call)

    # -- a turn ---------------------------------------------------------------------------

    async def on_turn_start(self, turn_number: int, message: str, **kwargs: Any) -> None:
        """A turn begins."""
        call = partial(self._manager.on_turn_start, turn_number, message, **kwargs)
        await self._errands.tell(call)

    async def prefetch_all(self, query: str, *, session_id: str = "") -> str:
        """What the providers recall for ``query``, joined by blank lines; "" if nothing."""
        call = partial(self._manager.prefetch_all, query, session_id=session_id)
        return await self._errands.ask(call)

    async def recall_block(self, query: str, *, session_id: str = "") -> str:
        """What to append to the API copy of the user's message; "" if nothing was recalled."""
        call = partial(self._manager.recall_block, query, session_id=session_id)
        return await self._errands.ask(call)

    async def recall(self, query: str, *, session_id: str = "") -> Recollection:
        """Like `recall_block`, with what each provider said, and what was left out."""
        return await self._errands.ask(partial(self._manager.recall, query, session_id=session_id))

    async def queue_prefetch_all(self, query: str, *, session_id: str = "") -> None:
        """After a turn: let the providers start the recall for the next."""
        call = partial(self._manager.queue_prefetch_all, query, session_id=session_id)
        await self._errands.tell(call)

    async def recall_status_all(self) -> list[Any]:
        """What the last recall of each provider injected."""
        return await self._errands.ask(self._manager.recall_status_all)

    async def sync_all(
        self,
        user_content: str,
        assistant_content: str,
        *,
        session_id: str = "",
        messages: Messages | None = None,
        interrupted: bool = False,
    ) -> None:
        """A turn is complete. When this returns, it is on disk."""
        call = partial(
            self._manager.sync_all,
            user_content,
            assistant_content,
            session_id=session_id,
            messages=_as_now(messages),
            interrupted=interrupted,
        )
        await self._errands.tell(call)

    async def on_pre_compress(self, messages: Messages, *, require_checkpoint: bool = False) -> str:
        """Messages are about to be discarded: the providers' texts for the summary.

        Raises:
            CheckpointError: It was required, and could not be made. Don't compress.
        """
        ask = partial(self._manager.on_pre_compress, require_checkpoint=require_checkpoint)
        return await self._errands.ask(partial(ask, _as_now(messages)))

    async def on_delegation(
        self, task: str, result: str, *, child_session_id: str = "", **kwargs: Any
    ) -> None:
        """A subagent of this agent has completed its task."""
        tell = partial(self._manager.on_delegation, child_session_id=child_session_id, **kwargs)
        await self._errands.tell(partial(tell, task, result))

    async def on_memory_write(
        self, action: str, target: str, content: str, metadata: dict[str, Any] | None = None
    ) -> None:
        """The built-in notes changed: tell the external provider."""
        call = partial(self._manager.on_memory_write, action, target, content, metadata)
        await self._errands.tell(call)

    async def pending_nudge(self) -> str:
        """A reminder to take notes, for the next user message; "" most of the time."""
        return await self._errands.ask(self._manager.pending_nudge)

    async def review_prompt(self, messages: Messages) -> str:
        """What to send to a model in the background, with the memory tool, after a nudge."""
        return await self._errands.ask(partial(self._manager.review_prompt, _as_now(messages)))

    # -- tools ----------------------------------------------------------------------------

    async def get_all_tool_schemas(self) -> list[dict[str, Any]]:
        """The schemas of all tools, bare: name, description, parameters."""
        return await self._errands.ask(self._manager.get_all_tool_schemas)

    async def get_all_tool_names(self) -> set[str]:
        """The names of all tools."""
        return await self._errands.ask(self._manager.get_all_tool_names)

    async def has_tool(self, tool_name: str) -> bool:
        """Whether a provider has that tool."""
        return await self._errands.ask(partial(self._manager.has_tool, tool_name))

    async def handle_tool_call(self, tool_name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Run a tool at its owner. Always a JSON string."""
        call = partial(self._manager.handle_tool_call, tool_name, args, **kwargs)
        return await self._errands.ask(call)

    # -- health and the end ---------------------------------------------------------------

    async def health(self) -> dict[str, dict[str, HookHealth]]:
        """How every hook has fared. Waits for no other call: that may be what is asked about."""
        return self._manager.health()

    async def flush_pending(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109
        """Whether all that was written has been delivered, after at most ``timeout`` seconds."""
        return await self._errands.ask(partial(self._manager.flush_pending, timeout))

    async def shutdown_all(self) -> None:
        """Deliver what waits, within the deadline, and shut the providers down."""
        await self._errands.tell(self._shut_down)

    def _shut_down(self) -> None:
        try:
            self._manager.shutdown_all()
        finally:
            self._errands.end()

    async def when_closed(self, close: Callable[[], None]) -> None:
        """Call ``close`` at the end of `shutdown_all`, on the manager's thread."""
        self._manager.when_closed(close)


def _as_now(messages: Any) -> Any:
    """The list as it is when it is handed over: the host goes on with its own."""
    return [*messages] if isinstance(messages, list) else messages
