"""One call of one method: how its arguments fit, how long it may take, what came of it.

Plugins in the wild were written against older contracts: ``sync_turn`` without
``messages``, ``on_memory_write`` without ``metadata`` or with it under another name,
``handle_tool_call`` without ``**kwargs``. `Invocation` passes each method what it accepts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from inspect import Parameter, signature
from itertools import count
from math import inf, nextafter
from os import getpid, urandom
from time import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hermes_core.errors import (
    AnswerLate,
    ProviderPaused,
)
from hermes_core.provider import MemoryProvider

if TYPE_CHECKING:
    from hermes_core.hookspecs import HookRule

#: Seconds after which a plugin that hangs while it loads is abandoned.
LOAD_SECONDS: Final = 10.0

# Keywords that a method receives only if it names them; ``**kwargs`` is not enough. Plugins pass
# their ``**kwargs`` on to an SDK, which would reject keywords that it does not know.
_IDENTITY: Final = frozenset({"turn_id", "event_id", "attempt", "said_at"})
_POSITIONAL: Final = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


class Deadlines(NamedTuple):
    """Seconds that each kind of call may take; ``memory.deadlines`` in config.yaml."""

    load: float = LOAD_SECONDS
    available: float = 5.0
    initialize: float = 30.0
    prefetch: float = 4.0
    tool: float = 60.0
    hook: float = 5.0
    write: float = 120.0
    shutdown: float = 5.0


class Outcome(NamedTuple):
    """The result of one hook call at one provider.

    An outcome is never None: pluggy drops None, and results could not be told apart by
    position. After a failure ``error`` says why and ``value`` is the hook's neutral value.
    """

    provider: str
    hook: str
    value: Any
    error: Exception | None = None
    seconds: float = 0.0


# -- methods of a provider --------------------------------------------------------------------


def method_of(provider: object, hook: str) -> Callable[..., Any] | None:
    """Return the provider's method for a hook, its own or inherited; None if it has none.

    A duck type lacks some, and most providers lack the optional capabilities.
    """
    method: Callable[..., Any] | None = getattr(provider, hook, None)
    return method


def overrides(provider: object, hook: str) -> bool:
    """Return whether a provider has its own method for a hook, not `MemoryProvider`'s default."""
    method = method_of(provider, hook)
    default = getattr(MemoryProvider, hook, None)
    # Compared by function: a bound method is a new object at each access.
    inherited = default is not None and getattr(method, "__func__", None) is default
    return method is not None and not inherited


class Invocation:
    """How to call one method: read from its signature once, used for every call."""

    __slots__ = (
        "_keywords",
        "_method",
        "_required",
        "_slots",
        "_takes_any_keyword",
        "_takes_any_position",
    )

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method
        self._slots: list[str] = []
        self._keywords: set[str] = set()
        self._required: set[str] = set()
        self._takes_any_keyword = self._takes_any_position = False
        try:
            parameters = signature(method).parameters.values()
        except (TypeError, ValueError):  # written in C: there is no signature to adapt to
            self._takes_any_keyword = self._takes_any_position = True
            return
        for parameter in parameters:
            if parameter.kind in _POSITIONAL:
                self._slots.append(parameter.name)
            if parameter.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY):
                self._keywords.add(parameter.name)
                if parameter.default is Parameter.empty:
                    self._required.add(parameter.name)
            self._takes_any_keyword |= parameter.kind is Parameter.VAR_KEYWORD
            self._takes_any_position |= parameter.kind is Parameter.VAR_POSITIONAL

    def __call__(
        self,
        *args: Any,
        optional: Mapping[str, Any] | None = None,
        by_position: Mapping[str, Any] | None = None,
        by_name: Callable[[], Mapping[str, Any]] | None = None,
    ) -> Any:
        """Call the method.

        Args:
            *args: What every version of the contract passes by position.
            optional: Keywords, passed if the method names them or takes any.
            by_position: Like ``optional``, but also passed to a method that has one more
                positional parameter, whatever its name is.
            by_name: Returns keywords that are passed only if the method names them. It is
                called only then.
        """
        # A method of an older contract has fewer positional parameters: the last ones are dropped.
        if not self._takes_any_position:
            args = args[: len(self._slots)]
        keywords: dict[str, Any] = {}
        if optional:
            taken = self._slots[: len(args)]
            keywords = {
                key: value
                for key, value in optional.items()
                if (self._takes_any_keyword or key in self._keywords) and key not in taken
            }
        # `by_name` may draw a new event id, so it is called only for a method that uses one.
        if by_name is not None and self._keywords & _IDENTITY:
            keywords |= {k: v for k, v in by_name().items() if k in self._keywords}
        # `metadata` of `on_memory_write`: older plugins name that parameter differently, or lack
        # it.
        for key, value in by_position.items() if by_position else ():
            if self.accepts(key):
                keywords[key] = value
            elif len(args) < len(self._slots):
                args = (*args, value)
        return self._method(*args, **keywords)

    def demanded(self, keywords: Iterable[str]) -> list[str]:
        """Return those of the keywords without which the method can't be called."""
        return [name for name in keywords if name in self._required]

    def accepts(self, keyword: str) -> bool:
        """Return whether the method can be called with this keyword."""
        return self._takes_any_keyword or keyword in self._keywords


# -- the write that a call delivers -----------------------------------------------------------


class Delivery(NamedTuple):
    """The identity of a write, the same over retries, and the number of the attempt, from 1.

    ``created`` is when it entered the outbox, in Unix seconds.
    """

    event_id: str
    attempt: int
    created: float


# Counts the writes of this process; together with `_prefix` a number is used once.
_NUMBERS: Final = count(1)

#: Set around each delivery, in the job's own context: a call that hangs still has its delivery.
DELIVERY: Final[ContextVar[Delivery | None]] = ContextVar("hermes_delivery", default=None)


_SAID_AT: Final[ContextVar[float]] = ContextVar("hermes_said_at", default=0.0)


class TurnClock:
    """The times of one manager's turns: no two are the same, though some clocks tick rarely."""

    def __init__(self) -> None:
        self._last = 0.0

    @contextmanager
    def turn(self) -> Iterator[float]:
        """The time of a turn: the archive and the outbox get the same, which identifies it."""
        now = time()
        if 0 <= self._last - now < 1:  # further ahead, the clock went back
            now = nextafter(self._last, inf)
        self._last = now
        token = _SAID_AT.set(now)
        try:
            yield now
        finally:
            _SAID_AT.reset(token)


def new_event() -> str:
    """Return a new identity for a write: a prefix of this process, and a number."""
    return f"{_prefix(getpid())}{next(_NUMBERS):012x}"


@cache
def _prefix(_pid: int) -> str:
    """Random for each process; a forked child draws again."""
    return urandom(10).hex()


def turn_identity() -> dict[str, Any]:
    """Return the keywords that identify a turn."""
    now = _SAID_AT.get() or time()
    event_id, attempt, said_at = DELIVERY.get() or Delivery(new_event(), 1, now)
    return {"turn_id": event_id, "attempt": attempt, "said_at": said_at}


def event_identity() -> dict[str, Any]:
    """Return the keywords that identify any other write."""
    event_id, attempt, said_at = DELIVERY.get() or Delivery(new_event(), 1, time())
    return {"event_id": event_id, "attempt": attempt, "said_at": said_at}


# Defaults of the base class that do something; every other default returns the neutral value.
_ACTIVE_DEFAULTS: Final = frozenset({"initialize_for_inspection", "handle_tool_call"})


class Invocations(dict[str, Invocation | None]):
    """How to call each method; None if it is missing or only the neutral default.

    Filled at the first call of a hook, so that every later look-up is one of a dictionary.
    """

    def __init__(self, provider: MemoryProvider) -> None:
        super().__init__()
        self._provider = provider

    def __missing__(self, hook: str) -> Invocation | None:
        method = method_of(self._provider, hook)
        active = method is not None and hook in _ACTIVE_DEFAULTS
        if method is None and hook == "initialize_for_inspection":
            method, active = method_of(self._provider, "initialize"), True
        active = active or overrides(self._provider, hook)
        self[hook] = found = Invocation(method) if active and method else None
        return found


def size_of(value: Any) -> int:
    """About how many characters were passed or returned."""
    if isinstance(value, str):
        return len(value)
    return sum(map(size_of, value)) if isinstance(value, tuple) else 0


def kind_of_call(error: Exception | None) -> str:
    """How a call went, in the words of the call log."""
    if error is None:
        return "ok"
    if isinstance(error, AnswerLate):
        return "late"
    return "paused" if isinstance(error, ProviderPaused) else "error"


def is_provider_error(error: BaseException, rule: HookRule, *, on_worker: bool) -> bool:
    """Whether the provider raised an exception itself; on our threads an exit is meant for us."""
    if isinstance(error, Exception) or on_worker:
        return True
    return isinstance(error, SystemExit) and rule.interactive
