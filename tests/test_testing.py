"""FakeProvider, as the tests of a host use it."""

from __future__ import annotations

import inspect
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from support.providers import DRIVE, QUICK, TOOL, running, spec_parameters
from support.scripts import run_script

from hermes_core import MemoryManager, MemoryProvider
from hermes_core.hookspecs import HOOKS
from hermes_core.provider import CAPABILITIES
from hermes_core.testing import FakeProvider


@pytest.fixture(autouse=True)
def _home(home: Path) -> None:
    """Every manager here keeps its outbox in a home of the test's own."""


@pytest.mark.parametrize("hook", HOOKS)
def test_every_method_of_the_contract_is_there_and_has_its_parameters(hook: str) -> None:
    kinds = (MemoryProvider, *CAPABILITIES)
    declared = next(getattr(each, hook) for each in kinds if hasattr(each, hook))
    assert getattr(FakeProvider, hook) is not declared
    found = inspect.signature(getattr(FakeProvider, hook)).parameters
    expected = [*inspect.signature(declared).parameters]
    assert [name for name in found if name in expected] == expected


@pytest.mark.parametrize("hook", DRIVE)
def test_every_call_is_recorded_with_its_arguments_by_name(hook: str) -> None:
    provider = FakeProvider(tools=[TOOL])
    before = monotonic()
    with running(provider) as manager:
        DRIVE[hook](manager)
        assert provider.wait_for(hook)
    call = provider.of(hook)[-1]
    assert call.hook == hook
    assert set(spec_parameters(hook)) - {"extra"} <= set(call.arguments)
    assert before <= call.at <= monotonic()


def test_without_being_told_anything_it_has_nothing_to_say() -> None:
    with running(FakeProvider()) as manager:
        for drive in DRIVE.values():
            drive(manager)
        assert manager.recall_block("q") == ""
        assert manager.flush_pending(10)
        failures = [each.failures for each in manager.health()["fake"].values()]
    assert set(failures) == {0}


def test_answers_are_values_or_functions_of_the_arguments() -> None:
    provider = FakeProvider(
        tools=[TOOL],
        prefetch=lambda query, session_id: f"{query} in {session_id}",
        system_prompt_block="static",
    )
    with running(provider) as manager:
        assert manager.prefetch_all("tea") == "tea in s1"
        assert manager.build_system_prompt() == "static"
        provider.answer("prefetch", "- other")
        assert manager.prefetch_all("tea") == "- other"
        provider.answer("handle_tool_call", lambda tool_name, args, **_: f'{{"x": {args["x"]}}}')
        assert manager.handle_tool_call("ext_tool", {"x": 5}) == '{"x": 5}'


@pytest.mark.parametrize("tell", ["answer", "slow", "hang", "fail", "wait_for"])
def test_a_hook_that_is_misspelt_is_refused(tell: str) -> None:
    provider = FakeProvider()
    more = {"answer": ("x",), "slow": (1,)}.get(tell, ())
    with pytest.raises(ValueError, match="'prefetsch' is not a method of a provider"):
        getattr(provider, tell)("prefetsch", *more)
    with pytest.raises(ValueError, match="'prefetsch'"):
        FakeProvider(prefetsch="x")


def test_it_raises_as_often_as_told() -> None:
    provider = FakeProvider(prefetch="- tea")
    with running(provider) as manager:
        provider.fail("prefetch", times=2)
        assert [manager.prefetch_all("q") for _ in range(3)] == ["", "", "- tea"]
        provider.fail("prefetch", RuntimeError("for ever"))
        assert [manager.prefetch_all("q") for _ in range(3)] == [""] * 3
        assert "for ever" in manager.health()["fake"]["prefetch"].last_error
        provider.fail("prefetch", times=0)
        assert manager.prefetch_all("q") == "- tea"


def test_it_is_slow_for_as_long_as_told() -> None:
    provider = FakeProvider(prefetch="- tea")
    with running(provider, external_prefetch_timeout=0.05) as manager:
        provider.slow("prefetch", 1.0)
        assert manager.prefetch_all("q") == ""
        provider.slow("prefetch", 0)
    with running(provider) as manager:
        assert manager.prefetch_all("q") == "- tea"


def test_it_hangs_until_it_is_released() -> None:
    provider = FakeProvider(prefetch="- tea")
    provider.hang("prefetch")
    with running(provider, deadlines=QUICK) as manager:
        assert manager.prefetch_all("q") == ""  # before it is released
        provider.release()
        assert provider.prefetch("q") == "- tea"


def test_what_hangs_is_released_though_it_was_told_to_hang_twice() -> None:
    provider = FakeProvider()
    provider.hang("prefetch")
    waiting = threading.Thread(target=provider.prefetch, args=("q",), daemon=True)
    waiting.start()
    assert provider.wait_for("prefetch")
    provider.hang("prefetch")
    provider.release()
    waiting.join(10)
    assert not waiting.is_alive()


def test_while_it_is_down_writes_wait_and_when_it_is_up_they_come_in_order() -> None:
    provider = FakeProvider(prefetch="- tea")
    with running(provider) as manager:
        manager.sync_all("one", "a")
        assert manager.flush_pending(10)
        provider.go_down()
        for user in ("two", "three"):
            manager.sync_all(user, "a")
        assert manager.prefetch_all("q") == ""
        assert not manager.flush_pending(0.1)
        assert [each.user for each in provider.turns] == ["one"]
        provider.come_up()
        assert manager.flush_pending(10)
        assert manager.prefetch_all("q") == "- tea"
    assert [each.user for each in provider.turns] == ["one", "two", "three"]


def test_while_it_is_down_it_still_says_what_it_is() -> None:
    provider = FakeProvider(tools=[TOOL], system_prompt_block="static")
    provider.go_down()
    assert provider.is_available()
    assert provider.get_tool_schemas() == [TOOL]
    assert provider.system_prompt_block() == "static"
    provider.shutdown()
    with pytest.raises(ConnectionError, match="down"):
        provider.initialize("s1")


def test_an_answer_that_gets_lost_leaves_one_copy_of_the_turn() -> None:
    provider = FakeProvider()
    with running(provider) as manager:
        provider.fail("sync_turn", TimeoutError("no answer"), times=2, after=True)
        manager.sync_all("q", "a")
        assert manager.flush_pending(10)
    calls = [each.arguments for each in provider.of("sync_turn")]
    assert [each["attempt"] for each in calls] == [1, 2, 3]
    assert len({each["turn_id"] for each in calls}) == 1
    assert [(each.user, each.assistant) for each in provider.turns] == [("q", "a")]


def test_it_does_its_work_before_or_after_it_fails() -> None:
    provider = FakeProvider()
    provider.fail("sync_turn", times=1)
    with pytest.raises(ConnectionError, match="sync_turn"):
        provider.sync_turn("one", "a", turn_id="1")
    assert provider.turns == []
    provider.fail("sync_turn", times=1, after=True)
    with pytest.raises(ConnectionError):
        provider.sync_turn("one", "a", turn_id="1")
    assert [each.user for each in provider.turns] == ["one"]


def test_a_turn_without_an_id_is_never_taken_for_another() -> None:
    provider = FakeProvider()
    for _ in range(2):
        provider.sync_turn("same", "same")
    assert len(provider.turns) == 2


@pytest.mark.parametrize("confirms", [True, False])
def test_what_it_promises_of_delivery_is_its_maker_s_choice(confirms: bool) -> None:
    assert FakeProvider(confirms_delivery=confirms).confirms_delivery is confirms


def test_waiting_for_a_call_ends_when_it_comes_or_the_time_is_over() -> None:
    provider = FakeProvider()
    assert not provider.wait_for("prefetch", timeout=0)
    timer = threading.Timer(0.05, provider.prefetch, args=("q",))
    timer.start()
    assert provider.wait_for("prefetch", timeout=60)
    assert not provider.wait_for("prefetch", count=2, timeout=0)
    timer.join()


def test_lists_are_the_caller_s_own() -> None:
    provider = FakeProvider()
    provider.sync_turn("q", "a", turn_id="1")
    provider.calls.clear()
    provider.turns.clear()
    assert (len(provider.calls), len(provider.turns)) == (1, 1)


def test_it_joins_the_built_in(home: Path) -> None:
    provider: Any = FakeProvider()
    manager = MemoryManager.from_config(home)
    try:
        assert manager.add_provider(provider)
        assert [each.name for each in manager.providers] == ["builtin", "fake"]
    finally:
        manager.shutdown_all()


def test_it_needs_no_test_framework_and_costs_a_host_nothing() -> None:
    done = run_script(
        """
        import hermes_core.manager
        print("hermes_core.testing" in sys.modules)
        import hermes_core.testing
        print("pytest" in sys.modules)
        """
    )
    assert done.stdout.split() == ["False", "False"]


def test_it_raises_as_often_as_told_to_several_threads() -> None:
    provider = FakeProvider()
    provider.fail("prefetch", ConnectionError("down"), times=50)
    start = threading.Barrier(4)

    def ask() -> int:
        start.wait()
        failed = 0
        for _ in range(100):
            try:
                provider.prefetch("q")
            except ConnectionError:
                failed += 1
        return failed

    with ThreadPoolExecutor(4) as pool:
        assert sum(each.result() for each in [pool.submit(ask) for _ in range(4)]) == 50
