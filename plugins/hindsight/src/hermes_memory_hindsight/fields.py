"""What a host asks a person, and what can be set without being asked."""

from __future__ import annotations

from typing import Any, Final

from hermes_memory_hindsight.files import CLOUD, OWN_SERVER, URLS
from hermes_memory_hindsight.settings import EMBEDDED, NOT_EMBEDDED, TYPES, VARIABLES, Settings

_DEFAULTS: Final = Settings()
_KEY_PAGE: Final = "https://ui.hindsight.vectorize.io"

_ASKED: Final[list[dict[str, Any]]] = [
    {
        "key": "mode",
        "description": "Where the memories are: local_external is a server that you run.",
        "default": CLOUD,
        "choices": [CLOUD, OWN_SERVER],
        "instead": dict.fromkeys(EMBEDDED, NOT_EMBEDDED),
    },
    {
        "key": "api_url",
        "description": "The address of the server.",
        "default_from": {"field": "mode", "map": URLS},
        "ask": {"mode": OWN_SERVER},
    },
    {
        "key": "api_key",
        "description": "The key for Hindsight Cloud.",
        "secret": True,
        "required": True,
        "url": _KEY_PAGE,
        "when": {"mode": CLOUD},
    },
    {
        "key": "server_key",
        "description": "The key of your server, if it wants one.",
        "secret": True,
        "env_var": VARIABLES["api_key"],
        "when": {"mode": OWN_SERVER},
    },
]

#: What is not asked: description, and type or choices.
_OPTIONS: Final[dict[str, tuple[str, str | list[str]]]] = {
    "bank_id": ("One bank for everybody; else each profile and user has one.", "text"),
    "bank_id_template": ("The bank's name, with {profile}, {user}, {session}, ...", "text"),
    "bank_mission": ("Who the bank is for: reflect reasons with it.", "text"),
    "bank_retain_mission": ("What is worth remembering: steers what is extracted.", "text"),
    "recall_budget": ("How thorough recall is; mid if not set.", ["low", "mid", "high"]),
    "memory_mode": ("Recall before each turn, tools, or both.", ["hybrid", "context", "tools"]),
    "recall_prefetch_method": ("Memories, or an answer from them.", ["recall", "reflect"]),
    "retain_tags": ("Tags on all that is stored.", "list"),
    "observation_scopes": ("per_tag, combined, ..., or lists of tags as JSON.", "list"),
    "retain_source": ("metadata.source of all that is stored.", "text"),
    "retain_user_prefix": ("What stands before the user's words in a stored turn.", "text"),
    "retain_assistant_prefix": ("What stands before the agent's words.", "text"),
    "recall_tags": ("Recall only what has these tags.", "list"),
    "recall_tags_match": ("How they match.", ["any", "all", "any_strict", "all_strict", "exact"]),
    "recall_types": ("The kinds of memories that are recalled.", "list"),
    "auto_recall": ("Recall before each turn.", "boolean"),
    "auto_retain": ("Store turns, notes and subagents' results.", "boolean"),
    "retain_every_n_turns": ("Of hermes-agent's files: turns are stored at once here.", "integer"),
    "retain_async": ("The server answers before a turn is worked into memory.", "boolean"),
    "retain_context": ("What the server is told that a turn is.", "text"),
    "recall_max_tokens": ("How much recall may give.", "integer"),
    "recall_max_input_chars": ("How much of a message recall asks with.", "integer"),
    "recall_prompt_preamble": ("What stands above recalled memories.", "text"),
    "timeout": ("Seconds that a request may take.", "number"),
}


def fields() -> list[dict[str, Any]]:
    """The fields, for `get_config_schema`."""
    return [*_ASKED, *(_option(key, *about) for key, about in _OPTIONS.items())]


def _option(key: str, description: str, kind: str | list[str]) -> dict[str, Any]:
    made: dict[str, Any] = {"key": key, "description": description, "ask": False}
    made |= {"choices": kind} if isinstance(kind, list) else {"type": kind}
    default = getattr(_DEFAULTS, key)
    if default not in ("", None, (), TYPES):
        made["default"] = default
    if kind in ("integer", "number"):
        made["minimum"] = 1
    if key in VARIABLES:
        made["env_var"] = VARIABLES[key]
    return made
