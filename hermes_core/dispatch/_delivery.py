"""Which write is being delivered, for providers that ask for its identity."""

from __future__ import annotations

from contextvars import ContextVar
from os import urandom
from typing import Any, Final, NamedTuple


class Delivery(NamedTuple):
    """The identity of a write, the same over retries, and how often it was tried, from 1."""

    event_id: str
    attempt: int


#: Set around each delivery. It is the lane's own: a call that hangs keeps the one it had.
DELIVERY: Final[ContextVar[Delivery | None]] = ContextVar("hermes_delivery", default=None)


def new_event() -> str:
    """An identity for a write."""
    return urandom(16).hex()


def turn_identity() -> dict[str, Any]:
    """What identifies a turn, for those who ask for it."""
    event_id, attempt = DELIVERY.get() or Delivery(new_event(), 1)
    return {"turn_id": event_id, "attempt": attempt}


def event_identity() -> dict[str, Any]:
    """What identifies another write, for those who ask for it."""
    event_id, attempt = DELIVERY.get() or Delivery(new_event(), 1)
    return {"event_id": event_id, "attempt": attempt}
