"""Where text comes from: the names of origins, and how much authority each has.

An origin is a short text, so that it can be stored in a file and shown as it is:

============== ===================================================================
``person``     somebody at the command line or in an editor
``user``       what the user of a conversation said
``assistant``  what the model wrote without a source that is known
``web``        a web page
``file``       a file that a tool read
``tool:NAME``  the result of another tool
``provider:NAME``  what a memory provider recalled
``import``     a conversation from another program, or from another home
============== ===================================================================

The last five are *external*: strangers may have written them. Authority never rises by copying: a
text that was made from others has the origin of the one with the least authority (`lowest`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Any, Final

PERSON: Final = "person"
USER: Final = "user"
ASSISTANT: Final = "assistant"
WEB: Final = "web"
FILE: Final = "file"
IMPORT: Final = "import"
TOOL: Final = "tool:"
PROVIDER: Final = "provider:"

#: The result of a subagent: what it says may come from anything that it read.
DELEGATION: Final = f"{TOOL}delegation"

_LONGEST: Final = 80
# Parts of names that hosts give to tools which read pages and files. A wrong guess changes only
# the label: the result of every tool is external.
_WEB_TOOL: Final = re.compile(r"(?i)(?<![a-z])(web|brows|https?|url|crawl|scrape|page|fetch)")
_FILE_TOOL: Final = re.compile(r"(?i)(?<![a-z])(files?|document|pdf|attachment)(?![a-z])")


class Authority(IntEnum):
    """How much weight the words of an origin have."""

    EXTERNAL = 0
    ASSISTANT = 1
    USER = 2
    PERSON = 3


_AUTHORITIES: Final = {
    ASSISTANT: Authority.ASSISTANT,
    USER: Authority.USER,
    PERSON: Authority.PERSON,
}


_ROLES: Final = {
    "user": USER,
    "assistant": ASSISTANT,
    "system": ASSISTANT,  # the host's own
    "developer": ASSISTANT,
}


def authority(origin: str) -> Authority:
    """Return the authority of an origin; the lowest for one that is not known."""
    return _AUTHORITIES.get(origin, Authority.EXTERNAL)


def is_external(origin: str) -> bool:
    """Return whether strangers may have written a text of this origin."""
    return authority(origin) is Authority.EXTERNAL


def lowest(origins: Iterable[str], otherwise: str = ASSISTANT) -> str:
    """Return the origin with the least authority, the first of several; ``otherwise`` for none."""
    return min(origins, key=authority, default=otherwise)


def of_tool(name: Any) -> str:
    """Return the origin of a tool's results."""
    text = " ".join(name.split())[:_LONGEST] if isinstance(name, str) else ""
    if _WEB_TOOL.search(text):
        return WEB
    if _FILE_TOOL.search(text):
        return FILE
    return f"{TOOL}{text or 'unknown'}"


def of_provider(name: str) -> str:
    """Return the origin of what a provider recalled."""
    return f"{PROVIDER}{name}"


def of_message(message: Mapping[str, Any]) -> str:
    """Return the origin of a message (``role``, and ``tool_name`` or ``name``).

    Its own ``origin`` counts, if it does not claim more authority than its role has.
    """
    role = message.get("role")
    derived = _ROLES.get(role) if isinstance(role, str) else None
    if derived is None:
        derived = of_tool(message.get("tool_name") or message.get("name"))
    claimed = message.get("origin")
    if not isinstance(claimed, str) or not claimed.strip():
        return derived
    claimed = " ".join(claimed.split())[:_LONGEST]
    return claimed if authority(claimed) <= authority(derived) else derived


# -- messages of every API, with the results of tools as separate messages ---------------------

#: Parts and items that are what a tool returned, whatever the role of their message is.
_RESULT: Final = re.compile(r"tool_result$|_call_output$")
_CALL: Final = re.compile(r"tool_use$")


def as_messages(given: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
    """Messages in the form of OpenAI's chat API; results have the names of their tools.

    In Anthropic's API results are parts of the user's message, and in OpenAI's Responses API they
    are items without a role. Neither is what the user said.
    """
    names: dict[str, Any] = {}
    for message in given:
        for each in _split(message) if isinstance(message, Mapping) else ():
            names |= _called(each)
            known = each.get("tool_name") or each.get("name") or each.get("role") != "tool"
            name = None if known else names.get(str(each.get("tool_call_id")))
            yield {**each, "tool_name": name} if isinstance(name, str) and name else each


def _split(message: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if not message.get("role") and message.get("type") == "function_call":
        function = {name: message.get(name) for name in ("name", "arguments")}
        call = {"id": message.get("call_id"), "function": function}
        yield {"role": "assistant", "content": "", "tool_calls": [call]}
        return
    if not message.get("role") and _is(_RESULT, message):
        yield _result(message)
        return
    parts = message.get("content")
    results = [each for each in parts if _is(_RESULT, each)] if isinstance(parts, list) else []
    if not results or message.get("role") == "tool":
        yield message
        return
    said = [each for each in parts or () if not _is(_RESULT, each)]
    yield from map(_result, results)
    if said or message.get("tool_calls"):
        yield {**message, "content": said}


def _is(kind: re.Pattern[str], part: Any) -> bool:
    found = part.get("type") if isinstance(part, Mapping) else None
    return isinstance(found, str) and kind.search(found) is not None


def _result(part: Mapping[str, Any]) -> Mapping[str, Any]:
    content = part.get("content") if part.get("content") is not None else part.get("output")
    call = part.get("tool_use_id") or part.get("call_id") or part.get("tool_call_id")
    named = {name: part[name] for name in ("name", "timestamp") if part.get(name)}
    return {"role": "tool", "content": content, **named, **({"tool_call_id": call} if call else {})}


def _called(message: Mapping[str, Any]) -> dict[str, Any]:
    """The names of the tools that a message calls, by the ids of the calls."""
    calls, parts = message.get("tool_calls"), message.get("content")
    found = [each for each in calls if isinstance(each, dict)] if isinstance(calls, list) else []
    found += [each for each in parts if _is(_CALL, each)] if isinstance(parts, list) else []
    functions = ((each, each.get("function")) for each in found)
    return {
        str(each.get("id")): (function if isinstance(function, dict) else each).get("name")
        for each, function in functions
    }
