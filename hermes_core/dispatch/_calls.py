"""How one provider is called: in its lane, under its deadline, counted, and never trusted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from inspect import iscoroutine
from pathlib import Path
from time import perf_counter
from typing import Any, Final, Protocol

from hermes_core.dispatch._deadlines import Deadlines
from hermes_core.dispatch._delivery import DELIVERY
from hermes_core.dispatch._health import Breaker, HookHealth, HookStats
from hermes_core.dispatch._lane import Job, Lane, contained
from hermes_core.dispatch._loop import EventLoop
from hermes_core.dispatch._outcome import Outcome
from hermes_core.dispatch._recall import Recall
from hermes_core.dispatch._signature import Invocation
from hermes_core.errors import (
    AnswerLate,
    DeadlineExceeded,
    ProviderPaused,
    WrongReturnType,
    describe,
)
from hermes_core.hookspecs import HOOKS, IDENTITIES, HookRule
from hermes_core.hookspecs import Lane as LaneName
from hermes_core.provider import MemoryProvider
from hermes_core.scope import begin, instance_of
from hermes_core.streams import guarded_process

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


class Masker(Protocol):
    """What takes secrets out of what leaves the machine; see `hermes_core.redaction`."""

    def hand_off(self, value: Any, /) -> Any:
        """A value without secrets, as ``.value``."""

    def known_only(self, value: Any, /) -> Any:
        """A value without the secrets that we keep, as ``.value``."""


#: Told of every call: hook, outcome, seconds, bytes, error.
Listener = Callable[[str, str, float, int, str], None]


class ProviderCalls:
    """Calls one provider. `ProviderAdapter` puts the contract's methods on top.

    Args:
        provider: A `MemoryProvider`, or anything that looks like one.
        name: Its name, read once: a property may do anything.
        deadlines: How long its calls may take.
        inline: Call it on the caller's thread. For the built-in, which is ours.
        home: The home for which it is called; by default the one that it was loaded for.
    """

    def __init__(
        self,
        provider: MemoryProvider,
        name: str,
        *,
        deadlines: Deadlines | None = None,
        inline: bool = False,
        home: Path | None = None,
    ) -> None:
        self.provider = provider
        self.name = name
        #: What it calls itself, which may be another name than the one it was enabled under.
        self.own_name = name
        self.inline = inline
        self.deadlines = deadlines or Deadlines()
        #: Takes secrets out of what it gets; None for the built-in, and where a person said so.
        self.masker: Masker | None = None
        #: Hears of every call.
        self.listener: Listener | None = None
        #: Why the session could not be started here; turns are kept from it then.
        self.start_error: Exception | None = None
        #: Who it is to the code that it runs, and what it has started.
        self.instance = instance_of(provider, name, home)
        #: What it did that it should not, and that was undone.
        self.misdeeds: list[str] = []
        #: Whether a session was started, as far as one was to be.
        self.ready = True
        #: A change of session on its way: recall and tools come after it.
        self.boundary: Job | None = None
        self._turn_start: Job | None = None
        self._lanes = {lane: Lane(f"memory-{name}-{lane.value}", self._hung) for lane in LaneName}
        self._recall = Recall(
            self._lanes[LaneName.RECALL],
            self.deadlines.prefetch,
            self.deadlines.hook,
            partial(self.failed, "prefetch"),
        )
        self._closed = False
        self._breakers = {lane: Breaker() for lane in LaneName}
        self._stats: dict[str, HookStats] = {}
        self._invocations: dict[str, Invocation | None] = {}
        #: What the methods answer that do nothing but answer: once seen, always known.
        self._constants: dict[str, Outcome] = {}
        self._loop = EventLoop(f"memory-{name}-loop")
        self._told: set[tuple[str, str]] = set()

    def health(self) -> dict[str, HookHealth]:
        """How each hook that was called has fared."""
        for lane in self._lanes.values():
            _ = lane.stuck  # who asks, looks: a call may hang that nobody waits for
        return {
            hook: stats.health(self._breakers[HOOKS[hook].lane].state)
            for hook, stats in self._stats.copy().items()  # other lanes go on meanwhile
        }

    def told(self, error: BaseException) -> str:
        """An error of the provider's in one line, without secrets."""
        text = describe(error)
        return str(self.masker.hand_off(text).value) if self.masker is not None else text

    def failed(self, hook: str, error: Exception) -> None:
        """Count a call that could not even be queued, or that failed when nobody waited."""
        self._record(hook, 0.0, error)

    def end_processes(self) -> None:
        """End what the provider has started and left behind, and tell of it."""
        left = self.instance.end_processes()
        if left:
            commands = ", ".join(left)
            logger.warning("memory provider %s left processes, now ended: %s", self.name, commands)

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
        known = self._without_a_call(hook, rule)
        if known is not None:
            return known
        error: Exception | None
        lane = self._lanes[rule.lane]
        queued = lane.on_thread()
        begin = perf_counter()
        invocation = None
        try:
            invocation = self._invocation(hook)
            if invocation is None:
                return Outcome(self.name, hook, rule.neutral)
            if not invocation.instant:  # a stub looks at nothing
                args, optional, by_position = self._masked(rule, args, optional, by_position)
            call = partial(
                invocation, *args, optional=optional, by_position=by_position, by_name=by_name
            )
            value = self._started(hook, call) if invocation.instant else self._in_lane(hook, call)
            value = _checked(hook, rule, value)
        except BaseException as caught:
            if not isinstance(caught, Exception) and not queued:
                raise  # ours: somebody pressed Ctrl-C
            value, error = rule.neutral, contained(caught)
        else:
            error = None
        if hook in _STARTS and error is not None and not isinstance(error, DeadlineExceeded):
            self.start_error = error  # one that is only slow may still get there
        seconds = perf_counter() - begin
        outcome = Outcome(self.name, hook, value, error, seconds)
        if queued and not lane.on_thread():  # it lost its thread, and was counted then
            return outcome
        if invocation is not None and invocation.instant and error is None:
            self._answered_by_a_stub(outcome)
        else:
            self._record(hook, seconds, error, _size(value if hook == "prefetch" else args))
        return outcome

    def _answered_by_a_stub(self, outcome: Outcome) -> None:
        """Count what is no call to tell of, and no sign that the provider works again."""
        hook = outcome.hook
        self._stats_of(hook).record(outcome.seconds)
        # A start does something besides; and a list is its receiver's, who may change it.
        if hook not in _STARTS and not isinstance(outcome.value, list):
            self._constants[hook] = outcome

    def _without_a_call(self, hook: str, rule: HookRule) -> Outcome | None:
        """What comes of a hook that need not or can't be called."""
        if self._closed:
            return Outcome(self.name, hook, rule.neutral, ProviderPaused("it is shut down"))
        if self.start_error is not None and hook not in _BEFORE_START:
            refused = ProviderPaused(f"its initialize failed: {self.told(self.start_error)}")
            self._record(hook, 0.0, refused)
            return Outcome(self.name, hook, rule.neutral, refused)
        if hook in self._constants:
            self._stats[hook].record(0.0)
            return self._constants[hook]
        return None

    def _masked(
        self,
        rule: HookRule,
        args: tuple[Any, ...],
        optional: Mapping[str, Any] | None,
        by_position: Mapping[str, Any] | None,
    ) -> tuple[tuple[Any, ...], Mapping[str, Any] | None, Mapping[str, Any] | None]:
        """Take secrets out of what leaves the machine. What was queued has none any more."""
        if self.masker is None or not rule.masks or DELIVERY.get() is not None:
            return args, optional, by_position
        mask = self.masker.hand_off if rule.masks == "all" else self.masker.known_only
        given = (args, optional, by_position)
        clean = mask(given).value
        if clean is not given and optional:
            kept = {name: optional[name] for name in IDENTITIES if name in optional}
            return clean[0], {**clean[1], **kept}, clean[2]
        return clean  # type: ignore[no-any-return]

    def _started(self, hook: str, call: Callable[[], Any]) -> Any:
        """Run a call; what it says of the session's start counts whenever it comes."""
        if hook not in _STARTS:
            return call()
        self.ready = False
        try:
            value = call()
        except BaseException as error:
            self.start_error = contained(error)
            raise
        self.ready, self.start_error = True, None
        return value

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

    def _in_lane(self, hook: str, call: Callable[[], Any]) -> Any:
        rule = HOOKS[hook]
        lane = self._lanes[rule.lane]
        deadline = getattr(self.deadlines, rule.deadline)
        recalls = hook == "prefetch"
        patience = self._recall.patience if recalls else deadline

        def complete() -> Any:
            if not self.inline:
                begin(self.instance)
            if hook not in _UNPAUSED:
                self._after_earlier(rule.lane, deadline)
            value = call()
            return self._loop.run(value, patience) if iscoroutine(value) else value

        run = partial(self._started, hook, complete)
        if self.inline or lane.on_thread():
            return run()
        if hook not in _UNPAUSED and self._is_paused(rule.lane):
            raise _paused()
        if recalls:
            optional = call.keywords["optional"]  # type: ignore[attr-defined]
            return self._recall.ask(run, optional["session_id"], call.args[0])  # type: ignore[attr-defined]
        if hook in _STARTS:
            with guarded_process(f"provider {self.name}", self.misdeeds):
                return lane.call(run, deadline, hook)
        return lane.call(run, deadline, hook)

    def _after_earlier(self, lane: LaneName, deadline: float) -> None:
        """Wait for what was queued on other lanes and comes first; half of our time at most."""
        if lane is LaneName.WRITE:
            return
        boundary = self.boundary
        if boundary is not None and not boundary.wait(deadline / 2):
            if boundary.left() > 0:  # what it would answer now is for the session before
                raise DeadlineExceeded("a change of session is still under way")
            self.boundary = None  # it hangs, and not every call shall wait for it
        if lane is LaneName.RECALL and self._turn_start is not None:
            self._turn_start.wait(deadline / 2)

    def _is_paused(self, lane: LaneName) -> bool:
        return self._breakers[lane].state == "open"

    def _hung(self, job: Job) -> None:
        """A call lost its thread. Who waited for it has noticed; for the others it is told."""
        if not job.awaited or job.hook == "prefetch":  # there one waits for half as long
            error = DeadlineExceeded(f"still runs after {job.deadline:g} s")
            self._record(job.hook, job.deadline, error)

    # -- what came of it ------------------------------------------------------------------

    def _record(self, hook: str, seconds: float, error: Exception | None, size: int = 0) -> None:
        stats = self._stats_of(hook)
        text = "" if error is None else self.told(error)
        stats.record(seconds, text)
        if self.listener is not None:
            self.listener(hook, _kind(error), seconds, size, text)
        if error is None:
            self._breakers[HOOKS[hook].lane].succeeded()
            return
        self._trouble(HOOKS[hook].lane, error)
        self._tell(hook, text)

    def _stats_of(self, hook: str) -> HookStats:
        stats = self._stats.get(hook)
        if stats is None:
            stats = self._stats[hook] = HookStats()
        return stats

    def _trouble(self, lane: LaneName, error: Exception) -> None:
        breaker = self._breakers[lane]
        if isinstance(error, ProviderPaused | AnswerLate):
            return
        if isinstance(error, DeadlineExceeded) and self._lanes[lane].stuck:
            breaker.trip()
        elif lane is LaneName.RECALL:
            # Elsewhere an error is an answer: it costs nothing to hear it again.
            breaker.failed()

    def _tell(self, hook: str, text: str) -> None:
        """Warn once for each way in which a hook fails; `health` has the count."""
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


def _kind(error: Exception | None) -> str:
    """How a call went, in the words of the log."""
    if error is None:
        return "ok"
    if isinstance(error, AnswerLate):
        return "late"
    return "paused" if isinstance(error, ProviderPaused) else "error"


def _size(value: Any) -> int:
    """About how much was handed over."""
    if isinstance(value, str):
        return len(value)
    return sum(map(_size, value)) if isinstance(value, tuple) else 0


def _paused() -> ProviderPaused:
    return ProviderPaused("not called: it failed too often or hangs; it is tried again soon")
