"""Calls one provider as a host does: each hook on its lane, under a deadline."""

from __future__ import annotations

import inspect
import traceback
import uuid
from collections.abc import Callable
from functools import partial
from inspect import iscoroutine
from pathlib import Path
from time import perf_counter
from typing import Any, Final, NamedTuple

from hermes_core.conformance._model import NEEDS_NETWORK, Failed, Limits, Skipped
from hermes_core.dispatch._lane import Lane
from hermes_core.dispatch._loop import EventLoop
from hermes_core.dispatch._signature import Invocation
from hermes_core.errors import DeadlineExceeded, ProviderPaused, describe
from hermes_core.hookspecs import HOOKS
from hermes_core.hookspecs import Lane as LaneName
from hermes_core.provider import MemoryProvider

#: What has to raise if it could not be stored: without its network a plugin can't but do so.
_WRITES: Final = frozenset({"sync_turn", "on_memory_write", "on_delegation", "on_session_end"})
#: What may raise then: a host notes it, goes on without, and `status` tells.
_CUT_OFF: Final = _WRITES | {"prefetch", "queue_prefetch"}
#: What no network is to blame for.
_BUGS: Final = (TypeError, AttributeError, NameError, LookupError)


class Answer(NamedTuple):
    """What a call gave, or what it raised; and how long it took."""

    value: Any
    error: Exception | None
    seconds: float


class Places:
    """Says where in the plugin something is."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def of(self, value: Any) -> str:
        """Where a function or class is defined, if that is in the plugin."""
        value = inspect.unwrap(getattr(value, "__func__", value))
        code = getattr(value, "__code__", None)
        try:
            file = Path(code.co_filename if code else inspect.getfile(value)).resolve()
            line = code.co_firstlineno if code else inspect.getsourcelines(value)[1]
        except (TypeError, OSError):
            return ""
        if not file.is_relative_to(self.root):
            return ""
        return self._shown(file, line, getattr(value, "__name__", ""))

    def of_error(self, error: BaseException | None) -> str:
        """Where the plugin was when an exception was raised."""
        while error is not None:
            for frame in reversed(traceback.extract_tb(error.__traceback__)):
                file = Path(frame.filename).resolve()
                if file.is_relative_to(self.root):
                    return self._shown(file, frame.lineno or 0, frame.name)
            error = error.__cause__
        return ""

    def _shown(self, file: Path, line: int, name: str) -> str:
        return f"{file.relative_to(self.root.parent).as_posix()}:{line} ({name})"


class Driver:
    """One provider, and the three threads on which a host calls it.

    ``cut_off`` says whether it has been refused the network.
    """

    def __init__(
        self,
        provider: MemoryProvider,
        places: Places,
        limits: Limits,
        cut_off: Callable[[], bool] = lambda: False,
    ) -> None:
        self.provider = provider
        self.places = places
        self.started = False
        self._limits = limits
        self._cut_off = cut_off
        self._lanes = {lane: Lane(f"kit-{lane.value}") for lane in LaneName}
        self._loop = EventLoop("kit-loop")

    def has(self, hook: str) -> bool:
        """Whether the plugin has the method from itself."""
        method = getattr(type(self.provider), hook, None) or getattr(self.provider, hook, None)
        return method is not None and method is not getattr(MemoryProvider, hook, None)

    def where(self, hook: str) -> str:
        """Where the plugin defines a method."""
        return self.places.of(getattr(type(self.provider), hook, None))

    def ask(self, hook: str, *args: Any, **keywords: Any) -> Answer:
        """Call a method with what its signature accepts. Nothing is raised."""
        return self.ask_within(self._limits.call, hook, *args, **keywords)

    def ask_within(self, seconds: float, hook: str, *args: Any, **keywords: Any) -> Answer:
        """Like `ask`, with another deadline."""
        begin = perf_counter()
        rule = HOOKS[hook]
        try:
            method = getattr(self.provider, hook, None)
            if method is None:  # a duck type
                return Answer(rule.neutral, None, 0.0)
            call = self._prepared(hook, method, args, keywords)
            value = self._lanes[rule.lane].call(partial(self._complete, call, seconds), seconds)
        except Exception as error:  # noqa: BLE001 - the provider boundary: told to the caller
            return Answer(None, error, perf_counter() - begin)
        return Answer(value, None, perf_counter() - begin)

    def call(self, hook: str, *args: Any, **keywords: Any) -> Any:
        """Like `ask`; an exception of the plugin's is a fault."""
        return self.sound(hook, self.ask(hook, *args, **keywords)).value

    def sound(self, hook: str, answer: Answer, doing: str = "") -> Answer:
        """The answer, if there is one; else `Failed`. `Skipped` for what is cut off."""
        if answer.error is None:
            return answer
        if hook in _CUT_OFF and self._cut_off() and not isinstance(answer.error, _BUGS):
            raise Skipped(f"its {hook} {NEEDS_NETWORK}")
        raise Failed(
            f"{hook}{doing} {told(answer.error)}",
            expected=f"{hook}{doing} returns",
            where=self.places.of_error(answer.error) or self.where(hook),
        )

    def shut(self) -> Answer:
        """Shut the provider down."""
        self.started = False
        return self.ask("shutdown")

    def close(self) -> None:
        """Let go of the threads; a provider that runs is shut down first."""
        if self.started:
            self.shut()
        for lane in self._lanes.values():
            lane.close()
            lane.join(1)
        self._loop.close()

    def _prepared(
        self, hook: str, method: Any, args: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
        given = "by_position" if hook == "on_memory_write" else "optional"
        by_name = partial(_identity, hook) if hook in _WRITES else None
        return partial(Invocation(method), *args, **{given: keywords}, by_name=by_name)

    def _complete(self, call: Any, seconds: float) -> Any:
        value = call()
        return self._loop.run(value, seconds) if iscoroutine(value) else value


def _identity(hook: str) -> dict[str, Any]:
    """What a host with an outbox tells of a write, to whom asks for it."""
    name = "turn_id" if hook == "sync_turn" else "event_id"
    return {name: uuid.uuid4().hex, "attempt": 1}


def told(error: Exception) -> str:
    """What became of a call that did not return, in words."""
    if isinstance(error, DeadlineExceeded | ProviderPaused):
        return f"did not return: {error}"
    return f"raised {describe(error)}"
