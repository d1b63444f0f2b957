"""The tools for the model, under the names and with the arguments that hermes-agent has."""

from __future__ import annotations

from typing import Any, Final

_QUERY: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "minLength": 1, "description": "What you want to know."}
    },
    "required": ["query"],
}

RETAIN: Final[dict[str, Any]] = {
    "name": "hindsight_retain",
    "description": (
        "Remember something for later sessions. Facts, people and dates in it are worked out and "
        "can be found by any of them."
    ),
    "parameters": {
        "type": "object",
        "properties": {
            "content": {"type": "string", "minLength": 1, "description": "What to remember."},
            "context": {
                "type": "string",
                "description": "What it is, in a few words, such as 'a decision on the project'.",
            },
            "tags": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Tags for it, besides those that are set for everything.",
            },
        },
        "required": ["content"],
    },
}

RECALL: Final[dict[str, Any]] = {
    "name": "hindsight_recall",
    "description": (
        "Look up what is remembered from earlier sessions, best match first. It finds by meaning, "
        "by words, and by the people and things that memories share."
    ),
    "parameters": _QUERY,
}

REFLECT: Final[dict[str, Any]] = {
    "name": "hindsight_reflect",
    "description": (
        "Have one answer worked out from everything that is remembered. Slower than "
        "hindsight_recall; for questions that no single memory answers."
    ),
    "parameters": _QUERY,
}
