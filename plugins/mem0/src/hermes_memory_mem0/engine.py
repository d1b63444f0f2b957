"""mem0ai's engine in this process: one per store, opened so that it loses nothing."""

from __future__ import annotations

import atexit
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from copy import deepcopy
from functools import wraps
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

from hermes_core import HermesError
from hermes_core.service import BackendError, Cause, failure
from hermes_memory_mem0.calls import SERVICE, explained, held_in_time, note, seconds_left, within
from hermes_memory_mem0.memories import (
    AddResult,
    EventState,
    Mem0Memory,
    Message,
    Owner,
    dated,
    memories_in,
    memory_of,
)
from hermes_memory_mem0.sdk import Sdk
from hermes_memory_mem0.settings import Engine

# -- The engines of this process: one for each store, whoever uses it ---------------------------
#
# A local Qdrant folder can be open once. In one process there are often several providers on it:
# the session's own, one that recalls, one that delivers what another session left.

T = TypeVar("T")


class _SharedEngine(NamedTuple, Generic[T]):
    engine: T
    config: Any
    users: int


class Engines(Generic[T]):
    """Opens an engine for the first who wants it, and closes it after the last."""

    def __init__(self, close: Callable[[T], None]) -> None:
        self._close = close
        self._lock: Final = threading.Lock()
        self._shared: dict[str, _SharedEngine[T]] = {}

    def take(self, place: str, config: Any, make: Callable[[], T]) -> T:
        """Return the engine of a place; call `release` when done.

        Raises:
            BackendError: It is open with other settings, or can't be had in time.
        """
        # Held while the engine opens: a second caller for the same folder must wait for it, not
        # open it.
        with held_in_time(self._lock, place):
            shared = self._shared.get(place)
            if shared is None:
                shared = _SharedEngine(make(), config, 0)
                # At exit and not later: Qdrant's destructor logs an error once modules are
                # unloaded.
                atexit.register(self._close_left)
            # One folder with two embedders would get vectors that can't be compared.
            elif shared.config != config:
                raise failure(
                    Cause.REFUSED,
                    service=SERVICE,
                    where=place,
                    detail="another session in this process has it open with other settings",
                    hint="end that session first, or set another vector_path for this one",
                    final=False,
                )
            self._shared[place] = shared._replace(users=shared.users + 1)
            return shared.engine

    def release(self, place: str) -> None:
        """One user less."""
        with self._lock:
            shared = self._shared.pop(place, None)
            if shared is None:  # the process ends, and all are closed
                return
            if shared.users > 1:
                self._shared[place] = shared._replace(users=shared.users - 1)
                return
            self._close(shared.engine)
            if not self._shared:
                atexit.unregister(self._close_left)

    def _close_left(self) -> None:
        """At the end of a process that did not end its sessions: Qdrant complains otherwise."""
        while self._shared:
            _, shared = self._shared.popitem()
            self._close(shared.engine)


# -- A local Qdrant: a folder that one process has, made fit for several threads ----------------

#: What mem0ai calls of a Qdrant client. A local one is not made for several threads.
_CLIENT_CALLS: Final = (
    "create_collection",
    "delete",
    "get_collection",
    "get_collections",
    "query_batch_points",
    "query_points",
    "retrieve",
    "scroll",
    "set_payload",
    "update_vectors",
    "upsert",
)


class FolderHeldError(BackendError):
    """Another process has the folder open."""


def open_folder(path: Path) -> Any:
    """A client of the folder that several threads may use, and that removes no collection."""
    from qdrant_client import QdrantClient  # noqa: PLC0415 - slow, and part of the SDK

    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if _is_held(path):
        raise _held(path)
    try:
        # Its SQLite file is used by the recall, write and main workers; the lock below makes that
        # safe.
        client = QdrantClient(path=str(path), force_disable_check_same_thread=True)
    except RuntimeError as error:
        if "already accessed" not in str(error):
            raise
        raise _held(path) from error
    make_private(path)
    # Reentrant: calls of the client call each other.
    lock = threading.RLock()
    for name in _CLIENT_CALLS:
        setattr(client, name, _one_at_a_time(getattr(client, name), lock))
    client.create_payload_index = _nothing
    # mem0ai's `reset` removes the whole collection; no memory of a user may go that way.
    client.delete_collection = _refuse_to_delete
    return client


def _is_held(path: Path) -> bool:
    """Whether another process has the folder. Qdrant itself looks when it has read everything."""
    import portalocker  # noqa: PLC0415 - what Qdrant locks with

    file = path / ".lock"
    if not file.exists():
        return False
    with file.open("r+") as handle:
        try:
            portalocker.lock(
                handle, portalocker.LockFlags.EXCLUSIVE | portalocker.LockFlags.NON_BLOCKING
            )
        except portalocker.exceptions.LockException:
            return True
        portalocker.unlock(handle)
    return False


def _held(path: Path) -> FolderHeldError:
    return FolderHeldError(
        f"{Cause.UNREACHABLE}: another process has this folder open, and only one can",
        cause=Cause.UNREACHABLE,
        where=f"{SERVICE} at {path}",
        hint="end that process; to use it from several, run a Qdrant server",
    )


def _one_at_a_time(call: Callable[..., Any], lock: threading.RLock) -> Callable[..., Any]:
    @wraps(call)
    def locked(*args: Any, **kwargs: Any) -> Any:
        with lock:
            return call(*args, **kwargs)

    return locked


def _nothing(*_: Any, **__: Any) -> Any:
    """Make no index: a local Qdrant has none, and would print a warning."""


def _refuse_to_delete(*_: Any, **__: Any) -> Any:
    raise failure(Cause.REFUSED, service=SERVICE, detail="this plugin deletes no collection")


def size_of(client: Any, name: str) -> int:
    """How long the vectors of a collection are; 0 if it is not there."""
    if not any(each.name == name for each in client.get_collections().collections):
        return 0
    vectors = client.get_collection(name).config.params.vectors
    return int(getattr(vectors, "size", 0) or 0)


def make_private(folder: Path) -> None:
    """Nothing in it is for others."""
    for path in folder.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)


# -- mem0ai's engine, opened so that it loses nothing and says what goes wrong ------------------
#
# Left to itself it goes on when facts could not be embedded or stored, waits for its models as
# long as they like, and uses a store that takes vectors of another size.


def open_engine(sdk: Sdk, engine: Engine) -> Any:
    """A ``Mem0Memory`` of mem0ai.

    Raises:
        BackendError: Another process has the store, or its vectors have another size.
    """
    config = deepcopy(engine.config)
    client = open_folder(engine.path) if engine.path else None
    try:
        # Before mem0ai opens the store: it would create a collection with its default size
        # otherwise.
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
    """Close the store, the history, and the connections to its models."""
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
        final=False,
    )


# -- its models ---------------------------------------------------------------------------------


def _watch(memory: Any, size: int) -> None:
    """Record what fails in a call, and look at the size of vectors."""
    embedder, store = memory.embedding_model, memory.vector_store
    one, many = embedder.embed, embedder.embed_batch
    # mem0ai catches exceptions of these three and returns an empty result: the turn would count as
    # stored and be lost.
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
    model.client = _TimedClient(client)


class _TimedClient:
    """An OpenAI client whose requests take no longer than the call that they are for."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def __getattr__(self, name: str) -> Any:
        # A new copy per request: the time that is left changes. No retries: the outbox has them.
        return getattr(self._client.with_options(timeout=seconds_left(), max_retries=0), name)


# -- Mem0's own engine in this process ----------------------------------------------------------

#: A folder can be open once in a process, so this is the process's own.
_ENGINES: Final = Engines[Any](close_engine)
_ALL: Final = 100_000  # the engine wants a number; a turn has few memories, notebooks some more


class Oss:
    """Memories in a local or self-hosted store. A write returns when they are stored."""

    extracts_at_once = True
    most_listed = _ALL

    def __init__(self, sdk: Sdk, engine: Engine) -> None:
        store = engine.config["vector_store"]["provider"]
        self.where = str(engine.path or store)
        self._sdk = sdk
        self._engine = engine
        # Who shares an engine: the same folder, or the same server with the same settings.
        self._place = str(engine.path.resolve()) if engine.path else json.dumps(engine.config)
        self._memory: Any = None
        self._opening = threading.Lock()
        self._is_closed = False

    def open(self) -> None:
        """Open the store, or join those who have it open."""
        with held_in_time(self._opening, self.where):
            if self._is_closed:  # a write that is late must not hold the folder for ever
                raise HermesError("the session is over", where=SERVICE)
            if self._memory is None:
                self._memory = _ENGINES.take(
                    self._place, self._engine.config, lambda: open_engine(self._sdk, self._engine)
                )

    @property
    def _opened(self) -> Any:
        if self._memory is None:
            self.open()
        return self._memory

    def add(
        self,
        owner: Owner,
        messages: Sequence[Message],
        marks: Mapping[str, str],
        *,
        infer: bool,
        said_at: float = 0.0,
    ) -> AddResult:
        """Store messages, or the facts in them: all or none.

        The engine goes on when one of the facts could not be embedded or stored. Then those that
        were are taken back, so that the next attempt does not take the turn for stored. An empty
        answer without such an error means that there was nothing to store.
        """
        memory = self._opened
        with within(seconds_left()) as call:
            answer = memory.add(
                list(messages),
                user_id=owner.user,
                agent_id=owner.agent,
                infer=infer,
                metadata=dated(marks, said_at),
            )
        if call.error is not None:
            for each in memories_in(answer):
                with suppress(Exception):  # what failed first is what is to be said
                    memory.delete(each.id)
            raise call.error
        return AddResult()

    def search(self, owner: Owner, query: str, limit: int, *, rerank: bool) -> list[Mem0Memory]:
        """What fits a question."""
        filters = {"user_id": owner.user}
        answer = self._opened.search(query, filters=filters, top_k=limit, rerank=rerank)
        return memories_in(answer)

    def marked(self, owner: Owner, marks: Mapping[str, str], text: str) -> list[Mem0Memory]:  # noqa: ARG002
        """By metadata, exactly."""
        filters = {"user_id": owner.user, **marks}
        return memories_in(self._opened.get_all(filters=filters, top_k=_ALL))

    def is_underway(self, owner: Owner, marks: Mapping[str, str]) -> bool:  # noqa: ARG002
        """Never: nothing is queued."""
        return False

    def event_state(self, event_id: str) -> EventState:  # noqa: ARG002
        """Done: nothing is queued."""
        return EventState.DONE

    def ask_model(self) -> None:
        """Ask which models there are: that costs nothing, and needs its address and its key.

        A search needs the embeddings alone, which may be another server's.
        """
        if self._engine.config["llm"]["provider"] != "openai":
            return
        try:
            self._opened.llm.client.models.list()
        except Exception as error:
            # A server that does not know the question, or does not allow it, has answered.
            if explained(error, self.where).cause in (
                Cause.UNREACHABLE,
                Cause.SLOW,
                Cause.WRONG_KEY,
            ):
                raise

    def get(self, memory_id: str) -> Mem0Memory | None:
        """One memory; None for an unknown id, or what can't be one."""
        try:
            row = self._opened.get(memory_id)
        except ValueError:
            return None
        return memory_of(row) if row else None

    def update(self, memory_id: str, text: str, marks: Mapping[str, str] | None = None) -> None:
        """Replace the text of a memory."""
        self._opened.update(memory_id, text=text, metadata=dict(marks) if marks else None)

    def delete(self, memory_id: str) -> None:
        """Remove a memory."""
        self._opened.delete(memory_id)

    def all(self, owner: Owner) -> list[Mem0Memory]:
        """Every memory of a user."""
        return self.marked(owner, {}, "")

    def forget(self, owner: Owner) -> None:
        """Remove all memories of a user."""
        self._opened.delete_all(user_id=owner.user)

    def erase_history(self, ids: Sequence[str], is_gone: Callable[[str], bool]) -> bool:
        """Remove earlier versions and the last messages, and the free space of all files."""
        path = Path(self._engine.config["history_db_path"])
        with closing(sqlite3.connect(path, timeout=seconds_left(), isolation_level=None)) as db:
            db.create_function("is_gone", 1, lambda text: is_gone(str(text or "")))
            wanted = json.dumps(list(ids))
            db.execute(
                "DELETE FROM history WHERE memory_id IN (SELECT value FROM json_each(?))"
                " OR is_gone(old_memory) OR is_gone(new_memory)",
                (wanted,),
            )
            db.execute("DELETE FROM messages WHERE is_gone(content) OR is_gone(session_scope)")
            db.execute("VACUUM")
        stores = self._engine.path.rglob("*.sqlite") if self._engine.path else ()
        for each in stores:
            with closing(sqlite3.connect(each, timeout=seconds_left(), isolation_level=None)) as db:
                db.execute("VACUUM")
        return True

    def close(self) -> None:
        """Leave the store; the last one closes it."""
        with self._opening:
            self._is_closed = True
            memory, self._memory = self._memory, None
            if memory is not None:
                _ENGINES.release(self._place)
