"""Agent modules: memory_manager, memory_provider, async_utils, skill_commands, registry.

Our manager, fence and base class under hermes-agent's names.
"""

from __future__ import annotations

import importlib
import inspect
import json
import logging
import threading
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final

from hermes_core.fence import RecalledText, StreamScrubber, build_block, without_fences
from hermes_core.manager import CONTEXT_MAX_CHARS
from hermes_core.manager import MemoryManager as OurManager
from hermes_core.manager.prompts import (  # noqa: F401 - offered
    TRIVIAL_PROMPT_RE,
    is_trivial_prompt,
    user_instruction,
)
from hermes_core.provider import (  # noqa: F401 - offered
    INDICATOR_GLYPH,
    PRE_COMPRESS_CHECKPOINT_API_VERSION,
    MemoryProvider,
    RecallStatus,
)

if TYPE_CHECKING:
    import asyncio

#: By hermes-agent's module: the names that can be imported from it.
OFFERS: Final[dict[str, tuple[str, ...]]] = {
    "agent.async_utils": ("safe_schedule_threadsafe",),
    "agent.memory_manager": (
        "MemoryManager",
        "StreamingContextScrubber",
        "build_memory_context_block",
        "inject_memory_provider_tools",
        "memory_provider_tools_enabled",
        "memory_provider_tools_exposed",
        "normalize_tool_schema",
        "sanitize_context",
    ),
    "agent.memory_provider": (
        "INDICATOR_GLYPH",
        "PRE_COMPRESS_CHECKPOINT_API_VERSION",
        "TRIVIAL_PROMPT_RE",
        "MemoryProvider",
        "RecallStatus",
        "ctx_bound",
        "is_trivial_prompt",
        "spawn_context_thread",
    ),
    "agent.skill_commands": ("extract_user_instruction_from_skill_message",),
    "tools.registry": ("tool_error", "tool_result"),
}


# -- The names of hermes-agent's own tools, of 0.19 and of 0.20

#: A provider's tool of one of these names would take calls away from the host's own.
#: ``memory`` and ``session_search`` are not among them: those belong to the built-in.
CORE_TOOLS: Final = frozenset(
    (
        *("clarify", "delegate_task", "todo", "terminal", "process", "read_terminal"),
        *("close_terminal", "execute_code", "cronjob", "computer_use", "web_search"),
        *("web_extract", "read_file", "write_file", "patch", "search_files", "vision_analyze"),
        *("image_generate", "text_to_speech", "skills_list", "skill_view", "skill_manage"),
        *("browser_navigate", "browser_snapshot", "browser_click", "browser_type"),
        *("browser_scroll", "browser_back", "browser_press", "browser_get_images"),
        *("browser_vision", "browser_console", "browser_cdp", "browser_dialog", "browser_exec"),
        *("bfl_flux3_text_to_video", "bfl_flux3_image_to_video", "bfl_flux3_keyframes_to_video"),
        *("bfl_flux3_video_continuation", "bfl_flux3_get_result", "bfl_flux3_prompting_guide"),
        *("ha_list_entities", "ha_get_state", "ha_list_services", "ha_call_service"),
        *("kanban_show", "kanban_list", "kanban_complete", "kanban_block", "kanban_heartbeat"),
        *("kanban_request_review", "kanban_request_changes", "kanban_comment", "kanban_create"),
        *("kanban_link", "kanban_unblock", "kanban_attach", "kanban_attach_url"),
        *("kanban_attachments",),
    )
)


# -- agent.memory_manager: our manager and our fence, under hermes-agent's names

StreamingContextScrubber = StreamScrubber

#: The toolsets of hermes-agent that contain the memory tool: a host may name them without having
#: hermes-agent's own list of them.
_WITH_MEMORY: Final = frozenset(
    (
        *("*", "all", "coding", "memory"),
        *(
            f"hermes-{platform}"
            for platform in (
                *("acp", "api-server", "bluebubbles", "cli", "cron", "dingtalk", "discord"),
                *("email", "feishu", "gateway", "homeassistant", "matrix", "mattermost", "qqbot"),
                *("signal", "slack", "sms", "telegram", "wecom", "wecom-callback", "weixin"),
                *("whatsapp", "yuanbao"),
            )
        ),
    )
)


class MemoryManager(OurManager):
    """Ours, with the names of hermes-agent's own tools reserved unless others are given."""

    def __init__(self, *, reserved_tools: Iterable[str] = CORE_TOOLS, **options: Any) -> None:
        super().__init__(reserved_tools=reserved_tools, **options)


def build_memory_context_block(raw_context: str) -> str:
    """Return recalled text in a fence; "" if there is none."""
    if not raw_context or not raw_context.strip():
        return ""
    return build_block([RecalledText("memory", raw_context)], max_chars=CONTEXT_MAX_CHARS).text


def sanitize_context(text: str) -> str:
    """Return a text without fences and what stood in them."""
    return without_fences(text)


def normalize_tool_schema(schema: Any) -> dict[str, Any] | None:
    """Return a tool's bare schema, unwrapped if need be; None if it has no name."""
    # The OpenAI envelope: {"type": "function", "function": {...}}.
    if isinstance(schema, dict) and schema.get("type") == "function":
        schema = schema.get("function", schema)
    if not isinstance(schema, dict):
        return None
    name = schema.get("name")
    return schema if isinstance(name, str) and name else None


def memory_provider_tools_enabled(
    enabled_toolsets: list[str] | None,
    disabled_toolsets: list[str] | None = None,
    *,
    memory_tool_present: bool = False,
) -> bool:
    """Return whether an agent with these toolsets is to have the tools of memory providers.

    Args:
        enabled_toolsets: The agent's toolsets; None if it has all. One that contains the
            memory tool counts like ``memory`` itself.
        disabled_toolsets: Toolsets that it must not have; they take precedence.
        memory_tool_present: Whether it has the memory tool already.
    """
    # First, since a person who disabled memory must not get it back through another toolset.
    if "memory" in (disabled_toolsets or ()):
        return False
    if memory_tool_present or enabled_toolsets is None:
        return True
    return any(map(_has_memory, enabled_toolsets))


def _has_memory(toolset: str) -> bool:
    return toolset in _WITH_MEMORY or "memory" in _tools_of(toolset)


def _tools_of(toolset: str) -> Collection[str]:
    """The tools of a toolset of the host, if the host has toolsets as hermes-agent has them."""
    try:
        return importlib.import_module("toolsets").resolve_toolset(toolset)  # type: ignore[no-any-return]
    except Exception:  # noqa: BLE001 - no such module or toolset; it is the host's code
        return ()


def memory_provider_tools_exposed(agent: Any) -> bool:
    """Return whether an agent is to have the tools of memory providers, by its own toolsets."""
    tools = getattr(agent, "tools", None)
    return memory_provider_tools_enabled(
        getattr(agent, "enabled_toolsets", None),
        getattr(agent, "disabled_toolsets", None),
        memory_tool_present=isinstance(tools, list | tuple) and "memory" in map(_name, tools),
    )


def inject_memory_provider_tools(agent: Any) -> int:
    """Add the tools of an agent's ``_memory_manager`` to it; return how many were new."""
    memory, tools = getattr(agent, "_memory_manager", None), getattr(agent, "tools", None)
    if not memory or tools is None or not memory_provider_tools_exposed(agent):
        return 0
    present = {_name(tool) for tool in tools}
    # hermes-agent rejects a call of a tool that is not in this set.
    if getattr(agent, "valid_tool_names", None) is None:
        agent.valid_tool_names = set()
    before = len(tools)
    for schema in map(normalize_tool_schema, memory.get_all_tool_schemas()):
        if schema is not None and schema["name"] not in present:
            tools.append({"type": "function", "function": schema})
            agent.valid_tool_names.add(schema["name"])
            present.add(schema["name"])
    return len(tools) - before


def _name(tool: Any) -> Any:
    return (tool.get("function") or {}).get("name") if isinstance(tool, dict) else None


# -- agent.memory_provider: the base class, and what its newer revisions have beside it


def ctx_bound(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs with the context variables of here, wherever it is called."""
    # Copied when it is called, not when the function runs: by then the caller's context is over.
    context = copy_context()
    return lambda *args, **kwargs: context.run(fn, *args, **kwargs)


def spawn_context_thread(
    target: Callable[..., Any],
    *,
    name: str,
    daemon: bool = True,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> threading.Thread:
    """Return a thread, not yet started, with the context variables of here."""
    return threading.Thread(
        target=ctx_bound(target), args=args, kwargs=dict(kwargs or {}), name=name, daemon=daemon
    )


# -- agent.async_utils: coroutines for a loop of another thread


def safe_schedule_threadsafe(
    coro: Coroutine[Any, Any, Any],
    loop: asyncio.AbstractEventLoop | None,
    *,
    logger: logging.Logger | None = None,
    log_message: str = "Failed to schedule coroutine on loop",
    log_level: int = logging.DEBUG,
) -> Future[Any] | None:
    """Run a coroutine on a loop of another thread.

    Returns:
        What will have its result; None if the loop is missing or closed. The coroutine is
        closed then.
    """
    import asyncio  # noqa: PLC0415 - 60 ms that few plugins need

    cause: object = "loop is None"
    if loop is not None:
        try:
            return asyncio.run_coroutine_threadsafe(coro, loop)
        except Exception as error:  # noqa: BLE001 - a closed loop, or no coroutine at all
            cause = error
    # A coroutine that is never awaited causes a RuntimeWarning in the plugin's name.
    if inspect.iscoroutine(coro):
        coro.close()
    (logger or logging.getLogger("hermes_core")).log(log_level, "%s: %s", log_message, cause)
    return None


# -- agent.skill_commands: what the user said in a message that carries a whole skill


def extract_user_instruction_from_skill_message(content: Any) -> str | None:
    """Return what the user said.

    Args:
        content: A message.

    Returns:
        The message itself if it carries no skill, else the user's own words in it; None if
        there are none, or it is not a text.
    """
    if not isinstance(content, str):
        return None
    # An empty text is returned as it is; None is only for a skill without the user's own words.
    return user_instruction(content) or None if content.strip() else content


# -- tools.registry: how a tool says what came of it


def tool_error(message: Any, **extra: Any) -> str:
    """Return a tool's failure."""
    return json.dumps({"error": str(message), **extra}, ensure_ascii=False)


def tool_result(data: Any = None, **kwargs: Any) -> str:
    """Return a tool's result: an object, or keywords that make one."""
    return json.dumps(kwargs if data is None else data, ensure_ascii=False)
