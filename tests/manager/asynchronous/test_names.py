"""AsyncMemoryManager has what MemoryManager has, awaitable; nothing can be forgotten."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from hermes_core import (
    AsyncConversation,
    AsyncMemoryManager,
    AsyncTurn,
    Conversation,
    MemoryManager,
    Turn,
)


def public(kind: type) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_")]


#: Compared below, or for `from_config` only.
OTHERS = ("from_config", "conversation", "configure")
METHODS = [
    name
    for name in public(MemoryManager)
    if callable(getattr(MemoryManager, name)) and name not in OTHERS
]
PROPERTIES = [
    *(name for name in public(MemoryManager) if not callable(getattr(MemoryManager, name))),
    *(name for name in vars(MemoryManager()) if not name.startswith("_")),
]


def shape(method: Any) -> tuple[Any, ...]:
    """What a caller has to know of a method, without how annotations are spelt."""
    signature = inspect.signature(method)
    parameters = [
        (each.name, each.kind, each.default, each.annotation)
        for each in signature.parameters.values()
    ]
    return parameters, signature.return_annotation


def test_there_is_something_to_compare() -> None:
    assert {"recall_block", "sync_all", "shutdown_all", "add_provider"} <= set(METHODS)
    assert {"providers", "warnings", "problems"} <= set(PROPERTIES)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_a_coroutine_with_the_same_signature(name: str) -> None:
    method = getattr(AsyncMemoryManager, name)
    assert inspect.iscoroutinefunction(method)
    assert shape(method) == shape(getattr(MemoryManager, name))


@pytest.mark.parametrize("name", PROPERTIES)
def test_a_property_is_plain_and_gives_the_same(name: str) -> None:
    manager = MemoryManager()
    assert isinstance(inspect.getattr_static(AsyncMemoryManager, name), property)
    assert getattr(AsyncMemoryManager.wrap(manager), name) == getattr(manager, name)


def test_it_is_made_with_the_same_arguments() -> None:
    assert shape(AsyncMemoryManager.__init__) == shape(MemoryManager.__init__)
    ours, theirs = AsyncMemoryManager.from_config, MemoryManager.from_config
    assert inspect.iscoroutinefunction(ours)
    assert shape(ours)[0] == shape(theirs)[0]


def test_a_conversation_begins_with_the_same_arguments() -> None:
    ours, theirs = AsyncMemoryManager.conversation, MemoryManager.conversation
    assert shape(ours)[0] == shape(theirs)[0]
    for mine, other in ((AsyncConversation, Conversation), (AsyncTurn, Turn)):
        for name in set(public(mine)):
            assert hasattr(other, name) or name in ("history", "session_id")


def test_it_has_nothing_that_the_other_has_not_but_a_way_to_wrap_one() -> None:
    attributes = {name for name in vars(MemoryManager()) if not name.startswith("_")}
    known = {*public(MemoryManager), *attributes}
    assert set(public(AsyncMemoryManager)) - known == {"wrap"}


def test_a_wrong_argument_is_refused_as_there() -> None:
    with pytest.raises(ValueError, match="external_prefetch_timeout"):
        AsyncMemoryManager(external_prefetch_timeout=-1)
