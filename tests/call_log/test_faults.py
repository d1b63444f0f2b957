"""Whatever is wrong with the file, nobody but the log hears of it, and that only once."""

from __future__ import annotations

import random
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.calls import A_CALL, call, write
from support.commands import posix_only, wait_until
from support.other_user import NOBODY, shared_folder
from support.scripts import run_script

from hermes_core.call_log import CallLog, lost_calls, path_of, read_calls
from hermes_core.call_log.log import CallWriter
from hermes_core.errors import DatabaseError, ForeignDatabase


@pytest.fixture(autouse=True)
def _soon_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CallWriter, "SECONDS", 0.05)
    monkeypatch.setattr(CallWriter, "RETRY_SECONDS", 0.05)


@pytest.fixture
def log(home: Path) -> Iterator[CallLog]:
    with closing(CallLog.of(home)) as made:
        yield made


def has(home: Path, provider: str) -> bool:
    return wait_until(lambda: bool(read_calls(home, provider=provider)), 10)


def messages(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def spoil_header(path: Path) -> None:
    path.write_bytes(b"no database" * 1000)


def spoil_pages(path: Path, seed: int = 0) -> None:
    """Leave the header and what stands in it; all else is noise."""
    with path.open("r+b") as file:
        file.seek(200)
        file.write(random.Random(seed).randbytes(path.stat().st_size - 200))


def spoil_lengths(path: Path) -> None:
    """Noise that SQLite calls too big instead of malformed."""
    spoil_pages(path, seed=348)


def spoil_names(path: Path) -> None:
    """Noise that SQLite quotes in a message, which is no UTF-8 then."""
    spoil_pages(path, seed=285)


@pytest.mark.parametrize("spoil", [spoil_header, spoil_pages, spoil_lengths, spoil_names])
def test_a_damaged_log_is_moved_aside_named_and_begun_anew(home, caplog, spoil):
    write(home, *[A_CALL] * 100)
    path = path_of(home)
    spoil(path)
    damaged = path.read_bytes()
    write(home, call(provider="new"))
    aside = path.with_name("memory-calls.db.damaged")
    assert [each.provider for _, each in read_calls(home)] == ["new"]
    assert aside.read_bytes() == damaged
    assert messages(caplog) == [
        f"{path}: was damaged: renamed to {aside}, and a new log was created"
    ]


def test_damage_while_it_is_in_use_is_noticed_too(home, log, caplog):
    for _ in range(500):
        log.add(A_CALL)
    assert has(home, "honcho")
    with closing(sqlite3.connect(path_of(home))) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    spoil_pages(path_of(home))
    log.add(call(provider="new"))
    assert wait_until(lambda: path_of(home).with_name("memory-calls.db.damaged").exists())
    assert has(home, "new")
    assert wait_until(lambda: len(messages(caplog)) == 1)


def test_the_wal_of_a_damaged_log_goes_with_it(home):
    write(home, *[A_CALL] * 10)
    path = path_of(home)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("UPDATE calls SET bytes = 1")
        spoil_header(path)
        write(home, call(provider="new"))
        assert path.with_name(f"{path.name}.damaged-wal").stat().st_size > 0
        assert [each.provider for _, each in read_calls(home)] == ["new"]
    assert [each.provider for _, each in read_calls(home)] == ["new"]


def test_only_the_last_damaged_log_is_kept(home):
    for _ in range(3):
        write(home, A_CALL)
        spoil_header(path_of(home))
    write(home, A_CALL)
    names = sorted(each.name for each in path_of(home).parent.iterdir())
    assert names == ["memory-calls.db", "memory-calls.db.damaged", "memory-calls.db.lock"]


def test_numbers_go_on_growing_in_a_new_log(home):
    write(home, *[A_CALL] * 10)
    last = max(number for number, _ in read_calls(home))
    shutil.rmtree(path_of(home).parent)
    write(home, call(provider="new"))
    assert [each.provider for _, each in read_calls(home, after=last)] == ["new"]


def test_a_log_that_was_deleted_in_use_is_begun_anew(home, log, caplog):
    log.add(A_CALL)
    assert has(home, "honcho")
    shutil.rmtree(path_of(home).parent)
    log.add(call(provider="new"))
    assert has(home, "new")
    assert messages(caplog) == []


def test_a_database_of_somebody_else_is_left_alone_and_told_once(home, log, caplog):
    path = path_of(home)
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE theirs (x)")
    before = path.read_bytes()
    for _ in range(3):
        log.add(A_CALL)
        assert wait_until(lambda: len(messages(caplog)) == 1)
    assert path.read_bytes() == before
    with pytest.raises(ForeignDatabase):
        read_calls(home)
    path.unlink()
    assert has(home, "honcho")  # what waited meanwhile was not lost
    assert len(read_calls(home)) == 3
    assert "is not the log of calls of hermes-plugins" in messages(caplog)[0]
    assert len(messages(caplog)) == 1


@pytest.mark.parametrize("where", ["logs", "logs/memory-calls.db"])
def test_what_is_in_the_way_is_told_once_and_waited_for(home, log, caplog, where):
    obstacle = home / where
    obstacle.parent.mkdir(exist_ok=True)
    obstacle.write_text("") if where == "logs" else obstacle.mkdir()
    log.add(A_CALL)
    assert wait_until(lambda: len(messages(caplog)) == 1)
    obstacle.unlink() if where == "logs" else obstacle.rmdir()
    assert has(home, "honcho")
    assert len(messages(caplog)) == 1


def test_a_log_that_can_not_be_written_is_closed_without_a_wait(home, log, caplog):
    path_of(home).mkdir(parents=True)
    log.add(A_CALL)
    log.close()
    assert wait_until(lambda: "hermes-call-log" not in {t.name for t in threading.enumerate()})
    assert len(messages(caplog)) == 1


def test_somebody_who_locks_the_log_for_long_holds_up_nobody(home, log, caplog):
    log.add(A_CALL)
    assert has(home, "honcho")
    with closing(sqlite3.connect(path_of(home), isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        log.add(call(provider="waits"))
        assert wait_until(lambda: len(messages(caplog)) == 1)
        database.execute("ROLLBACK")
    assert has(home, "waits")
    assert "database is locked" in messages(caplog)[0]


FULL = """
    import logging, resource, threading
    from pathlib import Path
    from support.calls import call
    from hermes_core.call_log import CallLog, read_calls
    from hermes_core.call_log.log import CallWriter

    class Warned(logging.StreamHandler):
        event = threading.Event()

        def emit(self, record):
            super().emit(record)
            if "calls are not logged for now" in record.getMessage():
                self.event.set()

    logging.basicConfig(format="%(message)s", handlers=[Warned(sys.stdout)])
    CallWriter.RETRY_SECONDS = 0.1
    CallWriter.MAX_WAITING = 1000
    home = Path({home!r})
    log = CallLog.of(home)
    resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, resource.RLIM_INFINITY))
    for number in range(5000):
        log.add(call(error="e" * 200))
        # Now and then, until all is written or the disk is full.
        while number % 500 == 0 and log._writer._waiting and not Warned.event.is_set():
            time.sleep(0.001)
    assert Warned.event.wait(60)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    log.add(call(provider="after"))
    log.close()
"""


@posix_only
@pytest.mark.parametrize("room", [0, pytest.param(4096, marks=pytest.mark.stress), 150_000])
def test_a_full_disk_is_told_once_and_the_log_goes_on_when_there_is_room(home, room):
    done = run_script(FULL.format(home=str(home), room=room))
    assert (done.returncode, done.stderr) == (0, "")
    told = done.stdout.splitlines()
    assert len([line for line in told if "calls are not logged for now" in line]) == 1, told
    assert [each.provider for _, each in read_calls(home)][-1] == "after"
    assert len(read_calls(home, limit=10**6)) + lost_calls(home).calls == 5001
    with closing(sqlite3.connect(path_of(home))) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


READ_ONLY = """
    import logging
    from pathlib import Path
    from support.calls import A_CALL
    from hermes_core.call_log import CallLog, read_calls

    logging.basicConfig(format="%(message)s", stream=sys.stdout)
    if os.geteuid() == 0:
        os.setuid({nobody})
    home = Path({home!r})
    log = CallLog.of(home)
    log.add(A_CALL)
    log.close()
    print(len(read_calls(home)))
"""


@posix_only
@pytest.mark.parametrize("begun", [False, True], ids=["without a log", "with a log"])
def test_a_home_that_can_only_be_read_is_told_once_and_can_be_read(begun):
    with shared_folder() as folder:  # pytest's folder may be root's alone
        home = folder / "home"
        home.mkdir()
        folders = [home]
        if begun:
            write(home, A_CALL)
            path_of(home).chmod(0o444)
            folders.append(path_of(home).parent)
        for each in folders:
            each.chmod(0o555)
        done = run_script(READ_ONLY.format(home=str(home), nobody=NOBODY))
        for each in folders:
            each.chmod(0o755)
    assert done.stderr == ""
    warning, count = done.stdout.splitlines()
    assert "calls are not logged for now" in warning
    assert count == str(int(begun))


def test_who_reads_a_damaged_log_hears_where_it_is(home):
    write(home, A_CALL)
    spoil_header(path_of(home))
    with pytest.raises(DatabaseError, match="file is not a database") as caught:
        read_calls(home)
    assert caught.value.where == str(path_of(home))
