"""Memory for Pydantic AI: a capability with instructions, recall, tools, and storing of turns.

async with Memory("session-1", platform="cli") as memory:
    agent = Agent("openai:gpt-5", capabilities=[memory])
    result = await agent.run("How do we deploy?")
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Self

from hermes_adapters.frameworks import SessionMemory, require, scrubbed

require("pydantic-ai-slim", extra="pydantic-ai", tested=">=2.66,<2.67")

from pydantic_ai import AgentRunResult, RunContext, Tool  # noqa: E402 - after the check
from pydantic_ai.capabilities import AbstractCapability  # noqa: E402
from pydantic_ai.exceptions import UserError  # noqa: E402
from pydantic_ai.messages import (  # noqa: E402
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext  # noqa: E402
from pydantic_ai.tools import DeferredToolRequests, ToolDefinition  # noqa: E402
from pydantic_ai.toolsets import AgentToolset, FunctionToolset  # noqa: E402
from pydantic_core import to_json  # noqa: E402

from hermes_core import Messages, StreamScrubber, defuse  # noqa: E402


class Memory(AbstractCapability[Any]):
    """One session of one person. Each run of an agent that has it is a turn.

    Pass it to the agent, or to each run if the agent serves several people:
    ``agent.run(text, capabilities=[memory])``.

    Args:
        session_id: The session.
        **options: ``memory``, ``home``, ``end_session`` and who talks (``platform``, ``user_id``):
            see `hermes_adapters.frameworks.SessionMemory`.

    Raises:
        UserError: The session id is not text.
    """

    def __init__(self, session_id: str, **options: Any) -> None:
        if not isinstance(session_id, str) or not session_id:
            raise UserError(f"a session id is text, not {session_id!r}")
        self.session_id = session_id
        self._session = SessionMemory(session_id, **options)
        self._toolset: FunctionToolset[Any] | None = None
        self._one_turn = asyncio.Lock()

    async def __aenter__(self) -> Self:
        await self._session.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._toolset = None
        await self._session.close()

    async def message_history(self) -> list[ModelMessage]:
        """Return what was said in this session before, for ``message_history`` of a run."""
        return [
            ModelRequest(parts=[UserPromptPart(each["content"])])
            if each["role"] == "user"
            else ModelResponse(parts=[TextPart(each["content"])])
            for each in await self._session.earlier()
        ]

    async def stream(self, chunks: AsyncIterable[str]) -> AsyncIterator[str]:
        """Yield streamed text (``stream_text(delta=True)``) without recalled text in it."""
        scrubber = StreamScrubber()
        async for chunk in chunks:
            if shown := scrubber.feed(chunk):
                yield shown
        if rest := scrubber.flush():
            yield rest

    # -- what the agent gets ------------------------------------------------------------------

    def get_instructions(self) -> Callable[[], str]:
        """The notes, as they were when the session began."""
        return lambda: self._session.prompt

    def get_toolset(self) -> AgentToolset[Any]:
        """The memory's tools; a function if they are not known before the first run."""
        return self._tools() if self._session.is_open else lambda _: self._tools()

    def _tools(self) -> FunctionToolset[Any]:
        """The tools, made once for all runs."""
        if self._toolset is None:
            self._toolset = FunctionToolset([self._tool(each) for each in self._session.schemas])
        return self._toolset

    def _tool(self, schema: dict[str, Any]) -> Tool[Any]:
        call = partial(self._call, schema["name"])
        description, parameters = schema.get("description"), schema.get("parameters", {})
        return Tool.from_schema(call, schema["name"], description, parameters, takes_ctx=True)

    async def _call(self, name: str, context: RunContext[Any], **arguments: Any) -> str:
        if self._session.turn is None:
            raise UserError("the memory's tools work in a run of the agent that has the memory")
        return await self._session.turn.call_tool(
            name, arguments, tool_call_id=context.tool_call_id or ""
        )

    # -- a run is a turn ----------------------------------------------------------------------

    async def wrap_run(
        self, ctx: RunContext[Any], *, handler: Callable[[], Any]
    ) -> AgentRunResult[Any]:
        """Recall before the run, and store the turn after it; an exception interrupts it."""
        async with self._one_turn:
            await self._session.begin(_prompt(ctx))
            try:
                result: AgentRunResult[Any] = await handler()
                if not isinstance(result.output, DeferredToolRequests):
                    said = _messages(result.new_messages())
                    await self._session.finish(_answer(result.output), said)
            finally:
                await self._session.interrupt()
            return result

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Append what was recalled to the copy of the user's message that the model gets."""
        turn = self._session.turn
        messages = [_defused(each) for each in request_context.messages]
        if turn is not None and turn.context:
            _append(messages, turn.context)
        return replace(request_context, messages=messages)

    async def after_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        result: Any,
    ) -> Any:
        """Report what the agent's other tools return: a note with these words is not the user's."""
        await self._session.report(call.tool_name, _answer(result))
        return result

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Remove recalled text that the model repeats."""
        parts = [
            replace(each, content=scrubbed(each.content)) if isinstance(each, TextPart) else each
            for each in response.parts
        ]
        return replace(response, parts=parts)


def _text(content: Any) -> str:
    """The text of a prompt, which may have images and files between its texts."""
    parts = [content] if isinstance(content, str) else content or ()
    return "\n".join(getattr(each, "content", each) for each in parts if _is_text(each))


def _is_text(part: Any) -> bool:
    return isinstance(part, str) or isinstance(getattr(part, "content", None), str)


def _prompt(ctx: RunContext[Any]) -> str:
    """What the user said: the prompt of the run, or the last one if the run continues another."""
    if ctx.prompt is not None:
        return _text(ctx.prompt)
    said = [each for message in ctx.messages for each in message.parts]
    prompts = [_text(each.content) for each in said if isinstance(each, UserPromptPart)]
    return prompts[-1] if prompts else ""


def _answer(output: Any) -> str:
    return output if isinstance(output, str) else to_json(output, fallback=str).decode()


def _defused(message: ModelMessage) -> ModelMessage:
    """Copy a message; what a user wrote must not look like recalled text."""
    if not isinstance(message, ModelRequest):
        return message
    parts = [
        replace(each, content=defuse(each.content))
        if isinstance(each, UserPromptPart) and isinstance(each.content, str)
        else each
        for each in message.parts
    ]
    return replace(message, parts=parts)


def _append(messages: list[ModelMessage], text: str) -> None:
    """Put a text behind what the user said last."""
    for at in reversed(range(len(messages))):
        message, parts = messages[at], [*messages[at].parts]
        asked = [each for each in parts if isinstance(each, UserPromptPart)]
        if isinstance(message, ModelRequest) and asked:
            said = asked[-1].content
            content = f"{said}\n\n{text}" if isinstance(said, str) else [*said, text]
            parts[parts.index(asked[-1])] = replace(asked[-1], content=content)
            messages[at] = replace(message, parts=parts)
            return


def _messages(messages: list[ModelMessage]) -> Messages:
    """The messages of a run behind the user's, in the form of OpenAI's chat API."""
    return [
        said
        for message in messages
        for part in message.parts
        if (said := _message(part)) is not None
    ]


def _message(part: Any) -> dict[str, Any] | None:
    if isinstance(part, TextPart):
        return {"role": "assistant", "content": part.content}
    if isinstance(part, ToolCallPart):
        function = {"name": part.tool_name, "arguments": part.args_as_json_str()}
        calls = [{"id": part.tool_call_id, "type": "function", "function": function}]
        return {"role": "assistant", "content": "", "tool_calls": calls}
    if isinstance(part, ToolReturnPart):
        name, text = part.tool_name, part.model_response_str()
        return {"role": "tool", "tool_call_id": part.tool_call_id, "name": name, "content": text}
    return None  # thinking, files, and what the memory did not say
