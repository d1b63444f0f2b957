"""Whoever waits is cancelled: what was to be told is told, what nobody wants is not asked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Self

import pytest
from support.providers import eventually, memory_threads

from hermes_core import AsyncMemoryManager, MemoryManager
from hermes_core.testing import FakeProvider


class Held:
    """A manager whose thread is busy until it is let go."""

    def __init__(self) -> None:
        self.provider = FakeProvider()
        self.provider.hang("initialize")
        self.manager = AsyncMemoryManager()

    async def __aenter__(self) -> Self:
        await self.manager.add_provider(self.provider)
        self.start = asyncio.create_task(self.manager.initialize_all("s1"))
        await asyncio.to_thread(self.provider.wait_for, "initialize")
        return self

    async def __aexit__(self, *error: object) -> None:
        self.provider.release()
        await self.manager.shutdown_all()

    async def cancelled(self, call: Coroutine[Any, Any, Any]) -> None:
        """Hand a call over, and cancel the task that waits for it."""
        task = asyncio.create_task(call)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


def test_a_turn_that_was_handed_over_is_kept_though_its_task_is_cancelled(home: Path) -> None:
    async def talk() -> FakeProvider:
        async with Held() as held:
            for number in range(3):
                await held.cancelled(held.manager.sync_all(f"q{number}", "a"))
            held.provider.release()
            assert await held.manager.flush_pending(10)
            return held.provider

    assert [each.user for each in asyncio.run(talk()).turns] == ["q0", "q1", "q2"]


def test_a_recall_that_has_not_begun_never_does(home: Path) -> None:
    async def talk() -> FakeProvider:
        async with Held() as held:
            await held.cancelled(held.manager.recall_block("unwanted"))
            held.provider.release()
            await held.manager.recall_block("wanted")
            return held.provider

    asked = [each.arguments["query"] for each in asyncio.run(talk()).of("prefetch")]
    assert asked == ["wanted"]


def test_a_timeout_leaves_the_manager_usable(home: Path) -> None:
    provider = FakeProvider(prefetch="- tea")

    async def talk() -> str:
        manager = AsyncMemoryManager(external_prefetch_timeout=30)
        await manager.add_provider(provider)
        await manager.initialize_all("s1")
        provider.hang("prefetch")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(manager.recall_block("q"), 0.05)
        provider.release()
        async with manager:
            return await manager.recall_block("q")

    assert "- tea" in asyncio.run(talk())


def test_a_shutdown_goes_on_though_its_task_is_cancelled(home: Path) -> None:
    before = memory_threads()

    async def talk() -> FakeProvider:
        held = Held()
        async with held:
            await held.cancelled(held.manager.shutdown_all())
            held.provider.release()
            assert await asyncio.to_thread(held.provider.wait_for, "shutdown")
        return held.provider

    assert len(asyncio.run(talk()).of("shutdown")) == 1
    assert eventually(lambda: memory_threads() <= before)


def test_a_write_whose_loop_is_gone_is_kept(home: Path) -> None:
    provider = FakeProvider()
    manager = AsyncMemoryManager()

    async def leave() -> None:
        await manager.add_provider(provider)
        provider.hang("initialize")
        for call in (manager.initialize_all("s1"), manager.sync_all("q", "a")):
            task = asyncio.create_task(call)
            await asyncio.sleep(0)
            task.cancel()

    asyncio.run(leave())
    provider.release()
    assert provider.wait_for("sync_turn")
    asyncio.run(manager.shutdown_all())
    assert [each.user for each in provider.turns] == ["q"]


def test_a_manager_that_nobody_waits_for_any_more_is_shut_down(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = memory_threads()
    begun, go_on, closed = threading.Event(), threading.Event(), threading.Event()

    def build(home: object) -> MemoryManager:
        begun.set()
        go_on.wait(10)
        manager = MemoryManager()
        manager.when_closed(closed.set)
        return manager

    monkeypatch.setattr(MemoryManager, "from_config", build)

    async def start() -> None:
        task = asyncio.create_task(AsyncMemoryManager.from_config())
        await asyncio.to_thread(begun.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()
        assert await asyncio.to_thread(closed.wait, 10)

    asyncio.run(start())
    assert eventually(lambda: memory_threads() <= before)
