"""`hermes-plugins log`, as a person and as a script runs it."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from support.calls import A_CALL, call, write
from support.commands import Machine, posix_only
from support.terminals import Dialogue

from hermes_core.call_log import CallLog, path_of
from hermes_core.call_log.log import CallFile

BAD = call(
    at=1_700_000_001.0,
    hook="sync_turn",
    outcome="error",
    seconds=2.345,
    bytes=12_345_678,
    error="ConnectionError: refused",
)
FRIENDLY = "No memory provider has been called in this home yet."
UTC = {"TZ": "UTC"}


@pytest.fixture
def dialogue(machine: Machine) -> Iterator:
    opened: list[Dialogue] = []

    def start(*arguments: str, **options: str) -> Dialogue:
        opened.append(Dialogue(machine, *arguments, env={**UTC, **options}))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


def next_line(process: subprocess.Popen, seconds: float = 30) -> str:
    """A line of a command's output, or a failure if none comes."""
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.append(process.stdout.readline()), daemon=True)
    reader.start()
    reader.join(seconds)
    assert lines, "no line came"
    return lines[0]


@pytest.fixture
def follow(machine: Machine) -> Iterator:
    started: list[subprocess.Popen] = []

    def start(*arguments: str) -> subprocess.Popen:
        started.append(machine.start("log", "--follow", *arguments))
        return started[-1]

    yield start
    for each in started:
        each.kill()
        each.communicate()


def test_a_home_without_a_log_gets_one_friendly_line(machine):
    with machine.unchanged():
        assert machine.run("log").done().out == f"{FRIENDLY}\n"
        assert machine.json("log") == {"schema": 1, "calls": [], "lost": 0}


def test_calls_are_shown_with_time_outcome_duration_and_size(machine):
    write(machine.home, A_CALL, BAD, call(at=1_700_000_002.0, seconds=0.0012, bytes=0))
    assert machine.run("log", env=UTC).done().lines == [
        "2023-11-14 22:13:20\thoncho\tprefetch\tok\t12 ms\t345 B\t",
        "2023-11-14 22:13:21\thoncho\tsync_turn\terror\t2.3 s\t12.3 MB\tConnectionError: refused",
        "2023-11-14 22:13:22\thoncho\tprefetch\tok\t1.2 ms\t-\t",
    ]


def test_json_has_every_field_of_a_call(machine):
    write(machine.home, BAD)
    (found,) = machine.json("log", env=UTC)["calls"]
    assert found.pop("id") > 0
    assert found == {
        "at": "2023-11-14T22:13:21.000+00:00",
        "provider": "honcho",
        "hook": "sync_turn",
        "session": "s1",
        "outcome": "error",
        "seconds": 2.345,
        "bytes": 12_345_678,
        "error": "ConnectionError: refused",
    }


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), list(range(10, 60))),
        (("-n", "2"), [58, 59]),
        (("--lines", "0"), []),
        (("--failed",), [7, 50]),
        (("--hook", "sync_turn"), [7]),
        (("--provider", "mem0"), [50]),
        (("--provider", "mem0", "--hook", "sync_turn"), []),
    ],
)
def test_options_choose_what_is_shown(machine, options, expected):
    calls = [call(bytes=number, at=A_CALL.at + number) for number in range(60)]
    calls[7] = calls[7]._replace(outcome="late", hook="sync_turn")
    calls[50] = calls[50]._replace(outcome="error", provider="mem0")
    write(machine.home, *calls)
    assert [each["bytes"] for each in machine.json("log", *options)["calls"]] == expected


def test_a_filter_that_leaves_nothing_says_so(machine):
    write(machine.home, A_CALL)
    assert machine.run("log", "--failed").done().out == "The log has no such call.\n"


@pytest.mark.parametrize("more", [(), ("--follow",)])
@pytest.mark.parametrize(
    ("option", "typed", "meant"),
    [("--provider", "sampel", "sample"), ("--hook", "prefetchh", "prefetch")],
)
def test_a_misspelt_name_is_an_error_with_the_nearest_one(machine, option, typed, meant, more):
    write(machine.home, A_CALL._replace(provider="sample", hook="prefetch"))
    text = machine.run("log", option, typed, *more).failed()
    assert typed in text
    assert f"hint: did you mean {meant}" in text


@pytest.mark.parametrize(
    "options", [("--provider", "zzz"), ("--provider", "samples"), ("--hook", "queue_prefetch")]
)
def test_what_was_not_called_yet_is_no_error(machine, options):
    machine.add_directory("samples")
    write(machine.home, A_CALL._replace(provider="sample", hook="prefetch"))
    assert machine.run("log", *options).done().out == "The log has no such call.\n"


@pytest.mark.parametrize("lines", ["-1", "many"])
def test_a_number_of_lines_that_is_none_is_refused(machine, lines):
    assert "--lines" in machine.run("log", "-n", lines).misused()


def test_missing_calls_are_told_beside_the_others(machine):
    with closing(CallFile(path_of(machine.home))) as file:
        file.write([A_CALL], 1234)
        file.write([A_CALL], 1)
    result = machine.run("log")
    assert (result.code, len(result.lines)) == (0, 2)
    assert re.fullmatch(
        r"1,235 calls are missing, the last at \d{4}-\S+ \S+: the log could not keep up\.\n",
        result.err,
    )
    assert machine.json("log")["lost"] == 1235


def test_a_damaged_log_is_one_line_with_its_path(machine):
    write(machine.home, A_CALL)
    path_of(machine.home).write_text("no database" * 1000)
    line = machine.run("log").failed()
    assert str(path_of(machine.home)) in line
    assert "file is not a database" in line
    assert line.endswith(f"hint: remove it, it is only a log: {path_of(machine.home)}")


HEADER = ["TIME", "PROVIDER", "HOOK", "OUTCOME", "TOOK", "BYTES", "ERROR"]


@posix_only
def test_a_terminal_gets_a_header_and_colours_for_what_went_wrong(machine, dialogue):
    write(machine.home, A_CALL, BAD, call(outcome="late", at=A_CALL.at + 3))
    shown = dialogue("log", NO_COLOR="")
    assert shown.end() == 0
    header, *rows = shown.shown.splitlines()
    assert re.sub(r"\x1b\[\d*m", "", header).split() == HEADER[:-1]  # errors are below
    ok, bad, late = (row for row in rows if "honcho" in row)
    assert "prefetch" in ok
    assert re.search(r"\x1b\[31m.*honcho.*sync_turn.*error", bad)
    assert "\x1b[33m" in late


@posix_only
def test_control_characters_can_not_steer_the_terminal(machine, dialogue):
    path = path_of(machine.home)
    write(machine.home, A_CALL)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE calls SET provider = ?, error = ?", ("a\x1b[2Jb", "c\rd\x9b1me"))
    shown = dialogue("log")
    assert shown.end() == 0
    assert "\x1b" not in shown.shown
    assert "\x9b" not in shown.shown
    assert r"a\x1b[2Jb" in shown.shown
    assert "\x1b" not in machine.run("log").done().out


@posix_only
def test_follow_shows_new_calls_until_ctrl_c(machine, dialogue):
    write(machine.home, A_CALL)
    shown = dialogue("log", "--follow")
    shown.wait_for("honcho +prefetch")
    write(machine.home, BAD)
    shown.wait_for(r"sync_turn +error .*\n +ConnectionEr")
    write(machine.home, call(at=time.time()))
    shown.wait_for(r"\n\d\d:\d\d:\d\d +honcho ")  # today's needs no date
    shown.type("\x03")
    assert shown.end() == 130
    assert shown.shown.count("TIME ") == 1
    assert "Traceback" not in shown.shown
    assert "Aborted" not in shown.shown


@posix_only
def test_follow_waits_for_a_log_that_is_not_there_yet_until_ctrl_c(machine, dialogue):
    shown = dialogue("log", "--follow")
    shown.wait_for(re.escape(f"{FRIENDLY} Waiting for calls"))
    write(machine.home, A_CALL)
    shown.wait_for("honcho +prefetch")
    shown.type("\x03")
    assert shown.end() == 130


def test_follow_with_json_prints_an_object_per_line(machine, follow):
    write(machine.home, A_CALL)
    process = follow("--json", "-n", "1")
    first = json.loads(next_line(process))
    assert (first["schema"], first["bytes"]) == (1, 345)
    write(machine.home, *[call(bytes=number) for number in range(1, 2501)])
    assert [json.loads(next_line(process))["bytes"] for _ in range(2500)] == list(range(1, 2501))


def test_follow_obeys_the_filters(machine, follow):
    write(machine.home, call(bytes=1), call(bytes=2, outcome="late"))
    process = follow("--json", "--failed", "--hook", "sync_turn")
    with closing(CallLog.of(machine.home)) as log:
        log.add(call(bytes=3, hook="sync_turn"))
        log.add(call(bytes=4, outcome="error"))
        log.add(BAD)
        assert json.loads(next_line(process))["bytes"] == BAD.bytes


def test_follow_goes_on_when_the_log_is_begun_anew(machine, follow):
    write(machine.home, A_CALL)
    process = follow("--json")
    next_line(process)
    path_of(machine.home).unlink()
    write(machine.home, BAD)
    assert json.loads(next_line(process))["bytes"] == BAD.bytes


@posix_only
@pytest.mark.parametrize("more", [False, True], ids=["idle", "with more to say"])
def test_follow_ends_when_nobody_reads_on(machine, follow, more):
    write(machine.home, A_CALL)
    process = follow()
    next_line(process)
    process.stdout.close()
    if more:
        write(machine.home, A_CALL)
    assert process.wait(30) == 1
    assert process.stderr.read() == ""


@posix_only
def test_follow_ends_with_a_signal_to_end(machine, follow):
    write(machine.home, A_CALL)
    process = follow()
    next_line(process)
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(30) == 143
    assert process.stderr.read() == ""
