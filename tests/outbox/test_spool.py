"""Writes that wait in a file until the server of the outbox takes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.outboxes import open_store

from hermes_core import SessionContext
from hermes_core.errors import DatabaseError
from hermes_core.outbox import OutboxFull, OutboxStore, StreamKey, WriteState
from hermes_core.outbox.spool import OutboxSpool
from hermes_core.storage.files import file_lock

FAST = True
pytestmark = pytest.mark.usefixtures("both_storages")

KEY = StreamKey.of("journal", "", SessionContext(session_id="s1"))
OTHER = StreamKey.of("journal", "", SessionContext(session_id="s2"))


@pytest.fixture
def store(home: Path) -> Iterator[OutboxStore]:
    with closing(open_store(home)) as made:
        yield made


@pytest.fixture
def spool(home: Path) -> OutboxSpool:
    return OutboxSpool(home)


def add(spool: OutboxSpool, *events: str, key: StreamKey = KEY) -> None:
    for each in events:
        spool.add(key, (each, "sync_turn", f'"{each}"'), "the server is down")


def delivered(store: OutboxStore) -> list[tuple[str, int, WriteState]]:
    """Event ids, attempts and states, in the order of delivery."""
    own = store.database.of_home("writes")
    query = f"SELECT event_id, attempts, state FROM writes WHERE {own} ORDER BY id"
    rows = store.database.read(lambda connection: connection.execute(query).fetchall())
    return [(event, attempts, WriteState(state)) for event, attempts, state in rows]


def test_what_waits_is_handed_over_in_order_and_once(spool, store, home):
    add(spool, "e1", "e2")
    add(spool, "e3", key=OTHER)
    assert (spool.count([KEY]), spool.count([OTHER])) == (2, 1)
    assert spool.text() == ("3 writes wait for the outbox in the spool, because the server is down")
    before = (home / "spool" / "writes.jsonl").read_bytes()
    spool.hand_over(store)
    assert not spool.exists
    assert spool.text() == ""
    # From a backup: what waits in both is there once.
    (home / "spool" / "writes.jsonl").write_bytes(before)
    add(spool, "e4")
    spool.hand_over(store)
    assert [each[0] for each in delivered(store)] == ["e1", "e2", "e3", "e4"]
    # Nobody knows whether the server had taken it at first: the provider can look for it.
    assert {each[1:] for each in delivered(store)} == {(1, WriteState.WAITING)}


class Killed(BaseException):
    """The process ended here: nothing of it runs after this."""


@pytest.mark.parametrize("puts", [1, 2, 3])
def test_what_was_handed_over_and_delivered_before_a_kill_is_not_delivered_again(
    spool, store, home, monkeypatch, puts
):
    add(spool, "e1", "e2", "e3")
    put = store.put

    def limited(key, stream, event, **options):
        put(key, stream, event, **options)
        if event[0] == f"e{puts}":
            raise Killed

    monkeypatch.setattr(store, "put", limited)
    monkeypatch.setattr(spool, "_drop", lambda _: None)
    with pytest.raises(Killed):
        spool.hand_over(store)
    monkeypatch.undo()
    number = store.find_stream(KEY)
    done = []
    while write := store.next_waiting(number):
        done.append(write)
        store.remove_delivered(number, [write], release=False)
    assert [each.event_id for each in done] == ["e1", "e2", "e3"][:puts]
    add(spool, "e4")
    OutboxSpool(home).hand_over(store)
    assert not spool.exists
    assert [each[0] for each in delivered(store)] == ["e1", "e2", "e3", "e4"][puts:]
    assert store.handed_over(["e1", "e2", "e3", "e4"]) == 0  # nothing is left of it


def test_it_was_written_when_it_was_written(spool, store):
    add(spool, "e1")
    (write,) = spool.writes()
    spool.hand_over(store)
    found = store.next_waiting(store.find_stream(KEY))
    assert found is not None
    assert found.created == write.at


def test_an_outbox_that_fails_in_the_middle_keeps_the_rest(spool, store, monkeypatch):
    add(spool, "e1", "e2", "e3")
    put, taken = store.put, []

    def limited(*arguments, **options):
        if len(taken) == 1:
            raise DatabaseError("the connection was cut")
        taken.append(arguments)
        return put(*arguments, **options)

    monkeypatch.setattr(store, "put", limited)
    with pytest.raises(DatabaseError):
        spool.hand_over(store)
    assert [each.event_id for each in spool.writes()] == ["e2", "e3"]
    monkeypatch.undo()
    spool.hand_over(store)
    assert [each[0] for each in delivered(store)] == ["e1", "e2", "e3"]


def test_a_line_that_was_not_written_to_its_end_is_dropped_and_a_damaged_one_set_aside(
    spool, store, home
):
    add(spool, "e1", "e2")
    path = home / "spool" / "writes.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"e2"', b'"e9"') + b'{"sum":"00')
    add(spool, "e3")
    spool.hand_over(store)
    assert [each[0] for each in delivered(store)] == ["e1", "e3"]
    assert b"e9" in (home / "spool" / "damaged.jsonl").read_bytes()
    assert not path.exists()


def test_while_another_process_hands_over_nobody_else_does(spool, store, home):
    add(spool, "e1")
    with file_lock(home / "spool" / "outbox.lock", 0):
        spool.hand_over(store)
        assert spool.exists
    assert delivered(store) == []


def test_without_room_a_write_is_refused_with_what_to_do(home):
    spool = OutboxSpool(home, max_bytes=1000)
    add(spool, "e1")
    with pytest.raises(OutboxFull, match="backfill"):
        spool.add(KEY, ("e2", "sync_turn", "x" * 1000))
    assert [each.event_id for each in spool.writes()] == ["e1"]


@pytest.mark.parametrize(
    ("matches", "is_theirs", "left"),
    [
        (lambda text: '"e2"' in text, lambda _: False, ["e1", "e3"]),
        (lambda _: False, lambda key: key == KEY, ["e3"]),
        (lambda _: True, lambda _: False, []),
    ],
)
def test_what_is_forgotten_is_not_handed_over(spool, store, matches, is_theirs, left):
    add(spool, "e1", "e2")
    add(spool, "e3", key=OTHER)
    assert spool.forget(matches, is_theirs, delete=False) == 3 - len(left)
    assert len(spool.writes()) == 3
    assert spool.forget(matches, is_theirs, delete=True) == 3 - len(left)
    assert spool.exists == bool(left)
    spool.hand_over(store)
    assert [event for event, *_ in delivered(store)] == left
    assert spool.forget(matches, is_theirs, delete=True) == 0
