"""An external provider's three threads: who runs where, in which order, and for how long."""

from __future__ import annotations

import contextvars
import sqlite3
import sys
import threading
from typing import Any

import pytest
from support.providers import (
    DRIVE,
    TOOL,
    Minimal,
    Recorder,
    eventually,
    memory_threads,
    running,
)

from hermes_core import MemoryManager

MAIN = (
    "initialize",
    "system_prompt_block",
    "on_turn_start",
    "on_pre_compress",
    "get_tool_schemas",
    "handle_tool_call",
    "on_session_end",
    "on_session_switch",
    "on_delegation",
    "on_memory_write",
    "shutdown",
)
RECALL = ("prefetch", "recall_status")
WRITE = ("sync_turn", "queue_prefetch")

REQUEST: contextvars.ContextVar[str] = contextvars.ContextVar("request", default="none")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the threads that were started during the test."""
    names: list[str] = []
    start = threading.Thread.start

    def counted(thread: threading.Thread) -> None:
        names.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", counted)
    return names


def _turn(manager: MemoryManager, number: int = 1) -> None:
    manager.on_turn_start(number, "hello")
    manager.prefetch_all("hello")
    manager.recall_status_all()
    manager.handle_tool_call("ext_tool", {})
    manager.sync_all("hello", "hi")
    manager.queue_prefetch_all("hello")


def test_each_lane_is_one_thread_and_none_is_the_caller_s() -> None:
    provider = Recorder(tools=[TOOL])
    with running(provider) as manager:
        for number in range(3):
            manager.build_system_prompt()
            _turn(manager, number)
            for drive in DRIVE.values():
                drive(manager)
            manager.flush_pending(5)
        manager.shutdown_all()
    threads = [provider.threads(*hooks) for hooks in (MAIN, RECALL, WRITE)]
    assert [len(each) for each in threads] == [1, 1, 1]
    assert len(set.union(*threads)) == 3
    assert threading.current_thread() not in set.union(*threads)


def test_a_database_connection_of_initialize_serves_prompt_tools_and_shutdown() -> None:
    held: dict[str, sqlite3.Connection] = {}

    def initialize(session_id: str, **kwargs: Any) -> None:
        held["db"] = sqlite3.connect(":memory:")
        held["db"].execute("create table t (x)")

    def count(*args: Any, **kwargs: Any) -> str:
        held["db"].execute("insert into t values (1)")
        return str(held["db"].execute("select count(*) from t").fetchone()[0])

    provider = Recorder(
        tools=[TOOL],
        initialize=initialize,
        system_prompt_block=count,
        handle_tool_call=count,
        on_turn_start=count,
        on_pre_compress=count,
        shutdown=lambda: held.pop("db").close(),
    )
    with running(provider) as manager:
        assert manager.build_system_prompt() == "1"
        assert manager.handle_tool_call("ext_tool", {}) == "2"
        manager.on_turn_start(1, "m")
        assert manager.on_pre_compress([]) == "4"
        manager.shutdown_all()
        assert all(each.failures == 0 for each in manager.health()["ext"].values())


def test_the_built_in_runs_on_the_caller_s_thread() -> None:
    builtin = Recorder("builtin")
    with running(builtin) as manager:
        _turn(manager)
        manager.on_session_end([])
    assert {each.thread for each in builtin.calls} == {threading.current_thread()}


@pytest.mark.parametrize("hook", DRIVE)
def test_context_variables_of_the_caller_hold_in_every_call(hook: str) -> None:
    seen: list[str] = []
    provider = Recorder(tools=[TOOL], **{hook: lambda *args, **kwargs: seen.append(REQUEST.get())})
    with running(provider) as manager:
        token = REQUEST.set("mine")
        try:
            del seen[:]
            DRIVE[hook](manager)
        finally:
            REQUEST.reset(token)
        assert eventually(lambda: seen)
        assert seen[0] == "mine"


def test_what_a_provider_sets_in_a_context_stays_in_its_call() -> None:
    with running(Recorder(system_prompt_block=lambda: REQUEST.set("its own") and "")) as manager:
        manager.build_system_prompt()
        assert REQUEST.get() == "none"


def test_threads_are_made_when_first_needed(started: list[str]) -> None:
    provider = Recorder()
    manager = MemoryManager()
    assert started == []
    manager.add_provider(provider)
    manager.initialize_all("s1")
    assert len(started) == 1
    manager.prefetch_all("q")
    assert len(started) == 2
    manager.sync_all("u", "a")
    assert len(started) == 4  # and one that looks after the outbox
    manager.shutdown_all()


def test_no_thread_is_started_for_a_turn(started: list[str]) -> None:
    with running(Recorder("builtin"), Recorder(tools=[TOOL])) as manager:
        _turn(manager)
        manager.flush_pending(5)
        del started[:]
        for number in range(50):
            _turn(manager, number)
        manager.flush_pending(5)
        assert started == []


def test_who_neither_recalls_nor_writes_has_no_thread_for_it(started: list[str]) -> None:
    with running(Minimal("builtin"), Minimal()) as manager:
        for number in range(3):
            _turn(manager, number)
        assert len(started) <= 1


def test_the_threads_are_gone_after_the_shutdown() -> None:
    before = memory_threads()
    with running(Recorder(tools=[TOOL])) as manager:
        _turn(manager)
        assert memory_threads() - before
    assert eventually(lambda: memory_threads() <= before)


def test_writes_keep_their_order_however_long_each_takes() -> None:
    written: list[str] = []
    queued = threading.Event()

    def write(*args: Any, **kwargs: Any) -> None:
        queued.wait(10)
        written.append(args[0] if isinstance(args[0], str) else "end")

    provider = Recorder(sync_turn=write, on_delegation=write, on_session_end=write)
    with running(provider) as manager:
        for number in range(10):
            manager.sync_all(f"turn {number}", "a")
            manager.on_delegation(f"task {number}", "r")
        manager.on_session_end([])
        queued.set()
        assert manager.flush_pending(10)
    turns = [f"turn {number}" for number in range(10)]
    tasks = [f"task {number}" for number in range(10)]
    assert [each for each in written if each in turns] == turns
    assert [each for each in written if each in tasks] == tasks
    assert all(
        written.index(turn) < written.index(task) for turn, task in zip(turns, tasks, strict=True)
    )
    assert written[-1] == "end"


def test_a_turn_does_not_wait_for_its_writes() -> None:
    release = threading.Event()
    provider = Recorder(sync_turn=lambda *args, **kwargs: release.wait(10), tools=[TOOL])
    with running(provider) as manager:
        for number in range(3):
            _turn(manager, number)
        assert not release.is_set()
        assert not manager.flush_pending(0.01)
        release.set()
        assert manager.flush_pending(10)
        assert len(provider.of("sync_turn")) == 3


@pytest.mark.parametrize(
    "hook",
    [
        "sync_turn",
        "on_memory_write",
        "queue_prefetch",
        "on_turn_start",
    ],
)
def test_flushing_waits_for_whatever_is_queued(hook: str) -> None:
    done: list[str] = []
    release = threading.Event()

    def slow(*args: Any, **kwargs: Any) -> None:
        release.wait(10)
        done.append(hook)

    with running(Recorder(**{hook: slow})) as manager:
        DRIVE[hook](manager)
        assert not manager.flush_pending(0.01)
        threading.Timer(0.05, release.set).start()
        assert manager.flush_pending(10)
        assert done == [hook]


@pytest.mark.parametrize("timeout", [0, -1, 0.0])
def test_flushing_without_time_tells_whether_something_is_pending(timeout: float) -> None:
    release = threading.Event()
    with running(Recorder(sync_turn=lambda *args, **kwargs: release.wait(10))) as manager:
        manager.sync_all("u", "a")
        assert not manager.flush_pending(timeout)
        release.set()
        assert manager.flush_pending(10)


def test_flushing_without_time_is_true_where_nothing_is_pending() -> None:
    with running(Recorder()) as manager:
        manager.sync_all("u", "a")
        manager.queue_prefetch_all("q")
        assert manager.flush_pending(10)
        assert [manager.flush_pending(0) for _ in range(20)] == [True] * 20


def test_flushing_a_manager_without_an_external_provider_is_done_at_once() -> None:
    with running(Recorder("builtin")) as manager:
        assert manager.flush_pending(0)


def test_a_provider_may_call_the_manager_back_from_its_own_thread() -> None:
    provider = Recorder(tools=[TOOL], prefetch="recalled", system_prompt_block="prompt")
    with running(provider) as manager:
        provider.answers["handle_tool_call"] = lambda *args, **kwargs: (
            f'"{manager.build_system_prompt()} {manager.prefetch_all("q")}"'
        )
        assert manager.handle_tool_call("ext_tool", {}) == '"prompt recalled"'


def test_a_lane_has_one_thread_however_many_callers_come_first() -> None:
    before = memory_threads()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        assert {_threads_of_a_rush() for _ in range(60)} == {1}
    finally:
        sys.setswitchinterval(interval)
    assert eventually(lambda: memory_threads() <= before)


def _threads_of_a_rush() -> int:
    """How many threads serve eight callers that are all the first."""
    provider = Recorder()
    barrier = threading.Barrier(8)
    with running(provider, start=False) as manager:

        def recall() -> None:
            barrier.wait()
            manager.prefetch_all("q")

        callers = [threading.Thread(target=recall) for _ in range(8)]
        for each in callers:
            each.start()
        for each in callers:
            each.join()
    return len(provider.threads("prefetch"))
