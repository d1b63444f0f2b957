"""Several operations in one call of the tool: all of them, or none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.notes import (
    POISON,
    notes_state,
    recorded,
    refused,
    saved,
    stored,
)

#: Over PostgreSQL in `make test`, too.
FAST = True
pytestmark = pytest.mark.usefixtures("both_storages")


def add(content: Any) -> dict[str, Any]:
    return {"action": "add", "content": content}


def replace(old_text: Any, content: Any) -> dict[str, Any]:
    return {"action": "replace", "old_text": old_text, "content": content}


def remove(old_text: Any) -> dict[str, Any]:
    return {"action": "remove", "old_text": old_text}


@pytest.fixture
def session(agent):
    """A session with three notes."""
    started = agent()
    saved(started.batch(add("one"), add("two"), add("three")))
    return started


def test_all_operations_are_carried_out_in_their_order(session, home: Path) -> None:
    answer = saved(session.batch(remove("one"), replace("two", "2"), add("four")))
    assert stored(home) == ["2", "three", "four"]
    assert answer["done"] is True
    assert answer["entry_count"] == 3
    assert answer["usage"] == "0% — 16/2,200 chars"


def test_an_operation_sees_what_the_one_before_it_did(session, home: Path) -> None:
    saved(session.batch(add("four"), replace("four", "4"), remove("4"), add("five")))
    assert stored(home) == ["one", "two", "three", "five"]


def test_a_batch_is_one_change_in_the_history(session, home: Path) -> None:
    before = len(recorded(home))
    saved(session.batch(remove("one"), add("four"), add("five")))
    assert len(recorded(home)) == before + 1


def test_operations_go_before_a_single_one(session, home: Path) -> None:
    session.memory(action="remove", old_text="three", operations=[remove("one")])
    assert stored(home) == ["two", "three"]


FAILING = {
    "no such entry": remove("nowhere"),
    "ambiguous": remove("o"),
    "no old_text": {"action": "remove"},
    "no content": {"action": "add"},
    "unknown action": {"action": "dance", "content": "x"},
    "read": {"action": "read"},
    "no action": {"content": "x"},
    "too long": add("x" * 5000),
    "too much": add("x" * 2195),
    "poisoned": add(POISON),
    "not an object": "add x",
    "null": None,
    "a list": [],
    "content of a wrong type": add(5),
    "half a character": add("\ud83d"),
}


@pytest.mark.parametrize("failing", FAILING.values(), ids=FAILING)
@pytest.mark.parametrize("position", ["first", "last"])
def test_if_one_fails_nothing_is_changed(failing, position, session, home: Path) -> None:
    before = notes_state(home), recorded(home)
    good = [add("four"), remove("one")]
    operations = [failing, *good] if position == "first" else [*good, failing]
    answer = session.memory(operations=operations)
    refused(answer)
    assert answer["current_entries"] == ["one", "two", "three"]
    assert answer["usage"] == "0% — 17/2,200 chars"
    assert (notes_state(home), recorded(home)) == before


@pytest.mark.parametrize("kind", ["no content", "unknown action", "not an object"])
def test_the_error_says_which_operation_it_was(kind: str, session) -> None:
    assert "2" in refused(session.memory(operations=[add("four"), FAILING[kind], add("five")]))


@pytest.mark.parametrize("kind", ["no such entry", "ambiguous", "too long", "poisoned"])
def test_the_error_says_which_operation_could_not_be_carried_out(kind: str, session) -> None:
    error = refused(session.memory(operations=[add("four"), FAILING[kind], add("five")]))
    assert error.startswith("Operation 2")


def test_only_the_final_state_has_to_fit(agent, home: Path) -> None:
    session = agent(memory_char_limit=100)
    saved(session.add("a" * 95))
    saved(session.batch(add("b" * 95), remove("aaa")))
    assert stored(home) == ["b" * 95]


def test_a_duplicate_does_not_fail_a_batch(session, home: Path) -> None:
    saved(session.batch(add("one"), add("four")))
    assert stored(home) == ["one", "two", "three", "four"]


def test_a_batch_of_duplicates_changes_nothing(session, home: Path) -> None:
    before = notes_state(home), recorded(home)
    saved(session.batch(add("one"), add("two")))
    assert (notes_state(home), recorded(home)) == before


def test_a_batch_of_many_operations_is_answered(agent, home: Path) -> None:
    session = agent(memory_char_limit=100_000)
    saved(session.batch(*(add(f"note {n:04}") for n in range(600))))
    saved(session.batch(*(remove(f"note {n:04}") for n in range(599))))
    assert stored(home) == ["note 0599"]
