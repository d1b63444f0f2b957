"""The arguments of the tool `session_search`, as a model passes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from hermes_builtin.sessions.archive import ROLES
from hermes_builtin.sessions.display import LINK
from hermes_builtin.sessions.words import storable


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
    full: bool = False
    profile: str = ""

    @classmethod
    def of(cls, args: Mapping[str, Any]) -> Request:
        """Check what a model passed.

        As in hermes-agent, a number or an order that makes no sense counts as not given.

        Raises:
            BadRequest: It can't be known what is meant.
        """
        if not isinstance(args, Mapping):
            raise BadRequest("The arguments must be an object.")
        return cls(
            _text(args, "query"),
            _roles(args.get("role_filter")),
            # Clamped, not refused: a model that asks for 100 wants many, and a refusal costs a
            # turn.
            min(max(_number(args.get("limit"), 3), 1), 10),
            {"newest": True, "oldest": False}.get(_word(args.get("sort"))),
            _text(args, "session_id"),
            _message_id(args.get("around_message_id")),
            min(max(_number(args.get("window"), 5), 1), 20),
            _word(args.get("detail")) == "full",
            _text(args, "profile"),
        )


def linked(link: str, own: str = "") -> tuple[str, str]:
    """The profile and the id that a link ``@session:profile/id`` names.

    ``own`` is the reader's profile, which may have a slash in its name.
    """
    text = link.strip().removeprefix(LINK)
    if own and text.startswith(f"{own}/"):
        return own, text[len(own) + 1 :]
    profile, slash, name = text.partition("/")
    return (profile, name) if slash else ("", profile)


def _text(args: Mapping[str, Any], name: str) -> str:
    value = args.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadRequest(f"{name} must be a string.")
    value = storable(value)
    # A query in quotes and an id may have blanks at their ends.
    return value if name in ("query", "session_id") else value.strip()


def _word(value: Any) -> str:
    return value.strip().lower() if isinstance(value, str) else ""


def _number(value: Any, default: int) -> int:
    if isinstance(value, bool):
        return default
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return default


def _message_id(value: Any) -> int | None:
    if value is None:
        return None
    number = _number(value, -1)
    if not 0 <= number < 2**63:
        raise BadRequest("around_message_id must be a whole number.")
    return number


def _roles(given: Any) -> frozenset[str]:
    texts = given if isinstance(given, list | tuple) else [given]
    parts = [part for text in texts if isinstance(text, str) for part in text.split(",")]
    roles = frozenset(part.strip().lower() for part in parts if part.strip())
    unknown = roles - {*ROLES, "system"}
    if unknown:
        raise BadRequest(
            f"role_filter has {', '.join(sorted(unknown))[:100]}; use user, assistant, tool."
        )
    return roles


SCHEMA: Final[dict[str, Any]] = {
    "name": "session_search",
    "description": (
        "Search past conversations. Use it when the user refers to something said before, or "
        "when you would otherwise ask for what they may have told you already. With query: the "
        "best matching conversations, each with the messages around the hit and how it began and "
        'ended. Ask in plain words; "a phrase", -without, prefix*, role:user, after:2026-01, '
        "before:7d also work; titles are searched too. With session_id: that conversation. With "
        "session_id and around_message_id: the messages around one; messages_before and "
        "messages_after count those shown on either side, remaining_before and remaining_after "
        "those beyond. With nothing: the newest conversations. Name a conversation to the user by "
        "its link."
    ),
    "parameters": {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What to look for."},
            "role_filter": {
                "type": "string",
                "description": "Whose messages: user, assistant, tool; several with commas. "
                "Default: user,assistant.",
            },
            "limit": {"type": "integer", "description": "Conversations to return: 3, 1 to 10."},
            "sort": {
                "type": "string",
                "enum": ["newest", "oldest"],
                "description": "By time instead of by relevance.",
            },
            "detail": {
                "type": "string",
                "enum": ["adaptive", "full"],
                "description": "adaptive (default): the best conversation with its messages, the "
                "others with the hit alone. full: all with their messages.",
            },
            "session_id": {
                "type": "string",
                "description": "Read this conversation: its id, or a link @session:profile/id.",
            },
            "around_message_id": {
                "type": "integer",
                "description": "With session_id: show the messages around this one.",
            },
            "window": {
                "type": "integer",
                "description": "Messages on either side of it: 5, 1 to 20.",
            },
            "profile": {
                "type": "string",
                "description": "Only conversations of this profile. Default: your own.",
            },
        },
        "required": [],
    },
}
