"""Adds messages to a session as far as they are not there: for imports that may be repeated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Final

from hermes_builtin.sessions.archive import (
    Archive,
    Message,
    NewMessage,
    Scope,
    Session,
    SessionFacts,
)
from hermes_builtin.sessions.words import storable
from hermes_core.session import TERMINAL

#: Messages that are stored in one transaction, and how many characters they may have.
BATCH: Final = 500
_BATCH_CHARACTERS: Final = 4_000_000


def batches(messages: Iterable[NewMessage]) -> Iterator[list[NewMessage]]:
    """Messages in parts that are stored in one transaction each."""
    batch: list[NewMessage] = []
    characters = 0
    for message in messages:
        batch.append(message)
        characters += len(message.content)
        if is_full(len(batch), characters):
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def is_full(messages: int, characters: int) -> bool:
    """Whether a batch has so much that it is stored."""
    return messages >= BATCH or characters >= _BATCH_CHARACTERS


class MessageIds:
    """Names messages of a session by what they say, and by how often that was said before."""

    def __init__(self) -> None:
        self._seen: Counter[bytes] = Counter()

    def of(self, message: Message | NewMessage) -> str:
        """The name of the next message; it is the same in every home."""
        said = f"{message.role}\0{message.at!r}\0{storable(message.content)}"
        digest = sha256(said.encode("utf-8", "surrogatepass")).digest()[:8]
        self._seen[digest] += 1
        number = self._seen[digest]
        return digest.hex() if number == 1 else f"{digest.hex()}-{number}"


class SessionMerge:
    """One session whose messages come one by one, in order.

    Args:
        archive: Where it goes.
        facts: What is known of it.

    Attributes:
        is_new: Whether the archive did not have it.
        messages: How many messages were added.
        known: How many were there already.
    """

    def __init__(self, archive: Archive, facts: SessionFacts) -> None:
        self._archive = archive
        self.facts = facts
        self.messages = self.known = 0
        self._ids = MessageIds()
        self._batch: list[NewMessage] = []
        self._characters = 0
        found = self._found()
        self.is_new = found is None
        stored = MessageIds()
        self._stored = {stored.of(each) for each in archive.messages(found)} if found else set()

    def _found(self) -> Session | None:
        """The session of this name of the same person."""
        facts = self.facts
        place = facts.platform or facts.source or TERMINAL
        owner = Scope(*map(storable, (facts.user_id, facts.chat_id, facts.profile, place)))
        return self._archive.session(facts.id, owner)

    def add(self, message: NewMessage) -> None:
        """Add a message, unless it is there."""
        if self._ids.of(message) in self._stored:
            self.known += 1
            return
        self._batch.append(message)
        self._characters += len(message.content)
        if is_full(len(self._batch), self._characters):
            self.store()

    def store(self) -> None:
        """Store what has been collected."""
        if self._batch:
            self._archive.append(self.facts, self._batch)
            self.messages += len(self._batch)
            self._batch, self._characters = [], 0

    def store_facts(self) -> None:
        """Begin the session, or give it its title, also if nothing is said in it."""
        self._archive.append(self.facts, [])
