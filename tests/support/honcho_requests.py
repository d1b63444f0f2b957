"""What a Honcho server is asked and answers, and the limits that it sets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from support.honcho_store import Refused, Store

_ID = re.compile(r"[a-zA-Z0-9_-]+")
_LONGEST_ID = 512
_PAGE = 100
#: The tokenizer refuses these; where it is asked late, that is a failure of the server.
_REFUSED = re.compile(r"<\|(endoftext|fim_prefix|fim_middle|fim_suffix)\|>")
_FATAL = "<|endofprompt|>"
_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "in": lambda value, wanted: value in wanted,
    "gte": lambda value, wanted: _moment(value) >= _moment(wanted),
    "lte": lambda value, wanted: _moment(value) <= _moment(wanted),
}


class Request(NamedTuple):
    """What was asked; ``names`` are those in the path."""

    store: Store
    names: tuple[str, ...]
    body: Any
    query: dict[str, str]

    @property
    def workspace(self) -> str:
        return self.names[0]

    def field(self, key: str, default: Any = None) -> Any:
        return (self.body or {}).get(key, default)


class Reply(NamedTuple):
    """What is answered; with ``stream``, in these pieces."""

    status: int
    body: Any = None
    headers: dict[str, str] = {}  # noqa: RUF012 - never changed
    stream: tuple[str, ...] | None = None


def invalid(kind: str, where: list[Any], message: str, value: Any) -> Refused:
    detail = {"type": kind, "loc": ["body", *where], "msg": message, "input": value}
    return Refused(422, [detail])


def name_of(value: Any, *where: Any) -> str:
    if not isinstance(value, str) or not value:
        raise invalid("string_type", list(where), "Input should be a valid string", value)
    if len(value) > _LONGEST_ID:
        raise invalid("string_too_long", list(where), "String should have at most 512", value)
    if not _ID.fullmatch(value):
        message = "String should match pattern '^[a-zA-Z0-9_-]+$'"
        raise invalid("string_pattern_mismatch", list(where), message, value)
    return value


def text_of(value: Any, most: int, *where: Any, least: int = 0) -> str:
    if not isinstance(value, str):
        raise invalid("string_type", list(where), "Input should be a valid string", value)
    if len(value) > most:
        message = f"String should have at most {most} characters"
        raise invalid("string_too_long", list(where), message, value[:20])
    if len(value) < least:
        message = f"String should have at least {least} character"
        raise invalid("string_too_short", list(where), message, value)
    return takes(value, *where)


def takes(text: str, *where: Any) -> str:
    """A text, if the tokenizer takes it."""
    if _FATAL in text:
        raise Refused(500, "An unexpected error occurred")
    if _REFUSED.search(text):
        raise invalid("value_error", list(where), "disallowed special token", text[:20])
    return text


def paged(request: Request, items: list[Any]) -> Reply:
    page, size = int(request.query.get("page", 1)), int(request.query.get("size", 50))
    if not 1 <= size <= _PAGE or page < 1:
        raise invalid("less_than_equal", ["size"], "Input should be less than 101", size)
    if request.query.get("reverse") == "true":
        items.reverse()
    shown = items[(page - 1) * size : page * size]
    pages = -(-len(items) // size)
    return Reply(200, {"items": shown, "total": len(items), "page": page, "size": size,
                       "pages": pages})  # fmt: skip


def chosen(items: Iterable[dict[str, Any]], filters: dict[str, Any] | None) -> list[Any]:
    """What fits the filters: equal values, ``in``, and metadata that has these values."""
    return [item for item in items if all(_fits(item, *each) for each in (filters or {}).items())]


def _fits(item: dict[str, Any], key: str, wanted: Any) -> bool:
    value = item.get(key)
    if key == "metadata":
        return all((value or {}).get(name) == each for name, each in wanted.items())
    if isinstance(wanted, dict):
        return all(_COMPARED[name](value, each) for name, each in wanted.items())
    return bool(value == wanted)


def _moment(text: str) -> datetime:
    made = datetime.fromisoformat(text)
    return made if made.tzinfo else made.replace(tzinfo=UTC)
