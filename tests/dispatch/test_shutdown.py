"""The end of a manager: what is queued is delivered, and what is not is told."""

from __future__ import annotations

import logging
import re
import threading
from typing import Any

import pytest
from support.providers import (
    DRIVE,
    QUICK,
    TOOL,
    Gate,
    Recorder,
    eventually,
    memory_threads,
    raising,
    running,
)

from hermes_core import MemoryManager


def _undelivered(caplog: pytest.LogCaptureFixture) -> list[int]:
    found = [re.search(r"(\d+) writes undelivered", each.getMessage()) for each in caplog.records]
    return [int(each[1]) for each in found if each]


def test_the_external_provider_is_shut_down_before_the_built_in() -> None:
    order: list[str] = []
    builtin = Recorder("builtin", shutdown=lambda: order.append("builtin"))
    external = Recorder("ext", shutdown=lambda: order.append("ext"))
    for providers in ((builtin, external), (external, builtin)):
        del order[:]
        with running(*providers):
            pass
        assert order == ["ext", "builtin"]


def test_the_built_in_is_shut_down_though_the_external_raises_or_hangs() -> None:
    builtin = Recorder("builtin")
    with running(builtin, Recorder(shutdown=raising(RuntimeError("boom")))) as manager:
        pass
    assert len(builtin.of("shutdown")) == 1
    assert manager.health()["ext"]["shutdown"].failures == 1
    with Gate() as gate, running(builtin, Recorder(shutdown=gate), deadlines=QUICK):
        pass
    assert len(builtin.of("shutdown")) == 2


def test_shutting_down_twice_does_it_once() -> None:
    external = Recorder()
    with running(external) as manager:
        manager.shutdown_all()
        manager.shutdown_all()
    assert len(external.of("shutdown")) == 1


def test_shutting_down_without_a_session_is_fine() -> None:
    external = Recorder()
    with running(external, start=False):
        pass
    assert external.hooks()[-1] == "shutdown"
    MemoryManager().shutdown_all()


def test_what_is_queued_is_delivered_before_the_shutdown() -> None:
    with Gate() as gate, running(external := Recorder(sync_turn=gate)) as manager:
        for number in range(10):
            manager.sync_all(str(number), "a")
        manager.on_session_end([])
        gate.open()
    assert external.hooks()[-12:] == [*["sync_turn"] * 10, "on_session_end", "shutdown"]


def test_writes_that_could_not_be_delivered_are_told(caplog: pytest.LogCaptureFixture) -> None:
    with Gate() as gate, caplog.at_level(logging.WARNING, "hermes_core"):
        with running(Recorder(sync_turn=gate), deadlines=QUICK._replace(write=5.0)) as manager:
            manager.sync_all("u", "a")
        assert len(_undelivered(caplog)) == 1
        assert "ext" in caplog.text


def test_the_number_of_undelivered_writes_is_right(caplog: pytest.LogCaptureFixture) -> None:
    with Gate() as gate, caplog.at_level(logging.WARNING, "hermes_core"):
        with running(Recorder(sync_turn=gate), deadlines=QUICK._replace(write=5.0)) as manager:
            for _ in range(3):
                manager.sync_all("u", "a")
            manager.flush_pending(0.01)
        assert _undelivered(caplog) == [3]


def test_a_recall_that_hangs_is_not_told_as_a_lost_write(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Gate() as gate, caplog.at_level(logging.WARNING, "hermes_core"):
        with running(Recorder(prefetch=gate), deadlines=QUICK) as manager:
            manager.prefetch_all("q")
        assert _undelivered(caplog) == []


def test_nothing_reaches_a_provider_after_its_shutdown() -> None:
    before = memory_threads()
    with Gate() as gate:
        external = Recorder(sync_turn=gate)
        with running(external, deadlines=QUICK._replace(write=5.0)) as manager:
            for number in range(8):
                manager.sync_all(str(number), "a")
    assert eventually(lambda: memory_threads() <= before)
    assert external.hooks()[-1] == "shutdown"


def test_shutting_down_does_not_wait_for_all_that_is_queued() -> None:
    with Gate() as gate:
        external = Recorder(sync_turn=gate)
        with running(external, deadlines=QUICK._replace(write=5.0)) as manager:
            for number in range(200):
                manager.sync_all(str(number), "a")
        assert len(external.of("sync_turn")) <= 1


@pytest.mark.parametrize(
    "hook",
    ["system_prompt_block", "prefetch", "handle_tool_call", "on_pre_compress"],
)
def test_a_call_after_the_shutdown_gives_nothing_at_once(hook: str) -> None:
    external = Recorder(tools=[TOOL], prefetch="recalled", system_prompt_block="prompt")
    with running(external, deadlines=QUICK._replace(prefetch=0.6, hook=0.6, tool=0.6)) as manager:
        DRIVE[hook](manager)
    assert "recalled" not in str(DRIVE[hook](manager))
    assert external.hooks()[-1] == "shutdown"


def test_a_call_after_the_shutdown_starts_no_thread() -> None:
    before = memory_threads()
    external = Recorder(prefetch="recalled")
    with running(external) as manager:
        pass
    assert eventually(lambda: memory_threads() <= before)
    try:
        manager.prefetch_all("q")
        manager.sync_all("u", "a")
        assert memory_threads() <= before
    finally:
        manager._external.close(1)  # type: ignore[union-attr]


def test_managers_can_be_shut_down_from_several_threads_at_once() -> None:
    external = Recorder()
    with running(external) as manager:
        callers = [threading.Thread(target=manager.shutdown_all) for _ in range(4)]
        for each in callers:
            each.start()
        for each in callers:
            each.join()
    assert len(external.of("shutdown")) == 1


def test_a_provider_that_ends_its_own_threads_late_is_waited_for() -> None:
    closed: list[Any] = []

    def shutdown() -> None:
        own = threading.Timer(0.05, closed.append, [True])
        own.start()
        own.join()

    with running(Recorder(shutdown=shutdown)):
        pass
    assert closed == [True]
