"""The plugin's settings: what `setup` asks, where values come from, and mem0ai's engine config."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from hermes_core import ConfigError
from hermes_core.service import read_own_file

# -- Configuration of mem0ai's engine: which model, which embeddings, which store ---------------

#: Where a provider of mem0ai expects its address; hermes-agent's files may say api_base.
_URL_KEYS: Final = {"openai": "openai_base_url", "ollama": "ollama_base_url"}
_DEFAULT_MODELS: Final = {"llm": "gpt-5-mini", "embedder": "text-embedding-3-small"}
# With one of these, Qdrant is a server and there is no folder.
_ELSEWHERE: Final = ("url", "host")


class Engine(NamedTuple):
    """The configuration of mem0ai's engine.

    Attributes:
        config: For ``Mem0Memory.from_config``.
        folder: Of mem0ai's own files, below the Hermes home.
        path: Of the local Qdrant; None if the store is somewhere else.
        missing: What has to be set before it can work.
    """

    config: dict[str, Any]
    folder: Path
    path: Path | None
    missing: str


def engine_config(found: Mapping[str, Any], home: Path) -> Engine:
    """The engine that settings describe, in hermes-agent's form (``oss``) or in ours."""
    folder = home / "mem0"
    oss = found.get("oss")
    sections: Mapping[str, Any] = oss if isinstance(oss, Mapping) else {}
    llm = _model("llm", sections, found)
    # A file that has a section for the embeddings means OpenAI where it names no address.
    embedder = _model("embedder", sections, found, {} if "embedder" in sections else llm)
    store = _store(sections, found, home, folder)
    missing = next(filter(None, (_lack("model", llm), _lack("embedder", embedder))), "")
    config = {
        "vector_store": store,
        "llm": llm,
        "embedder": embedder,
        "history_db_path": str(folder / "history.db"),
        "version": "v1.1",
    }
    path = store["config"].get("path") if store["provider"] == "qdrant" else None
    return Engine(config, folder, Path(path) if path else None, missing)


def _model(
    section: str,
    sections: Mapping[str, Any],
    found: Mapping[str, Any],
    like: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """A model: what mem0.json has of it, what was set up, and else what another one has."""
    block = _block(sections.get(section), "openai")
    # Only OpenAI's protocol has settings of ours. Other providers of mem0ai are configured in
    # mem0.json, and pass through unchanged.
    provider, config = block["provider"], block["config"]
    old = config.pop("api_base", None)
    if old and provider in _URL_KEYS:
        config.setdefault(_URL_KEYS[provider], old)
    if provider != "openai":
        return block
    model, url = found.get(f"{section}_model"), found.get(f"{section}_url")
    config |= {"model": model} if model else {}
    config |= {"openai_base_url": url} if url else {}
    config.setdefault("model", _DEFAULT_MODELS[section])
    other = like["config"] if like.get("provider") == "openai" else {}
    if other.get("openai_base_url"):
        config.setdefault("openai_base_url", other["openai_base_url"])
    # One server's key is not for another server.
    is_same = config.get("openai_base_url") == other.get("openai_base_url")
    key = found.get(f"{section}_key") or (other.get("api_key") if is_same else None)
    if not key and "openai_base_url" in config:
        key = "none"  # a server of one's own may want no key; OpenAI's client insists on one
    config |= {"api_key": key} if key and "api_key" not in config else {}
    return block


def _block(given: Any, provider: str) -> dict[str, Any]:
    block: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    config = block.get("config")
    named = str(block.get("provider") or provider).strip().lower()
    return {"provider": named, "config": dict(config) if isinstance(config, Mapping) else {}}


def _store(
    sections: Mapping[str, Any], found: Mapping[str, Any], home: Path, folder: Path
) -> dict[str, Any]:
    block = _block(sections.get("vector_store"), "qdrant")
    config = block["config"]
    if block["provider"] != "qdrant":
        return block
    config.setdefault("collection_name", "mem0")
    if any(config.get(key) for key in _ELSEWHERE):
        config.pop("path", None)  # a server goes first, with mem0ai too
        return block
    given = found.get("vector_path") or config.get("path") or folder / "qdrant"
    # Below the home if relative: the working folder of an agent changes.
    config["path"] = str(home / Path(str(given)).expanduser())
    return block


def _lack(what: str, block: Mapping[str, Any]) -> str:
    if block["provider"] != "openai" or block["config"].get("api_key"):
        return ""
    # mem0ai reads both itself.
    if os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENROUTER_API_KEY"):
        return ""
    return f"its {what} has no key: set OPENAI_API_KEY, or MEM0_LLM_URL to a model that needs none"


# -- What setup asks: what the chosen mode needs, and little more ------------------------------

PLATFORM: Final = "platform"
SELF_HOSTED: Final = "self-hosted"
OSS: Final = "oss"

CLOUD: Final = "https://api.mem0.ai"
_KEYS: Final = "https://app.mem0.ai/dashboard/api-keys"

# "when" hides a field in other modes; "ask": False means that it can be set but is not asked, so
# that `setup` has at most six questions.
FIELDS: Final[tuple[dict[str, Any], ...]] = (
    {
        "key": "mode",
        "description": "Where memories are stored: platform (Mem0's cloud), self-hosted (a Mem0 "
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
        "description": "Address of the model that extracts facts, with OpenAI's API; "
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
        "description": "Key of that model; empty if it requires none",
        "secret": True,
        "env_var": "OPENAI_API_KEY",
        "url": "https://platform.openai.com/api-keys",
        "when": {"mode": OSS},
    },
    {
        "key": "embedder_url",
        "description": "Address of the embeddings model; empty for the address above",
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
        "description": "Key of the embeddings; empty for the key above, if the address is the same",
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
        "description": "Owner of the memories: a name, or a template of {user}, {profile}, "
        "{platform}; empty: every user of a gateway and every profile has their own",
        "env_var": "MEM0_USER_ID",
        "ask": False,
    },
    {
        "key": "agent_id",
        "description": "Author that memories are marked with",
        "default": "hermes",
        "env_var": "MEM0_AGENT_ID",
        "ask": False,
    },
    {
        "key": "rerank",
        "description": "Let the platform rerank search results: better, but slower",
        "type": "boolean",
        "default": False,
        "env_var": "MEM0_RERANK",
        "when": {"mode": PLATFORM},
        "ask": False,
    },
    {
        "key": "recall_limit",
        "description": "Maximum number of memories per message",
        "type": "integer",
        "default": 10,
        "minimum": 1,
        "maximum": 50,
        "env_var": "MEM0_RECALL_LIMIT",
        "ask": False,
    },
    {
        "key": "recall_timeout",
        "description": "Seconds for a recall",
        "type": "number",
        "default": 3,
        "minimum": 0.1,
        "maximum": 60,
        "env_var": "MEM0_RECALL_TIMEOUT",
        "ask": False,
    },
    {
        "key": "timeout",
        "description": "Seconds for a write or a tool call",
        "type": "number",
        "default": 60,
        "minimum": 1,
        "maximum": 600,
        "env_var": "MEM0_TIMEOUT",
        "ask": False,
    },
    {
        "key": "turn_max_chars",
        "description": "Of a longer turn, send only the beginning and the end; 0 sends all of it",
        "type": "integer",
        "default": 20_000,
        "minimum": 0,
        "env_var": "MEM0_TURN_MAX_CHARS",
        "ask": False,
    },
    {
        "key": "telemetry",
        "description": "Let mem0ai send usage data to its authors",
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


# -- The plugin's settings, from wherever a host or a person has put them -----------------------
#
# Our host hands over checked values. hermes-agent hands over nothing: there it is
# ``$HERMES_HOME/mem0.json`` over the variables ``MEM0_*``.

FILE: Final = "mem0.json"

#: What hermes-agent's setup writes where a person said nothing.
_UNSET_USER: Final = "hermes-user"
_YES: Final = frozenset({"true", "1", "yes", "on"})


class Mem0Settings(NamedTuple):
    """Ready to use. ``address`` is where the platform or the server is."""

    mode: str
    key: str
    address: str
    user_id: str
    agent_id: str
    rerank: bool
    timeout: float
    recall_timeout: float
    recall_limit: int
    turn_max_chars: int
    telemetry: bool
    engine: Engine

    @property
    def missing(self) -> str:
        """What has to be set before it can work; "" if nothing has."""
        if self.mode == PLATFORM and not self.key:
            return "set MEM0_API_KEY, or run: hermes-plugins setup mem0"
        if self.mode == SELF_HOSTED and not self.address:
            return "set MEM0_HOST to the address of your Mem0 server"
        if self.mode == OSS:
            return self.engine.missing
        return ""


def read_settings(home: Path, config: Mapping[str, Any] | None = None) -> Mem0Settings:
    """The settings of a home.

    Args:
        home: HERMES_HOME.
        config: What the host has checked; it overrides everything found here.

    Raises:
        ConfigError: mem0.json can't be read, or a value makes no sense.
    """
    path = home / FILE
    # The order of hermes-agent's plugin: its file over variables. What the host has checked comes
    # last.
    found = {**_variables(), **_said(read_own_file(path)), **_said(config or {})}
    mode = _mode(found, path)
    user = str(found.get("user_id") or "")
    return Mem0Settings(
        mode=mode,
        key=_key(mode, found),
        address=_address(mode, found),
        # Otherwise all users of a gateway would share that one name.
        user_id="" if user == _UNSET_USER else user,
        agent_id=str(found.get("agent_id") or "hermes"),
        rerank=_flag(found.get("rerank")),
        timeout=_number(found, "timeout", 60.0, path),
        recall_timeout=_number(found, "recall_timeout", 3.0, path),
        recall_limit=int(_number(found, "recall_limit", 10, path)),
        turn_max_chars=int(_number(found, "turn_max_chars", 20_000, path)),
        telemetry=_flag(found.get("telemetry")),
        engine=engine_config(found, home),
    )


def kept(values: Mapping[str, Any]) -> dict[str, Any]:
    """What setup writes to mem0.json: no secrets; answers for another mode are removed."""
    secret = {each["key"] for each in FIELDS if each.get("secret")}
    plain = {key: value for key, value in values.items() if key not in secret}
    # None removes a key from the file: an address of the old mode would choose that mode again.
    return {**{each["key"]: None for each in FIELDS if each["key"] not in secret}, **plain}


def _variables() -> dict[str, Any]:
    """What the environment says."""
    return _said({each["key"]: os.environ.get(each["env_var"]) for each in FIELDS})


def _said(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None and value != ""}


def _mode(found: Mapping[str, Any], path: Path) -> str:
    """As hermes-agent chooses: oss goes first, then whoever names a server means it."""
    mode = str(found.get("mode") or PLATFORM).lower()
    mode = SELF_HOSTED if mode == "selfhosted" else mode
    if mode not in (PLATFORM, SELF_HOSTED, OSS):
        raise ConfigError(f"unknown mode {mode!r}", where=str(path))
    # "platform" is the default, so a file with a server in it rarely names a mode.
    return SELF_HOSTED if mode == PLATFORM and found.get("host") else mode


def _key(mode: str, found: Mapping[str, Any]) -> str:
    own = found.get("server_key") if mode == SELF_HOSTED else None
    return str(own or found.get("api_key") or "")


def _address(mode: str, found: Mapping[str, Any]) -> str:
    address = found.get("host") if mode == SELF_HOSTED else found.get("platform_url") or CLOUD
    return str(address or "").rstrip("/")


def _flag(value: Any) -> bool:
    return value.lower() in _YES if isinstance(value, str) else bool(value)


def _number(found: Mapping[str, Any], key: str, default: float, path: Path) -> float:
    try:
        number = float(found.get(key, default))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{key} is not a number", where=str(path)) from error
    # Also rejects NaN, which compares false.
    if not 0 <= number < float("inf"):
        raise ConfigError(f"{key} must be zero or more, and finite", where=str(path))
    return number
