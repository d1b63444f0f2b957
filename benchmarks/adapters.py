"""What a turn costs through each adapter, beside the same turn of the bare manager.

Every run is one turn with recall, one model call and storing; the models are objects of the
frameworks that answer at once. Each framework also runs with two tools that do nothing instead of
the memory. The difference is what the adapter and the memory cost together, which is compared with
the bare manager's turn.

To add a framework, write a function like `pydantic_ai` and name it in `FRAMEWORKS`.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from statistics import median, quantiles
from typing import Any, NamedTuple

from _report import Report

from hermes_core import AsyncMemoryManager, MemoryManager

ROUNDS = 7
TURNS = 60
QUESTION = "How do we deploy the billing service, and who has to approve it?"
ANSWER = "With make release, every second Monday; two people of the platform team approve."

Ask = Callable[[str], Awaitable[Any]]


class Pair(NamedTuple):
    """A framework with the memory and without it."""

    with_memory: Ask
    without: Ask


@asynccontextmanager
async def bare_manager() -> AsyncIterator[Pair]:
    """The calls of `AsyncMemoryManager` in the order of docs/agents.md."""
    async with await AsyncMemoryManager.from_config() as memory:
        await memory.initialize_all("bare", platform="cli")
        await memory.build_system_prompt()

        async def ask(text: str) -> None:
            await memory.on_turn_start(1, text)
            await memory.recall_block(text)
            await memory.pending_nudge()
            await memory.get_all_tool_schemas()
            await memory.sync_all(text, ANSWER)
            await memory.queue_prefetch_all(text)

        yield Pair(ask, _nothing)


@asynccontextmanager
async def conversation() -> AsyncIterator[Pair]:
    """`memory.conversation`, on which the adapters are built."""
    async with (
        await AsyncMemoryManager.from_config() as memory,
        memory.conversation("talk", platform="cli") as talk,
    ):

        async def ask(text: str) -> None:
            async with talk.turn(text) as turn:
                await turn.finish(ANSWER)
            talk.history.clear()

        yield Pair(ask, _nothing)


async def _nothing(_: str) -> None:
    """A framework that does nothing."""


def _memory(target: str, action: str = "") -> str:
    """Change the notebooks."""
    return target + action


def _session_search(query: str = "", session_id: str = "") -> str:
    """Search past conversations."""
    return query + session_id


@asynccontextmanager
async def openai_agents() -> AsyncIterator[Pair]:
    from agents import Agent, Runner, SessionSettings, function_tool, set_tracing_disabled
    from agents.items import ModelResponse
    from agents.models.interface import Model
    from agents.usage import Usage
    from openai.types.responses import ResponseOutputMessage, ResponseOutputText

    from hermes_adapters.openai_agents import MemorySession

    class Instant(Model):
        async def get_response(self, *_: Any, **__: Any) -> ModelResponse:
            text = ResponseOutputText(annotations=[], text=ANSWER, type="output_text")
            said = ResponseOutputMessage(
                id="1", content=[text], role="assistant", status="completed", type="message"
            )
            return ModelResponse(output=[said], usage=Usage(), response_id=None)

        def stream_response(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    set_tracing_disabled(disabled=True)
    tools = [function_tool(_memory), function_tool(_session_search)]
    plain = Agent(name="Helper", instructions="Be helpful.", model=Instant())
    with_tools = plain.clone(tools=tools)
    one = SessionSettings(limit=2)  # the model's history must not grow with the rounds
    async with MemorySession("agents", platform="cli", session_settings=one) as session:
        agent = session.equip(plain)
        yield Pair(
            lambda text: Runner.run(agent, text, session=session),
            lambda text: Runner.run(with_tools, text),
        )


@asynccontextmanager
async def pydantic_ai() -> AsyncIterator[Pair]:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart
    from pydantic_ai.models.function import FunctionModel

    from hermes_adapters.pydantic_ai import Memory

    model = FunctionModel(lambda _messages, _info: ModelResponse(parts=[TextPart(ANSWER)]))
    # Tools and instructions cost something in every framework, whoever they are from.
    plain = Agent(model, instructions=lambda: "Be helpful.", tools=[_memory, _session_search])
    async with Memory("pydantic", platform="cli") as memory:
        agent = Agent(model, instructions="Be helpful.", capabilities=[memory])
        yield Pair(agent.run, plain.run)


@asynccontextmanager
async def anthropic() -> AsyncIterator[Pair]:
    """The memory tool: one look at a notebook, beside the notes' own tool."""
    from hermes_adapters.anthropic import AsyncMemoryTool

    async with await AsyncMemoryManager.from_config() as memory:
        await memory.initialize_all("claude", platform="cli")
        tool = AsyncMemoryTool(memory)
        path = "/memories/MEMORY.md"
        create = {"command": "create", "path": path, "file_text": "Deploy with make release."}
        await tool.call(create)
        read = {"action": "read", "target": "memory"}
        yield Pair(
            lambda _: tool.call({"command": "view", "path": path}),
            lambda _: memory.handle_tool_call("memory", read),
        )


@asynccontextmanager
async def langgraph() -> AsyncIterator[Pair]:
    from langchain.agents import create_agent
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.tools import tool

    from hermes_adapters.langgraph import HermesMemory

    class Instant(GenericFakeChatModel):
        def bind_tools(self, *_: Any, **__: Any) -> Any:
            return self

    def model() -> Instant:
        return Instant(messages=(AIMessage(ANSWER) for _ in iter(int, 1)))

    memory = HermesMemory()
    agent = create_agent(model(), middleware=[memory])
    plain = create_agent(model(), tools=[tool(_memory), tool(_session_search)])
    config: Any = {"configurable": {"thread_id": "langgraph"}}

    def ask(which: Any) -> Ask:
        return lambda text: which.ainvoke({"messages": [("user", text)]}, config)

    try:
        yield Pair(ask(agent), ask(plain))
    finally:
        memory.close()


@asynccontextmanager
async def adk() -> AsyncIterator[Pair]:
    """Storing a turn; ADK searches when the model asks for it."""
    from google.adk.events.event import Event
    from google.genai import types

    from hermes_adapters.adk import HermesMemoryService

    def event(author: str, text: str) -> Event:
        return Event(author=author, content=types.Content(parts=[types.Part(text=text)]))

    service = HermesMemoryService()

    async def ask(text: str) -> None:
        events = [event("user", text), event("bot", ANSWER)]
        await service.add_events_to_memory(
            app_name="shop", user_id="ann", events=events, session_id="adk"
        )

    try:
        yield Pair(ask, _nothing)
    finally:
        service.close()


FRAMEWORKS = {
    "memory.conversation": conversation,
    "OpenAI Agents SDK": openai_agents,
    "Pydantic AI": pydantic_ai,
    "LangGraph": langgraph,
    "Agent Development Kit (storing)": adk,
}


async def measured(framework: Callable[[], Any], samples: dict[str, list[float]]) -> float:
    """Measure a framework beside the bare manager; return what the memory adds to its turn.

    The three take turns, and of each round the quick ones count: whatever else the machine does
    delays all of them.
    """
    async with bare_manager() as bare, framework() as pair:
        asks = {"bare": bare.with_memory, "with memory": pair.with_memory, "without": pair.without}
        for number in range(ROUNDS + 1):  # the first one warms up
            times: dict[str, list[float]] = {name: [] for name in asks}
            for at in range(TURNS):
                for name, ask in asks.items():
                    begin = time.perf_counter()
                    await ask(f"{number}.{at} {QUESTION}")
                    times[name].append(time.perf_counter() - begin)
            for name, found in times.items() if number else ():
                samples.setdefault(name, []).append(quantiles(found, n=5)[0])
    return median(samples["with memory"]) - median(samples["without"])


@contextmanager
def fresh_home() -> Iterator[None]:
    with tempfile.TemporaryDirectory(prefix="adapters-bench-", ignore_cleanup_errors=True) as home:
        os.environ["HERMES_HOME"] = home
        MemoryManager.from_config(home).shutdown_all()
        yield


def main() -> None:
    report = Report("A turn through each adapter, beside the bare manager")
    for name, framework in {**FRAMEWORKS, "Claude's memory tool (view)": anthropic}.items():
        samples: dict[str, list[float]] = {}
        with fresh_home():
            overhead = asyncio.run(measured(framework, samples))
        bare = median(samples["bare"])
        report.samples({f"{name}: {each}": values for each, values in samples.items()})
        report.at_most(f"{name}: ms per turn", overhead * 1000, 2)
        report.at_most(f"{name}: to the bare manager's turn", overhead / bare, 2)
    report.close()


if __name__ == "__main__":
    main()
