"""What the external provider is told of the notes: every write that was made, and only that."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.commands import Machine
from support.isolated import add_plugin
from support.notes import POISON, Agent, append, notes_file, refused, saved, stored, write_notes
from support.providers import Recorder, raising

pytestmark = pytest.mark.usefixtures("both_storages")


@pytest.fixture
def session(agent) -> Agent:
    """A session on Telegram with an external provider."""
    started: Agent = agent("chat-7", platform="telegram", external=Recorder())
    return started


def test_an_added_entry_is_told_with_its_session_platform_and_origin(session: Agent) -> None:
    saved(session.add("  likes tea\r\n"))
    (told,) = session.mirrored
    assert told[:3] == ("add", "memory", "likes tea")
    assert told.metadata["session_id"] == "chat-7"
    assert told.metadata["platform"] == "telegram"
    assert told.metadata["write_origin"] == "assistant_tool"
    assert not told.metadata.get("old_text")


def test_a_replaced_entry_is_told_with_the_whole_text_that_it_had(session: Agent) -> None:
    saved(session.add("likes tea", "user"))
    saved(session.replace("tea", "likes coffee", "user"))
    told = session.mirrored[-1]
    assert told[:3] == ("replace", "user", "likes coffee")
    assert told.metadata["old_text"] == "likes tea"
    assert told.metadata["session_id"] == "chat-7"


def test_a_removed_entry_is_told_with_the_text_that_it_had(session: Agent) -> None:
    saved(session.add("likes tea"))
    saved(session.remove("tea"))
    told = session.mirrored[-1]
    assert (told.action, told.target) == ("remove", "memory")
    assert told.metadata["old_text"] == "likes tea"


def test_a_batch_is_one_call_for_each_operation_in_their_order(session: Agent) -> None:
    saved(session.add("one"))
    operations = [
        {"action": "add", "content": "two"},
        {"action": "add", "content": "one"},  # it is there already
        {"action": "replace", "old_text": "one", "content": "1"},
        {"action": "remove", "old_text": "two"},
    ]
    saved(session.batch(*operations))
    told = [(each.action, each.metadata.get("old_text", "")) for each in session.mirrored]
    assert told == [("add", ""), ("add", ""), ("replace", "one"), ("remove", "two")]


def test_what_changed_nothing_is_not_told(session: Agent) -> None:
    saved(session.add("one"))
    saved(session.add("one"))
    saved(session.replace("one", "one"))
    session.entries()
    assert len(session.mirrored) == 1


@pytest.mark.files_only
def test_what_was_refused_is_not_told(session: Agent, home: Path) -> None:
    saved(session.add("one"))
    refused(session.remove("no such entry"))
    refused(session.add("x" * 5000))
    refused(session.add(POISON))
    refused(session.batch({"action": "add", "content": "two"}, {"action": "remove"}))
    notes_file(home).write_bytes(b"\xff")
    refused(session.add("three"))
    assert len(session.mirrored) == 1


def test_what_waits_for_approval_is_not_told(agent) -> None:
    session = agent(external=Recorder(), write_approval=True)
    assert session.add("one")["staged"] is True
    assert session.mirrored == []


def test_an_edit_by_somebody_else_is_not_told_as_ours(session: Agent, home: Path) -> None:
    write_notes(home, "by hand")
    saved(session.add("one"))
    append(home, "by a shell\n")
    saved(session.add("two"))
    assert [each.content for each in session.mirrored] == ["one", "two"]


@pytest.mark.parametrize("context", ["subagent", "cron", "flush"])
def test_only_the_writes_of_the_primary_agent_are_told(context: str, agent) -> None:
    session = agent(external=Recorder(), context=context)
    saved(session.add("one"))
    assert session.mirrored == []


def test_after_a_switch_the_new_session_is_told(session: Agent) -> None:
    saved(session.add("one"))
    session.manager.on_session_switch("chat-8")
    saved(session.add("two"))
    assert [each.metadata["session_id"] for each in session.mirrored] == ["chat-7", "chat-8"]


def test_a_call_that_names_its_session_is_told_with_it(session: Agent) -> None:
    arguments = {"target": "memory", "action": "add", "content": "one"}
    saved(session.call(arguments, session_id="chat-9"))
    (told,) = session.mirrored
    assert told.metadata["session_id"] == "chat-9"


def test_a_provider_that_fails_does_not_fail_the_write(agent) -> None:
    external = Recorder(on_memory_write=raising(RuntimeError("no network")))
    session = agent(external=external)
    saved(session.add("one"))
    assert not session.manager.flush_pending(0.1)
    assert session.manager.health()["ext"]["on_memory_write"].failures >= 1
    assert session.entries() == ["one"]


def test_a_provider_that_came_first_is_told_too(home: Path) -> None:
    """A host may add its provider before the built-in."""
    from hermes_builtin import BuiltinProvider
    from hermes_core import MemoryManager

    external = Recorder()
    manager = MemoryManager(home=home)
    manager.add_provider(external)
    manager.add_provider(BuiltinProvider())
    manager.initialize_all("s1")
    manager.handle_tool_call("memory", {"target": "memory", "action": "add", "content": "one"})
    manager.shutdown_all()
    assert [each.args for each in external.of("on_memory_write")] == [("add", "memory", "one")]


SENT = """
def on_memory_write(self, action, target, content, metadata=None):
    {body}
"""


@pytest.mark.files_only
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("raise OSError('no network')", "acme has not received every change: OSError: no network"),
        ("pass\n\ndef initialize(self, *args, **kwargs):\n    raise OSError('no server')",
         "acme has not received every change"),
    ],
)  # fmt: skip
def test_a_command_says_what_waits_for_the_provider(
    machine: Machine, body: str, reason: str
) -> None:
    add_plugin(machine.home, SENT.format(body=body), isolated=False)
    result = machine.run("memory", "add", "likes tea")
    assert (result.code, stored(machine.home)) == (0, ["likes tea"])
    warning, hint = result.err.splitlines()
    assert warning == f"warning: {reason}"
    assert hint.startswith("hint: it waits in the outbox")
    assert len(machine.json("outbox", "list")["writes"]) == 1


@pytest.mark.files_only
def test_a_command_says_of_another_problem_what_it_is(machine: Machine) -> None:
    machine.write_config("memory: {provider: nobodys}\n")
    result = machine.run("memory", "add", "likes tea")
    assert stored(machine.home) == ["likes tea"]
    assert result.err.startswith("warning: no memory provider 'nobodys' is installed")
    assert "has not received" not in result.err
