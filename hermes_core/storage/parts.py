"""The parts of what a home stores, as `storage migrate`, `status` and `check` see them.

The conversations, the notes and the outbox each bring a class that implements `StoragePart`, over
files and over PostgreSQL. So a copy, and its verification, is written once for each of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from hermes_core.storage.postgres import Component

Progress = Callable[[int, int], None]


def no_progress(done: int, total: int) -> None:
    """Show nothing."""


def counted(count: int, what: str) -> str:
    """A count for people: ``what`` is a plural, or a word that has none."""
    return f"{count:,} {what.removesuffix('s') if count == 1 else what}"


class StoragePart(Protocol):
    """One part of what a home stores.

    Every method raises `HermesError` if the storage can't be used.

    Attributes:
        name: What people call it.
        place: Where it is: a path, or the address of a database without its password.
        component: Its tables in PostgreSQL; None if it is in files.
    """

    name: str
    place: str
    component: Component | None

    def counts(self) -> Mapping[str, int]:
        """How much there is of what."""

    def size(self) -> int:
        """How many bytes it takes; in a database, those of all namespaces."""

    def check(self, progress: Progress) -> list[str]:
        """What is wrong with it, a line each. Looks at everything."""

    def copy_from(self, source: Any, progress: Progress) -> None:
        """Copy what ``source`` has and this one has not; it may be interrupted and repeated.

        Args:
            source: The same part of another storage.
            progress: Called with what is done, and how much there is.
        """

    def digest(self, progress: Progress) -> str:
        """A checksum of the content, which is the same in each storage."""

    def freeze(self, why: str) -> None:
        """Refuse changes from now on, also those of other processes; see `storage.frozen`."""

    def thaw(self) -> None:
        """Allow changes again."""

    def close(self) -> None:
        """Close what is open."""


class Digest:
    """A checksum of rows: the same values in the same order have the same one."""

    def __init__(self) -> None:
        self._hash = sha256()

    def add(self, row: Iterable[Any]) -> None:
        """One more row, of texts, numbers, None, and what is made of them."""
        text = json.dumps(list(row), ensure_ascii=True, sort_keys=True, default=str)
        self._hash.update(text.encode() + b"\n")

    def value(self) -> str:
        """The checksum of all rows."""
        return self._hash.hexdigest()
