"""Observers: plugins that a person enables to trace, audit or change what hooks return.

An observer implements or wraps hookspecs with `hermes_core.hookspecs.hookimpl`. It can't delay
or break a turn: each of its steps has 50 ms on the observer's own thread. One that takes longer
is dropped, one that raises is left out of that call; `health` shows both.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from functools import partial, wraps
from inspect import isclass, iscoroutine, isgeneratorfunction
from time import perf_counter
from typing import Any, Final

from hermes_core.dispatch.call import Outcome
from hermes_core.dispatch.health import HookHealth, HookStats
from hermes_core.dispatch.worker import Worker
from hermes_core.errors import DeadlineExceeded, HermesError, WrongReturnType, describe
from hermes_core.hookspecs import HOOKS
from hermes_core.storage.logger import logger

# Not None: that is what an implementation returns if it has nothing to say.
_SKIPPED: Final = object()
# A class is built once, at start: longer than a step, since its constructor may open a file.
_BUILD_SECONDS: Final = 5.0


class ObserverError(HermesError):
    """An observer can't be used."""


class GuardedHooks:
    """The object that pluggy registers for an observer: its hooks, guarded, as attributes."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer


class Observer:
    """Guards one observer. ``plugin`` is what is registered in its place."""

    SECONDS: Final = 0.05

    def __init__(self, name: str, observer: Any, options: Callable[[Any, str], Any]) -> None:
        self.name = name
        self.dropped = ""
        self.options: dict[str, Any] = {}
        self.plugin = GuardedHooks(self)
        self._stats: dict[str, HookStats] = {}
        # Providers run on several threads. Without this lock a second call would wait in the
        # worker's queue, and that time would count against the observer's 50 ms.
        self._turn = threading.Lock()
        self._worker = Worker(f"memory-observer-{name}")
        try:
            target = self._worker.call(observer, _BUILD_SECONDS) if isclass(observer) else observer
            for hook in HOOKS:
                self._take(hook, target, options(target, hook))
        except Exception as error:
            self._worker.close()
            raise ObserverError(describe(error), where=f"observer {name}") from error
        if not self.options:
            self._worker.close()
            raise ObserverError("implements no hook", where=f"observer {name}")

    def _take(self, hook: str, target: Any, found: Any) -> None:
        if not found:
            return
        method = getattr(target, hook)
        # pluggy's old wrappers get a result object and may raise anything during teardown; their
        # steps can't be run one by one on another thread.
        if found.get("hookwrapper"):
            raise HermesError(f"{hook} is an old-style hookwrapper: use hookimpl(wrapper=True)")
        if found.get("wrapper") and not isgeneratorfunction(method):
            raise HermesError(f"{hook} wraps, but does not yield")
        self.options[hook] = found
        guard = self._wrapper if found.get("wrapper") else self._implementation
        setattr(self.plugin, hook, guard(hook, method))

    def close(self) -> None:
        """End the thread."""
        self._worker.close()

    def health(self) -> dict[str, HookHealth]:
        """How each hook that it implements has fared; ``breaker`` says if it was dropped."""
        state = "open" if self.dropped else "closed"
        return {hook: stats.health(state) for hook, stats in list(self._stats.items())}

    def _implementation(self, hook: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def checked(*args: Any) -> Any:
            value = method(*args)
            if iscoroutine(value):
                value.close()
                raise WrongReturnType("an observer can't be asynchronous")
            if value is not None and not allowed(hook, value):
                raise WrongReturnType(f"returned {type(value).__name__}")
            return value

        @wraps(method)  # pluggy reads the parameters from what is wrapped
        def guarded(*args: Any) -> Outcome | None:
            begin = perf_counter()
            value = self._step(hook, partial(checked, *args))
            if value is _SKIPPED or value is None:
                return None
            return Outcome(f"observer:{self.name}", hook, value, None, perf_counter() - begin)

        return guarded

    def _wrapper(
        self, hook: str, method: Callable[..., Generator[None, Any, Any]]
    ) -> Callable[..., Generator[None, Any, Any]]:
        @wraps(method)
        def guarded(*args: Any) -> Generator[None, Any, Any]:
            generator = method(*args)
            began = self._step(hook, partial(next, generator)) is not _SKIPPED
            # Between its two steps the providers run, on the caller's thread: only the observer's
            # own code is on the observer's thread, and only that is timed.
            result = yield
            if not began:
                return result
            changed = self._step(hook, partial(_finish, generator, result))
            # A wrapper that returns nothing (it only watches) must not erase the providers'
            # results.
            return changed if _same_shape(hook, result, changed) else result

        return guarded

    def _step(self, hook: str, call: Callable[[], Any]) -> Any:
        """Run one step of the observer and return its value, or _SKIPPED."""
        with self._turn:  # one step at a time; its 50 ms begin here
            if self.dropped:
                return _SKIPPED
            begin = perf_counter()
            error = ""
            try:
                value = self._worker.call(call, self.SECONDS)
            except DeadlineExceeded:
                # Dropped permanently: an observer that is slow once would delay every later turn,
                # and its thread may still be busy with this step.
                error = self.dropped = f"took longer than {self.SECONDS * 1000:g} ms in {hook}"
                logger.warning("observer %s is dropped: it %s", self.name, error)
                value = _SKIPPED
            except Exception as caught:  # noqa: BLE001 - the observer's boundary
                error = describe(caught)
                logger.warning("observer %s failed in %s: %s", self.name, hook, error)
                value = _SKIPPED
            self._stats.setdefault(hook, HookStats()).record(perf_counter() - begin, error)
            return value


def allowed(hook: str, value: Any) -> bool:
    """Return whether the contract allows this value as the result of this hook."""
    rule = HOOKS[hook]
    return not rule.returns or value is None or isinstance(value, rule.returns)


def _finish(generator: Generator[None, Any, Any], result: Any) -> Any:
    try:
        generator.send(result)
    except StopIteration as stop:
        return stop.value
    raise HermesError("a hook wrapper must yield exactly once")


def _same_shape(hook: str, result: Any, changed: Any) -> bool:
    """Return whether a wrapper returned what a hook call returns: outcomes, or one of them."""
    outcomes = changed if isinstance(result, list) else [changed]
    return isinstance(outcomes, list) and all(
        isinstance(each, Outcome) and allowed(hook, each.value) for each in outcomes
    )
