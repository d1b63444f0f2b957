"""Notes of a host's own memory tool, and of ours: they reach the external provider once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.providers import Recorder, running

from hermes_core import MemoryManager
from hermes_core.testing import FakeProvider

DONE = {"success": True}


def told(provider: FakeProvider) -> list[tuple[Any, ...]]:
    """What a provider was told of notes."""
    names = ("action", "target", "content", "metadata")
    calls = provider.of("on_memory_write")
    return [tuple(each.arguments[name] for name in names) for each in calls]


def notified(result: Any, args: Any, **options: Any) -> list[tuple[Any, ...]]:
    provider = FakeProvider()
    with running(provider) as manager:
        manager.notify_memory_tool_write(result, args, **options)
        assert manager.flush_pending(10)
    return told(provider)


@pytest.mark.parametrize("form", [dict, json.dumps], ids=["mapping", "text"])
def test_a_committed_write_is_passed_on(form: Any) -> None:
    args = {"action": "add", "target": "user", "content": "Likes tea."}
    assert notified(form(DONE), args) == [("add", "user", "Likes tea.", {})]


def test_the_target_is_memory_unless_it_is_given() -> None:
    assert notified(DONE, {"action": "add", "content": "x"})[0][1] == "memory"


def test_a_replaced_entry_and_its_search_text_are_in_the_metadata() -> None:
    result = {**DONE, "replaced_entry": "Drinks green tea."}
    args = {"action": "replace", "old_text": "green", "content": "Drinks coffee."}
    metadata = {"old_text": "green", "previous_content": "Drinks green tea."}
    assert notified(result, args) == [("replace", "memory", "Drinks coffee.", metadata)]


def test_a_removed_entry_is_in_the_metadata() -> None:
    result = {**DONE, "removed_entry": "Drinks green tea."}
    args = {"action": "remove", "old_text": "green"}
    metadata = {"old_text": "green", "previous_content": "Drinks green tea."}
    assert notified(result, args) == [("remove", "memory", "", metadata)]


def test_new_text_is_another_name_of_content() -> None:
    args = {"action": "replace", "old_text": "a", "new_text": "b"}
    assert notified(DONE, args)[0][2] == "b"


@pytest.mark.parametrize("form", [dict, json.dumps], ids=["mapping", "text"])
def test_a_batch_is_passed_on_in_order_each_with_its_own_entry(form: Any) -> None:
    result = {**DONE, "replaced_entries": {2: "tea, green"}, "removed_entries": {3: "old one"}}
    args = {
        "target": "user",
        "operations": [
            {"action": "add", "content": "new"},
            {"action": "replace", "old_text": "tea", "content": "coffee"},
            {"action": "remove", "old_text": "old"},
            {"action": "read"},
            "nonsense",
        ],
    }
    assert notified(form(result), args) == [
        ("add", "user", "new", {}),
        ("replace", "user", "coffee", {"old_text": "tea", "previous_content": "tea, green"}),
        ("remove", "user", "", {"old_text": "old", "previous_content": "old one"}),
    ]


@pytest.mark.parametrize(
    ("entries", "previous"),
    [
        (["tea", "milk"], ["tea", "milk"]),
        ([None, "tea", "milk"], ["tea", "milk"]),
        (["tea"], [None, None]),
        ("tea", [None, None]),
    ],
    ids=["of this action", "of all operations", "of which ones?", "text"],
)
def test_the_entries_of_a_batch_may_be_a_list(entries: Any, previous: list[str | None]) -> None:
    operations = [
        {"action": "add", "content": "new"},
        {"action": "replace", "content": "coffee"},
        {"action": "replace", "content": "oats"},
    ]
    writes = notified({**DONE, "replaced_entries": entries}, {"operations": operations})
    assert [each[3].get("previous_content") for each in writes] == [None, *previous]


@pytest.mark.parametrize(
    "result",
    [
        {"success": False},
        {"success": "yes"},
        {"success": True, "staged": True},
        {},
        [DONE],
        None,
        "no JSON",
        '"text"',
    ],
)
def test_what_failed_or_waits_for_approval_is_not_passed_on(result: Any) -> None:
    assert notified(result, {"action": "add", "content": "x"}) == []


@pytest.mark.parametrize("args", [None, "add", {}, {"action": "read"}, {"action": ["add"]}])
def test_a_call_that_is_no_write_is_not_passed_on(args: Any) -> None:
    assert notified(DONE, args) == []


def test_the_host_s_metadata_is_asked_for_once_for_each_write() -> None:
    asked = []

    def build() -> dict[str, Any]:
        asked.append(1)
        return {"task_id": f"t{len(asked)}"}

    args = {"operations": [{"action": "add", "content": each} for each in "ab"]}
    found = notified(DONE, args, build_metadata=build)
    assert [each[3] for each in found] == [{"task_id": "t1"}, {"task_id": "t2"}]


def test_metadata_that_can_not_be_built_costs_the_metadata_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def build() -> dict[str, Any]:
        raise KeyError("session")

    args = {"action": "remove", "old_text": "x"}
    found = notified(DONE, args, build_metadata=build)
    assert found == [("remove", "memory", "", {"old_text": "x"})]
    assert "build_metadata failed" in caplog.text


def test_metadata_is_empty_and_never_none() -> None:
    seen = []

    class Named(Recorder):
        def on_memory_write(
            self, action: str, target: str, content: str, metadata: Any = 5
        ) -> None:
            seen.append(metadata)

    mine = {"a": 1}
    with running(Named()) as manager:
        manager.on_memory_write("add", "memory", "x")
        manager.on_memory_write("add", "memory", "x", mine)
        assert manager.flush_pending(10)
    assert seen == [{}, {"a": 1}]


# -- our own tool ---------------------------------------------------------------------------


class Notes:
    """A manager with the built-in and a fake external provider."""

    def __init__(self, home: Path) -> None:
        self.provider = FakeProvider()
        self.manager = MemoryManager.from_config(home)
        assert self.manager.add_provider(self.provider)
        self.manager.initialize_all("s1", parent_session_id="s0")

    def call(self, **args: Any) -> dict[str, Any]:
        answer = self.manager.handle_tool_call("memory", args, task_id="t1", tool_call_id="c1")
        self.manager.notify_memory_tool_write(answer, args)  # as a host may do for every call
        found: dict[str, Any] = json.loads(answer)
        assert found["success"] is True
        return found

    def told(self) -> list[tuple[Any, ...]]:
        assert self.manager.flush_pending(10)
        self.manager.shutdown_all()
        return told(self.provider)


def test_our_own_tool_reports_what_it_replaced_and_removed(home: Path) -> None:
    notes = Notes(home)
    assert not notes.call(action="add", content="Drinks green tea.").keys() & {"replaced_entry"}
    replaced = notes.call(action="replace", old_text="green", content="Drinks coffee.")
    assert replaced["replaced_entry"] == "Drinks green tea."
    batch = [
        {"action": "add", "content": "Has a cat."},
        {"action": "replace", "old_text": "coffee", "content": "Drinks water."},
        {"action": "remove", "old_text": "cat"},
    ]
    several = notes.call(operations=batch)
    assert several["replaced_entries"] == {"2": "Drinks coffee."}
    assert several["removed_entries"] == {"3": "Has a cat."}
    assert notes.call(action="remove", old_text="water")["removed_entry"] == "Drinks water."
    notes.manager.shutdown_all()


def test_our_own_tool_s_writes_are_passed_on_once_with_what_is_known(home: Path) -> None:
    notes = Notes(home)
    notes.call(action="add", content="Drinks green tea.")
    notes.call(action="replace", old_text="green", content="Drinks coffee.")
    found = notes.told()
    assert [each[0] for each in found] == ["add", "replace"]
    known = {
        "origin": "assistant",
        "write_origin": "assistant_tool",
        "execution_context": "foreground",
        "session_id": "s1",
        "parent_session_id": "s0",
        "platform": "cli",
        "tool_name": "memory",
        "task_id": "t1",
        "tool_call_id": "c1",
    }
    assert found[0][3] == known
    old = "Drinks green tea."
    assert found[1][3] == {**known, "old_text": old, "previous_content": old}


def test_a_host_s_own_tool_beside_the_built_in_is_heard(home: Path) -> None:
    notes = Notes(home)
    notes.call(action="add", content="Drinks green tea.")
    notes.manager.notify_memory_tool_write(DONE, {"action": "add", "content": "Has a cat."})
    assert [each[2] for each in notes.told()] == ["Drinks green tea.", "Has a cat."]
