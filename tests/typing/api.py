"""What a type checker must see in the public API. mypy reads this file; nothing runs it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, assert_type

from hermes_core import (
    TRIVIAL_PROMPT_RE,
    AgentEnded,
    AnswerLate,
    AsyncConversation,
    AsyncMemoryManager,
    AsyncTurn,
    Block,
    CheckpointError,
    Config,
    ConfigError,
    Conversation,
    DatabaseError,
    DeadlineExceeded,
    Deadlines,
    FakeProvider,
    ForeignDatabase,
    ForgetItem,
    ForgetReport,
    ForgetRequest,
    HermesError,
    HomeError,
    HookHealth,
    HookReport,
    LockTimeoutError,
    LoggedCall,
    MemoryItem,
    MemoryManager,
    MemoryPage,
    MemoryProvider,
    Messages,
    Outcome,
    Pin,
    PlatformActions,
    PluginContext,
    PluginFacts,
    PluginManifest,
    PluginRegistration,
    PluginState,
    ProbeResult,
    ProviderCallError,
    ProviderConflictError,
    ProviderInfo,
    ProviderLoadError,
    ProviderPaused,
    ProviderUnavailableError,
    RecalledText,
    RecallStatus,
    Recollection,
    RedactionResult,
    Redactor,
    SecretsError,
    Selection,
    ServiceProvider,
    SessionContext,
    StreamScrubber,
    SupportsForget,
    SupportsListing,
    SupportsOwnSettings,
    SupportsPostSetup,
    SupportsProbe,
    SupportsStatusConfig,
    Turn,
    UnknownProviderError,
    WriteRefused,
    WrongReturnType,
    build_block,
    defuse,
    discover,
    file_lock,
    hand_over,
    hook_health,
    hookimpl,
    is_trivial_prompt,
    load_config,
    load_provider,
    offer_hermes_agent_modules,
    read_calls,
    redactor_for,
    replace_file,
    resolve_home,
    without_fences,
)
from hermes_core.conformance import conformance_suite

#: Every error is a `HermesError`.
ERRORS: tuple[type[HermesError], ...] = (
    *(CheckpointError, ConfigError, DatabaseError, ForeignDatabase, HomeError, LockTimeoutError),
    *(ProviderConflictError, ProviderLoadError, ProviderUnavailableError, SecretsError),
    *(UnknownProviderError, WriteRefused),
)
CALL_ERRORS: tuple[type[ProviderCallError], ...] = (
    *(AgentEnded, AnswerLate, DeadlineExceeded, ProviderPaused, WrongReturnType),
)


class Notebook(MemoryProvider):
    """A provider that overrides what most plugins override, with the contract's types."""

    @property
    def name(self) -> str:
        return "notebook"

    def is_available(self) -> bool:
        return True

    def initialize(self, session_id: str, **kwargs: Any) -> None:
        pass

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        return []

    def prefetch(self, query: str, *, session_id: str = "") -> str:
        return query

    def sync_turn(
        self,
        user_content: str,
        assistant_content: str,
        *,
        session_id: str = "",
        messages: list[dict[str, Any]] | None = None,
    ) -> None:
        pass


def a_turn(manager: MemoryManager) -> None:
    manager.initialize_all("session-1", platform="cli", user_id="u1")
    manager.on_turn_start(1, "hello")
    assert_type(manager.build_system_prompt(), str)
    assert_type(manager.recall_block("hello"), str)
    assert_type(manager.prefetch_all("hello"), str)
    assert_type(manager.get_all_tool_schemas(), list[dict[str, Any]])
    assert_type(manager.handle_tool_call("memory", {"action": "read"}), str)
    manager.sync_all("hello", "hi")
    manager.queue_prefetch_all("hello")
    assert_type(manager.flush_pending(timeout=1.0), bool)
    assert_type(manager.health(), dict[str, dict[str, HookHealth]])
    manager.shutdown_all()


def a_conversation(manager: MemoryManager) -> None:
    with manager.conversation("session-1", platform="cli", user_id="u1") as talk:
        assert_type(talk, Conversation)
        with talk.turn("hello") as turn:
            assert_type(turn, Turn)
            assert_type(turn.messages("system", []), list[dict[str, Any]])
            assert_type(turn.recalled, Recollection)
            assert_type(turn.call_tool("memory", "{}"), str)
            turn.finish("hi", messages=turn.messages())


async def an_awaited_conversation(manager: AsyncMemoryManager) -> None:
    async with manager.conversation("session-1") as talk:
        assert_type(talk, AsyncConversation)
        async with talk.turn("hello") as turn:
            assert_type(turn, AsyncTurn)
            assert_type(await turn.call_tool("memory", {}), str)
            await turn.finish("hi")


async def an_awaited_turn(manager: AsyncMemoryManager) -> None:
    await manager.initialize_all("session-1", platform="cli")
    assert_type(await manager.recall_block("hello"), str)
    assert_type(await manager.handle_tool_call("memory", {}), str)
    await manager.sync_all("hello", "hi")
    await manager.shutdown_all()


def construction() -> None:
    assert_type(MemoryManager.from_config(), MemoryManager)
    manager = MemoryManager()
    manager.add_provider(Notebook())
    assert_type(RecallStatus("notebook", 1).count, int)


def the_rest(scrubber: StreamScrubber, error: HermesError) -> None:
    assert_type(scrubber.feed("text"), str)
    assert_type(error.hint, str)
    for info in discover():
        assert_type(info, ProviderInfo)
        assert_type(load_provider(info), MemoryProvider)


class Observer:
    """An observer of hooks."""

    @hookimpl
    def sync_turn(self, user_content: str, messages: Messages | None) -> None:
        pass


def recalled(manager: MemoryManager) -> None:
    found = manager.recall("hello")
    assert_type(found, Recollection)
    assert_type(found.outcomes, tuple[Outcome, ...])
    block = build_block([RecalledText("notebook", "tea")], max_chars=1_000)
    assert_type(block, Block)
    assert_type(defuse(without_fences(block.text)), str)


def a_home(home: Path) -> None:
    assert_type(resolve_home(home), Path)
    config = load_config(home)
    assert_type(config, Config)
    assert_type(config.selection, Selection)
    assert_type(config.selection.pin, Pin | None)
    redactor = redactor_for(config, ["secret"])
    assert_type(redactor, Redactor)
    assert_type(redactor.redact("text"), RedactionResult)
    with file_lock(home / "lock", 1.0):
        assert_type(replace_file(home / "file", b"text"), bool)
    assert_type(read_calls(home), list[tuple[int, LoggedCall]])
    assert_type(hook_health(home, since=0.0), list[HookReport])
    MemoryManager(redactor=redactor, deadlines=Deadlines(prefetch=1.0))


def for_authors(info: ProviderInfo, service: ServiceProvider, probed: SupportsProbe) -> None:
    assert_type(info.facts, PluginFacts)
    assert_type(service.name, str)
    assert_type(probed.probe(write=False), ProbeResult)
    hand_over("a part")
    assert_type(FakeProvider().name, str)
    conformance_suite("notebook")
    offer_hermes_agent_modules()


def register(ctx: PluginContext) -> None:
    assert_type(ctx.manifest, PluginManifest)
    assert_type(ctx.state, PluginState)
    assert_type(ctx.platform_actions, PlatformActions)
    assert_type(ctx.on_unload(print), PluginRegistration)
    ctx.register_memory_provider(FakeProvider())


def capabilities(
    settings: SupportsOwnSettings, status: SupportsStatusConfig, setup: SupportsPostSetup
) -> None:
    settings.own_settings("home")
    status.get_status_config({})
    setup.post_setup("home", {})


def forgetting(provider: SupportsForget) -> None:
    request = ForgetRequest("home", text="a fact", delete=True)
    assert_type(request.matches("A Fact"), bool)
    assert_type(provider.forget(request), ForgetReport)
    assert_type(provider.forget(request).items, tuple[ForgetItem, ...])


def listing(provider: SupportsListing) -> None:
    assert_type(provider.list_memories(""), MemoryPage)
    assert_type(provider.list_memories("").items, tuple[MemoryItem, ...])


def prompts() -> None:
    assert_type(TRIVIAL_PROMPT_RE, re.Pattern[str])
    assert_type(is_trivial_prompt("ok"), bool)
    assert_type(SessionContext("s1").keywords(), dict[str, Any])
