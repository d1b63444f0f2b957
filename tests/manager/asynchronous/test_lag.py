"""While a provider hangs, the event loop does not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import pytest
from support.providers import TOOL

from hermes_core import AsyncMemoryManager, Deadlines
from hermes_core.testing import FakeProvider

Calls = Callable[[AsyncMemoryManager], Coroutine[Any, Any, Any]]

LONGEST = 0.020
SAMPLES = 200
PAUSE = 0.002
TRIES = 5

#: Nothing is given up while it is measured.
HANGING = Deadlines(*[60.0] * 8)

CALLS: dict[str, Calls] = {
    "prefetch": lambda manager: manager.recall_block("q"),
    "sync_turn": lambda manager: manager.sync_all("q", "a"),
    "initialize": lambda manager: manager.initialize_all("s1"),
    "handle_tool_call": lambda manager: manager.handle_tool_call("ext_tool", {}),
    "shutdown": lambda manager: manager.shutdown_all(),
}


async def longest_lag(samples: int = SAMPLES) -> float:
    """How much later than planned the loop came back, at worst."""
    worst = 0.0
    for _ in range(samples):
        planned = perf_counter() + PAUSE
        await asyncio.sleep(PAUSE)
        worst = max(worst, perf_counter() - planned)
    return worst


async def lag_while_hanging(hook: str, samples: int = SAMPLES) -> float:
    provider = FakeProvider(tools=[TOOL])
    manager = AsyncMemoryManager(deadlines=HANGING)
    await manager.add_provider(provider)
    provider.hang(hook)
    try:
        measured = asyncio.create_task(longest_lag(samples))
        call = asyncio.create_task(CALLS[hook](manager))
        worst = await measured
        while not provider.of(hook):  # noqa: ASYNC110 - the call may begin late on a busy machine
            await asyncio.sleep(PAUSE)
        if hook != "sync_turn":  # which returns when the turn is on disk
            assert not call.done()
    finally:
        provider.release()
        await manager.shutdown_all()
    return worst


@pytest.mark.parametrize("hook", CALLS)
def test_the_loop_goes_on_while_a_call_hangs(hook: str, home: Path) -> None:
    """A blocked loop would come back only when the call is given up, after its deadline."""
    asyncio.run(lag_while_hanging(hook, samples=20))


@pytest.mark.stress
@pytest.mark.parametrize("hook", CALLS)
def test_the_loop_is_never_late_while_a_call_hangs(hook: str, home: Path) -> None:
    lags = []
    for _ in range(TRIES):
        idle = asyncio.run(longest_lag())  # how late the machine is by itself
        lags.append(asyncio.run(lag_while_hanging(hook)))
        if lags[-1] < max(LONGEST, 2 * idle):
            return
    pytest.fail(f"late by {min(lags) * 1000:.1f} ms at best")


@pytest.mark.stress
def test_the_measure_sees_a_loop_that_is_held_up() -> None:
    async def blocked() -> float:
        measured = asyncio.create_task(longest_lag())
        await asyncio.sleep(PAUSE)
        sleep(2 * LONGEST)  # noqa: ASYNC251 - that is the point
        return await measured

    assert asyncio.run(blocked()) > LONGEST
