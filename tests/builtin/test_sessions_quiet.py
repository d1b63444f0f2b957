"""What a turn does not wait for: the index is brought up to date in a quiet moment."""

import sys
import threading
import time
from contextlib import closing

import pytest
from support.archives import open_archive
from support.storages import Storage

from hermes_builtin.sessions.archive import NewMessage, SessionFacts
from hermes_builtin.sessions.sqlite import maintenance
from hermes_builtin.sessions.sqlite.index import BATCH, is_pending

pytestmark = pytest.mark.usefixtures("both_storages")


@pytest.fixture
def archive(home):
    with closing(open_archive(home)) as archive:
        yield archive


@pytest.fixture
def backlogs(archive):
    """The module that decides when the archive indexes."""
    return sys.modules[type(archive._backlog).__module__]


def fill(archive, count):
    facts = SessionFacts("s1", source="cli", started=1.0)
    for number in range(count):
        archive.append(facts, [NewMessage("user", f"message {number}", 1.0)])


def pending(archive):
    if Storage.current.url:
        Storage.current.execute("SELECT set_config('hermes.scope', '{}', false)")
        behind = "SELECT 1 FROM archive_sessions WHERE indexed < next"
        return Storage.current.execute(behind).fetchone() is not None
    with archive._file.reading() as database:
        return is_pending(database)


def wait_until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def thread_names():
    return [each.name for each in threading.enumerate()]


def test_a_turn_does_not_wait_for_the_index(archive, backlogs, monkeypatch):
    monkeypatch.setattr(backlogs, "_QUIET_SECONDS", 3600)
    indexed = []
    monkeypatch.setattr(archive._backlog, "_index_some", lambda *_, **__: indexed.append(1) or 0)
    fill(archive, 2 * BATCH)
    assert not indexed


def test_in_a_quiet_moment_the_index_is_brought_up_to_date(archive, backlogs, monkeypatch):
    monkeypatch.setattr(backlogs, "_QUIET_SECONDS", 0.05)
    fill(archive, 2 * BATCH + 1)
    assert wait_until(lambda: not pending(archive))
    assert archive.check() == []
    assert wait_until(lambda: "hermes-index" not in thread_names())


@pytest.mark.files_only("about the steps of the index in the file")
def test_without_a_quiet_moment_the_backlog_stays_bounded(archive, monkeypatch):
    monkeypatch.setattr(maintenance, "_MOST_PENDING", 2 * BATCH)
    monkeypatch.setattr(maintenance, "_QUIET_SECONDS", 3600)
    fill(archive, 4 * BATCH)
    with archive._file.reading() as database:
        (first,) = database.execute("SELECT first FROM archive_unindexed").fetchone()
        (left,) = database.execute(
            "SELECT count(*) FROM archive_messages WHERE id >= ?", (first,)
        ).fetchone()
    assert left <= 2 * BATCH


@pytest.mark.files_only("about the steps of the index in the file")
def test_the_work_waits_while_something_is_written_and_then_goes_to_its_end(archive, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(maintenance, "monotonic", lambda: now[0])
    steps = iter([True, True, False])
    monkeypatch.setattr(archive._backlog, "_index_briefly", lambda: next(steps))
    work = archive._backlog._work_if_quiet
    archive._backlog.before_write()
    now[0] += 0.1
    archive._backlog.before_write()
    now[0] += 0.2
    assert work() == pytest.approx(0.05)
    now[0] += 0.1
    assert [work(), work(), work()] == [0, 0, None]


@pytest.mark.files_only("about the steps of the index in the file")
def test_the_end_waits_for_the_step_that_is_being_taken_and_takes_no_other(archive, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()
    steps = []

    def step():
        begun.set()
        go_on.wait(10)
        steps.append(1)
        return True

    monkeypatch.setattr(maintenance, "_QUIET_SECONDS", 0)
    monkeypatch.setattr(archive._backlog, "_index_briefly", step)
    archive._backlog.add(BATCH)
    assert begun.wait(10)
    ending = threading.Thread(target=archive._backlog.stop)
    ending.start()
    go_on.set()
    ending.join(10)
    assert len(steps) <= 2  # one may have begun before the end was asked for
    assert "hermes-index" not in thread_names()
    archive._backlog.stop()


def test_many_who_come_at_once_start_one_thread_and_the_end_leaves_none(
    archive, backlogs, monkeypatch
):
    """As managers of one home do that share its archive."""
    monkeypatch.setattr(backlogs, "_QUIET_SECONDS", 3600)
    for _ in range(5):
        barrier = threading.Barrier(8)

        def come(barrier=barrier):
            barrier.wait(10)
            archive._backlog.add(BATCH // 4)

        threads = [threading.Thread(target=come) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert thread_names().count("hermes-index") == 1
        archive._backlog._worker.stop(30)
        assert "hermes-index" not in thread_names()
    archive._backlog._pending = 0  # nothing is left to do at the end
