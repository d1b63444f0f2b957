"""The daemon-thread class: queue, deadlines, replacement, regular work, and its ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import Any

import pytest
from support.providers import Clock

from hermes_core.dispatch.worker import EventLoop, Worker
from hermes_core.errors import DeadlineExceeded, ProviderPaused


@pytest.fixture
def gate():
    """An event that lets hanging calls go at the end, whatever happens."""
    event = threading.Event()
    yield event
    event.set()


def threads(name: str) -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == name]


def wait_until_gone(name: str) -> bool:
    for each in threads(name):
        each.join(10)
    return not threads(name)


def test_calls_run_in_order_on_one_thread() -> None:
    worker, seen = Worker("order"), []
    for number in range(20):
        worker.submit(lambda number=number: seen.append((number, threading.current_thread().name)))
    assert worker.flush(10)
    assert seen == [(number, "order") for number in range(20)]
    worker.close()
    assert worker.join(10)


def test_no_thread_runs_before_the_first_call_and_none_after_close() -> None:
    worker = Worker("lazy")
    assert not worker.alive
    assert worker.call(worker.on_thread, 10)
    assert worker.alive
    worker.close()
    assert worker.join(10)
    assert worker.submit(print) is None
    assert not worker.wake()
    with pytest.raises(ProviderPaused, match="shut down"):
        worker.call(print, 1)


def test_a_call_past_its_deadline_is_replaced_once(gate: threading.Event) -> None:
    clock, stuck = Clock(), []
    worker = Worker("replaced", stuck.append, clock=clock)
    began = threading.Event()
    first = worker.submit(lambda: began.set() or gate.wait(10), 5, "first")
    assert began.wait(10)
    clock.now = 4.0
    assert not worker.stuck
    clock.now = 6.0
    assert worker.stuck
    assert worker.call(lambda: "second thread", 5) == "second thread"
    assert [each.label for each in stuck] == ["first"]
    assert len(threads("replaced")) == 2
    gate.set()
    assert first is not None
    assert first.wait(10)
    assert wait_for_one_thread(worker)
    worker.close()


def wait_for_one_thread(worker: Worker) -> bool:
    """The first thread takes its work back; the replacement ends."""
    for _ in range(1000):
        worker.call(lambda: None, 10)
        if len(threads(worker.name)) == 1 and not worker.stuck:
            return True
    return False


def test_a_caller_leaves_at_its_deadline_by_the_injected_clock(gate: threading.Event) -> None:
    clock = Clock()
    worker = Worker("impatient", clock=clock)
    began = threading.Event()

    def late() -> None:
        began.set()
        clock.now = 100.0
        gate.wait(10)

    with pytest.raises(DeadlineExceeded, match="within 5 s"):
        worker.call(late, 4.99968)  # what is left of a longer deadline
    assert began.is_set()
    worker.close()


def test_a_step_is_taken_when_woken_up_and_when_its_time_has_come() -> None:
    steps: list[float | None] = [0.0, 0.001, None, None]
    taken, done = [], threading.Semaphore(0)

    def step() -> float | None:
        taken.append(threading.current_thread().name)
        done.release()
        return steps[len(taken) - 1]

    worker = Worker("steps", step=step)
    assert worker.wake()
    for _ in range(3):
        assert done.acquire(timeout=10)
    assert worker.wake()
    assert done.acquire(timeout=10)
    assert worker.stop(10)
    assert taken == ["steps"] * 4


def test_a_step_that_raises_is_logged_and_the_thread_lives(
    caplog: pytest.LogCaptureFixture,
) -> None:
    done = threading.Semaphore(0)

    def step() -> None:
        done.release()
        raise ValueError("broken step")

    worker = Worker("raising", step=step)
    for _ in range(2):
        worker.wake()
        assert done.acquire(timeout=10)
    assert worker.stop(10)
    assert "broken step" in caplog.text


def test_a_thread_ends_when_it_has_lingered_and_the_next_call_starts_another() -> None:
    worker = Worker("lingering", linger=0)
    for _ in range(50):
        assert worker.call(lambda: 1, 10) == 1
    assert wait_until_gone("lingering")
    assert worker.call(lambda: 2, 10) == 2


def test_no_call_is_lost_while_threads_end() -> None:
    worker, seen, count = Worker("racing", linger=0), [], 300

    def submit(offset: int) -> None:
        for number in range(count):
            worker.submit(lambda number=number: seen.append(offset + number))

    callers = [threading.Thread(target=submit, args=(each * count,)) for each in range(3)]
    for each in callers:
        each.start()
    for each in callers:
        each.join(10)
    assert worker.flush(10)
    assert worker.stop(10)
    assert sorted(seen) == list(range(3 * count))


def test_stop_runs_what_is_queued_and_later_work_starts_again(gate: threading.Event) -> None:
    worker, seen = Worker("stopped"), []
    worker.submit(lambda: gate.wait(10))
    worker.submit(lambda: seen.append(1))
    assert not worker.stop(0.01)
    gate.set()
    assert worker.stop(10)
    assert seen == [1]
    assert not worker.alive
    worker.submit(lambda: seen.append(2))
    assert worker.stop(10)
    assert seen == [1, 2]


def test_a_wake_after_stop_is_not_lost(gate: threading.Event) -> None:
    steps, in_step = [], threading.Event()

    def step() -> None:
        steps.append(1)
        in_step.set()
        gate.wait(10)

    worker = Worker("woken", step=step, linger=0)
    worker.wake()
    assert in_step.wait(10)
    assert not worker.stop(0)
    worker.wake()
    gate.set()
    assert wait_until_gone("woken")
    assert len(steps) == 2


def test_the_first_thread_goes_on_when_its_replacement_has_ended(gate: threading.Event) -> None:
    clock = Clock()
    worker = Worker("alone", linger=0, clock=clock)
    began = threading.Event()
    worker.submit(lambda: began.set() or gate.wait(10), 5)
    assert began.wait(10)
    clock.now = 6.0
    assert worker.call(lambda: 1, 5) == 1
    gate.set()
    assert wait_until_gone("alone")
    assert worker.call(lambda: 2, 5) == 2
    assert not worker.stuck


def test_without_threads_waking_up_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    worker = Worker("refused", step=lambda: None)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        assert not worker.wake()
        with pytest.raises(RuntimeError):
            worker.submit(print)
    assert worker.call(lambda: 1, 10) == 1
    worker.close()


def test_a_worker_whose_thread_is_just_starting_can_be_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at_start, go_on = threading.Event(), threading.Event()
    start = threading.Thread.start

    def slowly(thread: threading.Thread) -> None:
        if thread.name == "memory-slow":
            at_start.set()
            go_on.wait(10)
        start(thread)

    worker = Worker("memory-slow")
    monkeypatch.setattr(threading.Thread, "start", slowly)
    other = threading.Thread(target=lambda: worker.submit(lambda: None, 1))
    other.start()
    assert at_start.wait(10)
    problems: list[Any] = []

    def close() -> None:
        try:
            worker.close()
            worker.join(60)
        except RuntimeError as error:
            problems.append(error)

    closer = threading.Thread(target=close)
    closer.start()
    closer.join(0.1)
    go_on.set()
    closer.join(10)
    other.join(10)
    assert problems == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_starts_with_an_empty_queue(gate: threading.Event) -> None:
    worker = Worker("forked")
    worker.submit(lambda: gate.wait(10))
    worker.submit(lambda: None)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            before = (worker.alive, worker.stop(0), worker.flush(0))
            answer = worker.call(lambda: "child", 10)
            os.write(write, repr((before, answer, worker.pending())).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 100) == repr(((False, True, True), "child", 0)).encode()
    os.close(read)
    os.close(write)
    worker.close()


def test_importing_the_class_imports_neither_pluggy_nor_asyncio() -> None:
    program = (
        "import sys; from hermes_core.dispatch.worker import Worker;"
        "print([each for each in ('pluggy', 'asyncio', 'yaml') if each in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_closes_a_loop_whose_lock_another_thread_had() -> None:
    loop = EventLoop("forked")
    taken = Worker("taken")
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with loop._lock:
            held.set()
            over.wait(60)

    taken.submit(hold)
    held.wait(60)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        loop.close()
        os._exit(0)
    over.set()
    assert os.waitpid(child, 0)[1] == 0
    taken.close()


def test_wake_ups_are_no_calls(gate: threading.Event) -> None:
    started = threading.Event()
    worker = Worker("woken", step=lambda: None)
    worker.submit(lambda: started.set() or gate.wait(60))
    started.wait(60)
    worker.wake()
    worker.wake()
    worker.submit(print)
    assert worker.pending() == 2
    gate.set()
    assert worker.flush(60)
    assert worker.pending() == 0
    worker.close()


def test_a_call_that_hangs_is_reported_although_there_is_no_thread_to_replace_its_own(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    clock, hung, started = Clock(), [], threading.Event()
    worker = Worker("alone", hung.append, clock=clock)
    worker.submit(lambda: started.set() or gate.wait(60), 1.0, "slow")
    started.wait(60)
    clock.now += 2
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        assert worker.stuck
    assert [each.label for each in hung] == ["slow"]
    assert worker.call(lambda: 1, 10) == 1
    worker.close()
