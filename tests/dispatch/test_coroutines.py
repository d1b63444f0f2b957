"""Methods that are coroutines: run to their end, on one loop, under their deadline."""

from __future__ import annotations

import asyncio
import contextvars
import json
import threading
from typing import Any

import pytest
from support.providers import (
    DRIVE,
    QUICK,
    TOOL,
    Clock,
    Recorder,
    eventually,
    memory_threads,
    running,
)
from support.scripts import run_script

VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("request", default="none")


class Asynchronous(Recorder):
    """Every method gives back a coroutine; notes the loop and thread that it runs on."""

    def __init__(self, *args: Any, **answers: Any) -> None:
        super().__init__(*args, **answers)
        self.ended: list[str] = []
        self.loops: set[int] = set()
        self.loop_threads: set[threading.Thread] = set()

    def _note(self, hook: str, *args: Any, **kwargs: Any) -> Any:
        return self._coroutine(hook, *args, **kwargs)

    async def _coroutine(self, hook: str, *args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(0)
        value = Recorder._note(self, hook, *args, **kwargs)
        value = await value if asyncio.iscoroutine(value) else value
        self.loops.add(id(asyncio.get_running_loop()))
        self.loop_threads.add(threading.current_thread())
        self.ended.append(hook)
        return value


async def _forever(*args: Any, **kwargs: Any) -> None:
    await asyncio.sleep(60)


def test_every_method_may_be_a_coroutine_and_is_run_to_its_end() -> None:
    provider = Asynchronous(
        tools=[TOOL],
        prefetch="recalled",
        system_prompt_block="prompt",
        on_pre_compress="keep this",
        handle_tool_call='{"ok": true}',
    )
    with running(provider) as manager:
        assert manager.has_tool("ext_tool")
        assert manager.build_system_prompt() == "prompt"
        assert manager.prefetch_all("q") == "recalled"
        assert manager.on_pre_compress([]) == "keep this"
        assert json.loads(manager.handle_tool_call("ext_tool", {})) == {"ok": True}
        for drive in DRIVE.values():
            drive(manager)
        assert manager.flush_pending(60)
        assert eventually(lambda: "on_turn_start" in provider.ended)
        assert all(each.failures == 0 for each in manager.health()["ext"].values())
    assert set(provider.ended) == {*DRIVE, "get_tool_schemas", "shutdown"}


def test_all_coroutines_of_a_provider_run_on_one_loop_and_one_thread() -> None:
    provider = Asynchronous(tools=[TOOL])
    with running(provider) as manager:
        for drive in DRIVE.values():
            drive(manager)
        manager.flush_pending(5)
    assert len(provider.loops) == 1
    assert len(provider.loop_threads) == 1


def test_two_providers_do_not_share_a_loop() -> None:
    first, second = Asynchronous(), Asynchronous()
    with running(first) as one, running(second) as other:
        one.prefetch_all("q")
        other.prefetch_all("q")
    assert first.loops.isdisjoint(second.loops)


def test_what_one_coroutine_binds_to_the_loop_another_can_use() -> None:
    held: dict[str, asyncio.Queue[str]] = {}

    async def initialize(session_id: str, **kwargs: Any) -> None:
        held["queue"] = asyncio.Queue()

    async def sync_turn(user: str, assistant: str, **kwargs: Any) -> None:
        await held["queue"].put(user)

    async def prefetch(query: str, **kwargs: Any) -> str:
        return await held["queue"].get()

    provider = Recorder(initialize=initialize, sync_turn=sync_turn, prefetch=prefetch)
    with running(provider) as manager:
        manager.sync_all("said before", "a")
        assert manager.prefetch_all("q") == "said before"


def test_context_variables_hold_in_a_coroutine() -> None:
    async def prefetch(*args: Any, **kwargs: Any) -> str:
        await asyncio.sleep(0)
        return VARIABLE.get()

    with running(Recorder(prefetch=prefetch)) as manager:
        token = VARIABLE.set("mine")
        try:
            assert manager.prefetch_all("q") == "mine"
        finally:
            VARIABLE.reset(token)


def test_a_coroutine_past_its_deadline_is_cancelled_and_others_go_on() -> None:
    cancelled = threading.Event()

    async def prefetch(*args: Any, **kwargs: Any) -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return "too late"

    provider = Asynchronous(tools=[TOOL], prefetch=prefetch)
    with running(provider, deadlines=QUICK._replace(tool=60.0, hook=60.0)) as manager:
        assert manager.prefetch_all("q") == ""
        assert cancelled.wait(60)
        assert "0.25 s" in manager.health()["ext"]["prefetch"].last_error
        assert manager.handle_tool_call("ext_tool", {}) == "{}"


def test_a_coroutine_that_swallows_its_cancellation_delays_nobody() -> None:
    ended = threading.Event()

    async def stubborn(*args: Any, **kwargs: Any) -> str:
        while not ended.is_set():
            try:
                await asyncio.sleep(0.02)
            except asyncio.CancelledError:
                continue
        return "too late"

    provider = Asynchronous(tools=[TOOL], prefetch=stubborn)
    with running(provider, deadlines=QUICK._replace(tool=60.0, hook=60.0)) as manager:
        assert manager.prefetch_all("q") == ""
        assert manager.handle_tool_call("ext_tool", {}) == "{}"
        ended.set()
        assert eventually(lambda: "prefetch" in provider.ended)


def test_what_a_coroutine_raises_is_its_failure() -> None:
    async def fail(*args: Any, **kwargs: Any) -> str:
        raise LookupError("nothing there")

    async def own_timeout(*args: Any, **kwargs: Any) -> str:
        raise TimeoutError("the server took too long")

    async def cancelled(*args: Any, **kwargs: Any) -> str:
        raise asyncio.CancelledError

    provider = Recorder(prefetch=fail, system_prompt_block=own_timeout, on_pre_compress=cancelled)
    with running(provider) as manager:
        assert manager.prefetch_all("q") == ""
        assert manager.build_system_prompt() == ""
        assert manager.on_pre_compress([]) == ""
        health = manager.health()["ext"]
    assert health["prefetch"].last_error == "LookupError: nothing there"
    assert health["system_prompt_block"].last_error == "TimeoutError: the server took too long"
    assert "CancelledError" in health["on_pre_compress"].last_error


def test_the_type_of_what_a_coroutine_gives_is_checked() -> None:
    async def wrong(*args: Any, **kwargs: Any) -> int:
        return 5

    with running(Recorder(prefetch=wrong)) as manager:
        assert manager.prefetch_all("q") == ""
        assert "int" in manager.health()["ext"]["prefetch"].last_error


def test_a_synchronous_provider_starts_no_loop() -> None:
    with running(Recorder()) as manager:
        manager.prefetch_all("q")
        assert not [each for each in memory_threads() if each.name.endswith("loop")]


def test_the_loop_ends_with_the_manager() -> None:
    before = memory_threads()
    loops = []

    async def prefetch(*args: Any, **kwargs: Any) -> str:
        loops.append(asyncio.get_running_loop())
        return ""

    with running(Recorder(prefetch=prefetch)) as manager:
        manager.prefetch_all("q")
    assert eventually(lambda: memory_threads() <= before)
    assert eventually(loops[0].is_closed)


def test_a_cancelled_coroutine_does_not_cost_the_main_thread(clock: Clock) -> None:
    # It is cancelled a little before the deadline at which the thread would count as lost. The
    # clock stands still, so that deadline never comes, however slow the machine is.
    provider = Recorder(tools=[TOOL], handle_tool_call=_forever)
    with running(provider, deadlines=QUICK) as manager:
        assert "0.25 s" in manager.handle_tool_call("ext_tool", {})
        manager.initialize_all("s2")
        assert len(provider.of("initialize")) == 2
        assert len(provider.threads("initialize")) == 1
        assert clock.now == 0


EXITING = """
    from support.providers import QUICK, Recorder, running

    async def prefetch(query, **kwargs):
        if query == "exit":
            raise {error}
        return "found"

    with running(Recorder(prefetch=prefetch), deadlines=QUICK._replace(prefetch=20)) as manager:
        print(repr(manager.prefetch_all("first")))
        print(repr(manager.prefetch_all("exit")))
        # The error is its own, not that of a deadline.
        print("{error}".partition("(")[0] in manager.health()["ext"]["prefetch"].last_error)
        print(repr(manager.prefetch_all("second")))
"""


@pytest.mark.parametrize("error", ["SystemExit(3)", "KeyboardInterrupt()"])
def test_an_exit_in_a_coroutine_fails_at_once_and_leaves_the_loop_alone(error: str) -> None:
    done = run_script(EXITING.format(error=error))
    assert done.stdout.split() == ["'found'", "''", "True", "'found'"]
    assert done.returncode == 0


def test_an_agent_with_an_asynchronous_provider_ends_without_noise() -> None:
    done = run_script(
        """
        from support.providers import Recorder, running

        async def prefetch(query, **kwargs):
            return "found"

        manager = MemoryManager()
        manager.add_provider(Recorder(prefetch=prefetch, shutdown=prefetch))
        print(manager.prefetch_all("q"))
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "found\n", "")


def test_a_coroutine_that_never_ends_makes_no_noise_at_the_end() -> None:
    done = run_script(
        """
        import asyncio, gc, logging
        from support.providers import QUICK, Recorder, eventually, memory_threads, running

        async def stubborn(*args, **kwargs):
            while True:
                try:
                    await asyncio.sleep(0.02)
                except asyncio.CancelledError:
                    continue

        logging.getLogger("hermes_core").setLevel(logging.CRITICAL)
        with running(Recorder(prefetch=stubborn), deadlines=QUICK) as manager:
            manager.prefetch_all("q")
        print(eventually(lambda: not memory_threads()))
        del manager
        gc.collect()
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
