"""add, replace and remove on a list of entries: no files here, no tools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple

from hermes_builtin.notes._errors import Refused
from hermes_builtin.notes._format import entry_id, previews, tidy

ACTIONS: Final = ("add", "replace", "remove")


class Operation(NamedTuple):
    """One change that is wanted.

    ``entry`` is the id of the entry that is meant, where that was settled when the change
    was asked for: another one that has come to match ``old_text`` is not touched.
    """

    action: str
    content: str = ""
    old_text: str = ""
    entry: str = ""


class Step(NamedTuple):
    """One change that was made: what a mirror is told."""

    action: str
    content: str
    old_text: str = ""


class Planned(NamedTuple):
    """What an operation would do: the entry that goes, or what stands against it."""

    wanted: Operation
    goes: str = ""
    problem: Refused | None = None


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
    position = _find(after, wanted)
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


def apply_all(
    entries: Sequence[str], operations: Sequence[Operation]
) -> tuple[list[str], list[Step]]:
    """The entries after all operations, and the steps that they were."""
    after, steps = list(entries), []
    for number, wanted in enumerate(operations, 1):
        with _numbered(number, operations):
            after, step = apply(after, wanted)
        if step is not None:
            steps.append(step)
    return after, steps


def plan(entries: Sequence[str], operations: Sequence[Operation]) -> list[Planned]:
    """What each operation would do, after those before it that can be carried out."""
    after, found = list(entries), []
    for number, wanted in enumerate(operations, 1):
        goes = ""
        try:
            with _numbered(number, operations):
                if wanted.action != "add":
                    goes = after[_find(after, wanted)]
                after, _ = apply(after, wanted)
        except Refused as refused:
            found.append(Planned(wanted, problem=refused))
        else:
            found.append(Planned(wanted, goes))
    return found


def expected(entries: Sequence[str], waiting: Iterable[Sequence[Operation]]) -> list[str]:
    """The entries after the writes that wait, without those that can't be carried out."""
    after = list(entries)
    for operations in waiting:
        with suppress(Refused):
            after, _ = apply_all(after, operations)
    return after


def settle(entries: Sequence[str], operations: Sequence[Operation]) -> list[Operation]:
    """The operations, each with the id of the entry that it means; refuses what can't be done."""
    settled = []
    for wanted, goes, problem in plan(entries, operations):
        if problem is not None:
            raise problem
        settled.append(wanted._replace(entry=entry_id(goes)) if goes else wanted)
    return settled


@contextmanager
def _numbered(number: int, operations: Sequence[Operation]) -> Iterator[None]:
    """A refusal says which of several operations it is about."""
    try:
        yield
    except Refused as refused:
        if len(operations) > 1:
            refused.text = f"Operation {number}: {refused.text}"
        raise


def _find(entries: Sequence[str], wanted: Operation) -> int:
    """Where the one entry is that is meant."""
    position = _matching(entries, wanted.old_text)
    if wanted.entry and entry_id(entries[position]) != wanted.entry:
        raise Refused(
            f"The entry with {previews([wanted.old_text])[0]!r} in it is not the one that was "
            "meant: that one has been changed or removed since.",
            current=True,
        )
    return position


def _matching(entries: Sequence[str], old_text: str) -> int:
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
            matches=tuple(distinct),
        )
    return found[0]
