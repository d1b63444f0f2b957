"""LangGraph's store for long-term memory; import it from `hermes_adapters.langgraph`.

How items map to the memory is in docs/adapters.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import time
from typing import Any, Final
from uuid import uuid4

from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    get_text_at_path,
    tokenize_path,
    validate_op_namespace,
)

from hermes_adapters.people import (
    NOTEBOOKS,
    MemoryOwner,
    SessionManagers,
    change_note,
    in_thread,
    matching_notes,
    notes,
    search,
)
from hermes_builtin import Items, ItemWrite, StoredItem, text_parts
from hermes_core import HermesError, resolve_home

#: The root of what is not an item: notebooks, and past conversations.
ROOT: Final = "hermes"
CONVERSATIONS: Final = (ROOT, "conversations")
_COMPARED: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "$eq": lambda value, other: bool(value == other),
    "$ne": lambda value, other: bool(value != other),
    "$gt": lambda value, other: bool(value > other),
    "$gte": lambda value, other: bool(value >= other),
    "$lt": lambda value, other: bool(value < other),
    "$lte": lambda value, other: bool(value <= other),
}


class HermesStore(BaseStore):
    """Items in the home's items.db; notebooks and past conversations below ``("hermes",)``.

    Args:
        home: HERMES_HOME; by default the environment's.
        platform: Where the user is known; needs ``user_id``.
        user_id: Whose memory it is; by default that of the owner of the machine.
        ttl: LangGraph's settings for items that expire. Expired items are never returned.
        clock: Returns Unix seconds.
    """

    supports_ttl = True

    def __init__(
        self, home: str | os.PathLike[str] | None = None, *, platform: str = "", user_id: str = "",
        ttl: TTLConfig | None = None, clock: Callable[[], float] = time,
    ) -> None:  # fmt: skip
        self._person = MemoryOwner.of(platform, user_id, "langgraph")
        folder = Path(home).absolute() if home is not None else resolve_home()
        who = self._person._asdict()
        self._items = Items(folder, **who, clock=clock)
        self._memories = SessionManagers(folder)
        self._session = f"langgraph-store-{uuid4().hex[:12]}"
        self.ttl_config = ttl

    def close(self) -> None:
        """Close the files, and deliver what waits."""
        self._items.close()
        self._memories.close()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations. All see the state before them; writes are made together, or none."""
        todo = list(ops)
        for op in todo:
            validate_op_namespace(op)
        results: list[Result] = [self._read(op) for op in todo]
        # The last write of a key counts, as in LangGraph's own stores.
        puts = {(op.namespace, op.key): op for op in todo if isinstance(op, PutOp)}.values()
        self._items.change([_write(op) for op in puts if op.namespace[:1] != (ROOT,)])
        for op in puts:
            if op.namespace[:1] == (ROOT,):
                self._put_note(op)
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Like `batch`, without blocking the event loop."""
        return await in_thread(partial(self.batch, list(ops)))

    def _read(self, op: Op) -> Result:
        match op:
            case GetOp():
                return self._get(op)
            case SearchOp():
                return self._search(op)
            case ListNamespacesOp():
                return _listed(self._items.namespaces(), op)
            case PutOp():
                return None
        raise ValueError(f"unknown operation: {type(op).__name__}")

    def _get(self, op: GetOp) -> Item | None:
        if op.namespace[:1] == (ROOT,):
            found = {each.key: each for each in self._of_memory(op.namespace, "", 1, op.key)}
            return found.get(op.key)
        item = self._items.get(op.namespace, op.key, refresh=op.refresh_ttl)
        return None if item is None else _as_item(item)

    def _search(self, op: SearchOp) -> list[SearchItem]:
        wanted = partial(_is_wanted, op.filter) if op.filter else None
        if op.namespace_prefix[:1] != (ROOT,):
            return [_as_item(each) for each in self._items.search(
                op.namespace_prefix, query=op.query or "", wanted=wanted, limit=op.limit,
                offset=op.offset, refresh=op.refresh_ttl,
            )]  # fmt: skip
        end = op.offset + op.limit
        found = self._of_memory(op.namespace_prefix, op.query or "", end)
        chosen = [each for each in found if wanted is None or wanted(each.value)]
        return chosen[op.offset : end]

    def _of_memory(
        self, prefix: tuple[str, ...], query: str, limit: int, key: str = ""
    ) -> list[SearchItem]:
        """What is below ``("hermes",)``: notes, and the conversations that match or are named."""
        found: list[SearchItem] = []
        with self._memories.session(self._session, self._person) as memory:
            hits = matching_notes(memory, query) if query else ()
            for target in NOTEBOOKS:
                place = (ROOT, "notes", target)
                if place[: len(prefix)] == prefix:
                    mine = [each for each in hits if each.target == target] if query else ()
                    found += [_seen(place, each.id, {"text": each.text})
                              for each in mine or notes(memory, target)]  # fmt: skip
            if CONVERSATIONS[: len(prefix)] == prefix:
                asked = {"session_id": key} if key else {"query": query, "limit": limit}
                with suppress(*([HermesError] if key else [])):  # there is no such conversation
                    answer = search(memory, **asked)
                    found += [_seen(CONVERSATIONS, each["session_id"], each)
                              for each in answer.get("results", [answer])]  # fmt: skip
        return found

    def _put_note(self, op: PutOp) -> None:
        target = op.namespace[2] if len(op.namespace) == 3 else ""  # noqa: PLR2004
        if op.namespace[:2] != (ROOT, "notes") or target not in NOTEBOOKS:
            raise InvalidNamespaceError(
                f"{op.namespace} can't be written; notes are in {(ROOT, 'notes', 'memory')}"
            )
        text = "" if op.value is None else op.value.get("text")
        if not isinstance(text, str) or (op.value is not None and not text.strip()):
            raise ValueError('a note is {"text": "..."}')
        with self._memories.session(self._session, self._person) as memory:
            old = [each.text for each in notes(memory, target) if each.id == op.key]
            if old or text:
                change_note(memory, target, old[0] if old else "", text)


def _write(op: PutOp) -> ItemWrite:
    if op.value is not None and not isinstance(op.value, dict):
        raise TypeError(f"the value of an item is a dict, not {type(op.value).__name__}")
    if not isinstance(op.key, str):
        raise TypeError(f"the key of an item is text, not {type(op.key).__name__}")
    if op.index is False or op.value is None:
        text = ""
    elif op.index is None:
        text = "\n".join(text_parts(op.value))
    else:
        fields = [get_text_at_path(op.value, tokenize_path(each)) for each in op.index]
        text = "\n".join(part for found in fields for part in found)
    return ItemWrite(op.namespace, op.key, op.value, text, op.ttl)


def _as_item(item: StoredItem) -> SearchItem:
    created, updated = (datetime.fromtimestamp(at, UTC) for at in (item.created, item.updated))
    return SearchItem(item.namespace, item.key, item.value, created, updated, item.score)


def _seen(namespace: tuple[str, ...], key: str, value: dict[str, Any]) -> SearchItem:
    # Of a note nobody asks the history here, and of a conversation its last message counts.
    last: dict[str, Any] = (value.get("messages") or [{}])[-1]
    when = datetime.fromtimestamp(value.get("last_active") or last.get("timestamp") or 0.0, UTC)
    return SearchItem(namespace, key, value, when, when)


def _is_wanted(wanted: Any, value: Any) -> bool:
    """Whether a value has what a filter asks for; nested objects are compared by their parts."""
    if not isinstance(wanted, dict):
        return bool(value == wanted)
    if not any(str(each).startswith("$") for each in wanted):
        return isinstance(value, dict) and all(
            _is_wanted(each, value.get(name)) for name, each in wanted.items()
        )
    if unknown := set(wanted) - set(_COMPARED):
        raise ValueError(f"unknown operator: {', '.join(map(str, unknown))}")
    try:
        return all(_COMPARED[name](value, other) for name, other in wanted.items())
    except TypeError:  # values that have no order, for example a missing one
        return False


def _listed(namespaces: list[tuple[str, ...]], op: ListNamespacesOp) -> list[tuple[str, ...]]:
    conditions = op.match_conditions or ()
    found = [each for each in namespaces if all(_matches(one, each) for one in conditions)]
    shown = sorted({each[: op.max_depth] for each in found})
    return shown[op.offset : op.offset + op.limit]


def _matches(condition: MatchCondition, namespace: tuple[str, ...]) -> bool:
    path = condition.path
    if len(path) > len(namespace):
        return False
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[-len(path) :]
    return all(wanted in ("*", label) for wanted, label in zip(path, part, strict=False))
