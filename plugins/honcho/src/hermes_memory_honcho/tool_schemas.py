"""What the model is told of the tools."""

from __future__ import annotations

from typing import Any, Final

from hermes_memory_honcho.settings import LEVELS


def _schema(
    name: str, description: str, properties: dict[str, Any], required: tuple[str, ...] = ()
) -> dict[str, Any]:
    peer = {
        "type": "string",
        "description": "Whom it is about: user (default), ai, or the id of a peer.",
    }
    parameters = {
        "type": "object",
        "properties": {**properties, "peer": peer},
        "required": list(required),
    }
    return {"name": name, "description": description, "parameters": parameters}


PROFILE: Final = _schema(
    "honcho_profile",
    "Read or write the card of a peer: a short list of lasting facts such as name, role and "
    "preferences. No model runs, so it is the cheapest call. With card it is written anew, "
    "without it is read. An empty card comes with a hint why.",
    {
        "card": {
            "type": "array",
            "items": {"type": "string"},
            "description": "The facts of the new card. Leave it out to read.",
        }
    },
)

SEARCH: Final = _schema(
    "honcho_search",
    "Search what was literally said in all past conversations of a peer, by meaning and by words. "
    "Gives excerpts, the best first, and runs no model. For a fact that was once stated; ask "
    "honcho_reasoning where it takes thought.",
    {
        "query": {"type": "string", "description": "What to look for: a topic, a name, a fact."},
        "max_tokens": {
            "type": "integer",
            "description": "How much to give: 800 unless told, 2000 at most.",
        },
    },
    ("query",),
)

REASONING: Final = _schema(
    "honcho_reasoning",
    "Ask Honcho's own model a question about a peer. It looks through messages and conclusions "
    "and writes an answer, which takes seconds and costs tokens: use it for what needs weighing, "
    "honcho_search for a plain fact.",
    {
        "query": {"type": "string", "description": "The question, in plain words."},
        "reasoning_level": {
            "type": "string",
            "enum": list(LEVELS),
            "description": "How hard it thinks. minimal is for a single fact and is cut off "
            "early; low for a plain question; max for a thorough search.",
        },
    },
    ("query",),
)

CONTEXT: Final = _schema(
    "honcho_context",
    "What Honcho has on this session and a peer, in one call: summary, conclusions, card and the "
    "last messages. No question and no model: to look around.",
    {},
)

CONCLUDE: Final = _schema(
    "honcho_conclude",
    "Keep, list or delete conclusions: lasting facts about a peer, for all later conversations. "
    "Give exactly one of conclusion, delete_id and list. Delete what is private, by an id that "
    "list has shown; for what is merely wrong, write the right fact instead.",
    {
        "conclusion": {"type": "string", "description": "The fact to keep."},
        "delete_id": {"type": "string", "description": "The id of the conclusion to delete."},
        "list": {"type": "boolean", "description": "True to list conclusions with their ids."},
        "query": {"type": "string", "description": "With list: what to search for."},
    },
)
