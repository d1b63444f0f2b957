"""What tests of the outbox see of it: its rows, its time, and when it has nothing to do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hermes_core import Deadlines, MemoryManager
from hermes_core.errors import DatabaseError
from hermes_core.outbox import Outbox, OutboxStore, worker
from hermes_core.outbox import store as stores
from hermes_core.outbox.sqlite import OutboxFile

from .providers import Clock, eventually
from .storages import Storage


@contextmanager
def session(
    home: Path, provider: Any, *, clock: Clock | None = None, **deadlines: float
) -> Iterator[MemoryManager]:
    """A manager with a hand-added provider, in session ``s1``."""
    manager = MemoryManager(home=home, deadlines=Deadlines(**deadlines))
    assert manager.add_provider(provider)
    manager.initialize_all("s1")
    if clock is not None:
        outbox_of(manager).store.clock = clock
    try:
        yield manager
    finally:
        manager.shutdown_all()


def open_store(home: Path, **settings: Any) -> OutboxStore:
    """The store of a home, where the running test has it."""
    return stores.open_store(home, **{**settings, "database": Storage.current.database})


def stored(home: Path, what: str = "hook, state") -> list[Any]:
    """Columns of the writes that the outbox of a home has."""
    store = open_store(home)
    own = store.database.of_home("writes")
    try:
        return store.database.read(
            lambda connection: connection.execute(
                f"SELECT {what} FROM writes WHERE {own} ORDER BY id"
            ).fetchall()
        )
    finally:
        store.close()


def outbox_of(manager: MemoryManager) -> Outbox:
    """The outbox of a manager."""
    outbox = manager._writes._outbox  # type: ignore[union-attr]
    assert outbox is not None
    return outbox


def rows(manager: MemoryManager, what: str = "hook, state, attempts, error") -> list[Any]:
    """Columns of the writes that are in the file."""
    return stored(outbox_of(manager).home, what)


def is_busy(outbox: Outbox) -> bool:
    """Whether a delivery is under way in this process."""
    known = [*outbox._sessions, *outbox._substitutes]
    return any(each.busy for each in known) or outbox._delivers_inherited()


def is_quiet(outbox: Outbox) -> bool:
    """Whether nothing is under way and nothing is due; if something is, have it started."""
    if is_busy(outbox):
        return False
    now = outbox.store.clock()
    paused = {each.stream for each in outbox._sessions if each.paused_until > now}
    streams = (each for each in outbox.store.open_streams() if each.id not in paused)
    if any(each.due <= now for each in streams):
        outbox.wake()
        return False
    return not is_busy(outbox)


def settled(manager: MemoryManager, seconds: float = 30.0) -> bool:
    """Wait until everything that is due was tried."""
    outbox = outbox_of(manager)
    return eventually(lambda: is_quiet(outbox), seconds)


def rounds(manager: MemoryManager, clock: Clock, count: int) -> None:
    """Let time pass, so that what waits for another attempt is tried so many times."""
    assert settled(manager)
    for _ in range(count):
        clock.now += 100  # more than the longest pause, apart from those of skipped writes
        assert settled(manager)


def limit_changes(store: OutboxStore, fails: Callable[[int], bool]) -> None:
    """Let changes of the file fail on all threads but this one, as ``fails`` says by number."""
    here, numbers = threading.current_thread(), count()
    change = type(store.database).change.__get__(store.database)

    def limited(work: Callable[..., Any]) -> Any:
        if threading.current_thread() is not here and fails(next(numbers)):
            raise DatabaseError("the file can't be changed")
        return change(work)

    store.database.change = limited  # type: ignore[method-assign]


def kill(manager: MemoryManager) -> None:
    """End a manager as the end of its process would: it changes nothing more, and is forgotten.

    The test then has to name another process (`as_process`), since this one is still alive.
    """
    outbox, adapter = outbox_of(manager), manager._external
    assert adapter is not None
    limit_changes(outbox.store, lambda _: True)
    adapter.close(30)
    with worker._SHARED.lock:
        worker._SHARED.outboxes.clear()
        outbox._users = -1000  # nobody starts its worker again
    outbox._worker.stop(30)
    assert eventually(lambda: not outbox._delivers_inherited(), 30)
    outbox.store.close()


@contextmanager
def as_process(name: Callable[[], str]) -> Iterator[None]:
    """Have claims made in the name of a process, which is the only one that is alive."""
    with (
        patch.object(database_class(), "this_process", lambda _: name()),
        patch.object(database_class(), "is_alive", lambda _, process: process == name()),
    ):
        yield


def database_class() -> Any:
    """Where the rows of the running test are."""
    if not Storage.current.url:
        return OutboxFile
    from hermes_core.outbox.postgres import PostgresOutbox

    return PostgresOutbox
