"""`status` and `doctor` say whether what is given to a provider arrives."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing

import pytest
from support.outboxes import open_store
from support.storages import Storage

pytestmark = pytest.mark.usefixtures("both_storages")


def make_older(alpha):
    """Let what waits in the outbox have waited for an hour."""
    with closing(open_store(alpha.home)) as store:
        store.database.change(
            lambda database: database.execute("UPDATE writes SET created = created - 3700")
        )


def test_status_says_what_waits_and_how_the_hooks_fare(alpha):
    alpha.talk("s1", "one")
    alpha.set("down")
    alpha.talk("s1", "two")
    result = alpha.machine.run("status").done()
    assert any(line.startswith("waiting:   1 write for alpha, the oldest") for line in result.lines)
    (line,) = [line for line in result.lines if line.startswith("  alpha sync_turn")]
    assert "LAST CALL FAILED" in line
    assert "ConnectionError: backend is down" in line
    report = alpha.machine.json("status")
    hook = next(each for each in report["hooks"] if each["hook"] == "sync_turn")
    assert (hook["calls"] >= 2, hook["last_failed"], hook["late"]) == (True, True, 0)
    assert hook["error_at"] == hook["last_at"]
    assert report["outbox"]["providers"][0]["waiting"] == 1
    assert (report["lost_calls"], report["redact"]) == (0, True)


def test_a_provider_that_loads_and_takes_nothing_does_not_work(down):
    down.talk("s1", "one")
    result = down.machine.run("status")
    assert result.code == 1
    assert "external:  alpha, loads, but WRITES FAIL" in result.lines
    (problem,) = [line for line in result.lines if line.startswith("problem:")]
    assert "writes to alpha fail: every call since" in problem
    assert "backend is down" in problem
    report = down.machine.json("status", code=1)
    assert (report["ok"], report["provider"]["works"], report["provider"]["active"]) == (
        False,
        False,
        True,
    )
    down.unset("down")
    down.machine.run("outbox", "retry").done()
    assert "external:  alpha, works" in down.machine.run("status").done().lines


def test_a_start_that_fails_is_a_provider_that_takes_no_writes(alpha):
    alpha.set("unready")
    alpha.talk("s1", "one")
    result = alpha.machine.run("status")
    assert result.code == 1
    assert "no such host" in result.out


def test_writes_that_fail_for_an_hour_are_a_problem_even_without_a_log(down):
    down.talk("s1", "one")
    for file in (down.home / "logs").iterdir():
        file.unlink()
    assert down.machine.run("status").code == 0
    make_older(down)
    result = down.machine.run("status")
    assert result.code == 1
    assert "1 write for alpha can't be delivered, the oldest since" in result.out


def test_a_write_that_hung_when_the_agent_ended_is_one_that_failed(alpha):
    alpha.configure(deadlines={"shutdown": 0.4})
    alpha.set("hanging")
    alpha.talk("s1", "one")
    result = alpha.machine.run("status")
    assert result.code == 1
    assert "external:  alpha, loads, but WRITES FAIL" in result.lines
    assert "no answer before the agent ended" in result.out
    assert alpha.writes()[0]["error"] == "no answer before the agent ended"


def test_writes_that_wait_for_a_start_that_hangs_are_a_problem_even_without_a_log(alpha):
    alpha.configure(deadlines={"initialize": 0.2, "shutdown": 0.4})
    alpha.set("starting")
    alpha.talk("s1", "one")
    for file in (alpha.home / "logs").iterdir():
        file.unlink()
    make_older(alpha)
    result = alpha.machine.run("status")
    assert result.code == 1
    assert "its initialize has not succeeded yet" in result.out


def test_what_waits_for_a_provider_that_is_not_active_is_no_problem(down):
    down.talk("s1", "one", "two")
    down.configure(provider="")
    assert "waiting:   2 writes for alpha, which is not active" in down.machine.run("status").lines
    assert down.machine.json("status")["ok"] is True


def test_dead_and_missed_writes_are_warnings_with_what_to_run(down):
    down.talk("s1", "odd")
    down.unset("down")
    down.machine.run("outbox", "retry")
    alpha = down
    alpha.configure(outbox={"max_mb": 0.00001 if Storage.current.url else 0.02})
    alpha.talk("s1", "no room")
    alpha.configure()
    warnings = alpha.machine.json("status", code=1)["warnings"]
    assert any(
        "failed permanently: no such field" in each and "outbox retry" in each for each in warnings
    )
    assert any("1 write for alpha" in each and "outbox backfill" in each for each in warnings)


@pytest.mark.files_only
@pytest.mark.parametrize(
    ("file", "code", "said"),
    [("outbox.db", 1, "the outbox can't be read"),
     ("logs/memory-calls.db", 0, "the call log can't be read")],
)  # fmt: skip
def test_a_broken_file_is_said_and_only_looked_at(alpha, file, code, said):
    alpha.talk("s1", "one")
    (alpha.home / file).write_bytes(b"this is no database at all, not even nearly" * 99)
    with alpha.machine.unchanged():
        result = alpha.machine.run("status")
    assert (result.code, result.err) == (code, "")
    assert said in result.out
    assert "built-in:  active (always)" in result.lines


def test_that_nothing_is_masked_is_told(alpha):
    alpha.configure(redact=False)
    report = alpha.machine.json("status")
    assert report["redact"] is False
    assert any("memory.redact is off" in each for each in report["warnings"])


@pytest.mark.parametrize("confirms", [True, False])
def test_status_says_what_a_delivery_means(alpha, confirms):
    plugin = alpha.home / "plugins" / "alpha" / "__init__.py"
    line = f"    confirms_delivery = {confirms}\n    def is_available"
    plugin.write_text(plugin.read_text().replace("    def is_available", line))
    assert alpha.machine.json("status")["provider"]["confirms_delivery"] is confirms
    counted = "counted as delivered when the call returns"
    meaning = "confirmed by the provider" if confirms else counted
    assert f"delivery:  {meaning}" in alpha.machine.run("status").done().lines
    assert "hermes-plugins status" in alpha.machine.run("info", "alpha").done().out


# -- doctor ----------------------------------------------------------------------------------


def rows(alpha, what, code=0):
    found = alpha.machine.json("doctor", code=code)["checks"]
    return [each for each in found if each["check"] == what]


def test_the_doctor_finds_nothing_wrong_with_an_outbox_that_works(alpha):
    alpha.talk("s1", "one")
    (row,) = rows(alpha, "outbox")
    assert (row["state"], row["detail"]) == ("ok", "readable, nothing is waiting")
    (row,) = rows(alpha, "call log")
    assert row["state"] == "ok"


def test_the_doctor_says_that_nothing_is_delivered(down):
    down.talk("s1", "one")
    make_older(down)
    (row,) = rows(down, "outbox", code=1)
    assert row["state"] == "problem"
    assert "outbox retry" in row["todo"]
    (row,) = rows(down, "writes", code=1)
    assert "writes to alpha fail" in row["detail"]


def test_the_doctor_says_what_was_given_up(alpha):
    alpha.talk("s1", "odd", "even")
    first, _ = rows(alpha, "outbox")
    assert first["state"] == "warning"
    assert "1 write for alpha failed permanently" in first["detail"]
    assert "outbox list --state failed" in first["todo"]


@pytest.mark.files_only
def test_the_doctor_finds_damage_inside_the_outbox(down):
    down.talk("s1", *(f"turn {number} {'x' * 3000}" for number in range(40)))
    data = bytearray(down.outbox.read_bytes())
    page = 4096
    for start in range(3 * page, len(data) - page, 2 * page):
        data[start : start + 200] = b"\xff" * 200
    down.outbox.write_bytes(data)
    found = rows(down, "outbox", code=1)
    assert found[0]["state"] == "problem"


@pytest.mark.files_only
def test_the_doctor_outlives_broken_files(alpha):
    alpha.talk("s1", "one")
    for name in ("outbox.db", "logs/memory-calls.db"):
        (alpha.home / name).write_bytes(b"this is no database at all, not even nearly" * 99)
    (outbox,) = rows(alpha, "outbox", code=1)
    (calls,) = rows(alpha, "call log", code=1)
    assert (outbox["state"], calls["state"]) == ("problem", "warning")


def test_only_the_last_24_hours_count(down):
    down.talk("s1", "one")
    with closing(sqlite3.connect(down.home / "logs" / "memory-calls.db")) as database:
        database.execute("UPDATE calls SET at = ?", (time.time() - 90_000,))
        database.commit()
    report = down.machine.json("status")
    assert (report["hooks"], report["ok"]) == ([], True)


def test_calls_that_the_log_does_not_have_are_told(alpha):
    alpha.talk("s1", "one")
    with closing(sqlite3.connect(alpha.home / "logs" / "memory-calls.db")) as database:
        database.execute("INSERT INTO lost VALUES (1234, ?)", (time.time(),))
        database.commit()
    assert "1,234 calls are missing from the log" in alpha.machine.run("status").done().out
    assert alpha.machine.json("status")["lost_calls"] == 1234
