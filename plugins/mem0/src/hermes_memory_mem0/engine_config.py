"""What mem0ai's own engine is told: which model, which embeddings, which store."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

#: Where a provider of mem0ai expects its address; hermes-agent's files may say api_base.
_URL_KEYS: Final = {"openai": "openai_base_url", "ollama": "ollama_base_url"}
_DEFAULT_MODELS: Final = {"llm": "gpt-5-mini", "embedder": "text-embedding-3-small"}
_ELSEWHERE: Final = ("url", "host")


class Engine(NamedTuple):
    """The configuration of mem0ai's engine.

    Attributes:
        config: For ``Memory.from_config``.
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
    config["path"] = str(home / Path(str(given)).expanduser())
    return block


def _lack(what: str, block: Mapping[str, Any]) -> str:
    if block["provider"] != "openai" or block["config"].get("api_key"):
        return ""
    if os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENROUTER_API_KEY"):
        return ""
    return f"its {what} has no key: set OPENAI_API_KEY, or MEM0_LLM_URL to a model that needs none"
