"""LangGraph, our adapter, and a model that answers from a list."""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.base import InvalidNamespaceError, PutOp
from langgraph.types import Command, interrupt

from hermes_adapters.langgraph import HermesMemory, HermesStore

__all__ = [
    "Command",
    "HermesMemory",
    "HermesStore",
    "InMemorySaver",
    "InvalidNamespaceError",
    "PutOp",
    "call",
    "create_agent",
    "interrupt",
    "model",
    "tool",
]


class Model(GenericFakeChatModel):
    """Answers from a list, and remembers what it was sent."""

    seen: list[Any] = []  # noqa: RUF012 - a field of pydantic

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self

    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        self.seen.append(list(messages))
        return super()._generate(messages, *args, **kwargs)


def model(*answers: Any) -> Model:
    texts = [AIMessage(each) if isinstance(each, str) else each for each in answers]
    return Model(messages=iter(texts), seen=[])


def call(name: str, **args: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": f"call-{name}"}])
