"""Every host of the memory as one small class: `write` a fact, `recall` it for a question.

All of them are the owner of the machine, on one home. `recall` returns what the host's model gets
to see: the system prompt and what its search returns.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from hermes_core import MemoryManager
from support.fake_model import Answer, FakeModel, Prompt
from support.lazy import Lazy

lg = Lazy("support.langgraph_parts")
adk = Lazy("support.adk_parts")
RECALL = "recall: "


class Host(Protocol):
    """A program that uses the memory."""

    def __init__(self, home: Path) -> None:
        """Use a home."""

    def write(self, fact: str) -> None:
        """Let the user say something."""

    def recall(self, question: str) -> str:
        """What the model of another session gets to see."""


def searching(prompt: Prompt) -> Answer:
    """A model that searches if it is asked to, and then says all that it sees."""
    last = prompt.body["messages"][-1]
    if last["role"] == "tool":
        return Answer("s", f"{prompt.system}\n{last['content']}")
    if RECALL in prompt.user:
        query = prompt.user.split(RECALL)[1].splitlines()[0]
        return Answer("s", calls=[("session_search", {"query": query})])
    return Answer("s", "Noted.")


class Bare:
    """A loop of one's own with the conversation object."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def _turn(self, session: str, text: str, work: Callable[[MemoryManager, Any], str]) -> str:
        memory = MemoryManager.from_config(self._home)
        name = f"{type(self).__name__.lower()}-{session}"
        with memory.conversation(name, platform="cli") as talk, talk.turn(text) as turn:
            answer = work(memory, turn)
            turn.finish(answer)
        memory.shutdown_all()
        return answer

    def write(self, fact: str) -> None:
        self._turn("write", fact, lambda *_: "Noted.")

    def recall(self, question: str) -> str:
        def search(_memory: MemoryManager, turn: Any) -> str:
            seen = turn.messages()[0]["content"]
            return f"{seen}\n{turn.call_tool('session_search', {'query': question})}"

        return self._turn("recall", question, search)


class Claude(Bare):
    """The Anthropic SDK: Claude's memory tool writes the notes."""

    def write(self, fact: str) -> None:
        def note(memory: MemoryManager, _turn: Any) -> str:
            from hermes_adapters.anthropic import MemoryTool

            command = {"command": "create", "path": "/memories/USER.md", "file_text": fact}
            return str(MemoryTool(memory).call(command))

        self._turn("write", "Please note something.", note)


class Chat(Bare):
    """The loop of `hermes-plugins chat`."""

    def write(self, fact: str) -> None:
        self._say("write", fact)

    def recall(self, question: str) -> str:
        return self._say("recall", RECALL + question)

    def _say(self, session: str, text: str) -> str:
        from openai import OpenAI

        from hermes_adapters.chat import answer

        memory = MemoryManager.from_config(self._home)
        with (
            FakeModel(answerers=[searching]) as model,
            OpenAI(base_url=model.url, api_key="none") as client,
            memory.conversation(f"chat-{session}", platform="cli") as talk,
            talk.turn(text) as turn,
        ):
            said = "".join(answer(client, "m", turn))
        memory.shutdown_all()
        return said


class Mcp:
    """An MCP client."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def write(self, fact: str) -> None:
        self._call("remember_turn", {"user": fact, "assistant": "Noted."})

    def recall(self, question: str) -> str:
        return self._call("session_search", {"query": question})

    def _call(self, tool: str, args: dict[str, Any]) -> str:
        from mcp import Client

        from hermes_adapters.mcp import MemoryServer, build_server

        async def run() -> str:
            server = MemoryServer(MemoryManager.from_config(self._home))
            await server.start()
            try:
                async with Client(build_server(server)) as client:
                    prompt = await client.get_prompt("memory")
                    found = await client.call_tool(tool, args)
                    return f"{prompt.messages[0].content.text}\n{found.content[0].text}"  # type: ignore[union-attr]
            finally:
                await server.stop()

        return asyncio.run(run())


class OpenAIAgents:
    """The OpenAI Agents SDK."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def write(self, fact: str) -> None:
        self._run("write", fact)

    def recall(self, question: str) -> str:
        return self._run("recall", RECALL + question)

    def _run(self, session: str, text: str) -> str:
        import agents
        from openai import AsyncOpenAI

        from hermes_adapters.openai_agents import MemorySession

        agents.set_tracing_disabled(disabled=True)

        async def run(url: str) -> str:
            async with (
                AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client,
                MemorySession(f"openai-{session}", home=self._home, platform="cli") as memory,
            ):
                llm = agents.OpenAIChatCompletionsModel("m", client)
                agent = memory.equip(agents.Agent(name="Helper", model=llm))
                result = await agents.Runner.run(agent, text, session=memory)
                return str(result.final_output)

        with FakeModel(answerers=[searching]) as model:
            return asyncio.run(run(model.url))


class PydanticAI:
    """Pydantic AI."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def write(self, fact: str) -> None:
        self._run("write", fact)

    def recall(self, question: str) -> str:
        return self._run("recall", RECALL + question)

    def _run(self, session: str, text: str) -> str:
        from openai import AsyncOpenAI
        from pydantic_ai import Agent
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider

        from hermes_adapters.pydantic_ai import Memory

        async def run(url: str) -> str:
            async with (
                AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client,
                Memory(f"pydantic-{session}", home=self._home, platform="cli") as memory,
            ):
                llm = OpenAIChatModel("m", provider=OpenAIProvider(openai_client=client))
                result = await Agent(llm).run(text, capabilities=[memory])
                return str(result.output)

        with FakeModel(answerers=[searching]) as model:
            return asyncio.run(run(model.url))


class LangGraph:
    """LangGraph, with the middleware."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def write(self, fact: str) -> None:
        self._run("write", fact, "Noted.")

    def recall(self, question: str) -> str:
        return self._run("recall", question, lg.call("session_search", query=question), "ok")

    def _run(self, session: str, text: str, *answers: Any) -> str:
        memory = lg.HermesMemory(self._home)
        try:
            model = lg.model(*answers)
            agent = lg.create_agent(model, middleware=[memory])
            config = {"configurable": {"thread_id": f"langgraph-{session}"}}
            agent.invoke({"messages": [("user", text)]}, config)
            return "\n".join(str(each.content) for each in model.seen[-1])
        finally:
            memory.close()


class Adk:
    """Google's Agent Development Kit."""

    def __init__(self, home: Path) -> None:
        self._service = adk.HermesMemoryService(home, person=lambda _app, _user: ("cli", ""))

    def write(self, fact: str) -> None:
        talk = adk.session(("user", fact), ("bot", "Noted."), name="adk-write")
        asyncio.run(self._service.add_session_to_memory(talk))
        self._service.close()

    def recall(self, question: str) -> str:
        found = asyncio.run(
            self._service.search_memory(app_name="shop", user_id="ann", query=question)
        )
        self._service.close()
        return json.dumps([each.content.parts[0].text for each in found.memories])


HOSTS: dict[str, Callable[[Path], Host]] = {
    "conversation": Bare, "anthropic": Claude, "chat": Chat, "mcp": Mcp,
    "openai-agents": OpenAIAgents, "pydantic-ai": PydanticAI, "langgraph": LangGraph, "adk": Adk,
}  # fmt: skip
