"""Which writes of notes the external provider receives, and that it receives each of them once.

Notes are written by the built-in's ``memory`` tool, which reports its own writes, or by a tool of
the host's own, whose results the host passes to `MemoryManager.notify_memory_tool_write`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, Protocol

from hermes_core.errors import describe
from hermes_core.storage.logger import logger

#: What a tool call says about itself, for the metadata of what it writes.
_TOOL_CALL: Final[ContextVar[Mapping[str, Any]]] = ContextVar("hermes_tool_call")
_PROVENANCE: Final = ("execution_context", "task_id", "tool_call_id", "parent_session_id")
#: How many results of the built-in's memory tool are recognised when the host reports them. A
#: host reports a result in the turn of its call, so 64 calls are more than enough.
_REMEMBERED: Final = 64

_ACTIONS: Final = ("add", "replace", "remove")
#: Where a result says which entry a write changed: of a single write, and of a batch.
_PREVIOUS: Final = {
    "replace": ("replaced_entry", "replaced_entries"),
    "remove": ("removed_entry", "removed_entries"),
}


class OnMemoryWrite(Protocol):
    """`MemoryManager.on_memory_write`."""

    def __call__(
        self, action: str, target: str, content: str, metadata: dict[str, Any] | None = None
    ) -> None:
        """Report to the external provider that the notes changed."""


class NoteWrites:
    """Reports the writes of notes, with where they came from.

    Args:
        report: Receives every write.
        parent_session_id: Returns the parent of the current session.
    """

    def __init__(self, report: OnMemoryWrite, parent_session_id: Callable[[], str | None]) -> None:
        self._report = report
        self._parent_session_id = parent_session_id
        # The built-in's memory tool forwards its own writes. A host that reports their results
        # again must not make the provider store them twice.
        self._forwarded: list[Any] = []

    @contextmanager
    def tool_call(self, known: Mapping[str, Any]) -> Iterator[None]:
        """What is written inside was written by a tool call, of which this is ``known``."""
        token = _TOOL_CALL.set({"execution_context": "foreground", **known})
        try:
            yield
        finally:
            _TOOL_CALL.reset(token)

    def from_builtin(
        self, action: str, target: str, content: str, metadata: dict[str, Any]
    ) -> None:
        """Report a write of the built-in."""
        # The built-in calls this inside `handle_tool_call`, on the same thread, so the context
        # variable has that call's keywords.
        known = {"parent_session_id": self._parent_session_id(), **_TOOL_CALL.get({})}
        source = {name: known[name] for name in _PROVENANCE if known.get(name)}
        self._report(action, target, content, {**source, **metadata})

    def remember(self, answer: str) -> None:
        """Remember an answer of the built-in's tool, whose writes are reported already."""
        self._forwarded.append(_result_of(answer))
        del self._forwarded[:-_REMEMBERED]  # most hosts never report them

    def from_host(
        self,
        tool_result: Any,
        tool_args: Any,
        build_metadata: Callable[[], dict[str, Any]] | None,
    ) -> None:
        """Report what a call of the host's tool wrote."""
        result = _result_of(tool_result)
        if result is None:
            return
        try:
            # Compared by content: a host passes the text that it got, or what it parsed from it.
            # Removed, since a later call may return the same result for a new write.
            self._forwarded.remove(result)
        except ValueError:
            pass
        else:
            return
        for write in _committed(result, tool_args):
            metadata = {**_built(build_metadata), **write.details}
            self._report(write.action, write.target, write.content, metadata)


def _built(build_metadata: Callable[[], dict[str, Any]] | None) -> dict[str, Any]:
    """Return the host's metadata of a write. If it fails, the write goes on without it."""
    try:
        return dict(build_metadata() if build_metadata is not None else {})
    except Exception as error:  # noqa: BLE001 - the host's own function
        logger.warning("memory: build_metadata failed: %s", describe(error))
        return {}


# -- the result of a tool call ------------------------------------------------------------------


class _Write(NamedTuple):
    """One committed write. ``details`` belong to its metadata."""

    action: str
    target: str
    content: str
    details: dict[str, str]


def _result_of(tool_result: Any) -> dict[str, Any] | None:
    """Return a tool's result, which may be JSON text, as a mapping; None if it is not an object."""
    if isinstance(tool_result, str):
        try:
            tool_result = json.loads(tool_result)
        except (ValueError, RecursionError):
            return None
    return tool_result if isinstance(tool_result, dict) else None


def _committed(result: Mapping[str, Any], tool_args: Any) -> Iterator[_Write]:
    """Return what a call of the tool wrote: nothing if it failed or waits for an approval."""
    if result.get("success") is not True or result.get("staged") is True:
        return
    if not isinstance(tool_args, Mapping):
        return
    target = str(tool_args.get("target") or "memory")
    operations = tool_args.get("operations")
    batch = operations if isinstance(operations, list) else []
    for number, wanted in enumerate(batch or [tool_args], 1):
        if isinstance(wanted, Mapping) and wanted.get("action") in _ACTIONS:
            content = wanted.get("content") or wanted.get("new_text") or ""
            single, several = _PREVIOUS.get(wanted["action"], ("", ""))
            if batch:
                previous = _entry_of(result.get(several), number, batch)
            else:
                previous = result.get(single)
            yield _Write(wanted["action"], target, str(content), _details(wanted, previous))


def _details(wanted: Mapping[str, Any], previous: Any) -> dict[str, str]:
    details = {}
    if wanted.get("old_text"):
        details["old_text"] = str(wanted["old_text"])
    if isinstance(previous, str) and previous:
        details["previous_content"] = previous
    return details


def _entry_of(found: Any, number: int, batch: Sequence[Any]) -> Any:
    """Return the entry that an operation of a batch changed; None if the result does not say.

    The result has a mapping by the number of the operation, from 1, or a list: of all operations,
    or of those with the same action.
    """
    if isinstance(found, Mapping):
        return found.get(str(number), found.get(number))  # in JSON, keys are text
    if not isinstance(found, list):
        return None
    if len(found) == len(batch):
        return found[number - 1]
    same = [at for at, each in enumerate(batch, 1) if _action(each) == _action(batch[number - 1])]
    # Any other length names no operation for certain, and a wrong entry is worse than none.
    return found[same.index(number)] if len(found) == len(same) else None


def _action(operation: Any) -> Any:
    return operation.get("action") if isinstance(operation, Mapping) else None
