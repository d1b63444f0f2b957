"""What a message says, whatever form its content has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from hermes_builtin.sessions._model import NewMessage

_FAR: Final = 1e12  # seconds; nobody talks in the year 30,000


def content_text(content: Any) -> str:
    """Text, or the texts of its parts, with a word for parts of another kind."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return json.dumps(content, ensure_ascii=False, default=str, skipkeys=True)
    return "\n".join(filter(None, map(_part, content)))


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict):
        text = part.get("text")
        return text if isinstance(text, str) else f"[{part.get('type') or 'attachment'}]"
    return ""


def new_message(given: Mapping[str, Any], now: float) -> NewMessage:
    """A message as hosts have it (OpenAI's form) as the archive takes it."""
    extra = {
        key: given[key] for key in ("tool_calls", "tool_call_id", "tool_name") if given.get(key)
    }
    role = str(given.get("role") or "other")
    if role == "tool" and given.get("name"):
        extra.setdefault("tool_name", given["name"])
    return NewMessage(role, content_text(given.get("content")), _time(given, now), extra)


def _time(given: Mapping[str, Any], now: float) -> float:
    at = given.get("timestamp")
    if isinstance(at, bool) or not isinstance(at, int | float) or not -_FAR < at < _FAR:
        return now
    return float(at)


def searchable(content: str, extra: Mapping[str, Any]) -> str:
    """What of a message can be found: what it says, and what tools it calls with what."""
    parts = [content, str(extra.get("tool_name") or "")]
    calls = extra.get("tool_calls") or ()
    for call in calls if isinstance(calls, list | tuple) else (calls,):
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            parts += [str(function.get("name") or ""), str(function.get("arguments") or "")]
        else:
            parts.append(str(call))
    return "\n".join(filter(None, parts))
