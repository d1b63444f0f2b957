"""What only an outbox in PostgreSQL has: other machines, other homes, and the server's clock."""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from support.agents import STAY, agent, kill_after
from support.journals import PLUGIN, noted
from support.outboxes import open_store, outbox_of
from support.postgres import Server
from support.providers import eventually
from support.sites import add_directory
from support.storages import Storage
from support.tcp_proxy import Proxy

from hermes_core import MemoryManager
from hermes_core.outbox import OutboxStore, StreamKey, admin, worker
from hermes_core.outbox import store as stores
from hermes_core.outbox.postgres import OUTBOX, PostgresOutbox
from hermes_core.outbox.spool import OutboxSpool
from hermes_core.storage.processes import fleet_process, may_be_alive

pytestmark = pytest.mark.postgres_only("about other machines and the clock of a server")

ORIGIN = StreamKey("p", "", "s", "{}")


@pytest.fixture(autouse=True)
def storage(shared_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    made = Storage(shared_url)
    monkeypatch.setattr(Storage, "current", made)
    yield made
    made.close()


def put(store: OutboxStore, name: str, key: StreamKey = ORIGIN, *, claim: bool = False) -> int:
    stream, _ = store.put(key, 0, (name, "sync_turn", "{}"), claim=claim)
    return stream


def test_homes_of_one_database_see_nothing_of_each_other(
    tmp_path: Path, shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = open_store(tmp_path)
    stream = put(ours, "ours")
    (mine,) = admin.entries(ours)
    with monkeypatch.context() as elsewhere:
        other = Storage(shared_url)
        elsewhere.setattr(Storage, "current", other)
        theirs = open_store(tmp_path)
        assert theirs.find_stream(ORIGIN) == 0
        assert theirs.waiting_streams() == admin.entries(theirs) == []
        assert admin.content(theirs, mine.id) == {}
        assert not theirs.claim(stream)
        admin.drop(theirs, mine.id)
        admin.retry(theirs)
        assert admin.report(theirs).bytes == 0
        # Below our own conditions, too: this is what somebody could write by hand.
        everything = "SELECT payload FROM writes UNION SELECT keywords FROM streams"
        rows = theirs.database.read(lambda database: database.execute(everything).fetchall())
        assert rows == []
        put(theirs, "theirs")
    assert [each.event_id for each in admin.entries(ours)] == ["ours"]


def test_nobody_can_refer_to_streams_of_another_home_or_take_its_numbers(
    tmp_path: Path, storage: Storage
) -> None:
    import psycopg

    store = open_store(tmp_path)
    stream = put(store, "a")
    add = (
        "INSERT INTO hermes.outbox_writes (stream, event_id, hook, payload, created)"
        " VALUES (%s, 'e', 'sync_turn', '{}', 1)"
    )
    take = (
        "INSERT INTO hermes.outbox_streams (id, provider, owner, session, keywords, digest)"
        " OVERRIDING SYSTEM VALUE SELECT id, '', '', '', '', sha256(id::text::bytea)"
        " FROM generate_series(%s::bigint, %s + 20) AS id"
    )
    with psycopg.connect(storage.url, autocommit=True) as other:
        other.execute("SET ROLE hermes_tenant; SET hermes.namespace = 'planter'")
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            other.execute(add, (stream,))
        other.execute(take, (stream, stream))
        with other.transaction():  # the same number, but its own stream
            other.execute(add, (stream,))
            assert store.claim(stream)
            store.release(stream)
        assert put(store, "b", StreamKey("p", "", "another", "{}")) > stream
        other.execute("DELETE FROM hermes.outbox_writes; DELETE FROM hermes.outbox_streams")


def test_a_clock_that_is_wrong_neither_takes_a_claim_nor_loses_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = open_store(tmp_path), open_store(tmp_path)
    stream = put(ours, "a", claim=True)
    elsewhere = "other/1/1@elsewhere"
    monkeypatch.setattr(theirs.database, "this_process", lambda: elsewhere)
    for ahead in (86_400.0, -86_400.0):
        monkeypatch.setattr("hermes_core.outbox.postgres.time", lambda ahead=ahead: ahead)
        assert not theirs.claim(stream)
        assert ours.keep_claim(stream)
        (found,) = theirs.waiting_streams()
        theirs.database._measured = -1e9  # type: ignore[attr-defined]
        theirs.make_due()  # compares the clocks
        assert theirs.is_claimed_elsewhere(found)


def test_a_process_of_another_machine_keeps_its_claim_until_it_expires(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    stream = put(store, "a")
    host = socket.gethostname()

    def claimed_by(holder: str, seconds: int) -> None:
        change = "UPDATE streams SET holder = ?, expires = extract(epoch FROM now()) + ?"
        store.database.change(lambda database: database.execute(change, (holder, seconds)))

    for holder in ("far/7/1@000000000000", f"{host}/7/1@000000000000"):
        claimed_by(holder, 60)
        assert not store.claim(stream)
        claimed_by(holder, -1)
        assert store.claim(stream)
        store.release(stream)
    space = fleet_process().rpartition("@")[2]
    claimed_by(f"{host}/999999/1@{space}", 60)  # of this machine, and gone
    assert store.claim(stream)
    (write,) = admin.entries(store)
    assert write.attempts == 3


def test_a_name_of_a_process_says_where_it_runs() -> None:
    assert may_be_alive(fleet_process())
    assert may_be_alive(f"{socket.gethostname()}/1/never@elsewhere")
    assert not may_be_alive(fleet_process().replace(f"/{os.getpid()}/", "/999999/"))


def test_a_stream_that_is_being_written_to_is_passed_by(tmp_path: Path, storage: Storage) -> None:
    import psycopg

    store = open_store(tmp_path)
    stream = put(store, "a")
    with closing(psycopg.connect(storage.url)) as other:
        other.execute("SELECT set_config('hermes.namespace', %s, true)", (storage.namespace,))
        other.execute("SELECT 1 FROM hermes.outbox_streams WHERE id = %s FOR UPDATE", (stream,))
        assert not store.claim(stream)
        assert store.compact() is False  # waits for nobody either
        other.rollback()
    assert store.claim(stream)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks are POSIX")
def test_a_forked_child_uses_its_own_connections(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put(store, "parent")
    child = os.fork()
    if child == 0:
        try:
            put(store, "child")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    put(store, "parent again")
    names = [each.event_id for each in admin.entries(store)]
    assert names == ["parent", "child", "parent again"]


def test_a_damaged_answer_of_the_server_is_one_line(tmp_path: Path) -> None:
    from hermes_core.errors import DatabaseError

    store = open_store(tmp_path)
    with pytest.raises(DatabaseError, match="PostgreSQL can't be used"):
        store.database.change(lambda database: database.execute("SELECT nothing"))
    put(store, "after")
    assert isinstance(store.database, PostgresOutbox)
    assert store.database.is_whole()


def test_a_text_is_forgotten_in_writes_and_in_the_keys_of_streams(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    key = StreamKey("p", "", "s", '{"chat_name": "about whales", "platform": "cli"}')
    store.put(key, 0, ("a", "sync_turn", '{"user_content": "whales"}'), claim=False)
    store.put(key, 0, ("b", "sync_turn", '{"user_content": "birds"}'), claim=False)
    found = admin.forget(store, lambda text: "whales" in text, lambda _: False, delete=True)
    assert found == {"waiting": 1, "sessions": 1}
    (left,) = admin.entries(store)
    assert (left.event_id, left.key.keywords) == ("b", '{"platform": "cli"}')
    assert admin.forget(store, lambda _: False, lambda _: True, delete=True)["sessions"] == 1
    assert admin.entries(store) == []


@pytest.mark.stress
@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX")
def test_another_home_delivers_what_a_killed_agent_left(
    tmp_path: Path, storage: Storage, plugged_home: Any
) -> None:
    """Two machines of one fleet: separate homes, one namespace."""
    first, second = plugged_home("first"), plugged_home("second")
    (first / "down").touch()
    count = kill_after(agent(first, "s1", "anna", plugin=True, ending=STAY), 20)
    store = open_store(second)
    store.database.change(lambda database: database.execute("UPDATE streams SET expires = 1"))
    other = agent(second, "s2", "anna", plugin=True, count=1, ending=STAY)
    try:
        assert eventually(lambda: len(noted(second, "end")) >= count + 1, 60)
    finally:
        other.send_signal(signal.SIGKILL)
        other.communicate(timeout=20)
    texts = [row["text"] for row in noted(second, "end") if row["text"].startswith("s1")]
    assert texts[:count] == [f"s1 anna {number}" for number in range(count)]


@pytest.fixture
def plugged_home(tmp_path: Path, storage: Storage) -> Any:
    from support.journals import PLUGIN
    from support.sites import add_directory

    def made(name: str) -> Path:
        home = tmp_path / name
        home.mkdir()
        add_directory(home, "journal", PLUGIN)
        text = f"memory:\n  provider: journal\n{storage.config}"
        (home / "config.yaml").write_text(text, "utf-8")
        return home

    return made


def test_what_waits_is_delivered_soon_after_the_server_is_back(
    home: Path, postgres_server: Server, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker looks at its outbox once an hour here, unless the server was away."""
    monkeypatch.setattr(worker, "_POLL_SECONDS", 3600.0)
    proxy = Proxy(postgres_server.port)
    database = storage.url.rpartition("/")[2]
    url = f"postgresql://hermes@127.0.0.1:{proxy.port}/{database}"
    add_directory(home, "journal", PLUGIN)
    where = f"  storage: {url}\n  storage_namespace: {storage.namespace}\n"
    (home / "config.yaml").write_text(f"memory:\n  provider: journal\n{where}")
    manager = MemoryManager.from_config(home)
    manager.initialize_all("s1")
    proxy.cuts_at = b"hermes"  # also when somebody connects
    proxy.cut()
    manager.sync_all("late", "answer")
    spool = outbox_of(manager).spool
    assert spool.exists
    assert eventually(lambda: outbox_of(manager)._problem, 60)
    proxy.heal()
    assert eventually(lambda: noted(home, "end"), 60)
    assert [each["text"] for each in noted(home, "end")] == ["late"]
    assert not spool.exists
    manager.shutdown_all()
    proxy.close()


# -- formats --------------------------------------------------------------------------------

#: What made these formats: they are in databases of users, and a change belongs into a new one.
MIGRATIONS = ("a1d20201a9fe16f0", "1a2eccbc31ebec37")


def test_a_database_of_an_earlier_format_is_upgraded_and_takes_what_waited_in_the_spool(
    postgres_server: Server, database_url: str, home: Path
) -> None:
    with closing(postgres_server.admin(database_url.rpartition("/")[2])) as database:
        database.execute("DROP TABLE hermes.outbox_spooled")
        database.execute("UPDATE hermes.versions SET version = 1 WHERE component = 'outbox'")
    spool = OutboxSpool(home)
    spool.add(ORIGIN, ("e1", "sync_turn", "{}"), "the server is down")
    with closing(Storage(database_url)) as storage:
        store = stores.open_store(home, database=storage.database)
        spool.hand_over(store)
        assert [each.event_id for each in admin.entries(store)] == ["e1"]
        assert not spool.exists


def test_a_format_that_users_have_does_not_change() -> None:
    found = [re.sub(r"--.*|\s+", "", str(each)) for each in OUTBOX.migrations]
    assert tuple(sha256(each.encode()).hexdigest()[:16] for each in found) == MIGRATIONS
