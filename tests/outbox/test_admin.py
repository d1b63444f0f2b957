"""What a person does to the outbox."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.outboxes import open_store

from hermes_core.outbox import StreamKey, admin

pytestmark = pytest.mark.usefixtures("both_storages")


def test_a_write_that_failed_permanently_gets_another_day_when_retried(tmp_path: Path) -> None:
    store = open_store(tmp_path, max_mb=1)
    stream, _ = store.put(StreamKey("p", "o", "s", "{}"), 0, ("e", "sync_turn", "{}"), claim=True)
    write = store.next_waiting(stream)
    assert write is not None
    store.mark_failed(write, "refused for a day", store.clock() + 60, permanently=True)
    assert admin.retry(store) == 1
    (woken,) = admin.entries(store)
    assert (woken.state, woken.failing_since, woken.attempts) == ("waiting", None, 1)
    assert store.waiting_streams()[0].due == 0
    store.close()
