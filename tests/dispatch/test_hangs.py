"""A provider that hangs costs its deadline once, and nothing after that."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from support.providers import (
    DRIVE,
    QUICK,
    TOOL,
    Clock,
    Gate,
    Recorder,
    eventually,
    memory_threads,
    running,
    sample_arguments,
)

from hermes_core import Deadlines, MemoryManager
from hermes_core.dispatch import ProviderAdapter
from hermes_core.dispatch.health import Breaker
from hermes_core.errors import DeadlineExceeded
from hermes_core.hookspecs import HOOKS

#: How long the method that hangs may take, by a clock that moves when it hangs.
BRIEF = 0.12


def _brief(hook: str) -> Deadlines:
    patient = Deadlines(*[2.0] * len(Deadlines._fields))
    brief = {"shutdown": 0.5, HOOKS[hook].deadline: BRIEF}
    if hook == "on_session_switch":
        brief["hook"] = BRIEF  # for so long a switch waits
    return patient._replace(**brief)


@contextmanager
def _hanging_in(hook: str, clock: Clock) -> Iterator[tuple[MemoryManager, Recorder, Gate]]:
    """A manager of a provider that hangs from now on in one of its methods."""
    external = Recorder(tools=[TOOL])
    with Gate(clock, 3 * BRIEF) as gate, running(external, deadlines=_brief(hook)) as manager:
        del external.calls[:]
        external.answers[hook] = gate
        try:
            yield manager, external, gate
        finally:
            gate.open()


@pytest.mark.parametrize("hook", [hook for hook, rule in HOOKS.items() if not rule.interactive])
def test_every_method_is_given_up_at_its_deadline(hook: str) -> None:
    clock = Clock()
    with Gate(clock, 2 * BRIEF) as gate:
        provider = Recorder(**{hook: gate})
        adapter = ProviderAdapter(provider, "ext", deadlines=_brief(hook), clock=clock)
        adapter.tools = frozenset({"ext_tool"})
        outcome = getattr(adapter, hook)(**sample_arguments(hook))
        assert isinstance(outcome.error, DeadlineExceeded)
        assert " s" in str(outcome.error)
        assert outcome.value == HOOKS[hook].neutral
        assert adapter.health()[hook].failures == 1
        adapter.close(0)


@pytest.mark.parametrize("hook", DRIVE)
def test_a_caller_is_back_at_the_deadline_and_the_built_in_answers(clock: Clock, hook: str) -> None:
    builtin = Recorder("builtin", prefetch="recalled", system_prompt_block="notes")
    with _hanging_in(hook, clock) as (manager, _, _):
        assert manager.add_provider(builtin)
        DRIVE[hook](manager)
        assert manager.build_system_prompt() == "notes"
        assert manager.prefetch_all("q") == "recalled"


@pytest.mark.parametrize("hook", DRIVE)
def test_the_breaker_opens_and_health_says_why(clock: Clock, hook: str) -> None:
    with _hanging_in(hook, clock) as (manager, external, _):
        DRIVE[hook](manager)
        assert eventually(lambda: external.of(hook))
        DRIVE[hook](manager)  # whoever looks next, notices
        assert eventually(lambda: hook in manager.health()["ext"])
        health = manager.health()["ext"].get(hook)
        assert health is not None
        assert health.failures >= 1
        assert health.breaker == "open"
        assert health.last_error


@pytest.mark.parametrize("hook", ["prefetch", "handle_tool_call", "sync_turn"])
def test_a_lane_is_replaced_once_and_not_again_while_both_hang(clock: Clock, hook: str) -> None:
    before = memory_threads()
    with _hanging_in(hook, clock) as (manager, external, _):
        for _ in range(4):
            DRIVE[hook](manager)
            assert eventually(lambda: external.of(hook))
            clock.now += 2 * BRIEF
        assert len(external.of(hook)) <= 2
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
def test_later_calls_do_not_reach_the_provider_and_so_do_not_wait(clock: Clock, hook: str) -> None:
    with _hanging_in(hook, clock) as (manager, external, _):
        for _ in range(2):
            DRIVE[hook](manager)
            assert eventually(lambda: external.of(hook))
            clock.now += 2 * BRIEF
        for _ in range(4):
            DRIVE[hook](manager)
        assert len(external.of(hook)) <= 2


def test_a_turn_start_that_hangs_does_not_cost_the_recall() -> None:
    external = Recorder(prefetch="recalled")
    # Recall waits for a turn that starts, but not for the whole of its time.
    with Gate() as gate, running(external, deadlines=QUICK._replace(prefetch=2.0)) as manager:
        external.answers["on_turn_start"] = gate
        found = []
        for number in range(4):
            manager.on_turn_start(number, "m")
            found.append(manager.prefetch_all("q"))
        gate.open()
    assert found[1:] == ["recalled"] * 3  # the first may have come too late


def test_a_tool_call_behind_a_hang_waits_no_longer_than_the_hang_may_last(clock: Clock) -> None:
    with _hanging_in("on_turn_start", clock) as (manager, _, _):
        manager.on_turn_start(1, "m")
        assert manager.handle_tool_call("ext_tool", {}) == "{}"


def test_other_lanes_go_on_while_one_hangs(clock: Clock) -> None:
    with _hanging_in("handle_tool_call", clock) as (manager, external, _):
        external.answers["prefetch"] = "recalled"
        manager.handle_tool_call("ext_tool", {})
        assert manager.health()["ext"]["handle_tool_call"].breaker == "open"
        assert manager.prefetch_all("q") == "recalled"
        manager.sync_all("u", "a")
        assert eventually(lambda: external.of("sync_turn"))


@pytest.mark.parametrize("hook", ["prefetch", "handle_tool_call"])
def test_a_call_that_was_given_up_is_no_queued_work(clock: Clock, hook: str) -> None:
    with _hanging_in(hook, clock) as (manager, external, _):
        DRIVE[hook](manager)
        manager.sync_all("u", "a")
        assert manager.flush_pending(10)
        assert external.of("sync_turn")


@pytest.mark.parametrize("hook", ["sync_turn", "queue_prefetch", "on_turn_start"])
def test_health_knows_of_a_hang_though_nothing_more_is_called(clock: Clock, hook: str) -> None:
    with _hanging_in(hook, clock) as (manager, _, _):
        DRIVE[hook](manager)
        assert eventually(lambda: hook in manager.health()["ext"])
        assert manager.health()["ext"][hook].breaker == "open"


def test_a_call_that_returns_after_all_is_counted_once(clock: Clock) -> None:
    with _hanging_in("sync_turn", clock) as (manager, external, gate):
        manager.sync_all("first", "a")
        assert eventually(lambda: external.of("sync_turn"))
        manager.sync_all("second", "a")
        gate.open()
        assert eventually(lambda: len(external.of("sync_turn")) == 2)
        assert manager.flush_pending(60)
        assert manager.health()["ext"]["sync_turn"].calls == 2


def _is_behind_another(manager: MemoryManager) -> bool:
    """Whether a call waits for one that runs."""
    return manager._external.unfinished()[1] == 2  # type: ignore[union-attr]


def test_a_hang_behind_a_slow_call_is_noticed_too(clock: Clock) -> None:
    slow = Gate(clock, QUICK.hook / 2)
    external = Recorder(tools=[TOOL], system_prompt_block=slow)
    with Gate(clock, 2 * QUICK.tool) as gate, running(external, deadlines=QUICK) as manager:
        external.answers["handle_tool_call"] = gate
        first = threading.Thread(target=manager.build_system_prompt)
        first.start()
        assert eventually(lambda: external.of("system_prompt_block"))
        second = threading.Thread(target=manager.handle_tool_call, args=("ext_tool", {}))
        second.start()
        assert eventually(lambda: _is_behind_another(manager))
        slow.open()
        first.join()
        second.join()
        breaker = manager.health()["ext"]["handle_tool_call"].breaker
        manager.handle_tool_call("ext_tool", {})
        gate.open()
    assert breaker == "open"
    assert len(external.of("handle_tool_call")) == 1


def test_a_slow_provider_is_not_taken_for_a_hanging_one(clock: Clock) -> None:
    external = Recorder(tools=[TOOL])
    deadlines = QUICK._replace(tool=5.0, hook=0.1)
    with Gate() as gate, running(external, deadlines=deadlines) as manager:
        external.answers["handle_tool_call"] = lambda *args, **kwargs: gate() or "{}"
        tool = threading.Thread(target=manager.handle_tool_call, args=("ext_tool", {}))
        tool.start()
        assert eventually(lambda: external.of("handle_tool_call"))
        prompt = threading.Thread(target=manager.build_system_prompt)
        prompt.start()
        assert eventually(lambda: _is_behind_another(manager))
        clock.now += 0.2
        prompt.join()  # it has given up behind the tool
        gate.open()
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


def test_recall_comes_back_after_the_hang_has_ended(clock: Clock) -> None:
    external = Recorder(prefetch="recalled")
    with Gate(clock, 3 * QUICK.prefetch) as gate, running(external, deadlines=QUICK) as manager:
        external.answers["prefetch"] = gate
        assert manager.prefetch_all("q") == ""
        external.answers["prefetch"] = "recalled"
        assert manager.prefetch_all("q") == ""  # whoever looks next, notices
        gate.open()
        assert manager.health()["ext"]["prefetch"].breaker == "open"
        clock.now += Breaker.COOLDOWN + 1
        assert manager.health()["ext"]["prefetch"].breaker == "half-open"
        assert manager.prefetch_all("q") == "recalled"
        assert manager.health()["ext"]["prefetch"].breaker == "closed"


def test_a_new_session_tries_again_at_once(clock: Clock) -> None:
    external = Recorder(system_prompt_block="prompt")
    with Gate(clock, 2 * QUICK.hook) as gate, running(external, deadlines=QUICK) as manager:
        external.answers["system_prompt_block"] = gate
        manager.build_system_prompt()
        external.answers["system_prompt_block"] = "prompt"
        gate.open()
        assert manager.build_system_prompt() == ""
        manager.initialize_all("s2")
        assert manager.build_system_prompt() == "prompt"
