"""One adapter per provider: the pluggy plugin whose hookimpls call the provider's methods.

A provider's method can't be a hookimpl itself: pluggy passes neither keyword-only arguments
nor ``**kwargs``, drops None and stops at the first exception.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from inspect import iscoroutine
from os import urandom
from time import perf_counter
from typing import Any, Final

from hermes_core.dispatch._deadlines import Deadlines
from hermes_core.dispatch._health import Breaker, HookHealth, HookStats
from hermes_core.dispatch._lane import Job, Lane, contained
from hermes_core.dispatch._loop import EventLoop
from hermes_core.dispatch._outcome import Outcome
from hermes_core.dispatch._signature import Invocation
from hermes_core.errors import DeadlineExceeded, ProviderPaused, WrongReturnType, describe
from hermes_core.hookspecs import HOOKS, HookRule, Messages
from hermes_core.hookspecs import Lane as LaneName
from hermes_core.provider import MemoryProvider

logger = logging.getLogger("hermes_core")

# Defaults of the base class that do something; every other default is the neutral value.
_ACTIVE_DEFAULTS: Final = frozenset({"initialize_for_inspection", "handle_tool_call"})

_STARTS: Final = frozenset({"initialize", "initialize_for_inspection"})

# What may be asked of a provider that was not initialised, or could not be.
_BEFORE_START: Final = _STARTS | {
    "is_available",
    "unavailable_reason",
    "get_tool_schemas",
    "get_config_schema",
    "save_config",
    "backup_paths",
    "shutdown",
}

# Never held back: they are how a provider gets going again, and how it ends.
_UNPAUSED: Final = _STARTS | {"shutdown"}


class ProviderAdapter:
    """Calls one provider, and answers every hook with an `Outcome`.

    Args:
        provider: A `MemoryProvider`, or anything that looks like one.
        name: Its name, read once: a property may do anything.
        deadlines: How long its calls may take.
        inline: Call it on the caller's thread. For the built-in, which is ours.
        config: Its settings, handed to ``initialize``.
    """

    def __init__(
        self,
        provider: MemoryProvider,
        name: str,
        *,
        deadlines: Deadlines | None = None,
        inline: bool = False,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.provider = provider
        self.name = name
        self.inline = inline
        self._config = {} if config is None else {"provider_config": config}
        self.tools: frozenset[str] = frozenset()
        self.deadlines = deadlines or Deadlines()
        self._lanes = {lane: Lane(f"memory-{name}-{lane.value}", self._hung) for lane in LaneName}
        self._closed = False
        #: Why the session could not be started here; turns are kept from it then.
        self.start_error: Exception | None = None
        self._breakers = {lane: Breaker() for lane in LaneName}
        self._stats: dict[str, HookStats] = {}
        self._invocations: dict[str, Invocation | None] = {}
        self._loop = EventLoop(f"memory-{name}-loop")
        self._told: set[tuple[str, str]] = set()
        self._turn_start: Job | None = None

    # -- the hookimpls; `HookCalls` registers those that are named in HOOKS --------------

    def is_available(self) -> Outcome:
        return self._run("is_available")

    def unavailable_reason(self) -> Outcome:
        return self._run("unavailable_reason")

    def initialize(self, session_id: str, extra: Mapping[str, Any]) -> Outcome:
        optional = {**extra, **self._config, "session_id": session_id}
        return self._run("initialize", session_id, optional=optional)

    def initialize_for_inspection(self, session_id: str, extra: Mapping[str, Any]) -> Outcome:
        optional = {**extra, **self._config, "session_id": session_id}
        return self._run("initialize_for_inspection", session_id, optional=optional)

    def system_prompt_block(self) -> Outcome:
        return self._run("system_prompt_block")

    def prefetch(self, query: str, session_id: str) -> Outcome:
        return self._run("prefetch", query, optional={"session_id": session_id})

    def queue_prefetch(self, query: str, session_id: str) -> Outcome:
        return self._run("queue_prefetch", query, optional={"session_id": session_id})

    def recall_status(self) -> Outcome:
        return self._run("recall_status")

    def sync_turn(
        self, user_content: str, assistant_content: str, session_id: str, messages: Messages | None
    ) -> Outcome:
        optional = {"session_id": session_id, "messages": messages}
        return self._run(
            "sync_turn", user_content, assistant_content, optional=optional, by_name=_turn
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
        return self._run("shutdown")

    def on_turn_start(self, turn_number: int, message: str, extra: Mapping[str, Any]) -> Outcome:
        return self._run("on_turn_start", turn_number, message, optional=extra)

    def on_session_end(self, messages: Messages) -> Outcome:
        return self._run("on_session_end", messages, by_name=_event)

    def on_session_switch(
        self,
        new_session_id: str,
        parent_session_id: str,
        reset: bool,
        rewound: bool,
        extra: Mapping[str, Any],
    ) -> Outcome:
        optional = {
            **extra,
            "parent_session_id": parent_session_id,
            "reset": reset,
            "rewound": rewound,
        }
        return self._run("on_session_switch", new_session_id, optional=optional)

    def on_pre_compress(self, messages: Messages, extra: Mapping[str, Any]) -> Outcome:
        return self._run("on_pre_compress", messages, optional=extra)

    def on_delegation(
        self, task: str, result: str, child_session_id: str, extra: Mapping[str, Any]
    ) -> Outcome:
        optional = {**extra, "child_session_id": child_session_id}
        return self._run("on_delegation", task, result, optional=optional, by_name=_event)

    def on_memory_write(
        self, action: str, target: str, content: str, metadata: dict[str, Any] | None
    ) -> Outcome:
        by_position = {"metadata": metadata}
        return self._run(
            "on_memory_write", action, target, content, by_position=by_position, by_name=_event
        )

    def get_config_schema(self) -> Outcome:
        return self._run("get_config_schema")

    def save_config(self, values: dict[str, Any], hermes_home: str) -> Outcome:
        return self._run("save_config", values, hermes_home)

    def backup_paths(self) -> Outcome:
        return self._run("backup_paths")

    # -- what the manager needs besides ---------------------------------------------------

    def post(self, hook: str, call: Callable[[], Any]) -> Job | None:
        """Queue ``call`` on the lane of ``hook`` and return at once.

        None if there was nothing to queue: the method does nothing, or (for what is no
        write) the provider is paused.
        """
        if hook == "on_turn_start":
            self._turn_start = None
        if self._closed:
            return None
        invocation = self._found(hook)
        if invocation is None or invocation.instant:
            call()
            return None
        rule = HOOKS[hook]
        if rule.lane is not LaneName.WRITE and self._is_paused(rule.lane):
            self._record(hook, 0.0, _paused())
            return None
        deadline = getattr(self.deadlines, rule.deadline)
        job = self._lanes[rule.lane].submit(call, deadline, hook)
        if hook == "on_turn_start":
            self._turn_start = job
        return job

    def hangs(self, hook: str) -> bool:
        """Whether a call hangs on the lane of ``hook``."""
        return self._lanes[HOOKS[hook].lane].stuck

    def flush(self, timeout: float) -> bool:
        """Whether everything queued is done, after at most ``timeout`` seconds."""
        end = perf_counter() + timeout
        lanes = self._lanes.values()
        done = [lane.flush(max(end - perf_counter(), 0)) for lane in lanes]  # each, in any case
        return all(done)

    def flush_writes(self, timeout: float) -> bool:
        """Whether every queued write is done, after at most ``timeout`` seconds."""
        return self._lanes[LaneName.WRITE].flush(timeout)

    def pending_writes(self) -> int:
        """How many writes have not been delivered yet."""
        return self._lanes[LaneName.WRITE].pending()

    def close(self, timeout: float) -> None:
        """Call nothing more, and let go of the threads."""
        self._closed = True
        for lane in self._lanes.values():
            lane.close()
        self._loop.close()
        end = perf_counter() + timeout
        for lane in self._lanes.values():
            lane.join(end - perf_counter())

    def health(self) -> dict[str, HookHealth]:
        """How each hook that was called has fared."""
        for lane in self._lanes.values():
            _ = lane.stuck  # who asks, looks: a call may hang that nobody waits for
        return {
            hook: stats.health(self._breakers[HOOKS[hook].lane].state)
            for hook, stats in list(self._stats.items())  # other lanes go on meanwhile
        }

    # -- one call -------------------------------------------------------------------------

    def _run(
        self,
        hook: str,
        *args: Any,
        optional: Mapping[str, Any] | None = None,
        by_position: Mapping[str, Any] | None = None,
        by_name: Callable[[], Mapping[str, Any]] | None = None,
    ) -> Outcome:
        rule = HOOKS[hook]
        error: Exception | None
        if self._closed:
            return Outcome(self.name, hook, rule.neutral, ProviderPaused("it is shut down"))
        if self.start_error is not None and hook not in _BEFORE_START:
            refused = ProviderPaused(f"its initialize failed: {describe(self.start_error)}")
            self._record(hook, 0.0, refused)
            return Outcome(self.name, hook, rule.neutral, refused)
        lane = self._lanes[rule.lane]
        queued = lane.on_thread()
        begin = perf_counter()
        try:
            invocation = self._invocation(hook)
            if invocation is None:
                return Outcome(self.name, hook, rule.neutral)
            call = partial(
                invocation, *args, optional=optional, by_position=by_position, by_name=by_name
            )
            value = call() if invocation.instant else self._in_lane(hook, rule, call)
            value = _checked(hook, rule, value)
        except BaseException as caught:
            if not isinstance(caught, Exception) and not queued:
                raise  # ours: somebody pressed Ctrl-C
            value, error = rule.neutral, contained(caught)
        else:
            error = None
        if hook in _STARTS:
            # One that is only slow may still get there.
            self.start_error = None if isinstance(error, DeadlineExceeded) else error
        seconds = perf_counter() - begin
        if not queued or lane.on_thread():  # else it lost its thread, and was counted then
            self._record(hook, seconds, error)
        return Outcome(self.name, hook, value, error, seconds)

    def _invocation(self, hook: str) -> Invocation | None:
        """How to call the method; None if calling it would do nothing."""
        if hook not in self._invocations:
            method = getattr(self.provider, hook, None)
            if method is None and hook == "initialize_for_inspection":
                method = getattr(self.provider, "initialize", None)
            default = getattr(MemoryProvider, hook)
            inherited = getattr(method, "__func__", None) is default
            if method is None or (inherited and hook not in _ACTIVE_DEFAULTS):
                self._invocations[hook] = None
            else:
                self._invocations[hook] = Invocation(method)
        return self._invocations[hook]

    def _found(self, hook: str) -> Invocation | None:
        """Like `_invocation`, for those who leave its errors to `_run`."""
        try:
            return self._invocation(hook)
        except Exception:  # noqa: BLE001 - the call meets it again, and records it
            return None

    def _in_lane(self, hook: str, rule: HookRule, call: Callable[[], Any]) -> Any:
        deadline = getattr(self.deadlines, rule.deadline)
        lane = self._lanes[rule.lane]

        def complete() -> Any:
            if hook == "prefetch" and self._turn_start is not None:
                # It was queued on another lane. One that is slow may cost half of our time.
                self._turn_start.wait(deadline / 2)
            value = call()
            return self._loop.run(value, deadline) if iscoroutine(value) else value

        if self.inline or lane.on_thread():
            return complete()
        if hook not in _UNPAUSED and self._is_paused(rule.lane):
            raise _paused()
        return lane.call(complete, deadline, hook)

    def _is_paused(self, lane: LaneName) -> bool:
        return self._breakers[lane].state == "open"

    def _hung(self, job: Job) -> None:
        """A call lost its thread. Who waited for it has noticed; for the others it is told."""
        if not job.awaited:
            error = DeadlineExceeded("it hangs past its deadline")
            self._record(job.hook, job.deadline, error)

    def _record(self, hook: str, seconds: float, error: Exception | None) -> None:
        stats = self._stats.get(hook)
        if stats is None:
            stats = self._stats[hook] = HookStats()
        if error is None:
            stats.record(seconds)
            self._breakers[HOOKS[hook].lane].succeeded()
            return
        stats.record(seconds, describe(error))
        self._trouble(HOOKS[hook].lane, error)
        self._tell(hook, error)

    def _trouble(self, lane: LaneName, error: Exception) -> None:
        breaker = self._breakers[lane]
        if isinstance(error, ProviderPaused):
            return
        if isinstance(error, DeadlineExceeded) and self._lanes[lane].stuck:
            breaker.trip()
        elif lane is LaneName.RECALL:
            # Elsewhere an error is an answer: it costs nothing to hear it again.
            breaker.failed()

    def _tell(self, hook: str, error: Exception) -> None:
        """Warn once for each way in which a hook fails; `health` has the count."""
        text = describe(error)
        level = logging.DEBUG if (hook, text) in self._told else logging.WARNING
        self._told.add((hook, text))
        logger.log(level, "memory provider %s: %s failed: %s", self.name, hook, text)


def _checked(hook: str, rule: HookRule, value: Any) -> Any:
    """What a provider returned, if the contract allows it."""
    if value is None:
        return rule.neutral
    if hook == "recall_status" and not hasattr(value, "provider_label"):
        raise WrongReturnType(f"returned {type(value).__name__}, expected RecallStatus")
    if not rule.returns:
        return value
    if not isinstance(value, rule.returns):
        expected = rule.returns[0].__name__
        raise WrongReturnType(f"returned {type(value).__name__}, expected {expected}")
    walk: Any = value
    return [*walk] if rule.returns[0] is list else value  # walked here, under our guard


def _turn() -> dict[str, Any]:
    """What identifies a turn, for those who ask for it."""
    return {"turn_id": urandom(16).hex(), "attempt": 1}


def _event() -> dict[str, Any]:
    """What identifies a write, for those who ask for it."""
    return {"event_id": urandom(16).hex(), "attempt": 1}


def _paused() -> ProviderPaused:
    return ProviderPaused("not called: it failed too often or hangs; it is tried again soon")
