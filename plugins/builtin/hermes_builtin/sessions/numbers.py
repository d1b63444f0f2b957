"""What a message's number says: its session, its place there and its role."""

from __future__ import annotations

from typing import Final

# A message's number contains its session, its place there and its role, so that these are known
# for every hit of the index without a look-up, and a session is a range of the primary key. The
# price: a session has at most about a million messages, and numbers order sessions by when they
# were first stored here.

ROLE_BITS: Final = 2
SESSION_BITS: Final = 22
MOST_MESSAGES: Final = 1 << (SESSION_BITS - ROLE_BITS)

_CODES: Final = {"user": 0, "assistant": 1, "tool": 2}
OTHER: Final = 3
_NAMES: Final = (*_CODES, "")


def role_code(role: str) -> int:
    """The number of a role."""
    return _CODES.get(role, OTHER)


def role_name(message_id: int) -> str:
    """The role that a message's number holds; "" if it is none of the usual."""
    return _NAMES[message_id & OTHER]


def message_id(session: int, place: int, role: str) -> int:
    """The number of a message."""
    return (session << SESSION_BITS) | (place << ROLE_BITS) | role_code(role)


def place_of(message: int) -> int:
    """How many messages there are before this one in its session."""
    return (message & ((1 << SESSION_BITS) - 1)) >> ROLE_BITS


def session_of(message: int) -> int:
    """The session that a message belongs to."""
    return message >> SESSION_BITS


def bounds(session: int) -> tuple[int, int]:
    """The smallest and the largest number that a message of a session can have."""
    return session << SESSION_BITS, ((session + 1) << SESSION_BITS) - 1
