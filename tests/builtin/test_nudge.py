"""Reminders to take notes, and what a host needs for a review in the background."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.notes import POISON, saved, write_notes

from hermes_core import MemoryManager

pytestmark = pytest.mark.usefixtures("both_storages")


def turns(session, count: int) -> list[bool]:
    """Whether there was a reminder after each of so many turns."""
    reminded = []
    for number in range(count):
        session.turn(number)
        reminded.append(bool(session.manager.pending_nudge()))
    return reminded


def test_there_is_a_reminder_every_ten_turns_by_default(agent) -> None:
    expected = [turn % 10 == 0 for turn in range(1, 32)]
    assert turns(agent(), 31) == expected


def test_the_interval_is_a_setting(agent) -> None:
    assert turns(agent(nudge_interval=2), 5) == [False, True, False, True, False]
    assert turns(agent(nudge_interval=1), 2) == [True, True]


def test_zero_is_off(agent) -> None:
    assert not any(turns(agent(nudge_interval=0), 50))


def test_a_reminder_waits_until_it_is_asked_for_and_is_given_once(agent) -> None:
    session = agent(nudge_interval=3)
    for number in range(5):
        session.turn(number)
    text = session.manager.pending_nudge()
    assert "memory" in text
    assert len(text) < 500
    assert session.manager.pending_nudge() == ""


@pytest.mark.parametrize("target", ["memory", "user"])
def test_a_write_starts_the_count_anew(target: str, agent) -> None:
    session = agent(nudge_interval=3)
    assert turns(session, 2) == [False, False]
    saved(session.add("one", target))
    assert turns(session, 3) == [False, False, True]


def test_what_is_no_write_does_not_start_it_anew(agent) -> None:
    session = agent(nudge_interval=3)
    saved(session.add("one"))
    assert turns(session, 2) == [False, False]
    session.entries()
    session.remove("no such entry")
    session.add("one")  # it is there already
    assert turns(session, 1) == [True]


def test_each_session_has_its_own_count(agent) -> None:
    session = agent("s1", nudge_interval=3)
    assert turns(session, 2) == [False, False]
    session.manager.on_session_switch("s2")
    assert turns(session, 2) == [False, False]
    saved(session.add("written in s2"))
    session.manager.on_session_switch("s1")
    assert turns(session, 1) == [True]
    session.manager.on_session_switch("s2")
    assert turns(session, 3) == [False, False, True]


def test_a_write_that_names_its_session_counts_for_that_one(agent) -> None:
    session = agent("s1", nudge_interval=3)
    assert turns(session, 2) == [False, False]
    arguments = {"target": "memory", "action": "add", "content": "one"}
    saved(session.call(arguments, session_id="s2"))
    assert turns(session, 1) == [True]


def test_a_reminder_is_never_in_the_system_prompt(agent) -> None:
    session = agent(nudge_interval=1)
    before = session.prompt
    session.turn()
    assert session.manager.pending_nudge() not in session.prompt
    assert session.prompt == before


def test_without_notebooks_there_is_nothing_to_remind_of(agent) -> None:
    session = agent(nudge_interval=1, memory_enabled=False, user_profile_enabled=False)
    assert turns(session, 3) == [False, False, False]


def test_without_the_built_in_there_is_no_reminder() -> None:
    manager = MemoryManager()
    assert manager.pending_nudge() == ""
    assert manager.review_prompt([]) == ""


def test_the_interval_comes_from_the_configuration(home: Path) -> None:
    (home / "config.yaml").write_text("memory:\n  nudge_interval: 2\n", "utf-8")
    manager = MemoryManager.from_config(home)
    manager.initialize_all("s1")
    found = []
    for number in range(4):
        manager.on_turn_start(number, "hello")
        found.append(bool(manager.pending_nudge()))
    manager.shutdown_all()
    assert found == [False, True, False, True]


# -- the review -------------------------------------------------------------------------------

TALK = [
    {"role": "user", "content": "Please always answer in French."},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
    {"role": "tool", "content": "an answer of a tool"},
    {"role": "assistant", "content": [{"type": "text", "text": "D'accord."}, {"type": "image"}]},
]


def test_the_review_has_the_conversation_and_the_notes_as_they_are_now(agent) -> None:
    session = agent()
    saved(session.add("written in this session"))
    saved(session.add("called Ada", "user"))
    review = session.manager.review_prompt(TALK)
    for text in (
        "user: Please always answer in French.",
        "assistant: D'accord.",
        "an answer of a tool",
        "written in this session",
        "called Ada",
        "memory tool",
    ):
        assert text in review


def test_the_review_of_a_long_conversation_is_bounded_and_keeps_the_newest(agent) -> None:
    old = {"role": "user", "content": "old " + "x" * 100_000}
    new = [{"role": "user", "content": f"message {n}"} for n in range(20)]
    review = agent().manager.review_prompt([old] * 50 + new)
    assert len(review) < 50 * 1000
    assert "message 19" in review
    assert "old x" in review


def test_the_review_of_nothing_is_a_text(agent) -> None:
    assert agent().manager.review_prompt([])


@pytest.mark.files_only
def test_the_review_says_which_notebook_can_not_be_read(agent, home: Path) -> None:
    session = agent()
    path = write_notes(home, b"caf\xe9")
    saved(session.add("called Ada", "user"))
    review = session.manager.review_prompt(TALK)
    assert str(path) in review
    assert "UTF-8" in review
    assert "called Ada" in review


def test_what_the_guard_keeps_out_of_the_prompt_is_not_in_the_review(agent, home: Path) -> None:
    write_notes(home, f"likes tea\n§\n{POISON}")
    review = agent().manager.review_prompt(TALK)
    assert "likes tea" in review
    assert POISON not in review
