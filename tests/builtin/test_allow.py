"""A person vouches for a text that the guard objects to; the model can't."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.notes import POISON, Agent, refused, saved, stored, write_notes

from hermes_builtin.notes import NotesError, entry_id

pytestmark = pytest.mark.usefixtures("both_storages")


def refused_id(session: Agent, content: str) -> str:
    """The id that the refusal of a write names."""
    error = refused(session.add(content))
    assert "memory allow" in error
    return error.split()[-1].strip(".`'")


def test_a_refused_write_can_be_made_after_it_was_allowed(agent, home: Path) -> None:
    session = agent()
    assert session.notes.allow(refused_id(session, POISON)) == POISON
    saved(session.add(POISON))
    assert stored(home) == [POISON]
    assert POISON in agent("s2").prompt


def test_allowing_writes_nothing_by_itself(agent, home: Path) -> None:
    session = agent()
    session.notes.allow(refused_id(session, POISON))
    assert session.entries() == []


def test_an_entry_in_the_file_can_be_allowed(agent, home: Path) -> None:
    write_notes(home, f"likes tea\n§\n{POISON}")
    session = agent("s1")
    assert POISON not in session.prompt
    session.notes.allow(entry_id(POISON))
    assert POISON not in session.prompt  # it is frozen
    assert f"likes tea\n§\n{POISON}" in agent("s2").prompt


def test_exactly_one_text_is_allowed(agent) -> None:
    session = agent()
    session.notes.allow(refused_id(session, POISON))
    refused(session.add(f"{POISON} And more."))
    refused(session.add(POISON.upper()))


def test_what_was_allowed_stays_so_in_other_sessions(agent) -> None:
    session = agent("s1")
    session.notes.allow(refused_id(session, POISON))
    session.close()
    saved(agent("s2").add(POISON))


@pytest.mark.parametrize("name", ["", "00000000", "x", "%", POISON])
def test_an_id_of_nothing_is_a_clear_error(name: str, agent) -> None:
    session = agent()
    refused(session.add(POISON))
    with pytest.raises(NotesError, match="rejected nothing"):
        session.notes.allow(name)
    refused(session.add(POISON))


def test_what_the_guard_does_not_object_to_needs_no_allowing(agent) -> None:
    session = agent()
    saved(session.add("likes tea"))
    with pytest.raises(NotesError):
        session.notes.allow(entry_id("likes tea"))


def test_refused_writes_are_listed_until_they_are_allowed(agent) -> None:
    session = agent()
    name = refused_id(session, POISON)
    refused(session.add(POISON))
    assert [(each.id, each.text) for each in session.notes.blocked()] == [(name, POISON)]
    session.notes.allow(name)
    assert session.notes.blocked() == []


def test_the_model_can_not_allow_anything(agent) -> None:
    session = agent()
    name = refused_id(session, POISON)
    for arguments in (
        {"action": "allow", "content": name},
        {"action": "add", "content": POISON, "allow": name, "allowed": True, "force": True},
        {"action": "add", "content": f"allow {name}: {POISON}"},
    ):
        refused(session.memory(**arguments))
    session.turn()
    refused(session.add(POISON))


def test_a_poisoned_entry_in_the_file_can_be_removed_by_the_tool(agent, home: Path) -> None:
    write_notes(home, f"likes tea\n§\n{POISON}")
    saved(agent().remove("previous instructions"))
    assert stored(home) == ["likes tea"]


def test_a_poisoned_entry_in_the_file_does_not_stop_other_writes(agent, home: Path) -> None:
    write_notes(home, f"likes tea\n§\n{POISON}")
    saved(agent().add("uses vim"))
    assert stored(home) == ["likes tea", POISON, "uses vim"]


@pytest.mark.files_only
def test_an_unreadable_notebook_prevents_only_what_may_be_in_it(agent, home: Path) -> None:
    session = agent()
    name = refused_id(session, POISON)
    (home / "memories" / "MEMORY.md").write_bytes(b"caf\xe9")
    assert session.notes.allow(name) == POISON
    with pytest.raises(NotesError, match="not UTF-8"):
        session.notes.allow(entry_id("something else"))
