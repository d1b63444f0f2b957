"""While a provider or a disk hangs, the event loop does not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from support.providers import TOOL, Gate

from hermes_core import AsyncMemoryManager, Deadlines
from hermes_core.outbox import OutboxStore
from hermes_core.testing import FakeProvider

Calls = Callable[[AsyncMemoryManager], Coroutine[Any, Any, Any]]

#: How often the loop comes back while a call hangs. A blocked loop would come back only when the
#: call is over.
TIMES = 100
#: A call that blocks the loop is over at its deadline. Nothing else takes so long.
HANGING = Deadlines(*[20.0] * 8)

CALLS: dict[str, Calls] = {
    "prefetch": lambda manager: manager.recall_block("q"),
    "initialize": lambda manager: manager.initialize_all("s1"),
    "handle_tool_call": lambda manager: manager.handle_tool_call("ext_tool", {}),
    "shutdown": lambda manager: manager.shutdown_all(),
}


async def stays_free(begun: Callable[[], Any], call: Coroutine[Any, Any, Any]) -> None:
    """Assert that the loop goes on while a call hangs, as soon as it has begun to hang."""
    running = asyncio.create_task(call)
    while not begun():  # noqa: ASYNC110 - this is what needs a loop that goes on
        await asyncio.sleep(0.001)
    for _ in range(TIMES):
        await asyncio.sleep(0)
    assert not running.done()


@pytest.mark.parametrize("hook", CALLS)
def test_the_loop_goes_on_while_a_provider_hangs(hook: str, home: Path) -> None:
    provider = FakeProvider(tools=[TOOL])

    async def talk() -> None:
        manager = AsyncMemoryManager(deadlines=HANGING)
        await manager.add_provider(provider)
        provider.hang(hook)
        try:
            await stays_free(lambda: provider.of(hook), CALLS[hook](manager))
        finally:
            provider.release()
            await manager.shutdown_all()

    asyncio.run(talk())


def test_the_loop_goes_on_while_the_disk_hangs_on_which_a_turn_is_stored(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A provider that hangs in `sync_turn` delays nobody: its turns wait in the outbox."""
    begun: list[object] = []
    put = OutboxStore.put

    async def talk() -> None:
        with Gate() as gate:

            def hanging(*arguments: Any, **named: Any) -> Any:
                begun.append(arguments)
                gate()
                return put(*arguments, **named)

            async with AsyncMemoryManager(home=home, deadlines=HANGING) as manager:
                await manager.add_provider(FakeProvider())
                await manager.initialize_all("s1")
                monkeypatch.setattr(OutboxStore, "put", hanging)
                storing = manager.sync_all("q", "a")
                await stays_free(lambda: begun, storing)
                gate.open()

    asyncio.run(talk())
