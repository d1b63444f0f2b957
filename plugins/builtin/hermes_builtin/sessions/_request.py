"""The arguments of `session_search`, as a model gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from hermes_builtin.sessions._model import ROLES
from hermes_builtin.sessions._words import storable


class BadRequest(Exception):  # noqa: N818 - the tool answers with it
    """Arguments that can't be meant; the text is for the model."""


class Request(NamedTuple):
    """The tool's arguments, checked."""

    query: str = ""
    roles: frozenset[str] = frozenset()
    limit: int = 3
    newest: bool | None = None
    session_id: str = ""
    around: int | None = None
    window: int = 5

    @classmethod
    def of(cls, args: Mapping[str, Any]) -> Request:
        """Take what a model gave; refuse what makes no sense."""
        if not isinstance(args, Mapping):
            raise BadRequest("The arguments must be an object.")
        return cls(
            _text(args, "query"),
            _roles(_text(args, "role_filter")),
            min(max(_number(args, "limit", 3), 1), 10),
            _newest(_text(args, "sort")),
            _text(args, "session_id"),
            None
            if args.get("around_message_id") is None
            else _number(args, "around_message_id", 0),
            min(max(_number(args, "window", 5), 1), 20),
        )


def _text(args: Mapping[str, Any], name: str) -> str:
    value = args.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadRequest(f"{name} must be a string.")
    value = storable(value)
    return value if name in ("query", "session_id") else value.strip()


def _number(args: Mapping[str, Any], name: str, default: int) -> int:
    value = args.get(name)
    if value is None:
        return default
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        raise BadRequest(f"{name} must be a whole number.") from None
    if isinstance(value, bool) or not -(2**63) <= number < 2**63:
        raise BadRequest(f"{name} must be a whole number.")
    return number


def _roles(text: str) -> frozenset[str]:
    roles = frozenset(part.strip().lower() for part in text.split(",") if part.strip())
    unknown = roles - {*ROLES, "system"}
    if unknown:
        raise BadRequest(
            f"role_filter has {', '.join(sorted(unknown))[:100]}; use user, assistant, tool."
        )
    return roles


def _newest(text: str) -> bool | None:
    if text not in ("", "newest", "oldest"):
        raise BadRequest("sort must be newest or oldest.")
    return None if not text else text == "newest"
