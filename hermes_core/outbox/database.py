"""Where the rows of the outbox are: a file or a server."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol, TypeVar

from hermes_core.errors import DatabaseError
from hermes_core.outbox.records import StreamKey
from hermes_core.storage.sql import Connection

_T = TypeVar("_T")


class OutboxDatabase(Protocol):
    """Where the rows are: a file or a server.

    Every method raises `DatabaseError` if it can't be used.

    Attributes:
        lock: Held by whoever reads or changes something. `OrderedDelivery` takes it to be sure that
            nothing of this process is stored between its last look and the end of its round.
        replacements: How often another file took the place of the one in use: numbers of rows mean
            others then.
        place: Where it is, for people.
        problem: What happened to it, and what to do about it; None if nothing did.
        locked: Ends a query whose rows nobody else may change until the transaction ends.
        skip_locked: The same, but rows that somebody else has locked are left out.
        now: The time by which claims expire, with one value: an injected time.
        is_remote: Whether it is on a server, which may be unreachable for a while.
    """

    replacements: int
    place: str
    problem: DatabaseError | None
    locked: str
    skip_locked: str
    now: str
    is_remote: bool

    @property
    def lock(self) -> threading.RLock:
        """See above."""

    @property
    def exists(self) -> bool:
        """Whether anything was ever stored."""

    @property
    def damaged(self) -> tuple[str, ...]:
        """The names of damaged files beside it."""

    def clock(self) -> float:
        """The time that all processes share."""

    def change(self, work: Callable[[Connection], _T], /) -> _T:
        """Run ``work`` in a transaction; it may be run again."""

    def read(self, work: Callable[[Connection], _T], /) -> _T:
        """Run ``work``, which only reads; it may be run again."""

    def this_process(self) -> str:
        """What this process is called in claims."""

    def is_alive(self, process: str) -> bool:
        """Whether a process that has a claim still runs, as far as that can be known."""

    def of_home(self, table: str) -> str:
        """The condition for the rows of this home."""

    def find_stream(self, connection: Connection, key: StreamKey) -> int:
        """Return the number of a stream; 0 if it does not exist."""

    def add_stream(self, connection: Connection, key: StreamKey) -> int:
        """Return the number of a stream, locked; it is created if it does not exist."""

    def rename_stream(self, connection: Connection, stream: int, key: StreamKey) -> None:
        """Give a stream another key, unless another one has it."""

    def overwrite_deleted(self, connection: Connection) -> None:
        """Have what this transaction deletes overwritten, where we can decide that."""

    def erase_free_space(self) -> bool:
        """Leave nothing of what was deleted; returns whether that could be done."""

    def used_bytes(self, connection: Connection) -> int:
        """Return how much room the writes use, without those that were missed."""

    def compact(self, connection: Connection) -> bool:
        """Remove empty streams and return free space; return whether there is more."""

    def is_whole(self) -> bool:
        """Whether a check of all of it finds no damage."""

    def close(self) -> None:
        """Close it; the next use opens it again."""
