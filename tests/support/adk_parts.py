"""ADK, our service, and a model that asks the memory."""

from __future__ import annotations

import json
from typing import Any

from google.adk.agents import Agent
from google.adk.events.event import Event
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.sessions.session import Session
from google.adk.tools import load_memory
from google.genai import types

from hermes_adapters.adk import HermesMemoryService

__all__ = [
    "Agent",
    "Event",
    "HermesMemoryService",
    "InMemorySessionService",
    "MemoryEntry",
    "Model",
    "Runner",
    "content",
    "event",
    "load_memory",
    "session",
    "types",
]

ANN = {"app_name": "shop", "user_id": "ann"}


def content(text: str, role: str = "user") -> types.Content:
    return types.Content(role=role, parts=[types.Part(text=text)])


def event(author: str, text: str, **more: Any) -> Event:
    return Event(author=author, content=content(text), **more)


def session(*said: tuple[str, str], name: str = "s1", **who: str) -> Session:
    events = [event(author, text) for author, text in said]
    return Session(id=name, **{**ANN, **who}, events=events)


class Model(BaseLlm):
    """Asks the memory, then repeats what it got."""

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
        last = llm_request.contents[-1].parts[-1]
        if last.function_response:
            said = types.Part(
                text=f"I found: {json.dumps(last.function_response.response, default=str)}"
            )
        else:
            said = types.Part.from_function_call(name="load_memory", args={"query": "deploy"})
        yield LlmResponse(content=types.Content(role="model", parts=[said]))
