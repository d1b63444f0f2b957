"""`hermes-plugins outbox status, list, show, retry, drop`."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest
from support.commands import posix_only, run_on_terminal
from support.terminals import Dialogue

from hermes_core import MemoryManager, SessionContext
from hermes_core.outbox import StreamKey
from hermes_core.outbox.spool import OutboxSpool
from hermes_core.storage.files import file_lock

pytestmark = pytest.mark.usefixtures("both_storages")

AGENT = """
import sys, time
from hermes_core import MemoryManager
manager = MemoryManager.from_config(sys.argv[1])
manager.initialize_all("live")
manager.sync_all("held", "yes")
print("under way", flush=True)
time.sleep(600)
"""


def test_an_empty_home_has_nothing_waiting_and_gets_no_file(machine):
    with machine.unchanged():
        lines = machine.run("outbox", "status").done().lines
        assert lines == ["outbox:    empty (limit 256 MB)", "waiting:   nothing"]
        assert machine.json("outbox", "status")["bytes"] == 0
        assert machine.run("outbox", "list").done().out == "The outbox is empty.\n"
        assert machine.run("outbox", "retry").done().out == "Nothing is pending.\n"
        assert machine.json("outbox", "status")["providers"] == []


def test_status_says_how_many_wait_since_when_and_why(down):
    down.talk("s1", "one", "two")
    (each,) = down.machine.json("outbox", "status")["providers"]
    assert (each["provider"], each["owner"], each["active"]) == ("alpha", "directory", True)
    assert (each["waiting"], each["failed"], each["missed"]) == (2, 0, 0)
    assert each["oldest"] < each["due"]
    assert each["error"] == "ConnectionError: backend is down"
    out = down.machine.run("outbox", "status").done().out
    assert "alpha (directory, active)" in out
    assert "2 writes, the oldest for" in out
    assert "when an agent runs" in out
    assert "of 256 MB" in out


def test_what_waits_for_a_provider_that_is_not_active_says_so(down):
    down.talk("s1", "one")
    down.configure(provider="")
    (each,) = down.machine.json("outbox", "status")["providers"]
    assert each["active"] is False
    assert "hermes-plugins enable alpha" in down.machine.run("outbox", "status").out
    before = down.writes()[0]["attempts"]
    result = down.machine.run("outbox", "retry")
    assert result.code == 1
    assert "alpha of directory is not active" in result.out
    assert down.writes()[0]["attempts"] == before


def test_dead_writes_are_an_exit_code_of_1_and_have_their_own_error(down):
    down.talk("s1", "odd one", "two")
    down.unset("down")
    down.machine.run("outbox", "retry")
    down.set("down")
    down.talk("s1", "three")
    (each,) = down.machine.json("outbox", "status", code=1)["providers"]
    assert (each["waiting"], each["failed"]) == (1, 1)
    assert each["error"] == "ConnectionError: backend is down"
    assert each["failed_error"] == "no such field"
    assert down.arrived() == ["two"]  # what failed permanently blocks nothing behind it


def test_a_write_that_keeps_failing_while_others_arrive_is_shown_as_skipped(alpha):
    manager = MemoryManager.from_config(alpha.home)
    manager.initialize_all("s1")
    manager.sync_all("a puzzling one", "answer")
    manager.sync_all("two", "answer")
    assert manager.flush_pending(30)
    manager.shutdown_all()
    assert alpha.arrived() == ["two"]
    result = alpha.machine.run("outbox", "status")
    assert result.code == 1
    assert "skipped: 1 (failed while others succeeded; retried automatically)" in result.out
    (each,) = alpha.machine.json("outbox", "status", code=1)["providers"]
    assert (each["waiting"], each["skipped"], each["skipped_error"]) == (0, 1, "KeyError: 'target'")
    (write,) = alpha.writes("--state", "skipped")
    status = alpha.machine.json("status")
    assert any("skipped" in line and "KeyError" in line for line in status["warnings"])
    result = alpha.machine.run("outbox", "retry", str(write["id"]))
    assert result.code == 1
    assert "KeyError" in result.out
    (again,) = alpha.writes()
    assert again["attempts"] > write["attempts"]


def test_list_shows_everything_but_the_content(down):
    down.talk("s1", "my private words")
    (write,) = down.writes()
    assert (write["provider"], write["session"], write["hook"]) == ("alpha", "s1", "sync_turn")
    assert (write["state"], write["error"]) == ("waiting", "ConnectionError: backend is down")
    assert write["attempts"] >= 1
    result = down.machine.run("outbox", "list").done()
    assert result.lines[0].split("\t")[2:6] == ["alpha", "s1", "sync_turn", "waiting"]
    assert "private" not in result.out + json.dumps(write)


def test_list_is_bounded_and_says_that_there_is_more(down):
    down.talk("s1", "one", "two", "three")
    result = down.machine.run("outbox", "list", "--limit", "2")
    assert len(result.lines) == 2
    assert "more than 2" in result.err
    assert down.machine.json("outbox", "list", "--limit", "2")["more"] is True
    assert len(down.writes("--limit", "3")) == 3
    assert down.writes("--state", "failed") == []
    assert len(down.writes("--state", "waiting")) == 3


def test_show_has_the_content_as_it_was_masked(down):
    key = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH"
    down.talk("s1", f"my key is {key}", user_id="ada")
    (write,) = down.writes()
    data = down.machine.json("outbox", "show", str(write["id"]))["write"]
    assert data["content"]["user_content"] == "my key is [redacted: openai-key]"
    assert data["keywords"]["user_id"] == "ada"
    out = down.machine.run("outbox", "show", str(write["id"])).done().out
    assert "user_id=ada" in out
    assert "[redacted: openai-key]" in out
    assert key not in out


@posix_only
def test_show_is_bounded_on_a_terminal_and_steers_it_not(down):
    down.talk("s1", "long \x1b[31m " + "x" * 9000)
    number = str(down.writes()[0]["id"])
    code, shown = run_on_terminal(down.machine, "outbox", "show", number)
    assert code == 0
    assert len(shown) < 4000
    assert "more characters" in shown
    assert "\x1b[31m" not in shown
    assert "x" * 9000 in down.machine.run("outbox", "show", number).done().out


@pytest.mark.parametrize("command", ["show", "drop", "retry"])
def test_a_write_that_is_not_there_is_said(alpha, command):
    line = alpha.machine.run("outbox", command, "7").failed()
    assert "there is no write 7" in line
    assert "hermes-plugins outbox list" in line


@pytest.mark.files_only
@pytest.mark.parametrize(
    "arguments",
    [("show",), ("show", "x"), ("show", "0"), ("drop", "-1"), ("show", "9" * 30), ("nope",),
     ("list", "--state", "lost"), ("list", "--limit", "0"), ("backfill", "--since", "tomorrow"),
     ("backfill", "--since", "2999-01-01"), ("retry", "1", "2")],
)  # fmt: skip
def test_wrong_words_are_wrong_usage(machine, arguments):
    machine.run("outbox", *arguments).misused()


# -- retry -----------------------------------------------------------------------------------


def test_retry_delivers_now_each_session_through_an_instance_of_its_own(down):
    down.talk("s1", "one", "two", user_id="ada")
    down.talk("s2", "three", user_id="bob")
    down.unset("down")
    result = down.machine.run("outbox", "retry").done()
    assert "alpha, session s1: 2 writes delivered" in result.lines
    assert "alpha, session s2: 1 write delivered" in result.lines
    told = [(session, user, said) for _, session, user, said, *_ in down.got()]
    assert told == [("s1", "ada", "one"), ("s1", "ada", "two"), ("s2", "bob", "three")]
    assert down.writes() == []


def test_retry_says_what_still_waits_and_why(down):
    down.talk("s1", "one", "two")
    result = down.machine.run("outbox", "retry")
    assert result.code == 1
    assert result.lines == [
        "alpha, session s1: 0 writes delivered, 2 still waiting",
        "  ConnectionError: backend is down",
    ]
    (stream,) = down.machine.json("outbox", "retry", code=1)["streams"]
    assert (stream["delivered"], stream["waiting"]) == (0, 2)


def test_retry_of_one_leaves_other_sessions_alone(down):
    down.talk("s1", "one")
    down.talk("s2", "two")
    down.unset("down")
    number = next(each["id"] for each in down.writes() if each["session"] == "s2")
    down.machine.run("outbox", "retry", str(number)).done()
    assert down.arrived() == ["two"]


def test_a_dead_write_is_tried_again_and_says_that_it_is_an_attempt_more(down):
    down.talk("s1", "odd one")
    down.unset("down")
    assert down.machine.run("outbox", "retry").code == 1
    (dead,) = down.writes("--state", "failed")
    assert "1 failed permanently" in down.machine.run("outbox", "retry", str(dead["id"])).out
    plugin = down.home / "plugins" / "alpha" / "__init__.py"
    plugin.write_text(plugin.read_text().replace('"odd" in', '"never" in'))
    down.machine.run("outbox", "retry", str(dead["id"])).done()
    ((_, _, _, said, _, turn, attempt),) = down.got()
    assert (said, turn) == ("odd one", dead["event_id"])
    assert attempt > dead["attempts"]


def test_a_plugin_that_ends_its_process_is_said_and_nothing_is_lost(down):
    down.talk("s1", "one")
    down.unset("down")
    down.set("exiting")
    line = down.machine.run("outbox", "retry").failed()
    assert "exit code 7" in line
    assert len(down.writes()) == 1
    down.unset("exiting")
    down.machine.run("outbox", "retry").done()  # its claim died with it
    assert down.arrived() == ["one"]


def test_what_a_start_that_fails_keeps_from_being_delivered_waits(down):
    down.talk("s1", "one")
    down.set("unready")
    result = down.machine.run("outbox", "retry")
    assert result.code == 1
    assert "ConnectionError: no such host" in result.out


def test_a_stream_that_a_live_agent_holds_is_left_to_it(alpha):
    plugin = alpha.home / "plugins" / "alpha" / "__init__.py"
    plugin.write_text(
        plugin.read_text().replace('if "odd" in', 'time.sleep(600)\n        if "odd" in')
    )
    agent = subprocess.Popen(
        [sys.executable, "-c", AGENT, str(alpha.home)],
        env=alpha.machine.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert agent.stdout.readline() == "under way\n"
        (each,) = alpha.machine.json("outbox", "status")["providers"]
        assert f"/{agent.pid}/" in each["deliverers"][0]
        assert f"by process {agent.pid}" in alpha.machine.run("outbox", "status").out
        result = alpha.machine.run("outbox", "retry")
    finally:
        agent.kill()
        agent.wait()
        agent.stdout.close()
    assert result.code == 1
    assert f"left to process {agent.pid}" in result.out


# -- drop ------------------------------------------------------------------------------------


def test_drop_needs_a_yes(down):
    down.talk("s1", "one", "two")
    first, second = (str(each["id"]) for each in down.writes())
    assert "--yes" in down.machine.run("outbox", "drop", first).failed()
    assert len(down.writes()) == 2
    assert down.machine.run("outbox", "drop", first, "--yes").done().out.startswith("Removed write")
    assert [str(each["id"]) for each in down.writes()] == [second]
    assert down.machine.json("outbox", "drop", second, "--yes")["dropped"]["id"] == int(second)


@posix_only
def test_drop_asks_on_a_terminal(down):
    down.talk("s1", "one")
    number = str(down.writes()[0]["id"])
    for answer, code, left in (("n", 1, 1), ("y", 0, 0)):
        dialogue = Dialogue(down.machine, "outbox", "drop", number)
        dialogue.answer(("sync_turn of session s1 for alpha", answer))
        assert dialogue.end() == code
        assert len(down.writes()) == left


# -- a file that is broken -------------------------------------------------------------------


@pytest.mark.files_only
def test_a_broken_file_is_said_and_only_looked_at(down):
    down.outbox.write_bytes(b"this is no database at all, not even nearly" * 99)
    with down.machine.unchanged():
        for command in ("status", "list"):
            line = down.machine.run("outbox", command).failed()
            assert "outbox.db" in line
            assert "not a database" in line


@pytest.mark.files_only
def test_a_file_that_was_set_aside_is_a_warning_with_what_to_run(down):
    down.outbox.write_bytes(b"this is no database at all, not even nearly" * 99)
    down.talk("s1", "one")
    report = down.machine.json("outbox", "status")
    (name,) = report["damaged_files"]
    assert name.startswith("outbox.db.damaged-")
    assert f"{name} was damaged" in down.machine.run("outbox", "status").out
    assert (down.home / name).exists()


@pytest.mark.files_only
@pytest.mark.parametrize("command", ["retry", "backfill"])
def test_a_file_that_is_set_aside_now_has_a_hint_that_is_true(down, command):
    down.outbox.write_bytes(b"this is no database at all, not even nearly" * 99)
    error, hint = down.machine.run("outbox", command).err.splitlines()
    assert "is set aside as outbox.db.damaged-" in error
    assert error.endswith("writes that waited in it were not delivered")
    assert hint == "hint: run: hermes-plugins outbox backfill --since WHEN"


@pytest.mark.files_only
def test_a_file_of_another_program_is_left_alone(alpha):
    with closing(sqlite3.connect(alpha.outbox)) as database:
        database.execute("CREATE TABLE theirs (a)")
    with alpha.machine.unchanged():
        line = alpha.machine.run("outbox", "retry").failed()
    assert "is not the outbox of hermes-plugins" in line


# -- plugins as they are ---------------------------------------------------------------------


def test_a_plugin_that_does_not_load_is_said_and_is_no_attempt(down):
    down.talk("s1", "one")
    before = down.writes()
    (down.home / "plugins" / "alpha" / "__init__.py").write_text("1 / 0  # MemoryProvider\n")
    assert "division by zero" in down.machine.run("outbox", "retry").failed()
    assert down.writes() == before


def test_a_plugin_may_call_itself_otherwise_than_its_folder(alpha):
    plugin = alpha.home / "plugins" / "alpha" / "__init__.py"
    plugin.write_text(plugin.read_text().replace('name = "alpha"', 'name = "omega"'))
    alpha.set("down")
    alpha.talk("s1", "one")
    assert alpha.machine.json("status", code=1)["provider"]["takes_writes"] is False
    alpha.unset("down")
    alpha.machine.run("outbox", "retry").done()
    assert alpha.arrived() == ["one"]


def test_what_a_retry_delivers_is_in_the_log_of_calls(down):
    down.talk("s1", "one")
    down.unset("down")
    down.machine.run("outbox", "retry").done()
    last = down.machine.json("log", "--hook", "sync_turn", "--provider", "alpha")["calls"][-1]
    assert (last["outcome"], last["session"]) == ("ok", "s1")


@pytest.mark.files_only
@pytest.mark.parametrize("command", ["retry", "backfill"])
def test_a_damaged_outbox_is_set_aside_and_that_is_told(down, command):
    down.talk("s1", "one")
    down.outbox.write_bytes(b"this is no database at all, not even nearly" * 99)
    assert "run: hermes-plugins outbox retry" in down.machine.run("outbox", "list").failed()
    told = down.machine.run("outbox", command).failed()
    assert "outbox.db was damaged and is set aside as outbox.db.damaged-" in told
    assert "run: hermes-plugins outbox backfill --since WHEN" in told


# -- the spool -------------------------------------------------------------------------------


def wait_in_the_spool(home, count=2):
    spool = OutboxSpool(home)
    for number in range(count):
        key = StreamKey.of("alpha", "", SessionContext(session_id="s1"))
        spool.add(key, (f"e{number}", "sync_turn", "{}"), "the server is down")


def test_status_counts_what_waits_in_the_spool_while_another_process_hands_it_over(alpha):
    wait_in_the_spool(alpha.home)
    with file_lock(alpha.home / "spool" / "outbox.lock", 0):
        assert (
            "spool:     2 writes: the server is down" in alpha.machine.run("outbox", "status").lines
        )
        report = alpha.machine.json("outbox", "status")
    assert (report["spooled"], report["spooled_because"]) == (2, "the server is down")
    report = alpha.machine.json("outbox", "status")
    assert (report["spooled"], report["providers"][0]["waiting"]) == (0, 2)


@pytest.mark.files_only  # the server is one that does not run
def test_status_counts_what_waits_in_the_spool_while_the_server_is_down(alpha):
    alpha.configure(storage="postgresql://ann@127.0.0.1:1/x")
    told = alpha.machine.run("outbox", "status").failed()
    assert "in the spool" not in told
    wait_in_the_spool(alpha.home)
    told = alpha.machine.run("outbox", "status").failed()
    assert "127.0.0.1:1" in told
    assert "2 writes for it wait in the spool" in told
    assert "hint: " in told
    report = alpha.machine.json("outbox", "status", code=1)
    assert (report["spooled"], report["spooled_because"]) == (2, "the server is down")
    assert (report["providers"], report["bytes"]) == (None, None)
    assert report["problem"]
    assert report["hint"]
