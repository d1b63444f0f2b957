"""The `memory` tool, the notes in the system prompt, and the reminders to take notes."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from hermes_builtin.notes.entries import (
    DELIMITER,
    Operation,
    RefusalError,
    operation,
    plan,
    previews,
    shown,
)
from hermes_builtin.notes.guard import without_secrets
from hermes_builtin.notes.notebook import Author, Notebook, Page, WriteResult
from hermes_builtin.notes.pending import PendingWrites
from hermes_builtin.notes.view import masked, view
from hermes_builtin.sessions.session_text import OriginVerdict
from hermes_core import HermesError
from hermes_core.storage.logger import SafeLogger

# -- The `memory` tool: what the model sees of the notes, and what it gets for an answer --------

#: Failures in one turn that may be retried; the next answer tells the model to stop.
RETRIES: Final = 3
#: Entries that are shown for a choice among them.
MATCHES: Final = 20

_OPERATION: Final[dict[str, Any]] = {
    "action": {"type": "string", "enum": ["add", "replace", "remove"]},
    "content": {"type": "string", "description": "The entry to save (add, replace)."},
    "new_text": {"type": "string", "description": "The same as content."},
    "old_text": {
        "type": "string",
        "description": "A short part of the entry to replace or remove, found in no other entry.",
    },
}

# Names and arguments are hermes-agent's: prompts and skills that people wrote refer to them.
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


def schema(targets: Iterable[str]) -> dict[str, Any]:
    """The tool's schema, with these notebooks as its targets."""
    parameters = SCHEMA["parameters"]
    target = {**parameters["properties"]["target"], "enum": list(targets)}
    properties = {**parameters["properties"], "target": target}
    return {**SCHEMA, "parameters": {**parameters, "properties": properties}}


GUIDANCE: Final = (
    "You have notebooks that last beyond this conversation; they are shown below as they were "
    "when it began. Save lasting facts with the memory tool when you learn them: the user's "
    "preferences and corrections first, then facts about the environment. Leave out progress on "
    "the task at hand and anything stale in a week. When the user refers to something from the "
    "past that is not in the notebooks, search past conversations instead of guessing."
)

_GONE: Final = {
    "replace": ("replaced_entry", "replaced_entries"),
    "remove": ("removed_entry", "removed_entries"),
}
_DONE: Final = {"add": "Entry added.", "replace": "Entry replaced.", "remove": "Entry removed."}


#: What to do with a note whose words come from strangers.
ASK: Final = "ask"
ALLOW: Final = "allow"
REFUSE: Final = "refuse"


class WriteRules(NamedTuple):
    """Which writes wait for a person: all of them, or external ones (ask, allow, refuse)."""

    approval: bool = False
    external: str = ASK


#: Says where a text comes from that somebody wants to note in the place of others.
Judge = Callable[[str, Author, Sequence[str]], OriginVerdict]


class NotesTool:
    """Answers calls of the `memory` tool.

    Args:
        notebooks: Those that are switched on, by target.
        pending: Where writes wait for a person.
        rules: Which of them wait.
        committed: Called for each change, after it was made.
        unstored: Called if a call failed because of the files. What is refused does not count.
        judge: Says where a note comes from.
    """

    def __init__(
        self,
        notebooks: Mapping[str, Notebook],
        pending: PendingWrites,
        rules: WriteRules,
        committed: Callable[[str, WriteResult, Author], None],
        unstored: Callable[[HermesError], None],
        *,
        judge: Judge | None = None,
    ) -> None:
        self._notebooks = notebooks
        self._pending = pending
        self._rules = rules
        self._committed = committed
        self._unstored = unstored
        self._judge = judge
        self._failures = 0

    def new_turn(self) -> None:
        """Failures are counted per turn."""
        self._failures = 0

    def call(self, args: Any, author: Author) -> str:
        """Carry out a call; always a JSON string."""
        try:
            answer = self._answer(args if isinstance(args, dict) else {}, author)
        except HermesError as error:
            if not isinstance(args, dict) or args.get("action") != "read":
                self._unstored(error)
            answer = self._failed(str(error))
        return json.dumps(answer, ensure_ascii=False)

    def _answer(self, args: Mapping[str, Any], author: Author) -> dict[str, Any]:
        target = args.get("target")
        # hermes-agent's default, although the schema requires it: models leave it out.
        target = "memory" if target in (None, "") else target
        notebook = self._notebooks.get(target) if isinstance(target, str) else None
        if notebook is None:
            choices = " or ".join(f"'{name}'" for name in self._notebooks)
            return self._failed(f"Invalid target {shown(target)}. Use {choices}.")
        if args.get("action") == "read" and not args.get("operations"):
            page = notebook.read()
            seen = view(notebook, page)
            message = " ".join(filter(None, ["This is the state now.", seen.remark]))
            answer = {**_success(notebook, page, message), "entries": seen.masked}
            return answer | ({"external": dict(seen.origins)} if seen.origins else {})
        try:
            operations, reason = self._judged(notebook, _operations(args), author)
            if self._rules.approval or (reason and self._rules.external == ASK):
                # Checked before it waits: the model can correct a mistake now, the person could not
                # later.
                identified = notebook.with_entry_ids(
                    operations, self._pending.operations(notebook.key)
                )
                name = self._pending.stage(notebook.key, identified, author, reason)
                self._failures = 0
                return _staged(name, reason)
            written = notebook.change(operations, author)
        except RefusalError as refused:
            return self._refused(notebook, refused, batch=bool(args.get("operations")))
        self._failures = 0
        # After the change is on disk: the external provider must not learn of a note that was not
        # made.
        self._committed(target, written, author)
        answer = _success(notebook, written.page, _message(operations, written), written)
        return {**answer, **_previous(notebook, written, batch=bool(args.get("operations")))}

    def _judged(
        self, notebook: Notebook, operations: list[Operation], author: Author
    ) -> tuple[list[Operation], str]:
        """The operations with their origins; and why they have to wait, if one is external.

        Raises:
            RefusalError: External notes are not wanted.
        """
        if self._judge is None:
            return operations, ""
        entries = notebook.read().entries
        # Not those that the operations themselves make and replace.
        replaced = [each.goes for each in plan(entries, operations) if each.goes in entries]
        # What is too long is refused below, and would take minutes to judge.
        texts = [
            each.content
            for each in operations
            if each.action != "remove"
            and len(each.content) <= notebook.limit
            and each.content not in entries
        ]
        verdicts = {text: self._judge(text, author, replaced) for text in texts}
        # A text may be divided among the operations: they count as one, too.
        joined = "\n".join(verdicts)[: 2 * notebook.limit]
        whole = self._judge(joined, author, replaced) if len(verdicts) > 1 else None
        if whole is not None and whole.reason:
            verdicts = {text: each if each.reason else whole for text, each in verdicts.items()}
        found = [
            each._replace(origin=verdicts[each.content].origin)
            if each.action != "remove" and each.content in verdicts
            else each
            for each in operations
        ]
        reason = next((each.reason for each in verdicts.values() if each.reason), "")
        if reason and self._rules.external == REFUSE:
            raise RefusalError(
                f"Not saved: {reason}. Notes are part of every system prompt, so only the user "
                "decides about such a text. They can run: hermes-plugins memory add"
            )
        return found, reason

    def _refused(self, notebook: Notebook, refused: RefusalError, *, batch: bool) -> dict[str, Any]:
        text = f"{refused.text} Nothing was changed." if batch else refused.text
        extra: dict[str, Any] = {}
        if refused.matches:
            extra["matches"] = previews(masked(notebook, refused.matches[:MATCHES]))
        # The model sees the notes as they were when the session began; to correct a call it needs
        # them now.
        if refused.current or batch:
            page = notebook.read()
            seen = view(notebook, page)
            extra |= {"current_entries": seen.masked, "usage": page.usage}
            text = " ".join(filter(None, [text, seen.remark]))
        return self._failed(text, **extra)

    def _failed(self, text: str, **extra: Any) -> dict[str, Any]:
        self._failures += 1
        # Without an end, some models repeat a refused write until the turn's budget is used up.
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
        return [_operation(args)]
    if not isinstance(wanted, list):
        raise RefusalError("operations must be a list.")
    found = []
    for number, each in enumerate(wanted, 1):
        if not isinstance(each, dict):
            raise RefusalError(f"Operation {number}: it must be an object.")
        try:
            found.append(_operation(each))
        except RefusalError as refused:
            raise RefusalError(
                f"Operation {number}: {refused.text}", current=refused.current
            ) from None
    return found


def _operation(given: Mapping[str, Any]) -> Operation:
    """One operation; ``new_text`` is another name for ``content``, which wins."""
    content = given.get("content")
    if content in (None, ""):
        content = given.get("new_text")
    return operation(given.get("action"), content, given.get("old_text"))


def _success(
    notebook: Notebook, page: Page, message: str, written: WriteResult | None = None
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


def _previous(notebook: Notebook, written: WriteResult, *, batch: bool) -> dict[str, Any]:
    """The entries that are gone, as hermes-agent's tool reports them; of a batch by number.

    Entries that the guard hides from the model are left out.
    """
    found: dict[str, Any] = {}
    for step in written.steps:
        name = _GONE.get(step.action)
        if name is None or masked(notebook, [step.old_text]) != [step.old_text]:
            continue
        if batch:
            found.setdefault(name[1], {})[str(step.number)] = step.old_text
        else:
            found[name[0]] = step.old_text
    return found


def _staged(name: str, reason: str) -> dict[str, Any]:
    answer = {
        "success": True,
        "staged": True,
        "pending_id": name,
        "message": "Not saved yet: the user has to approve it (hermes-plugins memory pending).",
    }
    if reason:
        answer |= {"reason": reason, "message": f"{answer['message']} Reason: {reason}."}
    return answer


def _message(operations: Sequence[Operation], written: WriteResult) -> str:
    if not written.steps:
        return "It is there already; nothing was changed."
    if len(operations) == 1:
        return f"{_DONE[operations[0].action]} Saved; no need to repeat it."
    return f"{len(operations)} operations applied. Saved; no need to repeat them."


# -- The notes as the system prompt has them: taken once, the same bytes for a whole session ----

logger = SafeLogger(logging.getLogger("hermes_builtin"), {})

_LINE: Final = "═" * 46
_HEADERS: Final = {
    "memory": "MEMORY (your personal notes)",
    "user": "USER PROFILE (who the user is)",
}


def snapshot(notebooks: Mapping[str, Notebook]) -> str:
    """The block for the system prompt; "" if there are no notebooks."""
    if not notebooks:
        return ""
    blocks = [_block(notebook) for notebook in notebooks.values()]
    return "\n\n".join([GUIDANCE, *(block for block in blocks if block)])


def _block(notebook: Notebook) -> str:
    header = _HEADERS[notebook.target]
    try:
        page = notebook.read()
        seen = view(notebook, page)
    except HermesError as error:
        # The session still starts: one broken file must not stop the agent.
        # An unreadable notebook is not an empty one, and the model should know.
        logger.error("notes: %s", error)  # noqa: TRY400 - the traceback says nothing more
        return _framed(f"{header} [can't be read]", f"Tell the user: {error}")
    for entry, finding in seen.objections.items():
        logger.warning("notes: an entry of %s is kept out of the prompt (%s): %.80s",
                       notebook.name, finding, without_secrets(entry))  # fmt: skip
    if seen.left_out:
        logger.warning("notes: %s is far over its cap: %d of %d entries are not in the prompt",
                       notebook.name, seen.left_out, len(page.entries))  # fmt: skip
    shown = [*seen.labelled, *filter(None, [seen.remark])]
    if not shown:
        return ""
    return _framed(f"{header} [{page.usage}]", DELIMITER.join(shown))


def _framed(header: str, body: str) -> str:
    return f"{_LINE}\n{header}\n{_LINE}\n{body}"


# -- Reminders: the model forgets to take notes when the work is absorbing ----------------------

REMINDER: Final = (
    "[Reminder: it has been a while since you saved anything to memory. If the user has shown a "
    "preference, corrected you, or told you something lasting about themselves or the "
    "environment, save it with the memory tool. If not, go on.]"
)

_REVIEW: Final = (
    "Review the conversation below for what is worth remembering. Save with the memory tool: how "
    "the user wants things, corrections they made, who they are, lasting facts about the "
    "environment and the work. Compare with the notebooks as they are now; replace or remove what "
    "is outdated. Leave out progress on tasks and what is stale in a week. If there is nothing to "
    "save, answer: nothing to save."
)

# About the last dozen exchanges in full; of older ones enough to see what they were about.
_RECENT: Final = 24
_SHORT: Final = 200
_LONG: Final = 4000


class NudgeCounter:
    """Counts user turns without a write, for each session on its own."""

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._turns: dict[str, int] = {}

    def turn(self, session: str) -> None:
        """A user turn begins."""
        self._turns[session] = self._turns.get(session, 0) + 1

    def reset(self, session: str) -> None:
        """Something was saved."""
        self._turns[session] = 0

    def due(self, session: str) -> bool:
        """Whether to remind now; asks once per interval."""
        if self._interval <= 0 or self._turns.get(session, 0) < self._interval:
            return False
        self._turns[session] = 0
        return True


def review_prompt(messages: Sequence[Mapping[str, Any]], notebooks: Mapping[str, str]) -> str:
    """What a host sends to a model, with the memory tool at hand, to review a conversation.

    The newest messages are there in full, older ones in short.
    """
    lines = []
    for position, message in enumerate(messages):
        text = _content(message.get("content"))
        if not text:
            continue
        room = _LONG if position >= len(messages) - _RECENT else _SHORT
        lines.append(f"{message.get('role', 'unknown')}: {_cut(text, room)}")
    state = "\n\n".join(f"{name}:\n{text or '(empty)'}" for name, text in notebooks.items())
    conversation = "\n".join(lines)
    return f"{_REVIEW}\n\n# Notebooks now\n\n{state}\n\n# Conversation\n\n{conversation}"


def _content(content: Any) -> str:
    if isinstance(content, str):
        return content.strip()
    if isinstance(content, list):
        parts = (part.get("text", "") for part in content if isinstance(part, dict))
        return "\n".join(part for part in parts if isinstance(part, str)).strip()
    return ""


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[:room]} [... {len(text) - room} more characters]"
