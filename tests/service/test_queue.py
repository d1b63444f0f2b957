"""Writes that wait in the process, for a host without an outbox."""

import logging
import os
import threading

import pytest

from hermes_core import HermesError
from hermes_core.service import Cause, WriteQueue, failure


def test_writes_are_carried_out_in_order():
    seen = []
    queue = WriteQueue("acme")
    for number in range(50):
        queue.put("a turn", lambda _, number=number: seen.append(number))
    assert queue.close(5) == 0
    assert seen == list(range(50))


def test_a_write_that_fails_is_tried_again_with_the_next_attempt(caplog):
    attempts = []

    def write(attempt):
        attempts.append(attempt)
        if attempt < 3:
            raise HermesError("away")

    queue = WriteQueue("acme", pause=0.001)
    queue.put("a turn", write)
    queue.close(5)
    assert attempts == [1, 2, 3]
    assert "a turn failed (try 1): away" in caplog.text


def test_what_fails_for_good_is_said_and_holds_up_nothing(caplog):
    seen = []

    def broken(attempt):
        raise HermesError("away")

    queue = WriteQueue("acme", tries=2, pause=0.001)
    queue.put("a turn", broken)
    queue.put("a turn", seen.append)
    queue.close(5)
    assert seen == [1]
    assert "a turn is lost" in caplog.text


def test_a_full_queue_says_so():
    gate = threading.Event()
    running = threading.Event()
    queue = WriteQueue("acme", waiting=1)
    queue.put("a turn", lambda _: running.set() or gate.wait(60))
    running.wait(60)
    queue.put("a turn", lambda _: None)
    try:
        with pytest.raises(HermesError, match="was not queued"):
            queue.put("a turn", lambda _: None, seconds=0.01)
    finally:
        gate.set()
        queue.close(5)


def test_the_end_tells_how_many_writes_are_left(caplog):
    gate = threading.Event()
    queue = WriteQueue("acme")
    for _ in range(3):
        queue.put("a turn", lambda _: gate.wait(60))
    with caplog.at_level(logging.ERROR):
        assert queue.close(0.05) == 3
    gate.set()
    assert "3 writes were not delivered" in caplog.text


@pytest.mark.parametrize("cause", [Cause.UNREACHABLE, Cause.QUOTA, Cause.WRONG_KEY])
def test_while_the_service_is_away_writes_wait_however_long(cause):
    seen = []

    def write(attempt):
        seen.append(attempt)
        if attempt < 20:
            raise failure(cause, service="acme")

    queue = WriteQueue("acme", tries=2, pause=0.0)
    queue.put("a turn", write)
    queue.put("a turn", lambda _: seen.append("next"))
    assert queue.close(5) == 0
    assert seen == [*range(1, 21), "next"]


def test_a_write_that_fails_by_itself_does_not_hold_up_the_others_for_ever():
    seen = []

    def poisoned(attempt):
        seen.append(attempt)
        raise failure(Cause.BROKEN, service="acme")

    queue = WriteQueue("acme", tries=2, pause=0.0)
    queue.put("a turn", poisoned)
    queue.put("a turn", lambda _: seen.append("next"))
    assert queue.close(5) == 0
    assert seen == [1, 2, "next"]


def test_what_was_left_at_the_end_is_not_begun_any_more():
    seen, gate, ended = [], threading.Event(), threading.Event()

    def slow(attempt):
        seen.append(attempt)
        gate.wait(60)
        ended.set()
        raise failure(Cause.UNREACHABLE, service="acme")

    queue = WriteQueue("acme", pause=0.0)
    queue.put("a turn", slow)
    queue.put("a turn", lambda _: seen.append("next"))
    assert queue.close(0.05) == 2
    worker = next(each for each in threading.enumerate() if each.name == "acme-writes")
    gate.set()
    worker.join(60)
    assert ended.is_set()
    assert seen == [1]


def test_what_is_left_at_the_end_is_not_tried_later_for_whoever_comes_next():
    gate, tried = threading.Event(), []

    def write(attempt):
        tried.append(attempt)
        gate.wait(60)
        raise HermesError("away")

    queue = WriteQueue("acme", pause=0.001)
    for _ in range(3):
        queue.put("a turn", write)
    (thread,) = [each for each in threading.enumerate() if each.name == "acme-writes"]
    queue.close(0.05)
    gate.set()
    thread.join(60)
    assert not thread.is_alive()
    assert tried == [1]
    with pytest.raises(HermesError, match="a turn was not queued"):
        queue.put("a turn", write)


def test_a_full_queue_ends_its_thread_too():
    gate, running = threading.Event(), threading.Event()
    queue = WriteQueue("acme", waiting=1)
    queue.put("a turn", lambda _: running.set() or gate.wait(60))
    running.wait(60)
    queue.put("a turn", lambda _: None)
    (thread,) = [each for each in threading.enumerate() if each.name == "acme-writes"]
    assert queue.close(0.05) == 2
    gate.set()
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_writes_what_it_was_given_and_nothing_of_its_parents(tmp_path):
    seen, held = tmp_path / "seen", threading.Event()

    def write(text):
        with seen.open("a", encoding="utf-8") as file:
            file.write(f"{text}\n")

    queue = WriteQueue("acme")
    queue.put("a turn", lambda _: held.wait(60))
    queue.put("a turn", lambda _: write("parent"))
    child = os.fork()
    if child == 0:
        try:
            queue.put("a turn", lambda _: write("child"))
            queue.close(5)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert seen.read_text("utf-8") == "child\n"
    held.set()
    assert queue.close(5) == 0
    assert seen.read_text("utf-8") == "child\nparent\n"


def test_a_write_whose_content_is_refused_is_tried_once(caplog):
    queue = WriteQueue("acme", pause=0.001)
    attempts = []

    def refused(attempt):
        attempts.append(attempt)
        raise failure(Cause.REFUSED, service="acme")

    queue.put("a turn", refused)
    assert queue.close(10) == 0
    assert attempts == [1]
    assert "is lost" in caplog.text


def test_a_write_that_meets_the_end_of_the_queue_is_refused(monkeypatch):
    queue = WriteQueue("acme")
    acquire = threading.Semaphore.acquire

    def closed_meanwhile(room, *args, **kwargs):
        queue.close(0)
        return acquire(room, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Semaphore, "acquire", closed_meanwhile)
        with pytest.raises(HermesError, match="it is shut down; a turn was not queued"):
            queue.put("a turn", lambda _: None)
