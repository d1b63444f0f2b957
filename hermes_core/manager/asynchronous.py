"""`AsyncMemoryManager`: `MemoryManager` for an agent that runs on an event loop.

Every method is written out, not generated: an editor and a type checker must know the signatures.
A test compares the two classes.
"""

from __future__ import annotations

import os
from asyncio import AbstractEventLoop, CancelledError, Future, get_running_loop
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from hermes_core.dispatch.worker import Job, Worker, as_exception
from hermes_core.manager import CONTEXT_MAX_CHARS, MemoryManager, Recollection
from hermes_core.manager.conversation import AsyncConversation
from hermes_core.provider import PRE_COMPRESS_CHECKPOINT_API_VERSION

if TYPE_CHECKING:
    from hermes_core.dispatch import Deadlines, HookHealth
    from hermes_core.errors import HermesError
    from hermes_core.hookspecs import Messages
    from hermes_core.privacy import Redactor
    from hermes_core.provider import MemoryProvider


T = TypeVar("T")


class AsyncMemoryManager:
    """A `MemoryManager` whose methods are awaited and never block the event loop.

    Methods have the same names, arguments and meaning; properties are plain. Calls run one after
    the other, in the order in which they were made, on one daemon thread. If a task is cancelled
    while it waits for a call, a call that reports something (``initialize_all``, ``sync_all``,
    ``on_...``, ``shutdown_all``) is still made; a call that asks for something (recall, prompts,
    tools) is dropped unless it has begun.

    Args:
        external_prefetch_timeout: As for `MemoryManager`; so are all others.
        deadlines: Seconds for every other kind of call.
        reserved_tools: Tool names that the host uses itself.
        home: HERMES_HOME; by default the environment's.
        redactor: Masks secrets in what the external provider receives.
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
        manager = MemoryManager(
            external_prefetch_timeout=external_prefetch_timeout,
            deadlines=deadlines,
            reserved_tools=reserved_tools,
            home=home,
            redactor=redactor,
            context_max_chars=context_max_chars,
            log_calls=log_calls,
        )
        self._use(manager, CallQueue())

    def _use(self, manager: MemoryManager, calls: CallQueue) -> None:
        self._manager = manager
        self._calls = calls

    @classmethod
    def wrap(cls, manager: MemoryManager) -> Self:
        """Wrap an existing manager. Don't call that manager yourself any more.

        Two wrappers of one manager have two queues: use the second one only for calls that wait
        for the external provider (recall and its tools), which may be made at any time.
        """
        return cls._of(manager, CallQueue())

    @classmethod
    def _of(cls, manager: MemoryManager, calls: CallQueue) -> Self:
        self = cls.__new__(cls)
        self._use(manager, calls)
        return self

    @classmethod
    async def from_config(cls, home: str | os.PathLike[str] | None = None) -> Self:
        """Build a manager as ``config.yaml`` describes it; importing a plugin may take a while."""
        # Awaited, because reading files and importing a plugin would block the event loop.
        # The manager is built on the thread that later makes its calls. Providers may open a
        # database connection that belongs to its thread.
        calls = CallQueue()
        built = calls.submit(partial(MemoryManager.from_config, home))
        try:
            return cls._of(await built.answer, calls)
        except BaseException:  # cancelled: nobody will use the manager
            # `claim` fails if the worker has begun: then the manager will exist, and its provider,
            # its leases and its threads have to be released.
            if not built.job.claim():
                calls.submit(lambda: built.job.value and built.job.value.shutdown_all())
            calls.close()
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
        """Why the configuration, a provider or an observer could not be used."""
        return self._manager.problems

    @property
    def refusals(self) -> tuple[str, ...]:
        """Why providers were refused."""
        return self._manager.refusals

    @property
    def setting_rows(self) -> tuple[dict[str, Any], ...]:
        """The external provider's settings and their sources; secrets without their values."""
        return self._manager.setting_rows

    @property
    def warnings(self) -> tuple[str, ...]:
        """What works, but needs a person's attention."""
        return self._manager.warnings

    async def get_provider(self, name: str) -> MemoryProvider | None:
        """Return the provider of that name; None if there is none."""
        # Not queued: it only reads what `add_provider` set.
        return self._manager.get_provider(name)

    async def add_provider(
        self,
        provider: MemoryProvider,
        *,
        name: str = "",
        provider_config: Mapping[str, Any] | None = None,
    ) -> bool:
        """Add the built-in or one external provider; return False if it is refused."""
        add = partial(self._manager.add_provider, provider, name=name)
        return await self._calls.run(lambda: add(provider_config=provider_config))

    async def add_observer(self, name: str, observer: Any) -> None:
        """Register an observer, which sees every hook call and can change its results."""
        await self._calls.run_always(lambda: self._manager.add_observer(name, observer))

    # -- a session ------------------------------------------------------------------------

    async def initialize_all(self, session_id: str, **kwargs: Any) -> None:
        """Start a session at every provider."""
        await self._calls.run_always(partial(self._manager.initialize_all, session_id, **kwargs))

    async def initialize_all_for_inspection(self, session_id: str, **kwargs: Any) -> None:
        """Like `initialize_all`, for inspection only: no network, no workers."""
        call = partial(self._manager.initialize_all_for_inspection, session_id, **kwargs)
        await self._calls.run_always(call)

    async def build_system_prompt(self) -> str:
        """Return every provider's static text, joined by blank lines."""
        return await self._calls.run(self._manager.build_system_prompt)

    async def on_session_end(self, messages: Messages) -> None:
        """End the session; providers receive the whole conversation."""
        await self._calls.run_always(partial(self._manager.on_session_end, _as_now(messages)))

    async def on_session_switch(
        self,
        new_session_id: str,
        *,
        parent_session_id: str = "",
        reset: bool = False,
        rewound: bool = False,
        **kwargs: Any,
    ) -> None:
        """Continue with another session; earlier writes still belong to the old one."""
        call = partial(
            self._manager.on_session_switch,
            new_session_id,
            parent_session_id=parent_session_id,
            reset=reset,
            rewound=rewound,
            **kwargs,
        )
        await self._calls.run_always(call)

    async def commit_session_boundary_async(
        self,
        messages: Messages,
        *,
        new_session_id: str,
        parent_session_id: str = "",
        reason: str = "new_session",
    ) -> None:
        """End the old session, then switch to the new one, in this order."""
        call = partial(
            self._manager.commit_session_boundary_async,
            _as_now(messages),
            new_session_id=new_session_id,
            parent_session_id=parent_session_id,
            reason=reason,
        )
        await self._calls.run_always(call)

    def conversation(
        self, session_id: str, *, end_session: bool = True, **who: Any
    ) -> AsyncConversation:
        """Return a conversation, to be used in an ``async with`` statement."""
        talk = self._manager.conversation(session_id, end_session=end_session, **who)
        return AsyncConversation(talk, self._calls)

    # -- a turn ---------------------------------------------------------------------------

    async def on_turn_start(self, turn_number: int, message: str, **kwargs: Any) -> None:
        """Report that a turn begins."""
        call = partial(self._manager.on_turn_start, turn_number, message, **kwargs)
        await self._calls.run_always(call)

    async def prefetch_all(self, query: str, *, session_id: str = "") -> str:
        """Return what the providers recall for ``query``, joined by blank lines; "" if nothing."""
        call = partial(self._manager.prefetch_all, query, session_id=session_id)
        return await self._calls.run(call)

    async def recall_block(self, query: str, *, session_id: str = "") -> str:
        """Return what to append to the API copy of the user's message; "" if nothing."""
        call = partial(self._manager.recall_block, query, session_id=session_id)
        return await self._calls.run(call)

    async def recall(self, query: str, *, session_id: str = "") -> Recollection:
        """Like `recall_block`, with every provider's answer and what was left out."""
        return await self._calls.run(partial(self._manager.recall, query, session_id=session_id))

    async def queue_prefetch_all(self, query: str, *, session_id: str = "") -> None:
        """After a turn, let the providers start the recall for the next one."""
        call = partial(self._manager.queue_prefetch_all, query, session_id=session_id)
        await self._calls.run_always(call)

    async def recall_status_all(self) -> list[Any]:
        """Return what the last recall of each provider injected."""
        return await self._calls.run(self._manager.recall_status_all)

    async def describe_recall(self) -> str:
        """Return one line for a person about what the last recall injected; "" if nothing."""
        return await self._calls.run(self._manager.describe_recall)

    async def sync_all(
        self,
        user_content: str,
        assistant_content: str,
        *,
        session_id: str = "",
        messages: Messages | None = None,
        interrupted: bool = False,
        turn_author: Mapping[str, Any] | None = None,
    ) -> None:
        """Store a completed turn. When this returns, the turn is on disk."""
        call = partial(
            self._manager.sync_all,
            user_content,
            assistant_content,
            session_id=session_id,
            messages=_as_now(messages),
            interrupted=interrupted,
            turn_author=turn_author,
        )
        await self._calls.run_always(call)

    async def supports_pre_compress_checkpoint(
        self, api_version: int = PRE_COMPRESS_CHECKPOINT_API_VERSION
    ) -> bool:
        """Return whether a provider promises durable checkpoints of this version."""
        call = partial(self._manager.supports_pre_compress_checkpoint, api_version)
        return await self._calls.run(call)

    async def on_pre_compress(
        self,
        messages: Messages,
        *,
        evidence_messages: Messages | None = None,
        require_checkpoint: bool = False,
        checkpoint_api_version: int = PRE_COMPRESS_CHECKPOINT_API_VERSION,
    ) -> str:
        """Before messages are discarded, return the providers' texts for the summary.

        Raises:
            CheckpointError: It was required, and could not be made. Don't compress.
        """
        call = partial(
            self._manager.on_pre_compress,
            _as_now(messages),
            evidence_messages=_as_now(evidence_messages),
            require_checkpoint=require_checkpoint,
            checkpoint_api_version=checkpoint_api_version,
        )
        return await self._calls.run(call)

    async def on_delegation(
        self, task: str, result: str, *, child_session_id: str = "", **kwargs: Any
    ) -> None:
        """Report that a subagent of this agent has completed its task."""
        # `task` and `result` by position: ``kwargs`` may have any other name.
        tell = partial(self._manager.on_delegation, child_session_id=child_session_id, **kwargs)
        await self._calls.run_always(partial(tell, task, result))

    async def on_memory_write(
        self, action: str, target: str, content: str, metadata: dict[str, Any] | None = None
    ) -> None:
        """Report to the external provider that the notes changed."""
        call = partial(self._manager.on_memory_write, action, target, content, metadata)
        await self._calls.run_always(call)

    async def notify_memory_tool_write(
        self,
        tool_result: Any,
        tool_args: dict[str, Any],
        *,
        build_metadata: Callable[[], dict[str, Any]] | None = None,
    ) -> None:
        """Report a call of the host's own ``memory`` tool, and forward its writes as notes.

        ``build_metadata`` is called on the manager's thread.
        """
        notify = partial(self._manager.notify_memory_tool_write, build_metadata=build_metadata)
        await self._calls.run_always(partial(notify, tool_result, tool_args))

    async def note_origins(self) -> list[tuple[str, str]]:
        """Return the notes that an agent's prompt has, each with where it comes from."""
        return await self._calls.run(self._manager.note_origins)

    async def pending_nudge(self) -> str:
        """Return a reminder to take notes, for the next user message; "" most of the time."""
        return await self._calls.run(self._manager.pending_nudge)

    async def session_messages(self, session_id: str) -> Messages:
        """Return every message of an earlier session, to continue it; [] if there is none."""
        return await self._calls.run(partial(self._manager.session_messages, session_id))

    async def review_prompt(self, messages: Messages) -> str:
        """Return what to send to a model in the background, with the memory tool, after a nudge."""
        return await self._calls.run(partial(self._manager.review_prompt, _as_now(messages)))

    # -- tools ----------------------------------------------------------------------------

    async def get_all_tool_schemas(self) -> list[dict[str, Any]]:
        """Return the schemas of all tools, bare: name, description, parameters."""
        return await self._calls.run(self._manager.get_all_tool_schemas)

    async def get_all_tool_names(self) -> set[str]:
        """Return the names of all tools."""
        return await self._calls.run(self._manager.get_all_tool_names)

    async def has_tool(self, tool_name: str) -> bool:
        """Return whether a provider has that tool."""
        return await self._calls.run(partial(self._manager.has_tool, tool_name))

    async def on_tool_result(
        self, tool_name: str, content: Any, *, origin: str = "", session_id: str = ""
    ) -> None:
        """Report what one of your own tools returned, as soon as the model sees it."""
        call = partial(
            self._manager.on_tool_result,
            tool_name,
            content,
            origin=origin,
            session_id=session_id,
        )
        await self._calls.run_always(call)

    async def handle_tool_call(self, tool_name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Run a tool at its owner. Always returns a JSON string."""
        call = partial(self._manager.handle_tool_call, tool_name, args, **kwargs)
        return await self._calls.run(call)

    # -- health and the end ---------------------------------------------------------------

    async def health(self) -> dict[str, dict[str, HookHealth]]:
        """Return the figures of every hook, without waiting for other calls: one may hang."""
        # Not queued: it has to answer while a call hangs, which is when people look at it.
        return self._manager.health()

    async def flush_pending(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109
        """Return whether every write is delivered, after at most ``timeout`` seconds."""
        return await self._calls.run(partial(self._manager.flush_pending, timeout))

    @property
    def shutdown_drain_state(self) -> dict[str, Any]:
        """What `shutdown_all` could not finish."""
        return self._manager.shutdown_drain_state

    async def shutdown_all(self) -> None:
        """Deliver what waits, within the deadline, and shut the providers down."""
        await self._calls.run_always(self._shut_down)

    def _shut_down(self) -> None:
        try:
            self._manager.shutdown_all()
        finally:
            self._calls.close()

    async def when_closed(self, close: Callable[[], None]) -> None:
        """Call ``close`` at the end of `shutdown_all`, on the manager's thread."""
        self._manager.when_closed(close)


def _as_now(messages: Any) -> Any:
    """Copy the list: the host may change its own while the call waits."""
    return [*messages] if isinstance(messages, list) else messages


class _PendingCall(NamedTuple):
    """A queued call, and the future that receives its result."""

    job: Job
    answer: Future[Any]


class CallQueue:
    """Makes calls one after the other on one daemon thread, for any event loop.

    Not the loop's default executor: the interpreter joins its threads at exit, and two of them
    would change the order of a conversation.

    After `close` the thread ends when it has nothing more to do; later calls are still answered.
    """

    def __init__(self) -> None:
        self._worker = Worker("memory-async")

    async def run(self, call: Callable[[], T]) -> T:
        """Return what ``call`` returns; drop it if its caller is cancelled before it begins."""
        # After a cancellation nobody wants the answer, and the next turn must not wait for it.
        pending = self.submit(call)
        try:
            return await pending.answer  # type: ignore[no-any-return]
        except CancelledError:
            # If this succeeds the worker skips the job; otherwise the call runs and its answer is
            # dropped.
            pending.job.claim()
            raise

    async def run_always(self, call: Callable[[], Any]) -> None:
        """Make ``call``, even if its caller is cancelled meanwhile."""
        # A cancelled task (stop, a timeout) must not lose the turn that it was about to store.
        await self.submit(call).answer

    def submit(self, call: Callable[[], Any]) -> _PendingCall:
        """Queue a call behind those that wait, and return at once."""
        loop = get_running_loop()
        answer = loop.create_future()
        # The manager's own calls have deadlines; nobody flushes this worker ("awaited").
        job = Job(partial(_make, call, loop, answer), inf, awaited=True)
        self._worker.enqueue(job)
        return _PendingCall(job, answer)

    def close(self) -> None:
        """Let the thread end when it has nothing more to do."""
        # `stop` alone ends the thread now. A call after `close` starts another one, which would
        # otherwise stay for ever.
        self._worker.linger = 0
        self._worker.stop()


def _make(call: Callable[[], Any], loop: AbstractEventLoop, answer: Future[Any]) -> Any:
    """On the worker: make the call, and send its result to the loop that waits for it."""
    value: Any = None
    problem: Exception | None = None
    try:
        value = call()
    except BaseException as error:  # noqa: BLE001 - raised where it is awaited
        problem = as_exception(error)
    with suppress(RuntimeError):  # its loop is closed: no caller waits any more
        loop.call_soon_threadsafe(_resolve, answer, value, problem)
    return value


def _resolve(answer: Future[Any], value: Any, problem: Exception | None) -> None:
    if answer.done():  # cancelled
        return
    if problem is None:
        answer.set_result(value)
    else:
        answer.set_exception(problem)
