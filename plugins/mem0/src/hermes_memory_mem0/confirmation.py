"""Checks that Mem0 stored what it was sent: an empty answer does not prove it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from hermes_core.service import RefusedError
from hermes_memory_mem0.calls import seconds_left
from hermes_memory_mem0.memories import EventState, Memories, Message, Owner, question

#: Where the turns are listed that could not be confirmed, in the plugin's folder.
FILE: Final = "unconfirmed.log"

#: A memory that is so near to a message says the same.
_SAME: Final = 0.95
_LOOKED_AT: Final = 5
#: A message of one short word ("ok", "thanks") has nothing to learn in it.
_BRIEF: Final = 12
#: How often the platform gets a turn with which it failed.
_MOST_TIMES: Final = 10
#: How many turns of the platform are remembered, and asked about with each write.
MOST_TAKEN: Final = 50
_ASKED_ABOUT: Final = 5


class SentTurn(NamedTuple):
    """What Mem0 was given to extract facts from. ``times`` counts how often.

    ``said_at`` is when it was said, in Unix seconds; 0.0 if that is not known.
    """

    key: str
    owner: Owner
    messages: Sequence[Message]
    marks: Mapping[str, str]
    said_at: float = 0.0
    event_id: str = ""
    times: int = 1

    @property
    def mark(self) -> dict[str, str]:
        """What finds it again, and nothing else."""
        return {name: value for name, value in self.marks.items() if value == self.key}

    @property
    def text(self) -> str:
        """What it is about."""
        return question(self.messages[0]["content"])


def extracted(memories: Memories, given: SentTurn) -> bool:
    """Have facts extracted; whether that is certain.

    An empty answer is checked by a search, which needs the same embeddings and the same database,
    and raises if they refuse. Then the facts are extracted once more. If the second answer is
    empty as well there was most likely nothing to learn; that is not certain, so it is counted.

    Raises:
        Exception: Mem0 did not take it, or can't embed it at the moment. To be tried again.
    """
    before = seconds_left()
    for again in (True, False):
        added = memories.add(
            given.owner, given.messages, given.marks, infer=True, said_at=given.said_at
        )
        if added.is_shown:
            return True
        if _is_known(memories, given) or _is_brief(given.text):
            return True
        took = before - seconds_left()
        if again and seconds_left() < 2 * took:  # a slow model: it would not be done in time
            return False
    return False


def _is_known(memories: Memories, given: SentTurn) -> bool:
    """Whether a memory says the same already: facts are not stored twice."""
    found = memories.search(given.owner, given.text, _LOOKED_AT, rerank=False)
    return any(each.score >= _SAME or each.text == given.text for each in found)


def _is_brief(text: str) -> bool:
    return len(text.split()) < 2 and len(text) < _BRIEF  # noqa: PLR2004 - one word


class AcceptedTurns:
    """Turns that the platform has taken, and works on."""

    def __init__(self) -> None:
        self._turns: list[SentTurn] = []

    def add(self, given: SentTurn) -> list[SentTurn]:
        """Remember a turn.

        Returns:
            What is forgotten for it: the oldest, if there are too many.
        """
        turns = [*self._turns, given]
        self._turns = turns[-MOST_TAKEN:]
        return turns[:-MOST_TAKEN]

    def follow_up(self, memories: Memories) -> Iterator[SentTurn]:
        """Ask what became of the oldest, and send those again with which the platform failed.

        Yields:
            Those with which it failed every time.
        """
        for each in self._turns[:_ASKED_ABOUT]:
            state = memories.event_state(each.event_id)
            if state is EventState.FAILED and each.times < _MOST_TIMES:
                state = self._sent_again(memories, each)
            if state is not EventState.UNDERWAY:
                self._turns.remove(each)  # last: what could not be sent is still in mind
            if state is EventState.FAILED:
                yield each

    def _sent_again(self, memories: Memories, given: SentTurn) -> EventState:
        """Send a turn again; what became of it. An earlier answer to that may have been lost."""
        if memories.is_underway(given.owner, given.mark):
            return EventState.UNDERWAY
        if memories.marked(given.owner, given.mark, given.text):
            return EventState.DONE
        try:
            added = memories.add(
                given.owner, given.messages, given.marks, infer=True, said_at=given.said_at
            )
        except (
            RefusedError
        ):  # permanently; and it must not pass for a refusal of the turn behind it
            return EventState.FAILED
        self._turns.append(given._replace(event_id=added.event_id, times=given.times + 1))
        return EventState.DONE

    def leave(self) -> list[SentTurn]:
        """Forget all; those of which it is not known what became of them."""
        left, self._turns = self._turns, []
        return left


def note_unconfirmed(folder: Path, given: SentTurn, why: str) -> None:
    """Add a turn to the list of those that could not be confirmed. It has no content."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    at = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    descriptor = os.open(folder / FILE, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, f"{at} {given.key} {why}\n".encode())
    finally:
        os.close(descriptor)


def unconfirmed(folder: Path) -> int:
    """How many turns are on that list."""
    try:
        return (folder / FILE).read_bytes().count(b"\n")
    except OSError:
        return 0
