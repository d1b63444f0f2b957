"""What set-up asks, and what else can be set.

Only what a person must say is asked. Nothing here has a default but ``environment``: what nobody
has set has to be seen as not set, since a block of honcho.json may say something.
"""

from __future__ import annotations

from typing import Any, Final

from hermes_memory_honcho.address import CLOUD_ENVIRONMENT
from hermes_memory_honcho.settings import LEVELS, RECALL_MODES, STRATEGIES

#: What is written to honcho.json under its own name. A secret never is.
FIELDS: Final[tuple[dict[str, Any], ...]] = (
    {
        "key": "environment",
        "description": "where Honcho runs: production is the cloud, local is a server of your own",
        "choices": [CLOUD_ENVIRONMENT, "local"],
        "default": CLOUD_ENVIRONMENT,
        "env_var": "HONCHO_ENVIRONMENT",
    },
    {
        "key": "api_key",
        "description": "API key of Honcho's cloud",
        "secret": True,
        "url": "https://app.honcho.dev",
        "env_var": "HONCHO_API_KEY",
        "ask": {"environment": CLOUD_ENVIRONMENT},
    },
    {
        "key": "baseUrl",
        "description": "address of your server, such as http://localhost:8000",
        "env_var": "HONCHO_BASE_URL",
        "when": {"environment": "local"},
    },
    {
        "key": "server_key",
        "description": "key of your server, if it wants one",
        "secret": True,
        "env_var": "HONCHO_SERVER_KEY",
        "ask": {"environment": "local"},
    },
    {
        "key": "peerName",
        "description": "your name in Honcho: letters, digits, - and _",
        "env_var": "HONCHO_PEER_NAME",
    },
    {
        "key": "workspace",
        "description": "workspace that holds everything; by default hermes, or hermes_<profile>",
        "ask": False,
    },
    {"key": "aiPeer", "description": "the agent's name in Honcho", "ask": False},
    {
        "key": "sessionStrategy",
        "description": "what shares a session of Honcho (per-directory)",
        "choices": list(STRATEGIES),
        "ask": False,
    },
    {
        "key": "recallMode",
        "description": "context is added to messages, tools are offered, or both (hybrid)",
        "choices": list(RECALL_MODES),
        "ask": False,
    },
    {
        "key": "saveMessages",
        "description": "whether conversations are sent (yes)",
        "type": "boolean",
        "ask": False,
    },
    {
        "key": "contextTokens",
        "description": "how much is recalled at most, in tokens (2000)",
        "type": "integer",
        "minimum": 50,
        "ask": False,
    },
    {
        "key": "dialecticCadence",
        "description": "ask Honcho's model with every n-th message (1); 0 never asks it",
        "type": "integer",
        "minimum": 0,
        "ask": False,
    },
    {
        "key": "dialecticReasoningLevel",
        "description": "how hard it thinks (low)",
        "choices": list(LEVELS),
        "ask": False,
    },
    {
        "key": "timeout",
        "description": "seconds that a request may take (30)",
        "type": "number",
        "minimum": 0.1,
        "env_var": "HONCHO_TIMEOUT",
        "ask": False,
    },
)
