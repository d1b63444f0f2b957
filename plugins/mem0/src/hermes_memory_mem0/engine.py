"""mem0ai's engine, opened so that it loses nothing and says what goes wrong.

Left to itself it goes on when facts could not be embedded or stored, waits for its models as
long as they like, and uses a store that takes vectors of another size.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from copy import deepcopy
from functools import wraps
from pathlib import Path
from typing import Any

from hermes_core.backends import BackendError, Cause, failure
from hermes_memory_mem0.calls import SERVICE, note, seconds_left
from hermes_memory_mem0.engine_config import Engine
from hermes_memory_mem0.local_qdrant import make_private, open_folder, size_of
from hermes_memory_mem0.sdk import Sdk


def open_engine(sdk: Sdk, engine: Engine) -> Any:
    """A ``Memory`` of mem0ai.

    Raises:
        BackendError: Another process has the store, or its vectors have another size.
    """
    config = deepcopy(engine.config)
    client = open_folder(engine.path) if engine.path else None
    try:
        size = _size(sdk, config, client)
        store = config["vector_store"]["config"]
        if size:
            store["embedding_model_dims"] = size
        if client is not None:
            store["client"] = client
        _create_private(Path(config["history_db_path"]))
        memory = sdk.Memory.from_config(config)
    except BaseException:
        if client is not None:
            client.close()
        raise
    _give_deadlines(memory.llm, config["llm"])
    _give_deadlines(memory.embedding_model, config["embedder"])
    _watch(memory, size)
    if engine.path:
        make_private(engine.path)
    return memory


def close_engine(memory: Any) -> None:
    """Let go of the store, of the history, and of the connections to its models."""
    memory.close()
    for part in (memory.vector_store, memory.embedding_model, memory.llm):
        _close_client(part)


def _close_client(part: Any) -> None:
    client: Any = getattr(part, "client", None)
    if hasattr(client, "close"):
        client.close()


def _create_private(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


# -- the size of its vectors --------------------------------------------------------------------


def _size(sdk: Sdk, config: dict[str, Any], client: Any) -> int:
    """How long vectors are: as set up, as in the collection, or as the embedder makes them."""
    embedder, store = config["embedder"], config["vector_store"]
    wanted = embedder["config"].get("embedding_dims") or store["config"].get("embedding_model_dims")
    there = size_of(client, store["config"]["collection_name"]) if client is not None else 0
    if there and wanted and there != wanted:
        raise _wrong_size(int(wanted), there)
    if there or wanted:
        return int(there or wanted)
    if store["provider"] not in ("qdrant", "pgvector"):
        return 0
    made = sdk.EmbedderFactory.create(embedder["provider"], embedder["config"], None)
    _give_deadlines(made, embedder)
    try:
        return len(made.embed("How long is this?", "search"))
    finally:
        _close_client(made)


def _wrong_size(given: int, there: int) -> BackendError:
    return failure(
        Cause.REFUSED,
        service=SERVICE,
        detail=f"the embedder's vectors have {given} numbers, the stored ones {there}",
        hint="go back to the embedder that they were made with, or begin another store with "
        "vector_path; nothing was deleted",
    )


# -- its models ---------------------------------------------------------------------------------


def _watch(memory: Any, size: int) -> None:
    """Note what fails in a call, and look at the size of vectors."""
    embedder, store = memory.embedding_model, memory.vector_store
    one, many = embedder.embed, embedder.embed_batch
    embedder.embed = _noting(lambda *args, **kwargs: _sized(one(*args, **kwargs), size))
    embedder.embed_batch = _noting(
        lambda *args, **kwargs: [_sized(each, size) for each in many(*args, **kwargs)]
    )
    store.insert = _noting(store.insert)


def _noting(call: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(call)
    def noted(*args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        except Exception as error:
            note(error)
            raise

    return noted


def _sized(vector: Any, size: int) -> Any:
    if size and len(vector) != size:
        raise _wrong_size(len(vector), size)
    return vector


def _give_deadlines(model: Any, block: dict[str, Any]) -> None:
    """Let a model's requests end with the call that they are for.

    They go to the address that was set up. mem0ai would rather ask OpenRouter, if it finds a key
    of it in the environment.
    """
    client: Any = getattr(model, "client", None)
    if not hasattr(client, "with_options"):
        return
    config = block["config"]
    if block["provider"] == "openai" and config.get("openai_base_url"):
        client = client.with_options(
            base_url=config["openai_base_url"], api_key=config.get("api_key")
        )
    model.client = _Timely(client)


class _Timely:
    """An OpenAI client whose requests take no longer than the call that they are for."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client.with_options(timeout=seconds_left(), max_retries=0), name)
