"""A conversation on an event loop: in order, with answers, over several loops."""

from __future__ import annotations

import asyncio
import json
import threading
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
from support.providers import TOOL, eventually, memory_threads
from support.sites import add_directory, provider_source

from hermes_core import AsyncMemoryManager, CheckpointError, MemoryManager
from hermes_core.testing import FakeProvider


async def started(*providers: Any, **options: Any) -> AsyncMemoryManager:
    manager = AsyncMemoryManager(**options)
    for provider in providers:
        assert await manager.add_provider(provider)
    await manager.initialize_all("s1", platform="test")
    return manager


def test_a_whole_conversation_reaches_the_provider_in_order(home: Path) -> None:
    provider = FakeProvider(
        tools=[TOOL], prefetch="- tea", system_prompt_block="static", handle_tool_call='{"a": 1}'
    )

    async def talk() -> None:
        async with await started(provider) as manager:
            assert await manager.build_system_prompt() == "static"
            await manager.on_turn_start(1, "q")
            assert "- tea" in await manager.recall_block("q")
            assert await manager.prefetch_all("q") == "- tea"
            assert (await manager.recall("q")).left_out == ()
            assert await manager.has_tool("ext_tool")
            assert await manager.get_all_tool_names() == {"ext_tool"}
            assert [each["name"] for each in await manager.get_all_tool_schemas()] == ["ext_tool"]
            assert json.loads(await manager.handle_tool_call("ext_tool", {})) == {"a": 1}
            await manager.sync_all("q", "a", messages=[{"role": "user", "content": "q"}])
            await manager.queue_prefetch_all("q")
            await manager.on_delegation("t", "r", child_session_id="c")
            await manager.on_memory_write("add", "memory", "x")
            await manager.notify_memory_tool_write(
                {"success": True},
                {"action": "add", "content": "y"},
                build_metadata=lambda: {"a": 1},
            )
            assert await manager.describe_recall() == ""
            assert not await manager.supports_pre_compress_checkpoint()
            assert await manager.on_pre_compress([], evidence_messages=[]) == ""
            await manager.commit_session_boundary_async(
                [], new_session_id="s2", parent_session_id="s1"
            )
            assert manager.shutdown_drain_state["status"] == "not_started"
            await manager.sync_all("q2", "a2")
            await manager.on_session_end([])
            assert await manager.flush_pending(10)
            assert await manager.recall_status_all() == []
            assert await manager.pending_nudge() == ""
            assert await manager.review_prompt([]) == ""
            assert (await manager.health())["fake"]["sync_turn"].failures == 0
            assert await manager.get_provider("fake") is provider

    asyncio.run(talk())
    assert [(each.user, each.session_id) for each in provider.turns] == [("q", "s1"), ("q2", "s2")]
    assert provider.turns[0].messages == [{"role": "user", "content": "q"}]
    (start,) = provider.of("initialize")
    assert start.arguments["platform"] == "test"
    (switch,) = provider.of("on_session_switch")
    assert switch.arguments["parent_session_id"] == "s1"
    (delegation,) = provider.of("on_delegation")
    assert delegation.arguments["child_session_id"] == "c"
    assert provider.calls[-1].hook == "shutdown"


def test_calls_run_in_the_order_in_which_they_were_made_on_one_thread() -> None:
    seen: list[tuple[str, str]] = []

    class Noting(MemoryManager):
        def on_turn_start(self, turn_number: int, message: str, **kwargs: Any) -> None:
            seen.append((message, threading.current_thread().name))

    async def talk() -> None:
        manager = AsyncMemoryManager.wrap(Noting())
        await asyncio.gather(*(manager.on_turn_start(1, str(n)) for n in range(100)))
        await manager.shutdown_all()

    asyncio.run(talk())
    assert [message for message, _ in seen] == [str(n) for n in range(100)]
    assert {name for _, name in seen} == {"memory-async"}


def test_what_a_call_raises_is_raised_where_it_is_awaited(home: Path) -> None:
    async def talk() -> None:
        async with await started(FakeProvider()) as manager:
            with pytest.raises(CheckpointError):
                await manager.on_pre_compress([], require_checkpoint=True)
            assert await manager.build_system_prompt() == ""

    asyncio.run(talk())


def test_context_variables_of_the_task_hold_in_the_call(home: Path) -> None:
    user: ContextVar[str] = ContextVar("user")
    found: list[str] = []
    provider = FakeProvider(prefetch=lambda **_: found.append(user.get()) or "")

    async def ask(manager: AsyncMemoryManager, name: str) -> None:
        user.set(name)
        await manager.prefetch_all("q")

    async def talk() -> None:
        async with await started(provider) as manager:
            await asyncio.gather(*(ask(manager, name) for name in "abc"))

    asyncio.run(talk())
    assert found == ["a", "b", "c"]


def test_messages_are_those_of_the_moment_at_which_they_were_handed_over(home: Path) -> None:
    provider = FakeProvider()
    provider.hang("prefetch")

    async def talk() -> None:
        async with await started(provider, external_prefetch_timeout=30) as manager:
            recall = asyncio.create_task(manager.prefetch_all("q"))
            messages = [{"role": "user", "content": "one"}]
            write = asyncio.create_task(manager.sync_all("one", "a", messages=messages))
            await asyncio.sleep(0)
            messages.append({"role": "user", "content": "two"})
            provider.release()
            await asyncio.gather(recall, write)
            assert await manager.flush_pending(10)

    asyncio.run(talk())
    assert provider.turns[0].messages == [{"role": "user", "content": "one"}]


def test_one_manager_serves_several_loops_in_turn(home: Path) -> None:
    provider = FakeProvider(prefetch="- tea")
    manager = asyncio.run(started(provider))
    for number in range(3):
        assert asyncio.run(manager.prefetch_all("q")) == "- tea"
        asyncio.run(manager.sync_all(f"q{number}", "a"))
    assert asyncio.run(manager.flush_pending(10))
    asyncio.run(manager.shutdown_all())
    assert [each.user for each in provider.turns] == ["q0", "q1", "q2"]


def test_after_the_end_calls_are_answered_and_no_thread_is_left(home: Path) -> None:
    before = memory_threads()
    provider = FakeProvider(prefetch="- tea")

    async def talk() -> None:
        manager = await started(provider)
        late = asyncio.gather(manager.shutdown_all(), manager.prefetch_all("q"))
        assert (await late)[1] == ""
        assert await manager.prefetch_all("q") == ""
        await manager.sync_all("q", "a")
        await manager.shutdown_all()

    asyncio.run(talk())
    assert len(provider.of("shutdown")) == 1
    assert eventually(lambda: memory_threads() <= before)


def test_when_closed_is_called_at_the_end(home: Path) -> None:
    closed: list[bool] = []

    async def talk() -> None:
        async with await started() as manager:
            await manager.when_closed(lambda: closed.append(True))
            assert closed == []

    asyncio.run(talk())
    assert closed == [True]


def test_it_is_configured_like_the_other_one(home: Path) -> None:
    add_directory(home, "keeper", provider_source("keeper"))
    (home / "config.yaml").write_text("memory: {provider: keeper}\n")

    async def names() -> list[str]:
        async with await AsyncMemoryManager.from_config(home) as manager:
            assert manager.problems == ()
            return [each.name for each in manager.providers]

    assert asyncio.run(names()) == ["builtin", "keeper"]


def test_what_is_wrong_with_the_configuration_is_told_not_raised(home: Path) -> None:
    (home / "config.yaml").write_text("memory: {provider: nobody}\n")

    async def problems() -> str:
        async with await AsyncMemoryManager.from_config() as manager:
            return str(manager.problems[0])

    assert "nobody" in asyncio.run(problems())
