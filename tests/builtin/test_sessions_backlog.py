"""Messages that are not indexed yet: whom they keep waiting, and what a search says of them."""

import sqlite3
import sys
import threading
from contextlib import closing, contextmanager

import pytest
from support.archives import Talk, open_archive, search

from hermes_builtin.sessions.archive import NewMessage, Scope, SessionFacts
from hermes_builtin.sessions.sqlite import SqliteArchive, maintenance
from hermes_builtin.sessions.sqlite.index import BATCH

pytestmark = pytest.mark.usefixtures("both_storages")


@pytest.fixture
def path(home):
    return home / "state.db"


@pytest.fixture
def archive(home, monkeypatch):
    with closing(open_archive(home)) as archive:
        backlogs = sys.modules[type(archive._backlog).__module__]
        monkeypatch.setattr(backlogs, "_QUIET_SECONDS", 3600)
        yield archive


def say(archive, *texts, session="s1"):
    said = [NewMessage("user", text, 1.0) for text in texts]
    return archive.append(SessionFacts(session, source="cli", started=1.0), said)


@contextmanager
def written_by_another(path):
    """The lock on writing is somebody else's."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        yield


def threads():
    return [each.name for each in threading.enumerate()]


@pytest.fixture
def waits(archive, monkeypatch):
    """How long each attempt to index may wait for another process."""
    waits = []
    hurried = archive._file.hurried
    monkeypatch.setattr(archive._file, "hurried", lambda each: waits.append(each) or hurried(each))
    return waits


@pytest.mark.files_only("about the lock and the index of the file")
def test_the_end_is_not_held_up_by_another_process_that_writes(archive, path, waits, caplog):
    say(archive, *["okapi"] * (BATCH + 1))
    with written_by_another(path):
        archive.close()
    assert waits == [maintenance._BRIEFLY]
    assert not caplog.records  # nothing is wrong: the next search indexes it
    assert search(archive, "okapi")


@pytest.mark.files_only("about the lock and the index of the file")
def test_a_turn_behind_the_quiet_work_does_not_wait_for_another_process_twice(
    archive, path, waits, monkeypatch
):
    say(archive, *["okapi"] * BATCH)
    monkeypatch.setattr(maintenance, "_QUIET_SECONDS", 0)
    with written_by_another(path):
        assert archive._backlog._work_if_quiet() is None
    assert waits == [maintenance._BRIEFLY]
    assert search(archive, "okapi")


@pytest.mark.files_only("about the lock and the index of the file")
def test_the_end_is_not_held_up_by_a_long_backlog_and_the_rest_is_found_later(
    archive, path, monkeypatch
):
    monkeypatch.setattr(maintenance, "_CLOSING_SECONDS", 0)
    say(archive, *["okapi " * 1000] * 600, "quagga")
    archive.close()
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT count(*) FROM archive_unindexed").fetchone() == (1,)
    with closing(SqliteArchive(path)) as later:
        assert search(later, "quagga")


@pytest.mark.files_only("about the lock and the index of the file")
def test_long_messages_are_indexed_fewer_at_a_time(archive):
    numbers = say(archive, *[f"{'okapi ' * 10_000} rare{at}" for at in range(6)])
    assert archive._backlog._index_briefly()
    with archive._file.reading() as database:
        (first,) = database.execute("SELECT first FROM archive_unindexed").fetchone()
    assert numbers[0] < first <= numbers[3]
    assert [at for at in range(6) if not search(archive, f"rare{at}")] == []
    assert archive.check() == []


@pytest.mark.files_only("about the lock and the index of the file")
def test_who_is_about_to_write_holds_up_the_work_before_waiting_for_the_file(archive, monkeypatch):
    order = []
    writing = archive._file.writing
    monkeypatch.setattr(archive._backlog, "before_write", lambda: order.append("announced"))
    monkeypatch.setattr(archive._file, "writing", lambda: order.append("file") or writing())
    say(archive, "quagga")
    assert order[:2] == ["announced", "file"]


@pytest.mark.files_only("about the lock and the index of the file")
def test_a_damaged_message_does_not_end_the_quiet_work(archive, monkeypatch):
    uncaught = []
    monkeypatch.setattr(threading, "excepthook", uncaught.append)
    numbers = say(archive, "okapi", "quagga", "gnu")
    with archive._file.transaction() as database:
        database.execute("UPDATE archive_messages SET content = x'ff' WHERE id = ?", (numbers[0],))
        database.execute("UPDATE archive_messages SET checksum = 'odd' WHERE id = ?", (numbers[1],))
    monkeypatch.setattr(maintenance, "_QUIET_SECONDS", 0)
    assert archive._backlog._work_if_quiet() is None
    assert search(archive, "gnu")
    assert not uncaught


@pytest.mark.files_only("about the lock and the index of the file")
def test_messages_out_of_order_are_an_error_and_do_not_keep_the_index_busy_for_ever(path):
    with closing(SqliteArchive(path)) as archive:
        first, second = say(archive, "okapi", "quagga " * 30_000)
        archive._backlog._pending = 0
    stored, wanted = (_varint(second), _varint(first - 4))
    whole = path.read_bytes()
    at = whole.rindex(stored)
    path.write_bytes(whole[:at] + wanted + whole[at + len(stored) :])
    with closing(SqliteArchive(path)) as archive:
        assert "not in order" in str(archive.index_pending())
        assert archive.check()


def _varint(number):
    """A number as SQLite writes it."""
    parts = [number & 0x7F]
    while number := number >> 7:
        parts.append(number & 0x7F | 0x80)
    return bytes(reversed(parts))


# -- what a search says ----------------------------------------------------------------------


@pytest.mark.files_only("about the lock and the index of the file")
def test_while_the_index_can_not_be_written_new_messages_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr(maintenance, "WAIT_SECONDS", 0.05)
    monkeypatch.setattr(maintenance, "_BRIEFLY", 0.05)
    talk = Talk(tmp_path, "s1")
    talk.say("The okapi sleeps.")
    talk.close()
    talk = Talk(tmp_path, "s2")
    talk.say("The quagga sleeps.")
    other = Talk(tmp_path, "s3")
    with written_by_another(tmp_path / "state.db"):
        unknown, known = other.ask(query="quagga"), other.ask(query="okapi")
    assert [each["session_id"] for each in unknown["results"]] == ["s2"]
    assert [each["session_id"] for each in known["results"]] == ["s1"]
    assert other.found("quagga") == ["s2"]
    talk.close()
    other.close()


@pytest.mark.files_only("about the lock and the index of the file")
@pytest.mark.parametrize("size", [1, 40])
def test_damage_that_shows_while_messages_enter_the_index_is_mended_by_that_search(path, size):
    with closing(SqliteArchive(path)) as archive:
        say(archive, "okapi", session="old")
        assert search(archive, "okapi")
        say(archive, "quagga", session="new")
        archive._backlog._pending = 0  # it is left to the search
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE archive_index_data SET block = ? WHERE id = 10", (b"\xff" * size,))
    with closing(SqliteArchive(path)) as archive:
        assert search(archive, "quagga") == ["new"]
        assert search(archive, "okapi") == ["old"]
        assert archive.check() == []


def test_a_word_that_was_forgotten_and_said_again_is_found_though_misspelt(archive):
    say(archive, "the quaggamire", session="old")
    assert search(archive, "quagamire") == ["old"]
    archive.delete([archive.session("old", Scope())])
    say(archive, "the quaggamire", session="new")
    assert search(archive, "quagamire") == ["new"]


@pytest.mark.files_only("a repair locks the file")
def test_a_repair_begins_when_the_quiet_work_has_stopped(archive):
    say(archive, *["okapi"] * BATCH)
    assert "hermes-index" in threads()
    archive.repair()
    assert "hermes-index" not in threads()
