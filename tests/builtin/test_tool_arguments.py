"""Calls that no schema would let through, and texts that are no notes: a clear answer to each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.notes import notes_file, recorded, refused, saved, stored, write_notes

pytestmark = pytest.mark.usefixtures("both_storages")

BIG = 10_000_000

WRONG = [5, 0, 1.5, True, False, [], ["x"], {}, {"x": 1}]


@pytest.fixture
def session(agent):
    """A session with one note."""
    started = agent()
    saved(started.add("one"))
    return started


def unchanged(home: Path) -> None:
    assert stored(home) == ["one"]
    assert len(recorded(home)) == 1


@pytest.mark.files_only
@pytest.mark.parametrize("value", WRONG, ids=repr)
@pytest.mark.parametrize("name", ["content", "old_text"])
def test_a_text_of_a_wrong_type_is_refused_by_its_name(name, value, session, home: Path) -> None:
    arguments = {"action": "replace", "old_text": "one", "content": "new", name: value}
    assert name in refused(session.memory(**arguments))
    assert name in refused(session.memory(operations=[arguments]))
    unchanged(home)


@pytest.mark.files_only
@pytest.mark.parametrize("value", [*WRONG, None, "", "ADD", "add ", "approve", "undo"], ids=repr)
def test_an_unknown_action_is_refused_with_those_that_there_are(value, session, home) -> None:
    error = refused(session.memory(action=value, content="new", old_text="one"))
    for action in ("add", "replace", "remove"):
        assert action in error
    unchanged(home)


def test_a_call_without_an_action_is_refused(session, home: Path) -> None:
    assert "action" in refused(session.memory(content="new"))
    unchanged(home)


@pytest.mark.files_only
@pytest.mark.parametrize("value", ["Memory", "memory ", "MEMORY.md", "../x", 5, True, ["memory"]])
def test_an_unknown_target_is_refused_with_those_that_there_are(value, session, home) -> None:
    error = refused(session.call({"target": value, "action": "add", "content": "new"}))
    assert "memory" in error
    assert "user" in error
    unchanged(home)


@pytest.mark.files_only
@pytest.mark.parametrize("value", [0, False, [], {}], ids=repr)
def test_an_empty_target_of_a_wrong_type_is_refused(value, session, home: Path) -> None:
    refused(session.call({"target": value, "action": "add", "content": "new"}))
    unchanged(home)


@pytest.mark.files_only
@pytest.mark.parametrize("value", [5, 1.5, True, "add", {"action": "add"}, (), set()], ids=repr)
def test_operations_that_are_no_list_are_refused(value, session, home: Path) -> None:
    refused(session.memory(operations=value))
    unchanged(home)


def test_no_operations_and_no_action_are_refused(session, home: Path) -> None:
    refused(session.memory(operations=[]))
    unchanged(home)


@pytest.mark.files_only
@pytest.mark.parametrize("arguments", [None, [], "add", 5, {}], ids=repr)
def test_arguments_that_are_no_object_are_refused(arguments, session, home: Path) -> None:
    answer = session.builtin.handle_tool_call("memory", arguments)
    assert json.loads(answer)["success"] is False
    unchanged(home)


def test_null_means_not_given(session, home: Path) -> None:
    """Some models fill in every field."""
    arguments = {"action": "add", "content": "new", "old_text": None, "operations": None}
    saved(session.call({"target": None, **arguments}))
    saved(session.memory(action="remove", old_text="new", content=None, operations=[]))
    unchanged_entries = stored(home)
    assert unchanged_entries == ["one"]


def test_arguments_that_nobody_asked_for_are_ignored(session, home: Path) -> None:
    saved(session.memory(action="add", content="new", reason="why not", priority=5))
    assert stored(home) == ["one", "new"]


# -- texts that are no notes ----------------------------------------------------------------


def clear_answer(session, arguments: dict[str, Any]) -> dict[str, Any]:
    """The answer to a call: short, and one that can be sent anywhere."""
    answer = session.manager.handle_tool_call("memory", {"target": "memory", **arguments})
    assert len(answer) < 5000
    answer.encode()
    found: dict[str, Any] = json.loads(answer)
    return found


HUGE = {
    "one word": "x" * BIG,
    "spaces": "a" + " " * BIG + "b",
    "separators": "§\n" * (BIG // 2),
    "escaped separators": "\\" * BIG + "§",
    "lines": "line\n" * (BIG // 5),
    "no ASCII": "é" * BIG,
}


@pytest.mark.files_only
@pytest.mark.parametrize("text", HUGE.values(), ids=HUGE)
def test_ten_megabytes_are_refused(text: str, session, home: Path) -> None:
    error = refused(clear_answer(session, {"action": "add", "content": text}))
    assert "2,200" in error
    refused(clear_answer(session, {"action": "replace", "old_text": "one", "content": text}))
    refused(clear_answer(session, {"operations": [{"action": "add", "content": text}]}))
    unchanged(home)


@pytest.mark.files_only
@pytest.mark.parametrize("text", HUGE.values(), ids=HUGE)
def test_ten_megabytes_to_look_for_are_refused(text: str, session, home: Path) -> None:
    refused(clear_answer(session, {"action": "remove", "old_text": text}))
    unchanged(home)


@pytest.mark.files_only
def test_ten_megabytes_of_white_space_are_nothing(session, home: Path) -> None:
    refused(clear_answer(session, {"action": "add", "content": " \n" * (BIG // 2)}))
    unchanged(home)


@pytest.mark.files_only
@pytest.mark.parametrize("name", ["action", "target"])
def test_a_name_of_ten_megabytes_is_not_repeated_in_the_answer(name: str, session) -> None:
    refused(clear_answer(session, {"action": "add", "content": "new", name: "x" * BIG}))


@pytest.mark.parametrize("text", ["x", "§", "é", "🙂", "\\", "-", "0"])
def test_one_character_is_an_entry(text: str, session, agent, home: Path) -> None:
    assert saved(session.add(text))["entry_count"] == 2
    assert agent("s2").entries() == ["one", text]
    saved(session.remove(text))
    assert stored(home) == ["one"]


@pytest.mark.files_only
@pytest.mark.parametrize("name", ["content", "old_text"])
@pytest.mark.parametrize("text", ["\ud83d", "a\udc80b", "\ude42\ud83d"], ids=ascii)
def test_half_a_character_is_refused_and_said_so(name, text, session, home: Path) -> None:
    arguments = {"action": "replace", "old_text": "one", "content": "new", name: text}
    error = refused(clear_answer(session, arguments))
    assert name in error
    assert "surrogate" in error
    unchanged(home)


@pytest.mark.parametrize(
    "text", ["nul \x00 here", "\x00", "escape \x1b[2J", "abc\u202edef"], ids=ascii
)
def test_characters_that_hide_something_are_refused(text: str, session, home: Path) -> None:
    assert refused(clear_answer(session, {"action": "add", "content": text}))
    unchanged(home)


@pytest.mark.files_only  # another program wrote the file
@pytest.mark.parametrize("text", ["nul \x00 here", "abc\u202edef"], ids=ascii)
def test_an_entry_with_such_characters_in_the_file_can_be_removed(text, home, agent) -> None:
    notes_file(home).parent.mkdir()
    notes_file(home).write_text(f"one\n§\n{text}", "utf-8")
    session = agent()
    assert text not in session.prompt
    saved(session.remove(text))
    assert stored(home) == ["one"]


@pytest.mark.parametrize("text", ["§", "\n§\n", "§\n§", " § "])
def test_the_delimiter_alone_is_an_entry_like_any_other(text, session, agent, home: Path) -> None:
    assert saved(session.add(text))["entry_count"] == 2
    assert agent("s2").entries() == ["one", text.strip()]
    assert len(stored(home)) == 2


def test_other_scripts_and_emoji_are_kept_to_the_byte(session, home: Path) -> None:
    text = "日本語 العربية हिन्दी 👩‍💻 ﬁ e\u0301 é"
    saved(session.add(text))
    assert stored(home)[-1] == text
    assert session.entries()[-1] == text


@pytest.mark.parametrize("batch", [False, True])
def test_new_text_is_another_name_for_content(home: Path, agent, batch: bool) -> None:
    write_notes(home, "likes tea")
    session = agent()
    replace = {"action": "replace", "old_text": "tea", "new_text": "likes coffee"}
    saved(session.batch(replace) if batch else session.memory(**replace))
    assert stored(home) == ["likes coffee"]
    both = {**replace, "old_text": "coffee", "content": "likes figs"}
    saved(session.batch(both) if batch else session.memory(**both))
    assert stored(home) == ["likes figs"]


@pytest.mark.files_only
@pytest.mark.parametrize(
    ("settings", "targets"),
    [
        ({}, ["memory", "user"]),
        ({"user_profile_enabled": False}, ["memory"]),
        ({"memory_enabled": False}, ["user"]),
    ],
)
def test_the_schema_names_only_the_notebooks_that_are_switched_on(
    agent, settings: dict[str, bool], targets: list[str]
) -> None:
    schemas = agent(**settings).manager.get_all_tool_schemas()
    (parameters,) = [each["parameters"] for each in schemas if each["name"] == "memory"]
    assert parameters["properties"]["target"]["enum"] == targets
