"""Which names the messages of a session have in the logs, and how many copies of each there are."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from hashlib import sha256
from itertools import count
from typing import Final

from hermes_builtin.sessions.archive import Message, NewMessage

#: Which machine a message came from, in what is known of it.
MACHINE: Final = "machine"


def moment_of(message: Message | NewMessage) -> str:
    """When a message was said, and by whom."""
    return f"{message.role} {message.at!r}"


def message_digest(message: Message | NewMessage) -> str:
    """What stands for all that a message says; it is the same in every home."""
    extra = {key: each for key, each in (message.extra or {}).items() if key != MACHINE}
    facts = json.dumps(extra, sort_keys=True, default=str) if extra else ""
    said = f"{moment_of(message)}\0{facts}\0{message.content}"
    return sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:16]


class MessageNames:
    """Names messages of a session by all that they say: ``digest``, ``digest-2``, and so on.

    The copies of a message have the known names first, and then the first names that are free.

    Args:
        known: The names that the logs have, in the order in which they are given.
        unusable: Names that no other message may have.
    """

    def __init__(self, known: Iterable[str] = (), unusable: Iterable[str] = ()) -> None:
        self._known: dict[str, list[str]] = {}
        self._used = {*unusable}
        for name in known:
            self._known.setdefault(digest_of(name), []).append(name)
            self._used.add(name)
        self._named: Counter[str] = Counter()
        self._numbers: dict[str, Iterator[int]] = {}

    def of(self, message: Message | NewMessage) -> str:
        """The name of the next message."""
        digest = message_digest(message)
        known, at = self._known.get(digest, []), self._named[digest]
        self._named[digest] += 1
        return known[at] if at < len(known) else self._free(digest)

    def _free(self, digest: str) -> str:
        numbers = self._numbers.setdefault(digest, count(1))
        names = (digest if number == 1 else f"{digest}-{number}" for number in numbers)
        return next(name for name in names if name not in self._used)


def digest_of(name: str) -> str:
    """What all copies of a message have in common."""
    return name.partition("-")[0]


class Copies:
    """How often each message of a session is here, and which names of it the logs have.

    There are more copies than names if some are not sent yet, and fewer if an interrupted run has
    removed some.
    """

    def __init__(self, messages: Iterable[Message], known: Iterable[str]) -> None:
        self._numbers: dict[str, list[int]] = {}
        for message in messages:
            self._numbers.setdefault(message_digest(message), []).append(message.id)
        self._names: dict[str, set[str]] = {}
        for name in known:
            self._names.setdefault(digest_of(name), set()).add(name)

    def take(self, name: str) -> bool:
        """Add a name; returns whether a message here has it, maybe one that was not sent yet."""
        digest = digest_of(name)
        names = self._names.setdefault(digest, set())
        is_here = name in names or len(self._numbers.get(digest, ())) > len(names)
        names.add(name)
        return is_here

    def left_without(self, doomed: AbstractSet[str]) -> dict[str, int]:
        """How many copies of messages are left if these names go."""
        left: dict[str, int] = {}
        for digest in map(digest_of, doomed):
            names, copies = self._names.get(digest, set()), len(self._numbers.get(digest, ()))
            not_sent = max(0, copies - len(names))
            left[digest] = min(copies, len(names - doomed) + not_sent)
        return left

    def beyond(self, left: Mapping[str, int]) -> list[int]:
        """The messages here of which there are more copies than so many."""
        return [
            number
            for digest, wanted in left.items()
            for number in self._numbers.get(digest, [])[: -wanted or None]
        ]
