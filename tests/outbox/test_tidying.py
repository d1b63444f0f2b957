"""The outbox takes no more room than what waits in it, before long."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.journals import texts
from support.providers import eventually

from hermes_core import MemoryManager

pytestmark = pytest.mark.usefixtures("both_storages")


@pytest.mark.files_only
def test_room_that_a_backlog_took_is_given_back_when_it_is_delivered(
    home: Path, begun: Callable[..., MemoryManager]
) -> None:
    (home / "down").touch()
    manager = begun()
    for number in range(200):
        manager.sync_all(f"turn {number}", "long answer " * 1000)
    store = manager._writes._outbox.store  # type: ignore[union-attr]

    def pages() -> int:
        return int(
            store.database.read(
                lambda database: database.execute("PRAGMA page_count").fetchone()[0]
            )
        )

    assert pages() > 500
    (home / "down").unlink()
    assert manager.flush_pending(20)
    manager._writes._outbox.wake()  # type: ignore[union-attr]
    assert eventually(lambda: pages() < 20)
    assert len(texts(home)) == 200


def test_sessions_that_are_done_leave_nothing_behind(
    home: Path, begun: Callable[..., MemoryManager]
) -> None:
    manager = begun()
    for number in range(30):
        manager.on_session_switch(f"s{number}")
        manager.sync_all(f"turn {number}", "answer")
    assert manager.flush_pending(20)
    outbox = manager._writes._outbox  # type: ignore[union-attr]
    assert outbox is not None
    outbox._untidy = True
    outbox.wake()

    def streams() -> int:
        # One row stays that names no session: it says that the provider was used here.
        query = "SELECT count(*) FROM streams WHERE session != ''"
        return int(outbox.store.database.read(lambda each: each.execute(query).fetchone()[0]))

    assert eventually(lambda: streams() == 0)
    manager.sync_all("after", "answer")
    assert manager.flush_pending(20)
    assert texts(home)[-1] == "after"
    assert outbox._sessions
