"""Observers see every delivery, those of later attempts too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.providers import Recorder

from hermes_core import MemoryManager, hookimpl

pytestmark = pytest.mark.usefixtures("both_storages")


def test_an_observer_sees_each_attempt_and_what_came_of_it(home: Path) -> None:
    seen: list[tuple[str, bool]] = []
    attempts: list[int] = []

    class Eye:
        @hookimpl(wrapper=True)
        def sync_turn(self, user_content: str):
            outcomes = yield
            seen.append((user_content, outcomes[0].error is None))
            return outcomes

    def answer(*_: Any, **__: Any) -> None:
        attempts.append(1)
        if len(attempts) == 1:
            raise ConnectionError("down")

    manager = MemoryManager(home=home)
    assert manager.add_provider(Recorder(sync_turn=answer))
    manager.add_observer("eye", Eye())
    manager.initialize_all("s1")
    manager.sync_all("turn", "answer")
    assert manager.flush_pending(10)
    manager.shutdown_all()
    assert seen == [("turn", False), ("turn", True)]


def test_an_observer_that_fails_keeps_no_write_from_being_delivered(home: Path) -> None:
    class Eye:
        @hookimpl
        def sync_turn(self, user_content: str) -> None:
            raise TypeError("an observer's own")

    provider = Recorder()
    manager = MemoryManager(home=home)
    assert manager.add_provider(provider)
    manager.add_observer("eye", Eye())
    manager.initialize_all("s1")
    manager.sync_all("turn", "answer")
    assert manager.flush_pending(10)
    assert not manager._writes._outbox.store.waiting_streams()  # type: ignore[union-attr]
    manager.shutdown_all()
    assert len(provider.of("sync_turn")) == 1


def test_an_observer_sees_a_start_that_is_tried_again(home: Path) -> None:
    starts: list[bool] = []
    failures = [ConnectionError("down")]

    class Eye:
        @hookimpl(wrapper=True)
        def initialize(self, session_id: str):
            outcomes = yield
            starts.append(outcomes[0].error is None)
            return outcomes

    def start(*_: Any, **__: Any) -> None:
        if failures:
            raise failures.pop()

    manager = MemoryManager(home=home)
    assert manager.add_provider(Recorder(initialize=start))
    manager.add_observer("eye", Eye())
    manager.initialize_all("s1")
    manager.sync_all("turn", "answer")
    assert manager.flush_pending(30)
    manager.shutdown_all()
    assert starts == [False, True]
