"""Which write is being delivered, for providers that ask for its identity."""

from __future__ import annotations

from contextvars import ContextVar
from functools import cache
from itertools import count
from os import getpid, urandom
from typing import Any, Final, NamedTuple


class Delivery(NamedTuple):
    """The identity of a write, the same over retries, and how often it was tried, from 1."""

    event_id: str
    attempt: int


_NUMBERS: Final = count(1)

#: Set around each delivery. It is the lane's own: a call that hangs keeps the one it had.
DELIVERY: Final[ContextVar[Delivery | None]] = ContextVar("hermes_delivery", default=None)


def new_event() -> str:
    """An identity for a write: one of this process's own, and a number."""
    return f"{_prefix(getpid())}{next(_NUMBERS):012x}"


@cache
def _prefix(_pid: int) -> str:
    """Random, and not inherited by a forked child."""
    return urandom(10).hex()


def turn_identity() -> dict[str, Any]:
    """What identifies a turn, for those who ask for it."""
    event_id, attempt = DELIVERY.get() or Delivery(new_event(), 1)
    return {"turn_id": event_id, "attempt": attempt}


def event_identity() -> dict[str, Any]:
    """What identifies another write, for those who ask for it."""
    event_id, attempt = DELIVERY.get() or Delivery(new_event(), 1)
    return {"event_id": event_id, "attempt": attempt}
