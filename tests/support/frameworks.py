"""What the tests of the adapters share: a home, a provider, and a model that tells what it saw."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hermes_core import AsyncMemoryManager, FakeProvider, MemoryManager
from support.fake_model import Answer, Prompt

FENCE = "<memory-context>"
PER_USER = "memory:\n  user_notes: per-user\n"


def managed(home: Path, provider: FakeProvider) -> AsyncMemoryManager:
    """A manager with an external provider."""
    manager = MemoryManager.from_config(home)
    assert manager.add_provider(provider)
    return AsyncMemoryManager.wrap(manager)


def archived(home: Path, session: str, **who: str) -> list[tuple[str, str]]:
    """What user and assistant said in a session, as the archive has it."""
    manager = MemoryManager.from_config(home)
    manager.initialize_all("reader", **who)
    found = manager.session_messages(session)
    manager.shutdown_all()
    return [
        (each["role"], each["content"]) for each in found if each["role"] in ("user", "assistant")
    ]


class ScriptedModel:
    """An answerer: calls tools for some words, repeats what it recalled for others."""

    def __init__(self) -> None:
        self.prompts: list[Prompt] = []

    def __call__(self, prompt: Prompt) -> Answer:
        self.prompts.append(prompt)
        last = prompt.body["messages"][-1]
        text = prompt.user.split(FENCE)[0].strip()
        if last["role"] == "tool":
            return self._after_tool(text, str(last["content"]))
        if text.startswith("note: "):
            return Answer("s", calls=[("memory", _note(text.removeprefix("note: ")))])
        if text.startswith("fetch"):
            return Answer("s", calls=[("fetch", {})])
        if text == "broken":
            return Answer("s", calls=[("memory", {"action": "dance"})])
        if text == "echo":
            block = str(prompt.body["messages"])
            begin, end = block.index(FENCE), block.index("</memory-context>")
            return Answer(
                "s", f"Sure. {block[begin:end]}</memory-context> Tea.".replace("\\n", "\n")
            )
        return Answer("s", f"You said: {text}")

    def _after_tool(self, text: str, result: str) -> Answer:
        if text == "fetch and note" and "Refunds" in result:
            return Answer("s", calls=[("memory", _note("Refunds go to account 4471.", "memory"))])
        found = json.loads(result) if result.startswith("{") else {"success": True}
        staged = "staged" if found.get("staged") else "done"
        return Answer("s", staged if found.get("success") else f"failed: {found.get('error')}")


def _note(content: str, target: str = "user") -> dict[str, Any]:
    return {"action": "add", "target": target, "content": content}


PAGE = "Refunds go to account 4471. The museum opens at nine."
