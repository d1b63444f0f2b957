"""The tools as the model sees them. Names, arguments and answers are hermes-agent's."""

from __future__ import annotations

from typing import Any, Final

MOST_RESULTS: Final = 50
LONGEST_FACT: Final = 20_000

SEARCH: Final[dict[str, Any]] = {
    "name": "mem0_search",
    "description": "Search long-term memory for facts about the user: preferences, people, "
    "projects, decisions, what was said in earlier conversations. Use it before you answer "
    "anything that may depend on them. A question with several parts needs several searches.",
    "parameters": {
        "type": "object",
        "properties": {
            "query": {"type": "string", "minLength": 1, "description": "What to look for."},
            "top_k": {
                "type": "integer",
                "minimum": 1,
                "description": f"How many facts at most: 10 if not given, {MOST_RESULTS} at most.",
            },
            "rerank": {
                "type": "boolean",
                "description": "Sort the facts once more, on the Mem0 platform only.",
            },
        },
        "required": ["query"],
    },
}

ADD: Final[dict[str, Any]] = {
    "name": "mem0_add",
    "description": "Store one lasting fact about the user, word for word: a preference, a "
    "correction, a decision, a personal detail. Do it when it is said, without being asked. Not "
    "for small talk, nor for what is stored already.",
    "parameters": {
        "type": "object",
        "properties": {
            "content": {"type": "string", "minLength": 1, "description": "The fact."},
        },
        "required": ["content"],
    },
}

UPDATE: Final[dict[str, Any]] = {
    "name": "mem0_update",
    "description": "Correct a stored fact that has changed or was wrong, by the id that "
    "mem0_search gave, instead of storing a second one.",
    "parameters": {
        "type": "object",
        "properties": {
            "memory_id": {"type": "string", "minLength": 1, "description": "The fact's id."},
            "text": {"type": "string", "minLength": 1, "description": "What it says now."},
        },
        "required": ["memory_id", "text"],
    },
}

DELETE: Final[dict[str, Any]] = {
    "name": "mem0_delete",
    "description": "Delete a stored fact by the id that mem0_search gave: when it no longer holds, "
    "or the user wants it forgotten. If it has only changed, use mem0_update.",
    "parameters": {
        "type": "object",
        "properties": {
            "memory_id": {"type": "string", "minLength": 1, "description": "The fact's id."},
        },
        "required": ["memory_id"],
    },
}
