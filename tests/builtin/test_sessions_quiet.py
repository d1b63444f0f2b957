"""What a turn does not wait for: the index is brought up to date in a quiet moment."""

import threading
import time
from contextlib import closing

import pytest

from hermes_builtin.sessions._model import NewMessage, SessionFacts
from hermes_builtin.sessions.sqlite import SqliteArchive
from hermes_builtin.sessions.sqlite import _backlog as backlogs
from hermes_builtin.sessions.sqlite._indexing import BATCH, is_pending
from hermes_builtin.sessions.sqlite._quiet import QuietWork


@pytest.fixture
def archive(tmp_path):
    with closing(SqliteArchive(tmp_path / "state.db")) as archive:
        yield archive


def fill(archive, count):
    facts = SessionFacts("s1", source="cli", started=1.0)
    for number in range(count):
        archive.append(facts, [NewMessage("user", f"message {number}", 1.0)])


def quiet(archive, seconds):
    archive._backlog._quiet = QuietWork(archive._backlog._tidy_up, seconds=seconds)


def pending(archive):
    with archive._connections.reading() as database:
        return is_pending(database)


def wait_until(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def test_a_turn_does_not_wait_for_the_index(archive, monkeypatch):
    quiet(archive, 3600)
    indexed = []
    monkeypatch.setattr(
        archive._backlog._indexer, "some_pending", lambda _: indexed.append(1) or (0, False)
    )
    fill(archive, 2 * BATCH)
    assert not indexed


def test_in_a_quiet_moment_the_index_is_brought_up_to_date(archive):
    quiet(archive, 0.05)
    fill(archive, 2 * BATCH + 1)
    assert wait_until(lambda: not pending(archive))
    assert archive.check() == []


def test_without_a_quiet_moment_the_backlog_stays_bounded(archive, monkeypatch):
    monkeypatch.setattr(backlogs, "_MOST_PENDING", 2 * BATCH)
    quiet(archive, 3600)
    fill(archive, 4 * BATCH)
    with archive._connections.reading() as database:
        (first,) = database.execute("SELECT first FROM archive_unindexed").fetchone()
        (left,) = database.execute(
            "SELECT count(*) FROM archive_messages WHERE id >= ?", (first,)
        ).fetchone()
    assert left <= 2 * BATCH


def test_the_work_waits_while_something_happens_and_then_goes_to_its_end():
    steps = []
    work = QuietWork(lambda: steps.append(time.monotonic()) or len(steps) < 3, seconds=0.2)
    for _ in range(10):
        work.stir(has_work=True)
        last = time.monotonic()
        time.sleep(0.01)
    assert not steps
    assert wait_until(lambda: len(steps) == 3)
    assert steps[0] >= last + 0.2
    assert wait_until(lambda: not work._thread.is_alive())


def test_the_end_waits_for_the_step_that_is_being_taken_and_takes_no_other():
    begun, go_on = threading.Event(), threading.Event()
    steps = []

    def step():
        begun.set()
        go_on.wait(10)
        steps.append(1)
        return True

    work = QuietWork(step, seconds=0)
    work.stir(has_work=True)
    assert begun.wait(10)
    threading.Timer(0.05, go_on.set).start()
    work.end()
    assert steps == [1]
    work.end()


def test_many_who_come_at_once_start_one_thread_and_the_end_leaves_none():
    """As managers of one home do that share its archive."""
    names = []
    barrier = threading.Barrier(8)
    work = QuietWork(lambda: names.append(threading.current_thread().name) or False, seconds=0.2)

    def come():
        barrier.wait(10)
        work.stir(has_work=True)

    for _ in range(20):
        threads = [threading.Thread(target=come) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [each.name for each in threading.enumerate()].count("hermes-quiet-work") == 1
        work.end()
        assert "hermes-quiet-work" not in [each.name for each in threading.enumerate()]
    assert names == []


def test_who_writes_does_not_wait_for_a_fork_that_waits_for_them(archive):
    """As an import would, which holds the archive's lock all the while."""
    quiet(archive, 3600)
    archive._backlog._quiet.before_fork()
    writer = threading.Thread(target=fill, args=(archive, BATCH), daemon=True)
    writer.start()
    writer.join(10)
    archive._backlog._quiet.after_fork()
    assert archive._backlog._pending == BATCH
    assert not writer.is_alive()
