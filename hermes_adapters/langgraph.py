"""LangGraph: `HermesStore`, a store for long-term memory, and `HermesMemory`, a middleware.

agent = create_agent(model, middleware=[HermesMemory()], store=HermesStore())
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Annotated, Any, NotRequired
from uuid import uuid4

from hermes_adapters.frameworks import require, scrubbed
from hermes_adapters.people import MemoryOwner, SessionManagers, in_thread
from hermes_core import HermesError, defuse

require("langgraph", extra="langgraph", tested=">=1.2,<1.3")
require("langchain", extra="langgraph", tested=">=1.4,<1.5")

from langchain.agents.middleware.types import (  # noqa: E402 - after the check
    AgentMiddleware,
    AgentState,
    ModelRequest,
    ModelResponse,
    PrivateStateAttr,
    ToolCallRequest,
)
from langchain_core.messages import (  # noqa: E402
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.tools import StructuredTool  # noqa: E402
from langgraph.channels.untracked_value import UntrackedValue  # noqa: E402
from langgraph.config import get_config  # noqa: E402
from langgraph.runtime import Runtime  # noqa: E402

from hermes_adapters.langgraph_store import HermesStore  # noqa: E402

__all__ = ["HermesMemory", "HermesStore"]


class _State(AgentState[Any]):
    # Never part of a checkpoint: recalled text belongs to one turn.
    hermes_added: NotRequired[Annotated[tuple[str, str], UntrackedValue, PrivateStateAttr]]
    hermes_session: NotRequired[Annotated[str, PrivateStateAttr]]


class HermesMemory(AgentMiddleware[_State, Any, Any]):
    """Recalls before the model, offers the memory's tools, and stores the turn after it.

    The session is the ``thread_id`` of the run. The user is ``user_id`` of the runtime's context or
    of ``configurable``, otherwise that of this object.

    Args:
        home: HERMES_HOME; by default the environment's.
        platform: Where users are known; every run then needs a user id.
        user_id: Whose memory it is, unless a run says so; by default the owner of the machine.
    """

    state_schema = _State

    def __init__(
        self, home: str | os.PathLike[str] | None = None, *, platform: str = "", user_id: str = ""
    ) -> None:
        super().__init__()
        self._platform, self._user = platform, user_id
        self._memories = SessionManagers(home)
        with self._memories.session(f"langgraph-{uuid4().hex[:12]}", MemoryOwner()) as memory:
            self.tools = [_tool(each) for each in memory.get_all_tool_schemas()]

    def close(self) -> None:
        """Deliver what waits, and shut the memory down."""
        self._memories.close()

    def before_agent(self, state: _State, runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Begin a turn: what the user said is recalled for."""
        session = _thread() or state.get("hermes_session") or f"langgraph-{uuid4().hex}"
        turn = _turn(state["messages"])
        if turn:
            with self._memories.session(session, self._person(runtime)) as memory:
                memory.on_turn_start(_number(state["messages"]), _text(turn[0]))
        added = self._recalled(session, state["messages"], runtime)
        return {"hermes_session": session, "hermes_added": added}

    def _recalled(
        self, session: str, messages: list[AnyMessage], runtime: Runtime[Any]
    ) -> tuple[str, str]:
        """What the memory adds to the system prompt, and to the user's message."""
        turn = _turn(messages)
        with self._memories.session(session, self._person(runtime)) as memory:
            recalled = memory.recall_block(_text(turn[0])) if turn else ""
            nudge = memory.pending_nudge() if turn else ""
            return memory.build_system_prompt(), "\n\n".join(filter(None, (recalled, nudge)))

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Send the recalled text with the request, which leaves the stored messages as they are."""
        return _scrubbed(handler(_with(request, self._added(request))))

    async def awrap_model_call(
        self, request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:  # fmt: skip
        """As `wrap_model_call`."""
        added = await in_thread(partial(self._added, request))
        return _scrubbed(await handler(_with(request, added)))

    def _added(self, request: ModelRequest[Any]) -> tuple[str, str]:
        state: Any = request.state
        # Missing in a run that goes on after an interrupt.
        found = state.get("hermes_added")
        session = str(state.get("hermes_session") or "")
        return found or self._recalled(session, request.messages, request.runtime)

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]
    ) -> Any:
        """Answer the memory's tools; report to the memory what other tools return."""
        return self._answer(request) or self._reported(request, handler(request))

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """As `wrap_tool_call`."""
        answer = await in_thread(partial(self._answer, request))
        if answer is not None:
            return answer
        return await in_thread(partial(self._reported, request, await handler(request)))

    def _answer(self, request: ToolCallRequest) -> ToolMessage | None:
        call = request.tool_call
        if call["name"] not in {each.name for each in self.tools}:
            return None
        with self._of(request) as memory:
            text = memory.handle_tool_call(call["name"], dict(call["args"]))
        return ToolMessage(text, name=call["name"], tool_call_id=call["id"])

    def _reported(self, request: ToolCallRequest, result: Any) -> Any:
        if isinstance(result, ToolMessage):
            with self._of(request) as memory:
                memory.on_tool_result(request.tool_call["name"], _text(result))
        return result

    def _of(self, request: ToolCallRequest) -> Any:
        session = str(request.state["hermes_session"])
        return self._memories.session(session, self._person(request.runtime))

    def after_agent(self, state: _State, runtime: Runtime[Any]) -> None:
        """Store the turn."""
        turn = _turn(state["messages"])
        if not turn:
            return
        said, answer = _text(turn[0]), _text(turn[-1]) if isinstance(turn[-1], AIMessage) else ""
        with self._memories.session(state["hermes_session"], self._person(runtime)) as memory:
            memory.sync_all(said, answer, messages=list(map(_as_dict, turn)))
            memory.queue_prefetch_all(said)

    def _person(self, runtime: Any) -> MemoryOwner:
        context = getattr(runtime, "context", None)
        given = context.get("user_id") if isinstance(context, Mapping) else None
        given = given or getattr(context, "user_id", None) or _configurable().get("user_id")
        return MemoryOwner.of(self._platform, str(given or self._user), "langgraph")


def _configurable() -> Mapping[str, Any]:
    return get_config().get("configurable") or {}


def _thread() -> str:
    return str(_configurable().get("thread_id") or "")


def _turn(messages: list[AnyMessage]) -> list[AnyMessage]:
    """The messages from the user's last one on."""
    starts = [at for at, each in enumerate(messages) if isinstance(each, HumanMessage)]
    return messages[starts[-1] :] if starts else []


def _number(messages: list[AnyMessage]) -> int:
    return sum(isinstance(each, HumanMessage) for each in messages)


def _text(message: BaseMessage) -> str:
    return str(message.text)


def _as_dict(message: AnyMessage) -> dict[str, Any]:
    roles = {"human": "user", "ai": "assistant"}
    calls = getattr(message, "tool_calls", None)
    shown = [{"id": each["id"], "type": "function",
              "function": {"name": each["name"], "arguments": json.dumps(each["args"])}}
             for each in calls or ()]  # fmt: skip
    return {
        "role": roles.get(message.type, message.type), "content": _text(message),
        **({"name": message.name} if message.name else {}),
        **({"tool_calls": shown} if shown else {}),
    }  # fmt: skip


def _with(request: ModelRequest[Any], added: tuple[str, str]) -> ModelRequest[Any]:
    prompt, recalled = added
    messages = [_defused(each) if isinstance(each, HumanMessage) else each
                for each in request.messages]  # fmt: skip
    at = len(messages) - len(_turn(messages))
    if recalled and at < len(messages):
        messages[at] = _appended(messages[at], recalled)
    before = request.system_message
    whole = "\n\n".join(filter(None, (_text(before) if before else "", prompt)))
    system = SystemMessage(whole) if whole else before
    return request.override(messages=messages, system_message=system)


def _appended(message: AnyMessage, text: str) -> AnyMessage:
    content = message.content
    if isinstance(content, str):
        return message.model_copy(update={"content": f"{content}\n\n{text}"})
    return message.model_copy(update={"content": [*content, {"type": "text", "text": text}]})


def _defused(message: HumanMessage) -> HumanMessage:
    """What a user wrote must not look like recalled text."""
    content = message.content
    if isinstance(content, str):
        return message.model_copy(update={"content": defuse(content)})
    parts = [{**each, "text": defuse(each["text"])}
             if isinstance(each, dict) and isinstance(each.get("text"), str) else each
             for each in content]  # fmt: skip
    return message.model_copy(update={"content": parts})


def _scrubbed(response: ModelResponse[Any]) -> ModelResponse[Any]:
    """Remove recalled text that the model repeats."""
    for each in response.result:
        if isinstance(each, AIMessage) and isinstance(each.content, str):
            each.content = scrubbed(each.content)
    return response


def _tool(schema: dict[str, Any]) -> StructuredTool:
    def call(**_args: Any) -> str:
        raise HermesError("the tools of HermesMemory work in an agent that has it as middleware")

    return StructuredTool(
        name=schema["name"], description=schema.get("description") or schema["name"],
        args_schema=schema.get("parameters") or {"type": "object", "properties": {}}, func=call,
    )  # fmt: skip
