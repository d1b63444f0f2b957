"""What Hindsight 1.1 asks a model, answered from the words of the question."""

from __future__ import annotations

import json
import re
from typing import Any

from support.fake_model import Answer, Prompt, facts_in

_CHUNK = re.compile(r"Extract facts from the following chunk\..*?\nContent:\n(.*)", re.DOTALL)
_SPEAKER = re.compile(r"^(?:User|Assistant): ", re.MULTILINE)
_FACT = re.compile(r"^\[([0-9a-f]{8}-[0-9a-f-]{27})\] (.+?)(?: \(\w+=[^\n]*\))?$", re.MULTILINE)
_LOOKING = ("search_mental_models", "search_observations", "recall")


def start_up(prompt: Prompt) -> Answer | None:
    """The server asks for a word when it starts."""
    return Answer("hindsight.start_up", "ok") if prompt.user == "Say 'ok'" else None


def extraction(prompt: Prompt) -> Answer | None:
    """The facts of a chunk."""
    asked = _CHUNK.search(prompt.user)
    if asked is None:
        return None
    found = facts_in(_SPEAKER.sub("", asked[1]))
    unknown = dict.fromkeys(("when", "where", "who", "why"), "N/A")
    facts = [{"what": each, **unknown, "fact_type": "world", "entities": []} for each in found]
    return Answer("hindsight.extraction", json.dumps({"facts": facts}), len(facts))


def consolidation(prompt: Prompt) -> Answer | None:
    """An observation for each new fact."""
    if "`creates`" not in prompt.system:
        return None
    creates = [
        {"text": text, "source_fact_ids": [fact], "reason": "it is new"}
        for fact, text in _FACT.findall(prompt.user)
    ]
    answer = {"creates": creates, "updates": [], "deletes": []}
    return Answer("hindsight.consolidation", json.dumps(answer))


def reflection(prompt: Prompt) -> Answer | None:
    """Looks in every place that it may, once, and answers with what was found."""
    tools = {each["function"]["name"] for each in prompt.body.get("tools") or ()}
    if not tools & {*_LOOKING, "done", "answer_ready"}:
        return None
    messages = prompt.body["messages"]
    question = next(each["content"] for each in messages if each["role"] == "user")
    called = {name for each in messages for name in _calls(each)}
    for name in _LOOKING:
        if name in tools - called:
            arguments = {"reason": "to answer", "query": question}
            return Answer("hindsight.reflection", calls=[(name, arguments)])
    if "answer_ready" in tools - called:
        return Answer("hindsight.reflection", calls=[("answer_ready", {"answer_found": True})])
    ids, texts = _found(messages)
    found = {"memory_ids": ids, "answer": " ".join(texts) or "Nothing is known.",
             "answer_found": bool(texts)}  # fmt: skip
    return Answer("hindsight.reflection", calls=[("done", found)])


def _calls(message: dict[str, Any]) -> list[str]:
    return [each["function"]["name"] for each in message.get("tool_calls") or ()]


def _found(messages: list[dict[str, Any]]) -> tuple[list[str], list[str]]:
    """The ids and texts of the memories that tools gave."""
    ids, texts = [], []
    for each in messages:
        if each["role"] == "tool":
            for memory in _memories(json.loads(each["content"])):
                ids.append(str(memory["id"]))
                texts.append(str(memory["text"]))
    return ids, list(dict.fromkeys(texts))


def _memories(told: Any) -> list[dict[str, Any]]:
    if isinstance(told, dict) and {"id", "text"} <= told.keys():
        return [told]
    inner = told.values() if isinstance(told, dict) else told if isinstance(told, list) else ()
    return [memory for each in inner for memory in _memories(each)]


HINDSIGHT = (start_up, extraction, consolidation, reflection)
