"""`hermes-plugins outbox backfill`: what had no room comes back from the archive."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing

import pytest
from support.outboxes import stored
from support.storages import Storage

from hermes_core.outbox import StreamKey, admin
from hermes_core.outbox.admin import add_archived, refill_missed
from hermes_core.outbox.records import ProviderKey
from hermes_core.outbox.store import open_store
from hermes_core.provider import PastSession

pytestmark = pytest.mark.usefixtures("both_storages")

KEY = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH"


def no_room() -> dict[str, float]:
    """A limit that leaves room for no turn; an empty file has a size, an empty table none."""
    return {"max_mb": 0.00001 if Storage.current.url else 0.02}


@pytest.fixture
def full(down):
    """An outbox that had room for no turn; there is room now."""
    down.configure(outbox=no_room())
    down.talk("s1", "one", f"my key is {KEY}", user_id="ada", end=True)
    assert {each["state"] for each in down.writes()} == {"missed"}
    down.configure()
    return down


def test_missed_writes_are_told_with_what_to_run(full):
    result = full.machine.run("outbox", "status")
    assert result.code == 1
    assert "missed: 3" in result.out
    assert "run: hermes-plugins outbox backfill" in result.out
    number = str(full.writes()[0]["id"])
    assert "outbox backfill" in full.machine.run("outbox", "retry", number).failed()
    assert "Its content is gone" in full.machine.run("outbox", "show", number).done().out


def test_missed_writes_wait_again_under_their_own_identity_and_without_secrets(full):
    before = {each["id"]: each["event_id"] for each in full.writes()}
    result = full.machine.run("outbox", "backfill").done()
    assert result.lines[0] == "3 writes restored from the archive."
    assert {each["id"]: each["event_id"] for each in full.writes("--state", "waiting")} == before
    assert KEY not in str(stored(full.home, "payload"))
    full.unset("down")
    full.machine.run("outbox", "retry").done()
    first, second, end = full.got()
    assert first[:6] == ["turn", "s1", "ada", "one", "answer to one", before[min(before)]]
    assert second[3] == "my key is [redacted: openai-key]"
    assert end[1][:3] == ["one", "answer to one", "my key is [redacted: openai-key]"]


def test_while_the_outbox_is_still_full_nothing_is_lost(full):
    full.configure(outbox=no_room())
    result = full.machine.run("outbox", "backfill")
    assert result.code == 1
    assert "the outbox is full again" in result.out
    assert len(full.writes("--state", "missed")) == 3


def test_what_no_archive_has_is_told_and_stays_missed(full):
    full.machine.run("sessions", "delete", "s1", "--yes").done()
    result = full.machine.run("outbox", "backfill")
    assert result.code == 1
    assert len([line for line in result.lines if "not in the archive" in line]) == 3
    data = full.machine.json("outbox", "backfill", code=1)
    assert [each["hook"] for each in data["not_found"]] == [
        "sync_turn",
        "sync_turn",
        "on_session_end",
    ]
    assert len(full.writes("--state", "missed")) == 3


def test_users_whose_sessions_have_one_name_get_their_own_words_back(down):
    down.configure(outbox=no_room())
    down.talk("s1", "of ada", user_id="ada")
    down.talk("s1", "of bob", user_id="bob")
    down.configure()
    down.machine.run("outbox", "backfill").done()
    down.unset("down")
    down.machine.run("outbox", "retry").done()
    assert {(each[2], each[3]) for each in down.got()} == {("ada", "of ada"), ("bob", "of bob")}


# -- --since ---------------------------------------------------------------------------------


def test_since_adds_every_turn_of_persons_that_does_not_wait_already(down):
    down.talk("s1", "lost", user_id="ada")
    down.talk("cron", "of a machine", agent_context="cron")
    for each in down.writes():
        down.machine.run("outbox", "drop", str(each["id"]), "--yes").done()
    down.talk("s1", "waits", user_id="ada")
    result = down.machine.run("outbox", "backfill", "--since", "1h").done()
    assert "1 archived turns since" in result.lines[1]
    assert "may get some of them twice" in result.lines[1]
    again = down.machine.json("outbox", "backfill", "--since", "1h")
    assert (again["added"], again["known"]) == (0, 2)
    down.unset("down")
    down.machine.run("outbox", "retry").done()
    assert sorted(down.arrived()) == ["lost", "waits"]
    assert {each[2] for each in down.got()} == {"ada"}


def test_since_leaves_out_what_is_older(alpha):
    alpha.talk("s1", "one")
    older = "UPDATE archive_messages SET at = at - 7200"
    if Storage.current.url:
        Storage.current.execute("SELECT set_config('hermes.scope', '{}', false)")
        assert Storage.current.execute(older).rowcount == 2
    else:
        with closing(sqlite3.connect(alpha.home / "state.db")) as database, database:
            database.execute(older)
    assert alpha.machine.json("outbox", "backfill", "--since", "1h")["added"] == 0
    day = time.strftime("%Y-%m-%d", time.localtime(time.time() - 86_400))
    assert alpha.machine.json("outbox", "backfill", "--since", day)["added"] == 1


def test_since_leaves_out_what_was_imported(alpha):
    lines = '{"session_id": "x", "role": "user", "content": "q"}\n'
    lines += '{"session_id": "x", "role": "assistant", "content": "a"}\n'
    (alpha.home / "talk.jsonl").write_text(lines)
    alpha.machine.run("sessions", "import", str(alpha.home / "talk.jsonl")).done()
    assert alpha.machine.json("outbox", "backfill", "--since", "99w")["added"] == 0


def test_since_needs_somebody_to_send_to(down):
    down.talk("s1", "one")
    down.machine.write_config("memory: {provider: ''}\n")
    line = down.machine.run("outbox", "backfill", "--since", "1h").failed()
    assert "no external provider is active" in line


def test_a_plugin_that_does_not_load_keeps_nobody_from_backfilling(full):
    (full.home / "plugins" / "alpha" / "__init__.py").write_text(
        "raise RuntimeError  # MemoryProvider"
    )
    assert full.machine.json("outbox", "backfill")["refilled"] == 3


# -- which turn it was -----------------------------------------------------------------------

ORIGIN = StreamKey("alpha", "directory", "s1", "{}")


@pytest.fixture
def store(tmp_path):
    made = open_store(tmp_path, max_mb=1)
    made.clock = lambda: 1000.0
    yield made
    made.close()


def miss(store, created, hook="sync_turn"):
    """A write of that time that had no room."""
    store.put(ORIGIN, 0, ("e" + str(created), hook, "{}"), claim=True)
    store.database.change(
        lambda database: database.execute(
            "UPDATE writes SET state = 'missed', payload = '', created = ? WHERE created = 1000",
            (created,),
        )
    )


def turn(at, text="said"):
    return {"at": at, "user_content": text, "assistant_content": "a", "messages": []}


def same(value):
    return value


@pytest.mark.parametrize(
    ("turns", "found"),
    [
        ([turn(99.9), turn(100.5, "later")], "said"),
        ([turn(50, "earlier"), turn(100)], "said"),
        ([turn(100.5, "later")], None),
        ([turn(39, "much earlier")], None),
        ([], None),
    ],
)
def test_a_turn_is_the_last_one_just_before_it_was_written(store, turns, found):
    miss(store, 100.0)
    done = refill_missed(store, lambda session, facts: turns, same)
    assert done.refilled == bool(found)
    (write,) = admin.entries(store)
    assert admin.content(store, write.id).get("user_content") == found
    assert len(done.not_found) == (not found)


def test_one_turn_serves_one_write(store):
    miss(store, 100.0)
    miss(store, 100.1)
    done = refill_missed(store, lambda session, facts: [turn(99.9)], same)
    assert (done.refilled, len(done.not_found)) == (1, 1)


def test_notes_are_in_no_archive(store):
    miss(store, 100.0, "on_memory_write")
    assert len(refill_missed(store, lambda session, facts: [turn(99.9)], same).not_found) == 1


def test_an_archived_turn_has_the_same_identity_whenever_it_is_added(store):
    session = PastSession("s1", {"user_id": "ada"}, lambda: [turn(5.0), turn(6.0)])
    assert add_archived(store, ProviderKey(*ORIGIN[:2]), [session], same).added == 2
    before = {each.event_id for each in admin.entries(store)}
    for each in admin.entries(store):
        admin.drop(store, each.id)
    assert add_archived(store, ProviderKey(*ORIGIN[:2]), [session], same).added == 2
    assert {each.event_id for each in admin.entries(store)} == before
    assert [each.created for each in admin.entries(store)] == [5.0, 6.0]
