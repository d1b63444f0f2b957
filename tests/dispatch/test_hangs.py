"""A provider that hangs costs its deadline once, and nothing after that."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter, sleep

import pytest
from support.providers import (
    DRIVE,
    QUICK,
    SLACK,
    TOOL,
    Gate,
    Recorder,
    eventually,
    memory_threads,
    running,
    sample_arguments,
)

from hermes_core import Deadlines, MemoryManager
from hermes_core.dispatch import ProviderAdapter
from hermes_core.dispatch._health import Breaker
from hermes_core.errors import DeadlineExceeded
from hermes_core.hookspecs import HOOKS

#: Nobody waits for these, so nobody notices that they hang.

#: How long the method that hangs may take; everything else has time.
BRIEF = 0.12


def _brief(hook: str) -> Deadlines:
    patient = Deadlines(*[2.0] * len(Deadlines._fields))
    brief = {"shutdown": 0.5, HOOKS[hook].deadline: BRIEF}
    if hook == "on_session_switch":
        brief["hook"] = BRIEF  # for so long a switch waits
    return patient._replace(**brief)


@contextmanager
def _hanging_in(hook: str) -> Iterator[tuple[MemoryManager, Recorder, Gate]]:
    """A manager of a provider that hangs from now on in one of its methods."""
    external = Recorder(tools=[TOOL])
    with Gate() as gate, running(external, deadlines=_brief(hook)) as manager:
        del external.calls[:]
        external.answers[hook] = gate
        yield manager, external, gate
        gate.open()


def _seconds(manager: MemoryManager, hook: str) -> float:
    begin = perf_counter()
    DRIVE[hook](manager)
    return perf_counter() - begin


@pytest.mark.parametrize("hook", HOOKS)
def test_every_method_is_given_up_at_its_deadline(hook: str) -> None:
    with Gate() as gate:
        provider = Recorder(**{hook: gate})
        adapter = ProviderAdapter(provider, "ext", deadlines=_brief(hook))
        adapter.tools = frozenset({"ext_tool"})
        begin = perf_counter()
        outcome = getattr(adapter, hook)(**sample_arguments(hook))
        assert perf_counter() - begin < 0.5 + SLACK
        assert isinstance(outcome.error, DeadlineExceeded)
        assert " s" in str(outcome.error)
        assert outcome.value == HOOKS[hook].neutral
        assert adapter.health()[hook].failures == 1
        adapter.close(0)


@pytest.mark.parametrize("hook", DRIVE)
def test_a_caller_is_back_at_the_deadline_and_the_built_in_answers(hook: str) -> None:
    builtin = Recorder("builtin", prefetch="recalled", system_prompt_block="notes")
    with _hanging_in(hook) as (manager, _, _):
        assert manager.add_provider(builtin)
        assert _seconds(manager, hook) < BRIEF + SLACK
        assert manager.build_system_prompt() == "notes"
        assert manager.prefetch_all("q") == "recalled"


@pytest.mark.parametrize("hook", DRIVE)
def test_the_breaker_opens_and_health_says_why(hook: str) -> None:
    with _hanging_in(hook) as (manager, _, _):
        DRIVE[hook](manager)
        sleep(2 * BRIEF)
        DRIVE[hook](manager)  # whoever looks next, notices
        health = manager.health()["ext"].get(hook)
        assert health is not None
        assert health.failures >= 1
        assert health.breaker == "open"
        assert health.last_error


@pytest.mark.parametrize("hook", ["prefetch", "handle_tool_call", "sync_turn"])
def test_a_lane_is_replaced_once_and_not_again_while_both_hang(hook: str) -> None:
    before = memory_threads()
    with _hanging_in(hook) as (manager, external, _):
        for _ in range(4):
            DRIVE[hook](manager)
            sleep(2 * BRIEF)
        assert 1 <= len(external.of(hook)) <= 2
        names = [each.name for each in memory_threads() - before]
        assert len(names) <= len(set(names)) + 1


@pytest.mark.parametrize(
    "hook",
    [
        each
        for each in DRIVE
        if not each.startswith("initialize")  # never held back: it is how one gets going again
    ],
)
def test_later_calls_do_not_wait_again(hook: str) -> None:
    with _hanging_in(hook) as (manager, _, _):
        for _ in range(2):
            DRIVE[hook](manager)
            sleep(2 * BRIEF)
        later = sorted(_seconds(manager, hook) for _ in range(4))
    assert later[2] < BRIEF / 2


def test_a_turn_start_that_hangs_does_not_cost_the_recall() -> None:
    external = Recorder(prefetch="recalled")
    with Gate() as gate, running(external, deadlines=QUICK) as manager:
        external.answers["on_turn_start"] = gate
        found = []
        for number in range(4):
            manager.on_turn_start(number, "m")
            found.append(manager.prefetch_all("q"))
            sleep(0.1)
        gate.open()
    assert found[1:] == ["recalled"] * 3  # the first may have come too late


def test_a_tool_call_behind_a_hang_waits_no_longer_than_the_hang_may_last() -> None:
    with _hanging_in("on_turn_start") as (manager, _, _):
        manager.on_turn_start(1, "m")
        begin = perf_counter()
        assert manager.handle_tool_call("ext_tool", {}) == "{}"
        assert perf_counter() - begin < 1.5


def test_other_lanes_go_on_while_one_hangs() -> None:
    with _hanging_in("handle_tool_call") as (manager, external, _):
        external.answers["prefetch"] = "recalled"
        manager.handle_tool_call("ext_tool", {})
        assert manager.health()["ext"]["handle_tool_call"].breaker == "open"
        assert manager.prefetch_all("q") == "recalled"
        manager.sync_all("u", "a")
        assert eventually(lambda: external.of("sync_turn"))


@pytest.mark.parametrize("hook", ["prefetch", "handle_tool_call"])
def test_a_call_that_was_given_up_is_no_queued_work(hook: str) -> None:
    with _hanging_in(hook) as (manager, external, _):
        DRIVE[hook](manager)
        manager.sync_all("u", "a")
        begin = perf_counter()
        assert manager.flush_pending(1)
        assert perf_counter() - begin < 0.5
        assert external.of("sync_turn")


@pytest.mark.parametrize("hook", ["sync_turn", "queue_prefetch", "on_turn_start"])
def test_health_knows_of_a_hang_though_nothing_more_is_called(hook: str) -> None:
    with _hanging_in(hook) as (manager, _, _):
        DRIVE[hook](manager)
        assert eventually(lambda: hook in manager.health()["ext"], 1.0)
        assert manager.health()["ext"][hook].breaker == "open"


def test_a_call_that_returns_after_all_is_counted_once() -> None:
    with _hanging_in("sync_turn") as (manager, external, gate):
        manager.sync_all("first", "a")
        sleep(2 * BRIEF)
        manager.sync_all("second", "a")
        gate.open()
        assert eventually(lambda: len(external.of("sync_turn")) == 2)
        assert manager.flush_pending(5)
        assert manager.health()["ext"]["sync_turn"].calls == 2


def test_a_hang_behind_a_slow_call_is_noticed_too() -> None:
    external = Recorder(tools=[TOOL], system_prompt_block=lambda: sleep(0.1))
    with Gate() as gate, running(external, deadlines=QUICK) as manager:
        external.answers["handle_tool_call"] = gate
        slow = threading.Thread(target=manager.build_system_prompt)
        slow.start()
        assert eventually(lambda: external.of("system_prompt_block"))
        manager.handle_tool_call("ext_tool", {})
        slow.join()
        breaker = manager.health()["ext"]["handle_tool_call"].breaker
        again = _seconds(manager, "handle_tool_call")
        gate.open()
    assert breaker == "open"
    assert again < 0.15


def test_a_slow_provider_is_not_taken_for_a_hanging_one() -> None:
    external = Recorder(tools=[TOOL], handle_tool_call=lambda *args, **kwargs: sleep(0.3) or "{}")
    deadlines = QUICK._replace(tool=5.0, hook=0.1)
    with running(external, deadlines=deadlines) as manager:
        tool = threading.Thread(target=manager.handle_tool_call, args=("ext_tool", {}))
        tool.start()
        assert eventually(lambda: external.of("handle_tool_call"))
        manager.build_system_prompt()  # gives up behind the tool
        tool.join()
        health = manager.health()["ext"]
        assert "slow" in health["system_prompt_block"].last_error
        assert health["handle_tool_call"].failures == 0
        assert health["handle_tool_call"].breaker == "closed"


def test_a_call_that_was_given_up_before_it_began_is_never_made() -> None:
    external = Recorder(tools=[TOOL])
    with Gate() as gate, running(external, deadlines=QUICK._replace(tool=5.0)) as manager:
        external.answers["handle_tool_call"] = gate
        tool = threading.Thread(target=manager.handle_tool_call, args=("ext_tool", {}))
        tool.start()
        assert eventually(lambda: external.of("handle_tool_call"))
        manager.build_system_prompt()
        gate.open()
        tool.join()
        manager.on_pre_compress([])  # behind it on the same lane
    assert external.of("system_prompt_block") == []


def test_recall_comes_back_after_the_hang_has_ended() -> None:
    now = [0.0]
    external = Recorder(prefetch="recalled")
    with Gate() as gate, running(external, deadlines=QUICK) as manager:
        breakers = manager._external._breakers  # type: ignore[union-attr]
        for lane in breakers:
            breakers[lane] = Breaker(clock=lambda: now[0])
        external.answers["prefetch"] = gate
        assert manager.prefetch_all("q") == ""
        sleep(2 * QUICK.prefetch)
        external.answers["prefetch"] = "recalled"
        assert manager.prefetch_all("q") == ""  # whoever looks next, notices
        gate.open()
        assert manager.health()["ext"]["prefetch"].breaker == "open"
        now[0] += Breaker.COOLDOWN + 1
        assert manager.health()["ext"]["prefetch"].breaker == "half-open"
        assert manager.prefetch_all("q") == "recalled"
        assert manager.health()["ext"]["prefetch"].breaker == "closed"


def test_a_new_session_tries_again_at_once() -> None:
    external = Recorder(system_prompt_block="prompt")
    with Gate() as gate, running(external, deadlines=QUICK) as manager:
        external.answers["system_prompt_block"] = gate
        manager.build_system_prompt()
        external.answers["system_prompt_block"] = "prompt"
        gate.open()
        assert manager.build_system_prompt() == ""
        manager.initialize_all("s2")
        assert manager.build_system_prompt() == "prompt"
