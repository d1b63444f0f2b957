"""The `memory` tool: what the model sees of the notes, and what it gets for an answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from hermes_builtin.notes._errors import Refused
from hermes_builtin.notes._format import previews
from hermes_builtin.notes._operations import Operation, operation, shown
from hermes_builtin.notes._pending import Pending
from hermes_builtin.notes._store import Notebook, Origin, Page, Written
from hermes_builtin.notes._view import masked, view
from hermes_core import HermesError

#: Failures in one turn that may be retried; from the next one on the model is told to stop.
RETRIES: Final = 3
#: Entries that are shown for a choice among them.
MATCHES: Final = 20

_OPERATION: Final[dict[str, Any]] = {
    "action": {"type": "string", "enum": ["add", "replace", "remove"]},
    "content": {"type": "string", "description": "The entry to save (add, replace)."},
    "old_text": {
        "type": "string",
        "description": "A short part of the entry to replace or remove, found in no other entry.",
    },
}

SCHEMA: Final[dict[str, Any]] = {
    "name": "memory",
    "description": (
        "Your notebooks, which are part of every future conversation's system prompt. Target "
        "'memory' is for what you learn about the environment and the work: tools, conventions, "
        "pitfalls, how things are done here. Target 'user' is for who the user is and how they "
        "want things: name, role, preferences, corrections. Save, without being asked, what will "
        "still help in a month; preferences and corrections of the user above all. Write facts, "
        "not orders to yourself, one subject per entry. Don't save task progress, results of one "
        "session, or what is stale in a week: past conversations can be searched for those. "
        "Changes show in the system prompt from the next session on; action 'read' shows the "
        "state now. Make several changes in one call with 'operations': all are made, or none. "
        "When a notebook is full, shorten or remove what matters least in the same call that adds."
    ),
    "parameters": {
        "type": "object",
        "properties": {
            "target": {"type": "string", "enum": ["memory", "user"]},
            **_OPERATION,
            "action": {"type": "string", "enum": ["add", "replace", "remove", "read"]},
            "operations": {
                "type": "array",
                "description": "Several changes to the target, all or nothing.",
                "items": {"type": "object", "properties": _OPERATION, "required": ["action"]},
            },
        },
        "required": ["target"],
    },
}

GUIDANCE: Final = (
    "You have notebooks that last beyond this conversation; they are shown below as they were "
    "when it began. Save lasting facts with the memory tool when you learn them: the user's "
    "preferences and corrections first, then facts about the environment. Leave out progress on "
    "the task at hand and anything stale in a week. When the user refers to something from the "
    "past that is not in the notebooks, search past conversations instead of guessing."
)

_DONE: Final = {"add": "Entry added.", "replace": "Entry replaced.", "remove": "Entry removed."}


class MemoryTool:
    """Answers calls of the `memory` tool.

    Args:
        notebooks: Those that are switched on, by target.
        pending: Where writes wait for a person, if they have to.
        committed: Told of each change that was made, after it was made.
    """

    def __init__(
        self,
        notebooks: Mapping[str, Notebook],
        pending: Pending | None,
        committed: Callable[[str, Written, Origin], None],
    ) -> None:
        self._notebooks = notebooks
        self._pending = pending
        self._committed = committed
        self._failures = 0

    def new_turn(self) -> None:
        """Failures are counted per turn."""
        self._failures = 0

    def call(self, args: Any, origin: Origin) -> str:
        """Carry out a call; always a JSON string."""
        try:
            answer = self._answer(args if isinstance(args, dict) else {}, origin)
        except HermesError as error:
            answer = self._failed(str(error))
        return json.dumps(answer, ensure_ascii=False)

    def _answer(self, args: Mapping[str, Any], origin: Origin) -> dict[str, Any]:
        target = args.get("target")
        target = "memory" if target in (None, "") else target
        notebook = self._notebooks.get(target) if isinstance(target, str) else None
        if notebook is None:
            choices = " or ".join(f"'{name}'" for name in self._notebooks)
            return self._failed(f"Invalid target {shown(target)}. Use {choices}.")
        if args.get("action") == "read" and not args.get("operations"):
            page = notebook.read()
            seen = view(notebook, page)
            message = " ".join(filter(None, ["This is the state now.", seen.remark]))
            return {**_success(notebook, page, message), "entries": seen.masked}
        try:
            operations = _operations(args)
            if self._pending is not None:
                settled = notebook.settle(operations, self._pending.operations(target))
                name = self._pending.stage(target, settled, origin)
                self._failures = 0
                return _staged(name)
            written = notebook.change(operations, origin)
        except Refused as refused:
            return self._refused(notebook, refused, batch=bool(args.get("operations")))
        self._failures = 0
        self._committed(target, written, origin)
        return _success(notebook, written.page, _message(operations, written), written)

    def _refused(self, notebook: Notebook, refused: Refused, *, batch: bool) -> dict[str, Any]:
        text = f"{refused.text} Nothing was changed." if batch else refused.text
        extra: dict[str, Any] = {}
        if refused.matches:
            extra["matches"] = previews(masked(notebook, refused.matches[:MATCHES]))
        if refused.current or batch:
            page = notebook.read()
            seen = view(notebook, page)
            extra |= {"current_entries": seen.masked, "usage": page.usage}
            text = " ".join(filter(None, [text, seen.remark]))
        return self._failed(text, **extra)

    def _failed(self, text: str, **extra: Any) -> dict[str, Any]:
        self._failures += 1
        if self._failures > RETRIES:
            return {
                "success": False,
                "done": True,
                "error": f"That is failure number {self._failures} in this turn. Stop trying, go "
                f"on with the task, and tell the user. The last one: {text}",
            }
        return {"success": False, "error": text, **extra}


def _operations(args: Mapping[str, Any]) -> list[Operation]:
    wanted = args.get("operations")
    if not wanted:
        return [operation(args.get("action"), args.get("content"), args.get("old_text"))]
    if not isinstance(wanted, list):
        raise Refused("operations must be a list.")
    found = []
    for number, each in enumerate(wanted, 1):
        if not isinstance(each, dict):
            raise Refused(f"Operation {number}: it must be an object.")
        try:
            found.append(operation(each.get("action"), each.get("content"), each.get("old_text")))
        except Refused as refused:
            raise Refused(f"Operation {number}: {refused.text}", current=refused.current) from None
    return found


def _success(
    notebook: Notebook, page: Page, message: str, written: Written | None = None
) -> dict[str, Any]:
    answer = {
        "success": True,
        "done": True,
        "target": notebook.target,
        "usage": page.usage,
        "entry_count": len(page.entries),
        "message": message,
    }
    if written is not None and not written.durable:
        answer["warning"] = "Saved, but the disk did not confirm it: a power cut could undo it."
    return answer


def _staged(name: str) -> dict[str, Any]:
    return {
        "success": True,
        "staged": True,
        "pending_id": name,
        "message": "Not saved yet: the user has to approve it (hermes-plugins memory pending).",
    }


def _message(operations: Sequence[Operation], written: Written) -> str:
    if not written.steps:
        return "It is there already; nothing was changed."
    if len(operations) == 1:
        return f"{_DONE[operations[0].action]} Saved; no need to repeat it."
    return f"{len(operations)} operations applied. Saved; no need to repeat them."
