"""A local Qdrant: a folder that one process has, made fit for several threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final

from hermes_core.backends import BackendError, Cause, failure
from hermes_memory_mem0.calls import SERVICE

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
        client = QdrantClient(path=str(path), force_disable_check_same_thread=True)
    except RuntimeError as error:
        if "already accessed" not in str(error):
            raise
        raise _held(path) from error
    make_private(path)
    lock = threading.RLock()
    for name in _CLIENT_CALLS:
        setattr(client, name, _one_at_a_time(getattr(client, name), lock))
    client.create_payload_index = _nothing  # type: ignore[method-assign]
    client.delete_collection = _refuse_to_delete  # type: ignore[method-assign]
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
        f"{Cause.AWAY}: another process has this folder open, and only one can",
        cause=Cause.AWAY,
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
