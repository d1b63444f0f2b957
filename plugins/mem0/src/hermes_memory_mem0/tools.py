"""The model's tools. Names, arguments and answers are hermes-agent's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from hermes_memory_mem0.memories import Memories, Owner, cleaned, question

# -- The tools as the model sees them. Names, arguments and answers are hermes-agent's ----------

# Models ask for "all"; fifty facts are what an answer can use.
MOST_RESULTS: Final = 50
# Longer than any fact, shorter than what an embedding model truncates without an error.
LONGEST_FACT: Final = 20_000

SEARCH: Final[dict[str, Any]] = {
    "name": "mem0_search",
    "description": "Search long-term memory for facts about the user: preferences, people, "
    "projects, decisions, what was said in earlier conversations. Use it before you answer "
    "anything that may depend on them. A question with several parts needs several searches.",
    "parameters": {
        "type": "object",
        "properties": {
            "query": {"type": "string", "minLength": 1, "description": "What to look for."},
            "top_k": {
                "type": "integer",
                "minimum": 1,
                "description": f"How many facts at most: 10 if not given, {MOST_RESULTS} at most.",
            },
            "rerank": {
                "type": "boolean",
                "description": "Sort the facts once more, on the Mem0 platform only.",
            },
        },
        "required": ["query"],
    },
}

ADD: Final[dict[str, Any]] = {
    "name": "mem0_add",
    "description": "Store one lasting fact about the user, word for word: a preference, a "
    "correction, a decision, a personal detail. Do it when it is said, without being asked. Not "
    "for small talk, nor for what is stored already.",
    "parameters": {
        "type": "object",
        "properties": {
            "content": {"type": "string", "minLength": 1, "description": "The fact."},
        },
        "required": ["content"],
    },
}

UPDATE: Final[dict[str, Any]] = {
    "name": "mem0_update",
    "description": "Correct a stored fact that has changed or was wrong, by the id that "
    "mem0_search gave, instead of storing a second one.",
    "parameters": {
        "type": "object",
        "properties": {
            "memory_id": {"type": "string", "minLength": 1, "description": "The fact's id."},
            "text": {"type": "string", "minLength": 1, "description": "What it says now."},
        },
        "required": ["memory_id", "text"],
    },
}

DELETE: Final[dict[str, Any]] = {
    "name": "mem0_delete",
    "description": "Delete a stored fact by the id that mem0_search gave: when it no longer holds, "
    "or the user wants it forgotten. If it has only changed, use mem0_update.",
    "parameters": {
        "type": "object",
        "properties": {
            "memory_id": {"type": "string", "minLength": 1, "description": "The fact's id."},
        },
        "required": ["memory_id"],
    },
}

# -- What the model can do with memories --------------------------------------------------------

Answer = dict[str, Any]


class Toolbox:
    """The four tools, on the memories of one owner."""

    def __init__(
        self, memories: Memories, owner: Owner, marks: Mapping[str, str], *, rerank: bool
    ) -> None:
        self._memories = memories
        self._owner = owner
        self._marks = marks
        self._rerank = rerank

    def search(self, arguments: Mapping[str, Any]) -> Answer:
        """What fits a question."""
        query = question(arguments["query"])
        if not query:
            return {"error": "query is empty"}
        limit = min(arguments.get("top_k", 10), MOST_RESULTS)
        rerank = arguments.get("rerank", self._rerank)
        found = self._memories.search(self._owner, query, limit, rerank=rerank)
        if not found:
            return {"result": "No relevant memories found."}
        rows = [{"id": each.id, "memory": each.text, "score": each.score} for each in found]
        return {"results": rows, "count": len(rows)}

    def add(self, arguments: Mapping[str, Any]) -> Answer:
        """Store a fact as it stands, which every mode does at once."""
        content, problem = _fact(arguments["content"])
        if problem:
            return {"error": problem}
        message = {"role": "user", "content": content}
        added = self._memories.add(self._owner, [message], self._marks, infer=False)
        return {"result": "Fact stored.", "event_id": added.event_id or None}

    def update(self, arguments: Mapping[str, Any]) -> Answer:
        """Correct a fact."""
        text, problem = _fact(arguments["text"])
        # Mem0 changes and deletes by id alone, whoever the owner is. A model may have
        # an id from anywhere.
        problem = problem or self._not_ours(arguments["memory_id"])
        if problem:
            return {"error": problem}
        self._memories.update(arguments["memory_id"], text)
        return {"result": "Memory updated.", "memory_id": arguments["memory_id"]}

    def delete(self, arguments: Mapping[str, Any]) -> Answer:
        """Remove a fact."""
        problem = self._not_ours(arguments["memory_id"])
        if problem:
            return {"error": problem}
        self._memories.delete(arguments["memory_id"])
        return {"result": "Memory deleted.", "memory_id": arguments["memory_id"]}

    def _not_ours(self, memory_id: str) -> str:
        """An id of another user is as good as unknown."""
        found = self._memories.get(memory_id)
        # The same answer for both, so that nobody can find out which ids exist.
        if found is None or found.user != self._owner.user:
            return f"Memory not found: {memory_id[:80]}"
        return ""


class ToolUse(NamedTuple):
    """A tool: its schema, what it does, and whether that changes something."""

    schema: dict[str, Any]
    run: Callable[[Toolbox, Mapping[str, Any]], Answer]
    writes: bool


TOOLS: Final = (
    ToolUse(SEARCH, Toolbox.search, writes=False),
    ToolUse(ADD, Toolbox.add, writes=True),
    ToolUse(UPDATE, Toolbox.update, writes=True),
    ToolUse(DELETE, Toolbox.delete, writes=True),
)


def _fact(text: str) -> tuple[str, str]:
    """A fact that can be stored, and what is wrong with it."""
    fact = cleaned(text).strip()
    if not fact:
        return "", "there is nothing to store"
    if len(fact) > LONGEST_FACT:
        return "", f"too long for one fact: {len(fact)} characters, {LONGEST_FACT} at most"
    return fact, ""
