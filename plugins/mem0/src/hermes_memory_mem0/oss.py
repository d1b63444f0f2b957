"""Mem0's own engine in this process."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from hermes_core import HermesError
from hermes_memory_mem0.calls import SERVICE, patiently, seconds_left, within
from hermes_memory_mem0.engine import close_engine, open_engine
from hermes_memory_mem0.engine_config import Engine
from hermes_memory_mem0.engines import Engines
from hermes_memory_mem0.memories import Memory, Message, Owner, memories_in, memory_of
from hermes_memory_mem0.sdk import Sdk

#: A folder can be open once in a process, so this is the process's own.
_ENGINES: Final = Engines[Any](close_engine)
_ALL: Final = 100_000  # the engine wants a number; a turn has few memories, notebooks some more


class Oss:
    """Memories in a store of one's own. A write returns when they are stored."""

    extracts_at_once = True

    def __init__(self, sdk: Sdk, engine: Engine) -> None:
        store = engine.config["vector_store"]["provider"]
        self.where = str(engine.path or store)
        self._sdk = sdk
        self._engine = engine
        self._place = str(engine.path.resolve()) if engine.path else json.dumps(engine.config)
        self._memory: Any = None
        self._opening = threading.Lock()
        self._is_closed = False

    def open(self) -> None:
        """Open the store, or join those who have it open."""
        with patiently(self._opening, self.where):
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
        self, owner: Owner, messages: Sequence[Message], marks: Mapping[str, str], *, infer: bool
    ) -> str:
        """Store messages, or the facts in them: all or none.

        The engine goes on when one of the facts could not be embedded or stored. Then those that
        were are taken back, so that the next attempt does not take the turn for stored.
        """
        memory = self._opened
        with within(seconds_left()) as call:
            answer = memory.add(
                list(messages),
                user_id=owner.user,
                agent_id=owner.agent,
                infer=infer,
                metadata=dict(marks),
            )
        if call.error is not None:
            for each in memories_in(answer):
                with suppress(Exception):  # what failed first is what is to be said
                    memory.delete(each.id)
            raise call.error
        return ""

    def search(self, owner: Owner, query: str, limit: int, *, rerank: bool) -> list[Memory]:
        """What fits a question."""
        filters = {"user_id": owner.user}
        answer = self._opened.search(query, filters=filters, top_k=limit, rerank=rerank)
        return memories_in(answer)

    def marked(self, owner: Owner, marks: Mapping[str, str], text: str) -> list[Memory]:  # noqa: ARG002
        """By metadata, exactly."""
        filters = {"user_id": owner.user, **marks}
        return memories_in(self._opened.get_all(filters=filters, top_k=_ALL))

    def is_underway(self, owner: Owner, marks: Mapping[str, str]) -> bool:  # noqa: ARG002
        """Never: nothing is queued."""
        return False

    def get(self, memory_id: str) -> Memory | None:
        """One memory; None for an unknown id, or what can't be one."""
        try:
            row = self._opened.get(memory_id)
        except ValueError:
            return None
        return memory_of(row) if row else None

    def update(self, memory_id: str, text: str, marks: Mapping[str, str] | None = None) -> None:
        """Give a memory another text."""
        self._opened.update(memory_id, text=text, metadata=dict(marks) if marks else None)

    def delete(self, memory_id: str) -> None:
        """Remove a memory."""
        self._opened.delete(memory_id)

    def forget(self, owner: Owner) -> None:
        """Remove all memories of a user."""
        self._opened.delete_all(user_id=owner.user)

    def close(self) -> None:
        """Leave the store; the last one closes it."""
        with self._opening:
            self._is_closed = True
            memory, self._memory = self._memory, None
            if memory is not None:
                _ENGINES.release(self._place)
