"""Whatever happens in whatever order: a turn that was put is delivered, waits, or was given up."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from support.providers import eventually

from hermes_core import MemoryManager, MemoryProvider
from hermes_core.outbox import OutboxStore, WriteState, delivery, store, worker

KEPT = (WriteState.WAITING, WriteState.SKIPPED, WriteState.FAILED)
SESSIONS = st.sampled_from(["s1", "s2", "s3"])


class Backend(MemoryProvider):
    """Takes turns, unless it is told otherwise."""

    name = "backend"

    def __init__(self, world: Outboxes) -> None:
        self._world = world

    def is_available(self) -> bool:
        return True

    def initialize(self, session_id: str, **kwargs: Any) -> None:
        pass

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        return []

    def sync_turn(  # type: ignore[override]
        self, user_content: str, assistant_content: str, *, session_id: str, turn_id: str
    ) -> None:
        world = self._world
        if turn_id in world.running:
            world.twice.append(user_content)
        world.running.add(turn_id)
        try:
            if world.mood == "down":
                raise ConnectionError("down")
            if world.mood == "broken":
                world.given_up.add(user_content)
                raise TypeError("broken")
            world.delivered.setdefault(session_id, []).append(user_content)
        finally:
            world.running.discard(turn_id)


class Outboxes(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.home = Path(self._folder.name)
        self.mood = "up"
        self.running: set[str] = set()
        self.twice: list[str] = []
        self.skipped: set[str] = set()
        self.put: dict[str, list[str]] = {}
        self.delivered: dict[str, list[str]] = {}
        self.given_up: set[str] = set()
        self.process = 0
        self.manager: MemoryManager | None = None
        self.session = ""
        self.patches = [
            patch.object(store, "this_process", lambda: f"host/{self.process}/1"),
            patch.object(store, "is_alive", lambda name: name == f"host/{self.process}/1"),
            patch.object(delivery, "back_off", lambda *_: 0.0),
        ]
        for each in self.patches:
            each.start()

    def teardown(self) -> None:
        self.mood = "up"
        try:
            if self.manager is None:
                self.begin("s1")
            drained = eventually(self.drained, 20)
            self.stop()
        finally:
            for each in self.patches:
                each.stop()
            self._folder.cleanup()
        assert drained
        lost = {text for texts in self.put.values() for text in texts}
        lost -= {text for texts in self.delivered.values() for text in texts}
        assert lost <= self.given_up

    @precondition(lambda self: self.manager is None)
    @rule(session=SESSIONS)
    def begin(self, session: str) -> None:
        self.manager = MemoryManager(home=self.home)
        assert self.manager.add_provider(Backend(self))
        self.manager.initialize_all(session)
        self.session = session

    @precondition(lambda self: self.manager is not None)
    @rule(count=st.integers(1, 4))
    def say(self, count: int) -> None:
        for _ in range(count):
            turns = self.put.setdefault(self.session, [])
            turns.append(f"{self.session} {len(turns)}")
            self.manager.sync_all(turns[-1], "answer")  # type: ignore[union-attr]

    @precondition(lambda self: self.manager is not None)
    @rule(session=SESSIONS)
    def switch(self, session: str) -> None:
        self.manager.on_session_switch(session)  # type: ignore[union-attr]
        self.session = session

    @rule(mood=st.sampled_from(["up", "down", "broken"]))
    def change(self, mood: str) -> None:
        self.idle()
        self.mood = mood

    @precondition(lambda self: self.manager is not None and self.mood == "up")
    @rule()
    def wait(self) -> None:
        assert self.idle(10)

    @precondition(lambda self: self.manager is not None)
    @rule()
    def stop(self) -> None:
        if self.manager is not None:
            self.manager.shutdown_all()
            self.manager = None

    @precondition(lambda self: self.manager is not None)
    @rule()
    def crash(self) -> None:
        """Another process comes, and knows nothing of what this one had in memory."""
        manager, self.manager = self.manager, None
        assert manager is not None
        writes = manager._writes
        assert writes is not None
        adapter = manager._external
        assert adapter is not None
        adapter.close(5)
        outbox = writes._outbox
        assert outbox is not None
        assert eventually(lambda: not self.running)
        with worker._SHARED.lock:
            worker._SHARED.outboxes.clear()
            outbox._users = -1000  # nobody starts its worker again
        outbox._worker.stop(5)
        outbox.store.close()
        self.process += 1

    def drained(self) -> bool:
        """Whether nothing waits any more, of any session."""
        outbox = self.manager._writes._outbox  # type: ignore[union-attr]
        assert outbox is not None
        outbox.wake()
        return not outbox.store.waiting_streams()

    def idle(self, seconds: float = 0.05) -> bool:
        return self.manager is None or self.manager.flush_pending(seconds)

    @invariant()
    def nothing_is_lost(self) -> None:
        store = OutboxStore(self.home / "outbox.db", max_bytes=10**8)
        try:
            rows = store.file.read(
                lambda database: database.execute("SELECT payload, state FROM writes").fetchall()
            )
        finally:
            store.close()
        arrived = {text for texts in self.delivered.values() for text in texts}
        for text in (each for texts in self.put.values() for each in texts):
            found = [state for payload, state in rows if f'"{text}"' in payload]
            if found == [WriteState.SKIPPED]:  # the backend was repaired between two attempts
                self.skipped.add(text)
            assert found in ([each] for each in KEPT) or text in arrived, text

    @invariant()
    def sessions_are_in_order(self) -> None:
        for session, texts in self.delivered.items():
            once = [text for text in dict.fromkeys(texts) if text not in self.skipped]
            assert once == [text for text in self.put[session] if text in once]

    @invariant()
    def nothing_is_under_way_twice(self) -> None:
        assert self.twice == []


Outboxes.TestCase.settings = settings(
    max_examples=8,
    stateful_step_count=15,
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestOutboxes = Outboxes.TestCase
