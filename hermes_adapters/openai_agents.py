"""Memory for the OpenAI Agents SDK: a `Session` that recalls, stores turns and has the tools.

async with MemorySession("session-1", platform="cli") as session:
    agent = session.equip(Agent(name="Helper", instructions="You are a helpful agent."))
    result = await Runner.run(agent, "How do we deploy?", session=session)
"""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from copy import deepcopy
from types import TracebackType
from typing import Any, Final, Self

from hermes_adapters.frameworks import SessionMemory, require

require("openai-agents", extra="openai-agents", tested=">=0.24,<0.25")

from agents import (  # noqa: E402 - after the check
    Agent,
    FunctionTool,
    RunContextWrapper,
    RunResultStreaming,
    SessionSettings,
    TResponseInputItem,
    UserError,
)
from agents.tool_context import ToolContext  # noqa: E402

from hermes_core import AsyncTurn, StreamScrubber  # noqa: E402

Instructions = str | Callable[[RunContextWrapper[Any], Agent[Any]], Any] | None
_Dynamic = Callable[[RunContextWrapper[Any], Agent[Any]], Awaitable[str]]
#: Characters of one item: more does not fit into a model's context, and slows every search.
_LARGEST_ITEM: Final = 4_000_000


class MemorySession:
    """One session of one person: history, recall, memory tools, and storing of turns.

    Args:
        session_id: The session.
        session_settings: Settings of the SDK, such as a limit of items.
        **options: ``memory``, ``home``, ``end_session`` and who talks (``platform``, ``user_id``):
            see `hermes_adapters.frameworks.SessionMemory`.

    Raises:
        UserError: The session id is not text.
    """

    def __init__(
        self, session_id: str, *, session_settings: SessionSettings | None = None, **options: Any
    ) -> None:
        if not isinstance(session_id, str) or not session_id:
            raise UserError(f"a session id is text, not {session_id!r}")
        self.session_id = session_id
        self.session_settings = session_settings or SessionSettings()
        self._session = SessionMemory(session_id, **options)
        self._items: list[TResponseInputItem] | None = None
        self._start = 0  # where the open turn begins in the items
        self._cleared = 0
        self._was_read = False
        self._early: str | None = None  # what a turn is about whose items are not added yet
        self._model_asked: bool | None = None  # None: its instructions are not used

    async def __aenter__(self) -> Self:
        await self._history()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the session; the next use opens it again."""
        await self._end_turn()
        self._items = None
        await self._session.close()

    # -- the agent ------------------------------------------------------------------------

    def equip(self, agent: Agent[Any]) -> Agent[Any]:
        """Return a copy of an agent that has this memory in its instructions and its tools."""
        return agent.clone(
            instructions=self.instructions(agent.instructions), tools=[*agent.tools, *self.tools]
        )

    @property
    def tools(self) -> list[FunctionTool]:
        """The memory's tools.

        Raises:
            UserError: The session is not open.
        """
        if not self._session.is_open:
            raise UserError("open the session first: async with MemorySession(...) as session")
        return [self._tool(schema) for schema in self._session.schemas]

    def _tool(self, schema: dict[str, Any]) -> FunctionTool:
        async def call(context: ToolContext[Any], arguments: str) -> str:
            return await self._open_turn().call_tool(
                schema["name"],
                arguments,
                tool_call_id=context.tool_call_id,
                messages=self._turn_items(),  # so that it knows what other tools returned
            )

        return FunctionTool(
            name=schema["name"],
            description=schema.get("description", ""),
            params_json_schema=schema.get("parameters", {}),
            on_invoke_tool=call,
            strict_json_schema=False,  # strict mode wants every argument in every call
        )

    def instructions(self, own: Instructions = "") -> _Dynamic:
        """Return instructions that add the notes and what was recalled for the turn.

        Args:
            own: Your own instructions, as text or as a function of the SDK.
        """

        async def add_memory(context: RunContextWrapper[Any], agent: Agent[Any]) -> str:
            text = own(context, agent) if callable(own) else own
            text = await text if inspect.isawaitable(text) else text
            await self._begin_streamed(context)
            turn = self._open_turn()
            self._model_asked = True
            return "\n\n".join(filter(None, (text, self._session.prompt, turn.context)))

        return add_memory

    async def _begin_streamed(self, context: RunContextWrapper[Any]) -> None:
        """Start the turn of a streamed run, which asks for instructions before it adds the input.

        Every run reads the history first; a turn that is still open then is of a run that failed.
        """
        asked = [_text(each) for each in context.turn_input if _role(each) == "user"]
        if self._was_read and asked and asked[-1] != self._early:
            await self._end_turn()
            await self._session.begin(asked[-1])
            self._early = asked[-1]
        self._was_read = False

    def _open_turn(self) -> AsyncTurn:
        if self._session.turn is None:
            raise UserError(
                "the memory needs its session: Runner.run(agent, text, session=session)"
            )
        return self._session.turn

    async def stream(self, result: RunResultStreaming) -> AsyncIterator[str]:
        """Yield the text of a streamed run, without recalled text that the model repeats."""
        scrubber = StreamScrubber()
        async for event in result.stream_events():
            if event.type != "raw_response_event":
                continue
            data: Any = event.data  # a union of fifty kinds
            if data.type == "response.output_text.delta":
                if shown := scrubber.feed(data.delta):
                    yield shown
            elif data.type == "response.completed" and (rest := scrubber.flush()):
                yield rest

    # -- the protocol of the SDK ------------------------------------------------------------

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the items of the session, or the newest ``limit`` of them."""
        items = await self._history()
        self._was_read = True
        most = self.session_settings.limit if limit is None else limit
        return deepcopy(items if most is None else items[-most:] if most > 0 else [])

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add items. One of the user starts a turn, and the assistant's answer ends it.

        Raises:
            UserError: An item is not a JSON object, or is too large.
        """
        for each in items:
            _check(each)
        history = await self._history()
        asked = [at for at, each in enumerate(items) if _role(each) == "user"]
        self._was_read = False
        if asked:
            await self._begin(_text(items[asked[-1]]))
            self._start = len(history) + asked[-1]
        elif self._model_asked:
            self._model_asked = False
        history.extend(deepcopy(items))
        if items and _role(items[-1]) == "assistant":
            await self._finish(_text(items[-1]))

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the newest item from what the model sees, and return it."""
        history = await self._history()
        if not history:
            return None
        if len(history) - 1 <= self._start:
            await self._session.interrupt()
        return history.pop()

    async def clear_session(self) -> None:
        """Start over: the model sees nothing of what was said. The archive keeps it."""
        await self._history()
        self._items, self._start = [], 0
        self._cleared += 1
        await self._session.switch(self._name(self._cleared))

    # -- turns --------------------------------------------------------------------------------

    async def _history(self) -> list[TResponseInputItem]:
        """The items; at first, what an earlier process stored of the session."""
        if self._items is None:
            found = await self._session.earlier()
            while after := await self._session.earlier(self._name(self._cleared + 1)):
                self._cleared, found = self._cleared + 1, after
            if self._cleared:
                await self._session.switch(self._name(self._cleared))
            self._items = [dict(each) for each in found]
        return self._items

    def _name(self, cleared: int) -> str:
        """What the archive calls the session after it was cleared so often."""
        return f"{self.session_id}~{cleared}" if cleared else self.session_id

    async def _begin(self, text: str) -> None:
        if self._early != text:
            await self._end_turn()
            await self._session.begin(text)
            self._model_asked = None
        self._early = None

    async def _end_turn(self) -> None:
        """End a turn that has no answer: stored if the run ended with a tool's result.

        If the model was asked after that result, it failed, and the turn counts as interrupted.
        """
        items = self._turn_items()
        if items and _is_result(items[-1]) and self._model_asked is False:
            await self._finish(_text(items[-1]))
        await self._session.interrupt()

    def _turn_items(self) -> list[dict[str, Any]]:
        return [dict(each) for each in (self._items or [])[self._start :]]

    async def _finish(self, answer: str) -> None:
        await self._session.finish(answer, self._turn_items()[1:])


def _check(item: Any) -> None:
    if not isinstance(item, dict):
        raise UserError(f"an item of a session is a dictionary, not {type(item).__name__}")
    try:
        size = len(json.dumps(item))
    except (TypeError, ValueError) as error:
        raise UserError(f"an item of a session is JSON: {error}") from error
    if size > _LARGEST_ITEM:
        raise UserError(f"an item has {size:,} characters; at most {_LARGEST_ITEM:,} are stored")


def _role(item: Any) -> str:
    return str(item.get("role") or "")


def _is_result(item: Any) -> bool:
    return str(item.get("type") or "").endswith("_output")


def _text(item: Any) -> str:
    """What an item says: its text, or the texts of its parts."""
    said = item.get("output") if _is_result(item) else item.get("content")
    if isinstance(said, list):
        return "\n".join(filter(None, (str(part.get("text") or "") for part in said)))
    return said if isinstance(said, str) else json.dumps(said)
