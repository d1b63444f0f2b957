"""What a person does to the outbox."""

from __future__ import annotations

from pathlib import Path

from hermes_core.outbox import Origin, OutboxStore, care


def test_a_write_that_was_given_up_gets_another_day(tmp_path: Path) -> None:
    store = OutboxStore(tmp_path / "outbox.db", max_bytes=1_000_000)
    stream, _ = store.put(Origin("p", "o", "s", "{}"), 0, ("e", "sync_turn", "{}"), take=True)
    write = store.next(stream)
    assert write is not None
    store.failed(write, "refused for a day", store.clock() + 60, dead=True)
    assert care.wake(store) == 1
    (woken,) = care.entries(store)
    assert (woken.state, woken.failing_since, woken.attempts) == ("waiting", None, 1)
    assert store.waiting()[0].due == 0
    store.close()
