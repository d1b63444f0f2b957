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
from collections.abc import Iterable, Mapping
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
