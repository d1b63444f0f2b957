"""What set-up asks: what the chosen mode needs, and little more."""

from __future__ import annotations

from typing import Any, Final

PLATFORM: Final = "platform"
SELF_HOSTED: Final = "self-hosted"
OSS: Final = "oss"

CLOUD: Final = "https://api.mem0.ai"
_KEYS: Final = "https://app.mem0.ai/dashboard/api-keys"

FIELDS: Final[tuple[dict[str, Any], ...]] = (
    {
        "key": "mode",
        "description": "Where memories are kept: platform (Mem0's cloud), self-hosted (a Mem0 "
        "server of yours), oss (in this process, with a model of your choice)",
        "choices": [PLATFORM, SELF_HOSTED, OSS],
        "default": PLATFORM,
        "env_var": "MEM0_MODE",
    },
    {
        "key": "api_key",
        "description": "Key of the Mem0 platform",
        "secret": True,
        "required": True,
        "env_var": "MEM0_API_KEY",
        "url": _KEYS,
        "when": {"mode": PLATFORM},
    },
    {
        "key": "host",
        "description": "Address of your Mem0 server, such as http://localhost:8888",
        "required": True,
        "env_var": "MEM0_HOST",
        "when": {"mode": SELF_HOSTED},
    },
    {
        "key": "server_key",
        "description": "Its ADMIN_API_KEY, or a key made in its dashboard; empty if it runs with "
        "AUTH_DISABLED",
        "secret": True,
        "env_var": "MEM0_API_KEY",
        "when": {"mode": SELF_HOSTED},
    },
    {
        "key": "llm_url",
        "description": "Address of the model that extracts facts, any that speaks OpenAI's API; "
        "empty for OpenAI itself",
        "env_var": "MEM0_LLM_URL",
        "when": {"mode": OSS},
    },
    {
        "key": "llm_model",
        "description": "Name of that model; empty for gpt-5-mini",
        "env_var": "MEM0_LLM_MODEL",
        "when": {"mode": OSS},
    },
    {
        "key": "llm_key",
        "description": "Key of that model; empty if it needs none",
        "secret": True,
        "env_var": "OPENAI_API_KEY",
        "url": "https://platform.openai.com/api-keys",
        "when": {"mode": OSS},
    },
    {
        "key": "embedder_url",
        "description": "Address of the embeddings; empty for the same as the model's",
        "env_var": "MEM0_EMBEDDER_URL",
        "when": {"mode": OSS},
    },
    {
        "key": "embedder_model",
        "description": "Name of the embedding model; empty for text-embedding-3-small",
        "env_var": "MEM0_EMBEDDER_MODEL",
        "when": {"mode": OSS},
    },
    {
        "key": "embedder_key",
        "description": "Key of the embeddings; empty for the model's, if they are at one address",
        "secret": True,
        "env_var": "MEM0_EMBEDDER_KEY",
        "when": {"mode": OSS},
        "ask": False,
    },
    {
        "key": "vector_path",
        "description": "Folder of the local Qdrant; empty for mem0/qdrant in the Hermes home",
        "env_var": "MEM0_VECTOR_PATH",
        "when": {"mode": OSS},
        "ask": False,
    },
    {
        "key": "user_id",
        "description": "Whose memories they are: a name, or a template of {user}, {profile}, "
        "{platform}; empty: every user of a gateway and every profile has their own",
        "env_var": "MEM0_USER_ID",
        "ask": False,
    },
    {
        "key": "agent_id",
        "description": "What memories are marked with as their author",
        "default": "hermes",
        "env_var": "MEM0_AGENT_ID",
        "ask": False,
    },
    {
        "key": "rerank",
        "description": "Let the platform sort what it finds once more: better, and slower",
        "type": "boolean",
        "default": False,
        "env_var": "MEM0_RERANK",
        "when": {"mode": PLATFORM},
        "ask": False,
    },
    {
        "key": "recall_limit",
        "description": "How many memories come with a message, at most",
        "type": "integer",
        "default": 10,
        "minimum": 1,
        "maximum": 50,
        "env_var": "MEM0_RECALL_LIMIT",
        "ask": False,
    },
    {
        "key": "recall_timeout",
        "description": "Seconds that the recall for a message may take",
        "type": "number",
        "default": 3,
        "minimum": 0.1,
        "maximum": 60,
        "env_var": "MEM0_RECALL_TIMEOUT",
        "ask": False,
    },
    {
        "key": "timeout",
        "description": "Seconds that a write or a tool call may take",
        "type": "number",
        "default": 60,
        "minimum": 1,
        "maximum": 600,
        "env_var": "MEM0_TIMEOUT",
        "ask": False,
    },
    {
        "key": "turn_max_chars",
        "description": "Of a turn that is longer, beginning and end are sent; 0 for all of it",
        "type": "integer",
        "default": 20_000,
        "minimum": 0,
        "env_var": "MEM0_TURN_MAX_CHARS",
        "ask": False,
    },
    {
        "key": "telemetry",
        "description": "Let mem0ai tell its makers how it is used",
        "type": "boolean",
        "default": False,
        "env_var": "MEM0_TELEMETRY",
        "ask": False,
    },
    {
        "key": "platform_url",
        "description": "Address of the platform",
        "default": CLOUD,
        "env_var": "MEM0_PLATFORM_URL",
        "when": {"mode": PLATFORM},
        "ask": False,
    },
)


def schema(*, has_server: bool) -> list[dict[str, Any]]:
    """The fields for a host.

    Args:
        has_server: hermes-agent takes the mode ``platform`` with an address for self-hosted. Then
            the platform's key is not needed.
    """
    fields = [dict(field) for field in FIELDS]
    for field in fields:
        if field["key"] == "api_key" and has_server:
            field["required"] = False
    return fields
