"""add, replace and remove on a list of entries: no files here, no tools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from hermes_builtin.notes._errors import Refused
from hermes_builtin.notes._format import previews, tidy

ACTIONS: Final = ("add", "replace", "remove")


class Operation(NamedTuple):
    """One change that is wanted."""

    action: str
    content: str = ""
    old_text: str = ""


class Step(NamedTuple):
    """One change that was made: what a mirror is told."""

    action: str
    content: str
    old_text: str = ""


def operation(action: Any, content: Any, old_text: Any) -> Operation:
    """A checked operation; refuses what can't be meant."""
    if action not in ACTIONS:
        raise Refused(f"Unknown action {shown(action)}. Use add, replace or remove.")
    new, old = _text(content, "content"), _text(old_text, "old_text")
    if action in ("add", "replace") and not new:
        raise Refused(f"content is required for {action}.")
    if action in ("replace", "remove") and not old:
        raise Refused(
            f"old_text is required for {action}: give a part of the entry that no other has.",
            current=True,
        )
    return Operation(action, new, old)


def shown(value: Any) -> str:
    """A value for a message, however large it is."""
    return previews([repr(value)])[0]


def _text(value: Any, name: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Refused(f"{name} must be a string.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Refused(f"{name} has half of a surrogate pair in it; send it again.") from None
    return tidy(value)


def apply(entries: Sequence[str], wanted: Operation) -> tuple[list[str], Step | None]:
    """The entries after an operation, and the step that it was; None if nothing changed."""
    after = list(entries)
    if wanted.action == "add":
        if wanted.content in after:
            return after, None
        after.append(wanted.content)
        return after, Step("add", wanted.content)
    position = _find(after, wanted.old_text)
    old = after[position]
    if wanted.action == "remove":
        del after[position]
        return after, Step("remove", old, old)
    if wanted.content == old:
        return after, None
    if wanted.content in after:  # it would be there twice
        del after[position]
    else:
        after[position] = wanted.content
    return after, Step("replace", wanted.content, old)


def _find(entries: Sequence[str], old_text: str) -> int:
    """Where the one entry is that has ``old_text`` in it, or is it."""
    if old_text in entries:
        return entries.index(old_text)
    found = [index for index, entry in enumerate(entries) if old_text in entry]
    if not found:
        raise Refused(f"No entry has {previews([old_text])[0]!r} in it.", current=True)
    distinct = list(dict.fromkeys(entries[index] for index in found))
    if len(distinct) > 1:
        raise Refused(
            f"{len(distinct)} entries have {previews([old_text])[0]!r} in them: be more specific.",
            matches=tuple(previews(distinct)),
        )
    return found[0]
