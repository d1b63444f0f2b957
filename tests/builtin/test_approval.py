"""Writes that wait for a person, where they have to."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from support.notes import (
    POISON,
    Agent,
    notes_file,
    notes_text,
    recorded,
    refused,
    stored,
    write_notes,
)

from hermes_builtin.notes import Author, NotesError, NotesSettings, RefusalError
from hermes_core import MemoryManager

pytestmark = pytest.mark.usefixtures("both_storages")

PERSON = Author("tool, approved")


@pytest.fixture
def session(home: Path, agent) -> Agent:
    """A session in which every write needs approval, with one note."""
    write_notes(home, "one")
    started: Agent = agent("chat-7", write_approval=True)
    return started


def staged(answer: dict[str, Any]) -> str:
    """The id of a write that waits."""
    assert answer["success"] is True
    assert answer["staged"] is True
    name: str = answer["pending_id"]
    return name


def record(home: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        (home / "pending" / "memory" / f"{name}.json").read_text("utf-8")
    )
    return found


def leave(home: Path, name: str, content: str | dict[str, Any]) -> None:
    """A file in the place where hermes-agent stages writes."""
    folder = home / "pending" / "memory"
    folder.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / f"{name}.json").write_text(text, "utf-8")


@pytest.mark.parametrize(
    ("arguments", "result"),
    [
        ({"action": "add", "content": "two"}, ["one", "two"]),
        ({"action": "replace", "old_text": "one", "content": "1"}, ["1"]),
        ({"action": "remove", "old_text": "one"}, []),
        (
            {
                "operations": [
                    {"action": "add", "content": "two"},
                    {"action": "remove", "old_text": "one"},
                ]
            },
            ["two"],
        ),
    ],
    ids=["add", "replace", "remove", "batch"],
)
def test_a_write_waits_and_is_made_when_it_is_approved(arguments, result, session, home) -> None:
    name = staged(session.memory(**arguments))
    assert stored(home) == ["one"]
    assert [each.id for each in session.notes.pending.all()] == [name]
    session.notes.approve(name, PERSON)
    assert stored(home) == result
    assert session.notes.pending.all() == []


def test_a_rejected_write_is_never_made(session: Agent, home: Path) -> None:
    name = staged(session.add("two"))
    session.notes.pending.discard(name)
    assert stored(home) == ["one"]
    with pytest.raises(NotesError, match=name):
        session.notes.approve(name, PERSON)


@pytest.mark.files_only
def test_a_waiting_write_has_hermes_agents_form(session: Agent, home: Path) -> None:
    start = time.time()
    found = record(home, name := staged(session.add("two", "user")))
    assert found["id"] == name
    assert len(name) == 8
    assert int(name, 16) >= 0
    assert (found["subsystem"], found["action"]) == ("memory", "add")
    assert "two" in found["summary"]
    assert found["origin"]
    assert start <= found["created_at"] <= time.time()
    payload = found["payload"]
    assert (payload["action"], payload["target"], payload["content"]) == ("add", "user", "two")


@pytest.mark.files_only
def test_a_waiting_batch_has_hermes_agents_form(session: Agent, home: Path) -> None:
    operations = [{"action": "add", "content": "two"}, {"action": "remove", "old_text": "one"}]
    found = record(home, staged(session.batch(*operations)))
    assert found["action"] == found["payload"]["action"] == "batch"
    assert found["payload"]["target"] == "memory"
    for wanted, kept in zip(operations, found["payload"]["operations"], strict=True):
        assert kept.items() >= wanted.items()


@pytest.mark.files_only
def test_what_hermes_agent_staged_can_be_approved(session: Agent, home: Path) -> None:
    payload = {"action": "replace", "target": "memory", "content": "1", "old_text": "one"}
    common = {"subsystem": "memory", "summary": "s", "origin": "background_review"}
    leave(home, "0a1b2c3d", {"id": "0a1b2c3d", **common, "created_at": 5.0, "payload": payload})
    payload = {"action": "add", "target": "user", "content": "about you", "old_text": None}
    leave(home, "ffffffff", {"id": "ffffffff", **common, "created_at": 4.0, "payload": payload})
    assert [each.id for each in session.notes.pending.all()] == ["ffffffff", "0a1b2c3d"]
    for name in ("0a1b2c3d", "ffffffff"):
        session.notes.approve(name, PERSON)
    assert stored(home) == ["1"]
    assert stored(home, "user") == ["about you"]


# -- what is not staged -----------------------------------------------------------------------


def test_the_guard_looks_before_anything_is_staged(session: Agent) -> None:
    refused(session.add(POISON))
    refused(session.batch({"action": "add", "content": "ok"}, {"action": "add", "content": POISON}))
    refused(session.replace("one", "x" * 5000))
    assert session.notes.pending.all() == []


def test_a_call_that_makes_no_sense_is_not_staged(session: Agent) -> None:
    refused(session.memory(action="add"))
    refused(session.memory(action="remove"))
    refused(session.memory(operations=[{"action": "add"}]))
    assert session.notes.pending.all() == []


def test_reading_needs_no_approval(session: Agent) -> None:
    assert session.entries() == ["one"]


def test_no_tool_of_the_model_decides(session: Agent, home: Path) -> None:
    name = staged(session.add("two"))
    assert session.manager.get_all_tool_names() == {"memory", "session_search"}
    for action in ("approve", "reject", "allow", "pending", "undo"):
        refused(session.memory(action=action, content=name, old_text=name, id=name))
        refused(session.memory(operations=[{"action": action, "content": name}]))
    assert stored(home) == ["one"]
    assert len(session.notes.pending.all()) == 1


# -- what goes wrong --------------------------------------------------------------------------


@pytest.mark.files_only
def test_what_can_not_be_carried_out_stays_pending(session: Agent, home: Path) -> None:
    name = staged(session.replace("one", "1"))
    write_notes(home, "something else")
    with pytest.raises(RefusalError):
        session.notes.approve(name, PERSON)
    notes_file(home).write_bytes(b"\xff")
    with pytest.raises(NotesError):
        session.notes.approve(name, PERSON)
    write_notes(home, "one")
    session.notes.approve(name, PERSON)
    assert stored(home) == ["1"]


@pytest.mark.parametrize("now", ["one again", "one\n§\none more"], ids=["another", "two"])
@pytest.mark.parametrize("action", ["replace", "remove"])
def test_only_the_entry_that_was_meant_is_touched(now, action, session: Agent, home) -> None:
    arguments = {"content": "1"} if action == "replace" else {}
    name = staged(session.memory(action=action, old_text="on", **arguments))
    write_notes(home, now)
    with pytest.raises(RefusalError):
        session.notes.approve(name, PERSON)
    assert notes_text(home) == now
    assert [each.id for each in session.notes.pending.all()] == [name]


def test_what_can_be_about_no_entry_is_not_staged(session: Agent) -> None:
    answer = session.remove("there is no such entry")
    refused(answer)
    assert answer["current_entries"] == ["one"]
    refused(session.batch({"action": "add", "content": "x"}, {"action": "remove", "old_text": "?"}))
    assert session.notes.pending.all() == []


def test_a_write_can_be_about_what_waits(session: Agent, home: Path) -> None:
    names = [staged(session.add("two")), staged(session.replace("two", "2"))]
    with pytest.raises(RefusalError):
        session.notes.approve(names[1], PERSON)
    for name in names:
        session.notes.approve(name, PERSON)
    assert stored(home) == ["one", "2"]


@pytest.mark.parametrize("name", ["ffffffff", "", "x", "../../config", "FFFFFFFF", "*"])
def test_an_unknown_id_is_a_clear_error(name: str, session: Agent) -> None:
    with pytest.raises(NotesError, match="pending"):
        session.notes.approve(name, PERSON)


@pytest.mark.parametrize(
    "content",
    [
        "no JSON",
        "[]",
        "{}",
        {"payload": {"target": "elsewhere", "action": "add", "content": "x"}},
        {"payload": {"target": "memory", "action": "dance", "content": "x"}},
        {"payload": {"target": "memory", "operations": [None]}},
        {"payload": {"target": "memory", "action": "add", "content": 5}, "created_at": "soon"},
    ],
    ids=str,
)
def test_a_record_that_makes_no_sense_is_a_clear_error(content, session: Agent, home) -> None:
    leave(home, "0a1b2c3d", content)
    with pytest.raises(NotesError, match="0a1b2c3d"):
        session.notes.approve("0a1b2c3d", PERSON)
    assert stored(home) == ["one"]


def test_a_broken_record_does_not_hide_the_others(session: Agent, home: Path) -> None:
    name = staged(session.add("two"))
    leave(home, "0a1b2c3d", "no JSON")
    assert name in [each.id for each in session.notes.pending.all()]


def test_approving_records_who_wanted_it_and_that_it_was_approved(session, home: Path) -> None:
    session.notes.approve(staged(session.add("two")), PERSON)
    assert recorded(home)[0]["who"] == "tool, approved"


def test_approving_records_the_session_that_wanted_it(session: Agent, home: Path) -> None:
    session.notes.approve(staged(session.add("two")), PERSON)
    assert recorded(home)[0]["session"] == "chat-7"


# -- the setting ------------------------------------------------------------------------------


@pytest.mark.files_only
@pytest.mark.parametrize(
    ("value", "waits"),
    [
        *((each, True) for each in ("true", "on", "yes", "'on'", "'True'", "approve", "enabled")),
        *((each, False) for each in ("false", "off", "no", "'off'", "", "''", "disabled", "'0'")),
    ],
)
def test_the_setting_is_read_as_hermes_agent_reads_it(value, waits, home: Path) -> None:
    (home / "config.yaml").write_text(f"memory:\n  write_approval: {value}\n", "utf-8")
    assert configured_write(home).get("staged", False) is waits


def test_with_a_broken_configuration_writes_wait(home: Path) -> None:
    """Nobody knows then whether they would have to."""
    (home / "config.yaml").write_text("memory: [\n", "utf-8")
    assert configured_write(home)["staged"] is True
    assert not notes_file(home).exists()


@pytest.mark.files_only
@pytest.mark.parametrize("word", ["required", "always", "ask", "'maybe'", "'of'"])
def test_with_a_word_that_nobody_knows_writes_wait(word: str, home: Path) -> None:
    (home / "config.yaml").write_text(f"memory:\n  write_approval: {word}\n", "utf-8")
    assert configured_write(home)["staged"] is True
    assert NotesSettings.of({"write_approval": word}).write_approval is True
    assert not notes_file(home).exists()


def configured_write(home: Path) -> dict[str, Any]:
    manager = MemoryManager.from_config(home)
    manager.initialize_all("s1")
    arguments = {"target": "memory", "action": "add", "content": "two"}
    answer: dict[str, Any] = json.loads(manager.handle_tool_call("memory", arguments))
    manager.shutdown_all()
    return answer
