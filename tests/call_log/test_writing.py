"""Calls are added at once and written by a thread that nobody waits for."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.calls import A_CALL, call, write
from support.commands import wait_until
from support.scripts import run_script

from hermes_core.call_log import CallLog, LoggedCall, lost_calls, path_of, read_calls
from hermes_core.call_log.log import CallWriter


def threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "hermes-call-log"]


@pytest.fixture
def log(home: Path) -> Iterator[CallLog]:
    with closing(CallLog.of(home)) as made:
        yield made


def calls_in(home: Path) -> list[LoggedCall]:
    return [each for _, each in read_calls(home, limit=1_000_000)]


def test_what_was_added_is_in_the_log_soon_and_without_a_close(home, log):
    log.add(A_CALL)
    assert wait_until(lambda: calls_in(home) == [A_CALL])


def test_what_is_added_after_a_while_of_nothing_is_written_as_soon(home, log):
    for number in range(1, 4):
        log.add(call(bytes=number))
        assert wait_until(lambda number=number: len(calls_in(home)) == number)


def test_a_call_comes_back_as_it_was_added(home):
    given = LoggedCall(1.5, "p", "h", "s", "error", 2.25, 7, "TimeoutError: no answer")
    write(home, given)
    assert calls_in(home) == [given]


def test_an_idle_log_has_no_thread_and_no_file(home, log):
    assert threads() == []
    log.close()
    assert list(home.iterdir()) == []


def test_the_log_is_for_its_owner_alone(home):
    write(home, A_CALL)
    assert stat.S_IMODE(path_of(home).stat().st_mode) == 0o600
    assert stat.S_IMODE(path_of(home).parent.stat().st_mode) == 0o700


def test_the_last_close_writes_the_rest_and_ends_the_thread(home, monkeypatch):
    monkeypatch.setattr(CallWriter, "SECONDS", 60.0)
    first, second = CallLog.of(home), CallLog.of(home)
    first.add(A_CALL)
    first.close()
    first.close()  # once is enough: this must not take the other's hold
    assert len(threads()) == 1
    second.add(A_CALL)
    second.close()
    assert threads() == []
    assert calls_in(home) == [A_CALL, A_CALL]


def test_a_closed_log_takes_no_more_and_says_nothing(home, log):
    log.close()
    log.add(A_CALL)
    assert threads() == []
    assert calls_in(home) == []


def test_a_log_can_be_opened_again(home):
    for _ in range(3):
        write(home, A_CALL)
    assert len(calls_in(home)) == 3


def test_many_calls_are_written_before_the_half_second_is_over(home, log, monkeypatch):
    monkeypatch.setattr(CallWriter, "SECONDS", 60.0)
    for _ in range(CallWriter.HURRY):
        log.add(A_CALL)
    assert wait_until(lambda: len(calls_in(home)) == CallWriter.HURRY, 10)


def test_every_call_of_many_threads_is_written_or_counted(home, log, monkeypatch):
    monkeypatch.setattr(CallWriter, "MAX_WAITING", 50)

    def add() -> None:
        for _ in range(2000):
            log.add(A_CALL)

    adders = [threading.Thread(target=add) for _ in range(8)]
    for each in adders:
        each.start()
    for each in adders:
        each.join()
    log.close()
    assert lost_calls(home).calls > 0
    assert len(calls_in(home)) + lost_calls(home).calls == 16_000


def test_what_a_burst_drops_is_the_oldest_counted_and_logged(home, log, caplog):
    added = [call(bytes=number) for number in range(1, 40_001)]
    for each in added:
        log.add(each)
    log.close()
    written, lost = calls_in(home), lost_calls(home).calls
    assert len(written) + lost == 40_000
    assert lost > 0
    assert {each.bytes for each in written} >= set(range(30_001, 40_001))
    (told,) = [record.getMessage() for record in caplog.records]
    assert told.startswith(f"{path_of(home)}: more calls came than could be written;")


def test_what_sqlite_can_not_store_is_made_storable(home):
    write(
        home,
        call(bytes=10**400, seconds=float("nan"), at=float("inf")),
        call(bytes=-1, error="x" * 1000, provider="a\ud800b", hook="two\nlines\x1b[31m"),
        call(bytes=1 << 70),
        A_CALL,
    )
    assert calls_in(home) == [
        call(at=0, seconds=0, bytes=0),
        call(bytes=0, error="x" * 200, provider="a b", hook="two lines [31m"),
        call(bytes=1 << 53),
        A_CALL,
    ]


def test_two_homes_have_two_logs(tmp_path):
    with closing(CallLog.of(tmp_path / "a")) as one, closing(CallLog.of(tmp_path / "b")) as other:
        one.add(A_CALL)
        other.add(call(provider="mem0"))
    assert [each.provider for each in calls_in(tmp_path / "a")] == ["honcho"]
    assert [each.provider for each in calls_in(tmp_path / "b")] == ["mem0"]


def test_a_hundred_logs_leave_no_thread_and_no_open_file(home):
    def open_files() -> int:
        return len([*Path("/proc/self/fd").glob("*")])  # none where there is no such folder

    write(home, A_CALL)
    before = open_files()
    logs = [CallLog.of(home) for _ in range(100)]
    for each in logs:
        each.add(A_CALL)
    assert len(threads()) == 1
    for each in logs:
        each.close()
    assert threads() == []
    assert open_files() == before
    assert len(calls_in(home)) == 101


WRITER = """
import sys
from pathlib import Path
from support.calls import call
from hermes_core.call_log import CallLog
log = CallLog.of(Path(sys.argv[1]))
sys.stdin.readline()
for number in range(2000):
    log.add(call(provider=sys.argv[2], bytes=number))
log.close()
"""


def test_processes_that_write_at_once_lose_nothing(home):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    writers = [
        subprocess.Popen(
            [sys.executable, "-P", "-c", WRITER, home, name],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            text=True,
        )
        for name in "abc"
    ]
    for each in writers:
        each.stdin.write("\n")
        each.stdin.flush()
    for each in writers:
        _, err = each.communicate(timeout=60)
        assert (each.returncode, err) == (0, "")
    found = calls_in(home)
    for name in "abc":
        assert sorted(each.bytes for each in found if each.provider == name) == list(range(2000))


KILLED = """
    from pathlib import Path
    from support.calls import call
    from hermes_core.call_log import CallLog, read_calls
    home = Path({home!r})
    log = CallLog.of(home)
    for number in range(1, 101):
        log.add(call(bytes=number))
    while not read_calls(home):
        time.sleep(0.01)
    log.add(call(bytes=101))
    os.kill(os.getpid(), 9)
"""


def test_kill_9_takes_the_last_half_second_and_nothing_else(home):
    run_script(KILLED.format(home=str(home)))
    assert [each.bytes for each in calls_in(home)] == list(range(1, 101))
    write(home, A_CALL)
    assert len(calls_in(home)) == 101


def test_a_process_that_ends_without_a_close_ends_at_once_and_quietly(home):
    done = run_script(
        f"""
        from pathlib import Path
        from support.calls import A_CALL
        from hermes_core.call_log import CallLog
        log = CallLog.of(Path({str(home)!r}))
        for _ in range(9_000):
            log.add(A_CALL)
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
