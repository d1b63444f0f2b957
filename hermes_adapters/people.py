"""What adapters for frameworks with many users share: a memory per session, notes, and search.

A framework calls from any thread, for any user. `SessionManagers` lends each session
its own manager, to one caller at a time, and shuts down those that were not used for longest.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from hermes_core import HermesError, MemoryManager

T = TypeVar("T")
NOTEBOOKS: Final = ("memory", "user")
_OWNER: Final = "cli"


class MemoryOwner(NamedTuple):
    """Whose memory it is: the pair that every host of one home has to agree on."""

    platform: str = _OWNER
    user_id: str = ""

    @classmethod
    def of(cls, platform: str, user_id: str, default: str) -> MemoryOwner:
        """The owner of the machine if neither is given.

        Raises:
            ValueError: A platform without a user, which would be one memory for all of them.
        """
        if not isinstance(platform, str) or not isinstance(user_id, str):
            raise TypeError("platform and user_id must be text")
        if platform and not user_id:
            raise ValueError(f"a user_id is needed for the platform {platform!r}")
        return cls(platform or default, user_id) if user_id else cls()


@dataclass
class _SharedManager:
    """A session's manager. ``lock`` is held by whoever uses it, ``users`` also counts who waits."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    manager: MemoryManager | None = None
    users: int = 0


class SessionManagers:
    """The managers of a home, one per session.

    Args:
        home: HERMES_HOME; by default the environment's.
        most: How many sessions stay open while nobody uses them.
    """

    def __init__(self, home: str | os.PathLike[str] | None = None, *, most: int = 16) -> None:
        self._home = home
        self._most = most
        self._lock = threading.Lock()
        self._lent: OrderedDict[tuple[MemoryOwner, str], _SharedManager] = OrderedDict()

    @contextmanager
    def session(self, session_id: str, person: MemoryOwner) -> Iterator[MemoryManager]:
        """Lend the manager of a session; others that want the same one wait."""
        key = (person, session_id)
        with self._lock:
            lent = self._lent.setdefault(key, _SharedManager())
            self._lent.move_to_end(key)
            lent.users += 1
        try:
            with lent.lock:
                if lent.manager is None:
                    lent.manager = self._started(session_id, person)
                yield lent.manager
        finally:
            with self._lock:
                lent.users -= 1
            self._close_idle(self._most)

    def _started(self, session_id: str, person: MemoryOwner) -> MemoryManager:
        manager = MemoryManager.from_config(self._home)
        who = {"user_id": person.user_id} if person.user_id else {}
        manager.initialize_all(session_id, platform=person.platform, **who)
        return manager

    def close(self) -> None:
        """Deliver what waits, and shut every manager down that nobody uses."""
        self._close_idle(0)

    def _close_idle(self, most: int) -> None:
        with self._lock:
            extra = max(len(self._lent) - most, 0)
            idle = [key for key, each in self._lent.items() if not each.users][:extra]
            closed = [self._lent.pop(key).manager for key in idle]
        for manager in closed:  # without the lock: a provider may take its time
            if manager is not None:
                manager.shutdown_all()


async def in_thread(call: Callable[[], T]) -> T:
    """Await a call of the memory, which blocks. It is finished even if its task is cancelled."""
    return await asyncio.shield(asyncio.to_thread(call))


# -- notes --------------------------------------------------------------------------------------


class NotebookEntry(NamedTuple):
    """An entry of a notebook; ``id`` stays the same as long as its text does."""

    target: str
    id: str
    text: str


def notes(memory: MemoryManager, target: str) -> list[NotebookEntry]:
    """Return the entries of a notebook; none if it is switched off."""
    answer = _tool(memory, {"action": "read", "target": target})
    return [NotebookEntry(target, note_id(each), each) for each in answer.get("entries") or ()]


def note_id(text: str) -> str:
    """Return a note's id."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def change_note(memory: MemoryManager, target: str, old: str, new: str) -> None:
    """Add, replace or remove a note, with the guard, limits, approval and history of an agent.

    Raises:
        ValueError: It was refused, or it waits for approval: the text says so.
    """
    if old and new:
        change = {"action": "replace", "old_text": old, "content": new}
    else:
        change = {"action": "add", "content": new} if new else {"action": "remove", "old_text": old}
    answer = _tool(memory, {"target": target, **change})
    if not answer.get("success") or answer.get("staged"):
        raise ValueError(str(answer.get("error") or answer.get("message") or "not saved"))


def matching_notes(memory: MemoryManager, query: str) -> list[NotebookEntry]:
    """Return the notes that share words with a query, the best first."""
    wanted = _words(query)
    found = [(len(wanted & _words(each.text)), each) for book in NOTEBOOKS
             for each in notes(memory, book)]  # fmt: skip
    best = sorted((each for each in found if each[0]), key=lambda each: -each[0])
    return [each for _, each in best]


def _words(text: str) -> set[str]:
    from hermes_builtin import words  # noqa: PLC0415 - only where notes are searched

    return {each for each in words(text) if len(each) > 3 or not each.isascii()}  # noqa: PLR2004


def _tool(memory: MemoryManager, args: dict[str, Any]) -> dict[str, Any]:
    return dict(json.loads(memory.handle_tool_call("memory", args)))


# -- conversations ------------------------------------------------------------------------------


def search(memory: MemoryManager, **args: Any) -> dict[str, Any]:
    """Return the answer of `session_search`.

    Raises:
        HermesError: The archive can't be read.
    """
    answer = dict(json.loads(memory.handle_tool_call("session_search", args)))
    if not answer.get("success"):
        raise HermesError(str(answer.get("error")))
    return answer
