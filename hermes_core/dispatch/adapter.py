"""One adapter per provider: the pluggy plugin whose hookimpls call the provider's methods.

A provider's method can't be a hookimpl itself: pluggy passes neither keyword-only arguments
nor ``**kwargs``, drops None and stops at the first exception.

A call takes this path: `HookCalls` (pluggy) -> the adapter's method of the same name ->
`ProviderAdapter._run` (refuse, redact, check, record) -> `ProviderAdapter._on_worker` (the
worker of the hook's lane, its deadline) -> `Invocation` (arguments) -> the provider.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextvars import copy_context
from functools import partial
from inspect import iscoroutine
from pathlib import Path
from time import monotonic
from typing import Any, Final

from hermes_core.dispatch.call import (
    DELIVERY,
    Deadlines,
    Invocation,
    Invocations,
    Outcome,
    event_identity,
    is_provider_error,
    kind_of_call,
    size_of,
    turn_identity,
)
from hermes_core.dispatch.caller import Unload, instance_of, set_caller
from hermes_core.dispatch.health import SLOW_SECONDS, CallStatistics, HookHealth
from hermes_core.dispatch.isolation import IsolatedProvider
from hermes_core.dispatch.process_watch import STARTS, ProcessWatch, end_copy, process_ends
from hermes_core.dispatch.recall import BoundedRecall
from hermes_core.dispatch.redaction import (
    TextRedactor,
    redacted_arguments,
    redacted_error,
    redacted_session,
)
from hermes_core.dispatch.values import plain_value
from hermes_core.dispatch.worker import EventLoop, Job, Worker, as_exception, rounded
from hermes_core.errors import (
    AgentEnded,
    DeadlineExceeded,
    ProviderPaused,
    WrongReturnType,
    remember_text,
)
from hermes_core.hookspecs import HOOKS, HookRule, Lane, Messages
from hermes_core.provider import ForgetRequest, MemoryProvider
from hermes_core.session import OPTIONAL, SessionContext
from hermes_core.storage.logger import logger

# Hooks that may be called although `initialize` was not, or has failed.
_BEFORE_START: Final = STARTS | {
    "is_available",
    "unavailable_reason",
    "get_tool_schemas",
    "get_config_schema",
    "save_config",
    "backup_paths",
    "own_settings",
    "get_status_config",
    "post_setup",
    "shutdown",
}

# Hooks that no breaker holds back: a provider needs them to start again, to know its session,
# and to end.
_UNPAUSED: Final = STARTS | {"shutdown", "on_session_switch"}

#: The write worker calls the main worker for a change of session. It must learn within its own
#: deadline that the call hangs, or both would count as lost.
_NESTED_SHARE: Final = 0.9


#: Called for each call with hook, outcome, seconds, bytes and error.
Listener = Callable[[str, str, float, int, str], None]


class ProviderAdapter:
    """Calls one provider: on its workers, under its deadlines, never trusting it.

    Every hook returns an `Outcome`.

    Args:
        provider: A `MemoryProvider`, or anything that looks like one.
        name: Its name, read once: a property may do anything.
        deadlines: How long its calls may take.
        inline: Call it on the caller's thread. For the built-in, which is ours.
        config: Its settings, passed to ``initialize``.
        home: The home for which it is called; by default the one that it was loaded for.
        clock: Measures deadlines, budgets and pauses. A test passes its own.
    """

    def __init__(
        self,
        provider: MemoryProvider,
        name: str,
        *,
        deadlines: Deadlines | None = None,
        inline: bool = False,
        config: Mapping[str, Any] | None = None,
        home: Path | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.provider = provider
        self.name = name
        #: The provider's own name, which may differ from the name under which it was enabled.
        self.own_name = name
        self.inline = inline
        self.deadlines = deadlines or Deadlines()
        #: Removes secrets from its arguments; None for the built-in, and if a person said so.
        self.redactor: TextRedactor | None = None
        #: Called for every call.
        self.listener: Listener | None = None
        #: The names of its tools.
        self.tools: frozenset[str] = frozenset()
        #: Why ``initialize`` failed; None if it did not. The provider gets no turns then.
        self.start_error: Exception | None = None
        #: Whether the session is started, or none was to be.
        self.ready = True
        #: Whose code runs on its threads, and for which home.
        self.instance = instance_of(provider, name, home)
        #: The queued end or change of a session: recall and tools wait for it.
        self.boundary: Job | None = None
        #: The queued change of a session.
        self.session_switch: Job | None = None
        self._switches = 0
        self._turn_start: Job | None = None
        #: Jobs of ``queue_prefetch``, which share the write worker with writes.
        self._queued_recalls: list[Job] = []
        self._config = {} if config is None else {"provider_config": config}
        self._session: SessionContext | None = None
        self._restarting = threading.Lock()
        #: What it changes in the process.
        self.process_watch = ProcessWatch(provider, name, trusted=inline or self.instance.of_host)
        self._closed = False
        #: Whether `shutdown` was called. What fails on other threads from then on is our doing.
        self._ending = False
        self._clock = clock
        self._workers = {
            lane: Worker(f"memory-{name}-{lane}", self._hung, clock=clock) for lane in Lane
        }
        self._loop = EventLoop(f"memory-{name}-loop")
        self._statistics = CallStatistics(name, clock=clock)
        self._invocations = Invocations(provider)
        self._recall = BoundedRecall(
            self._workers[Lane.RECALL],
            self.deadlines.prefetch,
            self.deadlines.hook,
            partial(self.record_failure, "prefetch"),
            partial(self._statistics.succeeded, "prefetch"),
            clock=clock,
        )

    # -- the hookimpls; pluggy registers those that are named in HOOKS --------------------

    def is_available(self) -> Outcome:
        return self._run("is_available")

    def unavailable_reason(self) -> Outcome:
        return self._run("unavailable_reason")

    def initialize(self, session_id: str, extra: Mapping[str, Any]) -> Outcome:
        self._session = SessionContext.from_keywords(session_id, extra)
        self._ending = False
        if isinstance(self.provider, IsolatedProvider):
            self.provider.resume_with(self._resume)
        optional = self._start_keywords("initialize", session_id, extra)
        return self._run("initialize", session_id, optional=optional)

    def initialize_for_inspection(self, session_id: str, extra: Mapping[str, Any]) -> Outcome:
        optional = self._start_keywords("initialize_for_inspection", session_id, extra)
        return self._run("initialize_for_inspection", session_id, optional=optional)

    def _resume(self) -> None:
        """Start the current session in a new process of an isolated provider."""
        invocation, session = self._known_invocation("initialize"), self._session
        # If its own start failed, `restart` calls `initialize`.
        if invocation is None or session is None or self.start_error is not None:
            return
        name = session.session_id
        invocation(name, optional=self._start_keywords("initialize", name, session.keywords()))

    def _start_keywords(
        self, hook: str, session_id: str, extra: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return a session's keywords; "" for unknown ones that the method demands."""
        invocation = self._known_invocation(hook)
        demanded = invocation.demanded(OPTIONAL) if invocation is not None else ()
        unknown = dict.fromkeys(demanded, "")
        return {**unknown, **self.redact_session(extra), **self._config, "session_id": session_id}

    def system_prompt_block(self) -> Outcome:
        return self._run("system_prompt_block")

    def prefetch(self, query: str, session_id: str) -> Outcome:
        if self.inline:  # without a budget: nothing comes late, or in part
            return self._run("prefetch", query, optional={"session_id": session_id})
        # After a change of session, one of the same id may be of another user.
        self._recall.begin(f"{self._switches}:{session_id}")
        outcome = self._run("prefetch", query, optional={"session_id": session_id})
        if outcome.error is not None:  # the parts that arrived are better than nothing
            outcome = outcome._replace(value=self._recall.part)
        late = self._recall.late()
        use_late = late is not None and not outcome.value.strip()
        return outcome._replace(value=late) if use_late else outcome

    def queue_prefetch(self, query: str, session_id: str) -> Outcome:
        return self._run("queue_prefetch", query, optional={"session_id": session_id})

    def recall_status(self) -> Outcome:
        # A recall that is late has no status yet, and a turn does not wait for a slow warm-up.
        if self._recall.is_late or not self._workers[Lane.RECALL].flush(SLOW_SECONDS):
            return Outcome(self.name, "recall_status", HOOKS["recall_status"].neutral)
        return self._run("recall_status")

    def sync_turn(
        self,
        user_content: str,
        assistant_content: str,
        session_id: str,
        messages: Messages | None,
        turn_author: dict[str, Any] | None,
    ) -> Outcome:
        optional: dict[str, Any] = {"session_id": session_id, "messages": messages}
        if turn_author is not None:
            optional["turn_author"] = turn_author
        return self._run(
            "sync_turn", user_content, assistant_content, optional=optional, by_name=turn_identity
        )

    def get_tool_schemas(self) -> Outcome:
        return self._run("get_tool_schemas")

    def handle_tool_call(
        self, tool_name: str, args: dict[str, Any], extra: Mapping[str, Any]
    ) -> Outcome | None:
        if tool_name not in self.tools:
            return None
        return self._run("handle_tool_call", tool_name, args, optional=extra)

    def shutdown(self) -> Outcome:
        self._ending = True
        outcome = self._run("shutdown")
        self.unload_plugin()
        _ = self.process_watch.noticed
        return outcome

    def on_turn_start(self, turn_number: int, message: str, extra: Mapping[str, Any]) -> Outcome:
        return self._run("on_turn_start", turn_number, message, optional=extra)

    def on_session_end(self, messages: Messages) -> Outcome:
        return self._run("on_session_end", messages, by_name=event_identity)

    def on_session_switch(
        self,
        new_session_id: str,
        parent_session_id: str,
        reset: bool,
        rewound: bool,
        extra: Mapping[str, Any],
    ) -> Outcome:
        named = {**self.redact_session(extra), "parent_session_id": parent_session_id}
        if self._session is not None:  # a later `restart` starts the new session
            self._session = self._session.switched(new_session_id, parent_session_id, named)
        optional = {**named, "reset": reset}
        invocation = self._known_invocation("on_session_switch")
        # hermes-agent passes it only when it is true, and providers may record what they get.
        if rewound or (invocation is not None and invocation.demanded(("rewound",))):
            optional["rewound"] = rewound
        return self._run("on_session_switch", new_session_id, optional=optional)

    def on_pre_compress(self, messages: Messages, extra: Mapping[str, Any]) -> Outcome:
        return self._run("on_pre_compress", messages, optional=extra)

    def on_delegation(
        self, task: str, result: str, child_session_id: str, extra: Mapping[str, Any]
    ) -> Outcome:
        optional = {**extra, "child_session_id": child_session_id}
        return self._run("on_delegation", task, result, optional=optional, by_name=event_identity)

    def on_memory_write(
        self, action: str, target: str, content: str, metadata: dict[str, Any] | None
    ) -> Outcome:
        return self._run(
            "on_memory_write",
            action,
            target,
            content,
            by_position={"metadata": metadata},
            by_name=event_identity,
        )

    def get_config_schema(self) -> Outcome:
        return self._run("get_config_schema")

    def save_config(self, values: dict[str, Any], hermes_home: str) -> Outcome:
        return self._run("save_config", values, hermes_home)

    def backup_paths(self) -> Outcome:
        return self._run("backup_paths")

    def probe(self, write: bool) -> Outcome:
        return self._run("probe", write)

    def own_settings(self, hermes_home: str) -> Outcome:
        return self._run("own_settings", hermes_home)

    def get_status_config(self, provider_config: dict[str, Any]) -> Outcome:
        return self._run("get_status_config", provider_config)

    def post_setup(self, hermes_home: str, config: dict[str, Any]) -> Outcome:
        return self._run("post_setup", hermes_home, config)

    def forget(self, request: ForgetRequest) -> Outcome:
        return self._run("forget", request)

    def list_memories(self, cursor: str) -> Outcome:
        return self._run("list_memories", cursor)

    # -- what is known of the provider ----------------------------------------------------

    @property
    def checkpoint_version(self) -> int:
        """The version of pre-compress checkpoints that the provider promises; 1 is none."""
        try:
            return int(self.provider.pre_compress_checkpoint_api_version)
        except Exception:  # noqa: BLE001 - a plugin's attribute: missing, not a number, ...
            return 1

    @property
    def confirms_delivery(self) -> bool:
        """Whether the provider promises that a write which returned has reached its backend."""
        try:
            return self.provider.confirms_delivery is True
        except Exception:  # noqa: BLE001 - a plugin's attribute: missing, or a property that fails
            return False

    def overrides(self, hook: str) -> bool:
        """Return whether calling a hook runs code of the provider's."""
        return self._known_invocation(hook) is not None

    def accepts(self, hook: str, keyword: str) -> bool:
        """Return whether a method receives this keyword."""
        invocation = self._known_invocation(hook)
        return invocation is not None and invocation.accepts(keyword)

    def health(self) -> dict[str, HookHealth]:
        """Return the figures of each hook that was called."""
        for worker in self._workers.values():
            _ = worker.stuck  # finds a call that hangs although no caller waits for it
        return self._statistics.health()

    def hangs(self) -> bool:
        """Return whether a call on one of the workers that deliver hangs past its deadline."""
        return any(self._workers[lane].stuck for lane in (Lane.MAIN, Lane.WRITE))

    def unfinished(self) -> tuple[int, int]:
        """Return how many recalls, and how many other calls, are queued or running."""
        queued = sum(not each.wait(0) for each in self._queued_recalls)
        recalls = self._workers[Lane.RECALL].pending() + queued
        return recalls, sum(each.pending() for each in self._workers.values()) - recalls

    def on_lane_of(self, hook: str) -> bool:
        """Return whether this thread is the one for a hook. A thread that hung is not."""
        return self._workers[HOOKS[hook].lane].on_thread()

    def redact_session(self, keywords: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the keywords of a session, without secrets in those that people write."""
        return redacted_session(self.redactor, keywords)

    def error_text(self, error: BaseException) -> str:
        """Return an error of the provider's as one line, without secrets, and not too long."""
        return redacted_error(self.redactor, error)

    # -- queueing -------------------------------------------------------------------------

    def post(self, hook: str, call: Callable[[], Any]) -> Job | None:
        """Queue ``call`` on the lane of ``hook`` and return at once.

        Returns None if nothing was queued: the provider does not override the method (then
        ``call`` is made here, for the observers), or it is paused.
        """
        if hook == "on_turn_start":
            self._turn_start = None
        if self._closed:
            return None
        if not self.overrides(hook):
            call()
            return None
        if self._statistics.is_paused(hook):
            self._record(hook, 0.0, _paused())
            return None
        after = self.session_switch if hook == "on_turn_start" else None
        job = self.submit(hook, call, after=after)
        if hook == "on_turn_start":
            self._turn_start = job
        elif hook == "queue_prefetch" and job is not None:
            self._queued_recalls = [*(old for old in self._queued_recalls if not old.wait(0)), job]
        return job

    def submit(self, hook: str, call: Callable[[], Any], after: Job | None = None) -> Job | None:
        """Queue ``call`` on the lane of ``hook``, with its deadline; None after the end.

        Args:
            hook: What it calls.
            call: What to run.
            after: A change of session that comes first. It waits on the write worker for the
                turns before it. So the job waits there too, and not on its own worker: the
                change of session needs that itself.
        """
        rule = HOOKS[hook]
        worker = self._workers[rule.lane]
        deadline = getattr(self.deadlines, rule.deadline)
        if after is None or rule.lane is Lane.WRITE or after.wait(0):
            return worker.submit(call, deadline, hook)
        job = Job(call, deadline, hook, clock=self._clock)
        enqueue = partial(worker.enqueue, job)
        queued = self._workers[Lane.WRITE].submit(enqueue, self.deadlines.write, hook)
        if self.session_switch is after:
            self.boundary = self.session_switch = queued  # tools wait for it, too
        return job if queued is not None else None

    def switch_session(self, call: Callable[[], Any]) -> None:
        """Queue a change of session: behind the turns before it, ahead of those after it.

        ``call`` runs on the write worker; the provider's method runs on the main worker.
        """
        hook = "on_session_switch"
        self._switches += 1
        self.session_switch = self._workers[Lane.WRITE].submit(call, self.deadlines.write, hook)
        self.boundary = self.session_switch

    def restart_clock(self, hook: str) -> None:
        """Restart the time of the job that runs on this thread: it turns to another hook."""
        for worker in self._workers.values():
            worker.restart_clock(hook)

    def restart(self, initialize: Callable[..., Outcome]) -> bool:
        """Initialize the provider again if that failed; return whether it is ready now.

        Both workers that deliver may call this. The second does not wait for the first: it
        might occupy the thread that the first one needs.

        Args:
            initialize: The hook, so that observers see this call, too.
        """
        if self.start_error is None or self._session is None:
            return self.ready
        if not self._restarting.acquire(blocking=False):
            return False
        try:
            if self.start_error is not None:
                session = self._session
                initialize(session_id=session.session_id, extra=session.keywords())
        finally:
            self._restarting.release()
        return self.ready

    # -- the end --------------------------------------------------------------------------

    def flush(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds; return whether everything queued has run."""
        end = self._clock() + timeout
        workers = self._workers.values()
        done = [each.flush(max(end - self._clock(), 0)) for each in workers]  # all of them
        return all(done)

    def flush_writes(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds; return whether every queued write has run."""
        return self._workers[Lane.WRITE].flush(timeout)

    def unload_plugin(self) -> None:
        """Call what the plugin registered with ``ctx.on_unload``, the last one first."""
        worker = self._workers[HOOKS["shutdown"].lane]
        while self.instance.unload:
            callback = self.instance.unload.pop()
            run = partial(self._unloaded, callback)
            try:
                if worker.on_thread():
                    run()
                else:
                    worker.call(run, self.deadlines.shutdown)
            except Exception as error:  # noqa: BLE001 - the plugin's own code
                text = self.error_text(as_exception(error))
                logger.warning("memory provider %s: on_unload failed: %s", self.name, text)

    def _unloaded(self, callback: Unload) -> None:
        set_caller(self.instance)
        with self.instance.around():
            callback.dispose()

    def close(self, timeout: float) -> None:
        """Call nothing more, and end the threads."""
        self._closed = True
        self.process_watch.close()
        for worker in self._workers.values():
            worker.close()
        self._loop.close()
        end = self._clock() + timeout
        for worker in self._workers.values():
            worker.join(end - self._clock())

    # -- one call -------------------------------------------------------------------------

    def _run(
        self,
        hook: str,
        *args: Any,
        optional: Mapping[str, Any] | None = None,
        by_position: Mapping[str, Any] | None = None,
        by_name: Callable[[], Mapping[str, Any]] | None = None,
    ) -> Outcome:
        """Call a method of the provider, whatever it does; see `Invocation` for the arguments."""
        rule = HOOKS[hook]
        unusable = self._closed or self._ending or self.start_error is not None
        if unusable and (refused := self._refusal(hook)) is not None:
            return Outcome(self.name, hook, rule.neutral, refused)
        worker = self._workers[rule.lane]
        queued = not self.inline and worker.on_thread()
        error: Exception | None = None
        began = self._clock()
        try:
            invocation = self._invocations[hook]
            if invocation is None:
                return Outcome(self.name, hook, rule.neutral)
            args, optional, by_position = redacted_arguments(
                self.redactor, rule, args, optional, by_position
            )
            call = partial(
                invocation, *args, optional=optional, by_position=by_position, by_name=by_name
            )
            value = self._on_worker(hook, rule, call, queued=queued)
        except BaseException as caught:
            if not is_provider_error(caught, rule, on_worker=queued):
                raise  # ours: somebody pressed Ctrl-C
            value, error = rule.neutral, as_exception(caught)
            if hook in STARTS and not isinstance(error, DeadlineExceeded):
                self.start_error = error  # one that is only slow may still succeed
        self.process_watch.keep_methods()
        outcome = Outcome(self.name, hook, value, error, self._clock() - began)
        if queued and (known := self._recorded_before(outcome, worker)) is not None:
            return known
        size = 0 if self.listener is None else size_of(value if hook == "prefetch" else args)
        self._record(hook, outcome.seconds, error, size)
        return outcome

    def _refusal(self, hook: str) -> ProviderPaused | None:
        """Why a hook can't be called at all; None if it can."""
        # A provider that was shut down may return from a write without having stored anything.
        if self._closed or (self._ending and DELIVERY.get() is not None):
            return ProviderPaused("it is shut down")
        if self.start_error is None or hook in _BEFORE_START:
            return None
        refused = ProviderPaused(f"its initialize failed: {self.error_text(self.start_error)}")
        self._record(hook, 0.0, refused)
        return refused

    def _recorded_before(self, outcome: Outcome, worker: Worker) -> Outcome | None:
        """The outcome of a queued call that was recorded before it returned; None if it was not."""
        if not worker.on_thread():  # it lost its thread, and `_hung` recorded it
            return outcome
        # The outbox recorded it; or nobody did, and the process ends: then libraries and
        # plugins close what the call still uses, and its error says nothing.
        if outcome.error is not None and (self._ending or process_ends()):
            return outcome._replace(error=AgentEnded(AgentEnded.TEXT))
        return None

    def _known_invocation(self, hook: str) -> Invocation | None:
        """How to call a method, for callers who leave errors of the look-up to `_run`."""
        try:
            return self._invocations[hook]
        except Exception:  # noqa: BLE001 - the call meets it again, and records it
            return None

    def _on_worker(self, hook: str, rule: HookRule, call: partial[Any], *, queued: bool) -> Any:
        """Make a call on the worker of its lane, and return its value within its deadline.

        ``queued``: this is the worker's thread.
        """
        worker = self._workers[rule.lane]
        deadline = getattr(self.deadlines, rule.deadline)
        if not self.inline and self._workers[Lane.WRITE].on_thread():
            deadline *= _NESTED_SHARE
        complete = partial(self._complete, hook, rule, call, deadline)
        run = partial(self._start, complete) if hook in STARTS else complete
        if self.inline:
            return run()
        if rule.interactive:
            return copy_context().run(run)
        if queued:
            return self.process_watch.guarded(hook, run)
        if hook not in _UNPAUSED and self._statistics.is_paused(hook):
            raise _paused()
        if hook == "prefetch":
            return self._recall.ask(run, call.args[0])
        if self.boundary is not None and hook not in _UNPAUSED and not self._on_own_thread():
            # The caller waits, not the main worker: a change of session needs that itself.
            begun = self._clock()
            self._wait_for_earlier(rule.lane, deadline)
            deadline -= min(self._clock() - begun, deadline / 2)
        return self.process_watch.guarded(hook, lambda: worker.call(run, deadline, hook))

    def _complete(self, hook: str, rule: HookRule, call: partial[Any], deadline: float) -> Any:
        """Make a call, on the thread that is meant for it, and make its value plain there."""
        if not self.inline:
            set_caller(self.instance)
        if rule.lane is Lane.RECALL:
            self._wait_for_earlier(rule.lane, deadline)
        pid = os.getpid()
        try:
            with self.instance.around():
                try:
                    value = call()
                finally:
                    if os.getpid() != pid:
                        end_copy(self.name, hook)
                if iscoroutine(value):
                    patience = self._recall.patience if hook == "prefetch" else deadline
                    value = self._loop.run(value, patience)
                return plain_value(hook, value)
        except WrongReturnType as error:
            # Its traceback would keep the value alive, and end it on the caller's thread.
            value = None
            raise error.with_traceback(None) from None
        except BaseException as error:
            remember_text(error)
            raise

    def _start(self, call: Callable[[], Any]) -> Any:
        """Run a start. Its result counts whenever it comes, also after its deadline."""
        self.ready = False
        try:
            value = call()
        except BaseException as error:
            self.start_error = as_exception(error)
            raise
        self.ready, self.start_error = True, None
        return value

    def _on_own_thread(self) -> bool:
        """Whether the provider itself calls us, from one of its threads."""
        return any(worker.on_thread() for worker in self._workers.values())

    def _wait_for_earlier(self, lane: Lane, deadline: float) -> None:
        """Wait for what is queued on other workers and comes first; half of our time at most."""
        boundary = self.boundary
        if boundary is not None and not boundary.wait(deadline / 2):
            self.hangs()  # replaces a thread that hangs: the boundary may be behind it
            if boundary.left() > 0 and not boundary.wait(0):
                # The provider would answer for the session before.
                raise DeadlineExceeded("a change of session is still under way")
            self.boundary = None  # it hangs, and not every call shall wait for it
        if lane is Lane.RECALL and self._turn_start is not None:
            self._turn_start.wait(deadline / 2)

    # -- the result -----------------------------------------------------------------------

    def _hung(self, job: Job) -> None:
        """Record a call that lost its thread. If somebody waited, they record it themselves."""
        if not job.awaited or job.label == "prefetch":  # a turn waits for half as long
            error = DeadlineExceeded(f"still runs after {rounded(job.deadline)} s")
            self._record(job.label, job.deadline, error)

    def record_failure(self, hook: str, error: Exception, seconds: float = 0.0) -> None:
        """Record a call that could not be queued, or that failed after its caller had left."""
        self._record(hook, seconds, error)

    def record_spooled(self, hook: str, error: Exception) -> None:
        """Let `health` show why a write has to wait. It is stored, so the call did not fail."""
        self._statistics.record(hook, 0.0, error, self.error_text(error))

    def _record(self, hook: str, seconds: float, error: Exception | None, size: int = 0) -> None:
        text = "" if error is None else self.error_text(error)
        self._statistics.record(hook, seconds, error, text)
        if self.listener is not None:
            self.listener(hook, kind_of_call(error), seconds, size, text)
        if error is None:
            return
        hangs = isinstance(error, DeadlineExceeded) and self._workers[HOOKS[hook].lane].stuck
        # If a part of the answer came, the next turn gets a part, too, and waits only briefly.
        if hangs or not (hook == "prefetch" and self._recall.part):
            self._statistics.count_failure(hook, error, seconds, hangs=hangs)


def _paused() -> ProviderPaused:
    return ProviderPaused("not called: it failed too often or hangs; it is tried again soon")
