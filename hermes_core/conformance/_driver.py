"""Calls one provider as a host does: each hook on its lane, under a deadline."""

from __future__ import annotations

import inspect
import traceback
import uuid
from collections.abc import Callable
from functools import partial
from inspect import iscoroutine
from pathlib import Path
from time import perf_counter, time
from typing import Any, Final, NamedTuple

from hermes_core.conformance.model import NEEDS_NETWORK, CheckFailure, CheckSkip, Limits
from hermes_core.dispatch import Invocation, method_of, overrides
from hermes_core.dispatch.worker import EventLoop, Worker
from hermes_core.errors import DeadlineExceeded, ProviderPaused, describe
from hermes_core.hookspecs import HOOKS
from hermes_core.hookspecs import Lane as LaneName
from hermes_core.provider import MemoryProvider

#: Calls that must raise if they could not store something. The kit cut the network off, so an
#: error here is what the contract requires, and the check is skipped instead of failed.
_WRITES: Final = frozenset({"sync_turn", "on_memory_write", "on_delegation", "on_session_end"})
#: Calls that may raise without a network: a host logs it and continues, and `status` shows it.
_CUT_OFF: Final = _WRITES | {"prefetch", "queue_prefetch"}
#: Errors that are bugs with or without a network.
_BUGS: Final = (TypeError, AttributeError, NameError, LookupError)


class Answer(NamedTuple):
    """What a call returned or raised, and how long it took."""

    value: Any
    error: Exception | None
    seconds: float


class Places:
    """Finds places in the plugin's source."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def of(self, value: Any) -> str:
        """Return where a function or class is defined, if that is in the plugin."""
        # Through bound methods and functools.wraps to the function that the author wrote.
        value = inspect.unwrap(getattr(value, "__func__", value))
        code = getattr(value, "__code__", None)
        try:
            file = Path(code.co_filename if code else inspect.getfile(value)).resolve()
            line = code.co_firstlineno if code else inspect.getsourcelines(value)[1]
        except (TypeError, OSError):
            return ""
        # A place in our own base class or in a library would mislead the author.
        if not file.is_relative_to(self.root):
            return ""
        return self._shown(file, line, getattr(value, "__name__", ""))

    def of_error(self, error: BaseException | None) -> str:
        """Return the line of the plugin that raised an exception."""
        while error is not None:
            # From the innermost frame: the last line of the plugin before it called a library.
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

    ``cut_off`` returns whether it was denied the network.
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
        # A host's threads, since many bugs show only there: SQLite connections and event loops
        # belong to the thread that made them.
        self._lanes = {lane: Worker(f"kit-{lane.value}") for lane in LaneName}
        self._loop = EventLoop("kit-loop")

    def has(self, hook: str) -> bool:
        """Return whether the plugin overrides the method."""
        return overrides(self.provider, hook)

    def where(self, hook: str) -> str:
        """Return where the plugin defines a method."""
        return self.places.of(method_of(type(self.provider), hook))

    def ask(self, hook: str, *args: Any, **keywords: Any) -> Answer:
        """Call a method with what its signature accepts. Never raises."""
        return self.ask_within(self._limits.call, hook, *args, **keywords)

    def ask_within(self, seconds: float, hook: str, *args: Any, **keywords: Any) -> Answer:
        """Like `ask`, with another deadline."""
        begin = perf_counter()
        rule = HOOKS[hook]
        try:
            method = method_of(self.provider, hook)
            if method is None:  # a duck type
                return Answer(rule.neutral, None, 0.0)
            call = self._prepared(hook, method, args, keywords)
            value = self._lanes[rule.lane].call(partial(self._complete, call, seconds), seconds)
        except Exception as error:  # noqa: BLE001 - the provider boundary: returned to the caller
            return Answer(None, error, perf_counter() - begin)
        return Answer(value, None, perf_counter() - begin)

    def call(self, hook: str, *args: Any, **keywords: Any) -> Any:
        """Like `ask`, but an exception fails the check."""
        return self.sound(hook, self.ask(hook, *args, **keywords)).value

    def sound(self, hook: str, answer: Answer, doing: str = "") -> Answer:
        """Return the answer.

        Raises:
            CheckFailure: The call failed.
            CheckSkip: It needs the network.
        """
        if answer.error is None:
            return answer
        # A TypeError would be there with a network too, so it must not hide behind "needs
        # network".
        if hook in _CUT_OFF and self._cut_off() and not isinstance(answer.error, _BUGS):
            raise CheckSkip(f"its {hook} {NEEDS_NETWORK}")
        raise CheckFailure(
            f"{hook}{doing} {failure_text(answer.error)}",
            expected=f"{hook}{doing} returns",
            where=self.places.of_error(answer.error) or self.where(hook),
        )

    def shut(self) -> Answer:
        """Shut the provider down."""
        # Also if it fails: `close` must not call it a second time.
        self.started = False
        return self.ask("shutdown")

    def close(self) -> None:
        """Shut the provider down if it runs, and release the threads."""
        if self.started:
            self.shut()
        for lane in self._lanes.values():
            lane.close()
            # Bounded: a plugin that hangs in a call holds its thread until the process ends.
            lane.join(1)
        self._loop.close()

    def _prepared(
        self, hook: str, method: Any, args: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
        # hermes-agent passes `metadata` by position; all other optional arguments are keywords.
        given = "by_position" if hook == "on_memory_write" else "optional"
        by_name = partial(_identity, hook) if hook in _WRITES else None
        return partial(Invocation(method), *args, **{given: keywords}, by_name=by_name)

    def _complete(self, call: Any, seconds: float) -> Any:
        value = call()
        # A method may be `async def`: hosts run it on an event loop.
        return self._loop.run(value, seconds) if iscoroutine(value) else value


def _identity(hook: str) -> dict[str, Any]:
    """Return the identity of a write, as a host with an outbox passes it."""
    key = "turn_id" if hook == "sync_turn" else "event_id"
    return {key: uuid.uuid4().hex, "attempt": 1, "said_at": time()}


def failure_text(error: Exception) -> str:
    """Describe why a call did not return."""
    if isinstance(error, DeadlineExceeded | ProviderPaused):
        return f"did not return: {error}"
    return f"raised {describe(error)}"
