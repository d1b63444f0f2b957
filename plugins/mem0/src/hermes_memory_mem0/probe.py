"""Checks that Mem0 works: with a temporary user, removed afterwards."""

from __future__ import annotations

import secrets
import time
from typing import Final

from hermes_core.service import Cause, failure
from hermes_memory_mem0.calls import SERVICE
from hermes_memory_mem0.engine import FolderHeldError
from hermes_memory_mem0.memories import Memories, Owner

_WAIT: Final = 10.0
_PAUSE: Final = 0.25


def try_out(memories: Memories, *, write: bool) -> str:
    """Ask; with ``write`` also store, recall and remove. Says what was seen."""
    # A user that nobody has: a search finds nothing of anybody, and everything can be removed.
    owner = Owner(f"hermes-probe-{secrets.token_hex(4)}", "hermes-probe")
    if not write:
        return _asked(memories, owner)
    word = f"zq{secrets.token_hex(6)}"
    try:
        began = time.monotonic()
        _store(memories, owner, word)
        _find(memories, owner, word)
        took = time.monotonic() - began
    finally:
        # Also after a failure: half a test must leave nothing in the user's store.
        memories.forget(owner)
    return f"{memories.where}: wrote, recalled and removed a memory in {took:.1f} s"


def _asked(memories: Memories, owner: Owner) -> str:
    """That an agent has the store open right now is not an error."""
    try:
        memories.search(owner, "Does it answer?", 1, rerank=False)
        memories.ask_model()
    except FolderHeldError:
        return f"{memories.where} is open in another process"
    return f"{memories.where} answers"


def _store(memories: Memories, owner: Owner, word: str) -> None:
    """A fact as it stands; and where that is done at once, one that the model has to extract."""
    message = {"role": "user", "content": f"The word of this test is {word}."}
    memories.add(owner, [message], {"channel": "probe"}, infer=False)
    # On the platform, extraction is queued and may take minutes; no command waits for that.
    if memories.extracts_at_once:
        memories.add(owner, [message], {"channel": "probe"}, infer=True)


def _find(memories: Memories, owner: Owner, word: str) -> None:
    until = time.monotonic() + _WAIT
    query = f"What is the word of this test: {word}?"
    while not any(word in each.text for each in memories.search(owner, query, 5, rerank=False)):
        if time.monotonic() > until:
            raise failure(
                Cause.BROKEN,
                service=SERVICE,
                where=memories.where,
                detail="it took a memory and does not find it",
            )
        time.sleep(_PAUSE)
