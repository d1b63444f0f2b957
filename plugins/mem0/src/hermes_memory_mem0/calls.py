"""A call to Mem0: how long it may take, and what went wrong in it without being said."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from json import JSONDecodeError
from time import monotonic
from typing import Any, Final

from hermes_core.service import BackendError, Cause, cause_of_status, failure, parse_retry_after

SERVICE: Final = "mem0"
# For a request outside of `within`.
_DEFAULT_SECONDS: Final = 30.0
# httpx and OpenAI's client take 0 for "no limit".
_LEAST_SECONDS: Final = 0.001
_ADDRESSES: Final = (
    "check its address, those of its model and embeddings, and that mem0ai is 2.2 or later"
)


class TimedCall:
    """One call; ``error`` is what failed in it, also where Mem0 goes on as if nothing had."""

    __slots__ = ("error", "until")

    def __init__(self, seconds: float) -> None:
        self.until = monotonic() + seconds
        self.error: Exception | None = None


# A context variable: the HTTP clients below the SDK have no parameter for a deadline.
_CURRENT: Final[ContextVar[TimedCall | None]] = ContextVar("mem0_call", default=None)


@contextmanager
def within(seconds: float) -> Iterator[TimedCall]:
    """Limit all requests that are made inside to so many seconds together."""
    call = TimedCall(seconds)
    token = _CURRENT.set(call)
    try:
        yield call
    finally:
        _CURRENT.reset(token)


def seconds_left() -> float:
    """How long the next request of the current call may take; never 0, which means for ever."""
    call = _CURRENT.get()
    return _DEFAULT_SECONDS if call is None else max(_LEAST_SECONDS, call.until - monotonic())


@contextmanager
def held_in_time(lock: threading.Lock, where: str) -> Iterator[None]:
    """Hold a lock, if it can be had in the time of the current call.

    Raises:
        BackendError: Somebody else has it for longer: opening something that is slow to answer.
    """
    if not lock.acquire(timeout=seconds_left()):
        raise failure(Cause.SLOW, service=SERVICE, where=where, detail="it is still being opened")
    try:
        yield
    finally:
        lock.release()


def note(error: Exception) -> None:
    """Remember that something of the current call failed."""
    call = _CURRENT.get()
    # The first error is the cause; the engine goes on, and later ones follow from it.
    if call is not None and call.error is None:
        call.error = error


def explained(error: Exception, where: str) -> BackendError:
    """What an exception means that was raised somewhere below Mem0's SDK.

    The SDK wraps what its HTTP clients raise, so the first of the chain that says something
    definite counts.
    """
    for each in _chain(error):
        if isinstance(each, BackendError):
            return each
        cause = _cause(each)
        if cause is not None:
            has_answer = hasattr(each, "status_code")
            # The outer exceptions only say "Connection error."; the reason is at the beginning of
            # the chain.
            detail = str(_first(error) if cause is Cause.UNREACHABLE and not has_answer else each)
            return failure(
                cause,
                service=SERVICE,
                where=_address(each) or where,
                detail=detail,
                retry_after=_pause(each),
                final=False,  # a model may refuse its settings as well as what was said
            )
    # mem0ai indexes into answers without checking them. Such an error means an answer of another
    # program, or of another version.
    if isinstance(error, AttributeError | KeyError | TypeError | JSONDecodeError):
        detail = f"an answer was not understood: {_message_of(error)}"
        return failure(
            Cause.REFUSED,
            service=SERVICE,
            where=where,
            detail=detail,
            hint=_ADDRESSES,
            final=False,
        )
    return failure(
        Cause.REFUSED, service=SERVICE, where=where, detail=_message_of(error), final=False
    )


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        seen.append(error)
        error = error.__cause__ or error.__context__
    return iter(seen)


def _first(error: BaseException) -> BaseException:
    """What the whole chain began with: a name that is unknown, an invalid certificate."""
    said = [each for each in _chain(error) if str(each)]
    return said[-1] if said else error


def _cause(error: BaseException) -> Cause | None:
    """By status, or by kind: clients of several makes have the same names for their kinds."""
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        return cause_of_status(status)
    # By name: importing httpx, requests and openai only to compare classes would cost a second.
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if kinds & {"TimeoutException", "APITimeoutError", "TimeoutError"}:
        return Cause.SLOW
    if kinds & {"TransportError", "APIConnectionError", "ConnectionError"}:
        return Cause.UNREACHABLE
    if "OpenAIError" in kinds:  # its client was not created: the key is missing
        return Cause.WRONG_KEY
    return None


def _address(error: BaseException) -> str:
    """The address that a failed request was for, without what may be private in it."""
    try:
        url: Any = error.request.url  # type: ignore[attr-defined]
    except (AttributeError, RuntimeError):  # httpx raises where no request is known
        return ""
    return f"{url.scheme}://{url.netloc.decode()}"


def _pause(error: BaseException) -> float:
    """How long a model that limits requests wants to be left alone."""
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    return parse_retry_after(headers.get("Retry-After", ""))


def _message_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
