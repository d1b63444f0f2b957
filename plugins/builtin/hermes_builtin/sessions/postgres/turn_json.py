"""What the function that stores a turn takes: a session and its messages, as JSON."""

from __future__ import annotations

import hashlib
import json
import time
from functools import lru_cache
from math import isfinite
from typing import Any, Final

from hermes_builtin.sessions.archive import (
    NewMessage,
    SessionFacts,
)
from hermes_builtin.sessions.numbers import (
    OTHER,
    role_code,
)
from hermes_builtin.sessions.postgres.search import key_of
from hermes_builtin.sessions.words import storable
from hermes_core.session import TERMINAL
from hermes_core.storage.postgres import (
    to_text,
)

# Characters of a value that JSON can't hold, such as an object that contains itself.
_ODD: Final = 2000


def message_row(message: NewMessage) -> dict[str, Any]:
    """What the function that stores a turn takes of a message."""
    at = float(message.at) if isfinite(message.at) else time.time()
    content, facts = storable(message.content), extra_text(message)
    return {
        "role": role_code(message.role),
        "at": at,
        "size": len(content),
        "content": to_text(content),
        "extra": to_text(facts) if facts else None,
    }


def extra_text(message: NewMessage) -> str | None:
    """What else is known of a message, as JSON."""
    extra: dict[str, Any] = dict(message.extra or {})
    if role_code(message.role) == OTHER:
        extra["role"] = message.role
    return storable(json_text(extra)) if extra else None


def json_text(extra: dict[str, Any]) -> str:
    """What else is known of a message, whatever it is made of."""
    try:
        return json.dumps(extra, ensure_ascii=False, default=str, skipkeys=True)
    except (ValueError, RecursionError):  # it holds itself
        return json.dumps({key: str(value)[:_ODD] for key, value in extra.items()})


# The same for all turns of a session.
@lru_cache(maxsize=256)
def session_facts(facts: SessionFacts) -> str:
    """What the function that stores a turn takes of its session, as JSON."""
    texts = {
        name: to_text(storable(value))
        for name, value in facts._asdict().items()
        if isinstance(value, str)
    }
    place = texts["platform"] or texts["source"] or TERMINAL
    owner = (*(texts[name] for name in ("user_id", "chat_id", "profile")), place)
    text = "\0".join(f"{len(each)}:{each}" for each in owner)
    known = {
        **texts,
        "key": str(key_of(storable(facts.id))),
        "place": place,
        "other_id": f"{texts['id']}@{hashlib.sha256(text.encode()).hexdigest()[:32]}",
        # Without it, a session starts with its first message.
        "started": facts.started if facts.started and isfinite(facts.started) else None,
        "ended": facts.ended,
    }
    return json.dumps(known, ensure_ascii=False)
