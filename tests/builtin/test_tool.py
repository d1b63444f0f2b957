"""The answers of the memory tool, as the contract has them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.notes import (
    POISON,
    notes_file,
    notes_state,
    notes_text,
    recorded,
    refused,
    saved,
    stored,
    write_notes,
)
from support.storages import Storage

from hermes_builtin import BuiltinProvider
from hermes_builtin.notes import entry_id
from hermes_core import MemoryManager

pytestmark = pytest.mark.usefixtures("both_storages")


@pytest.fixture
def session(agent):
    """A session with three notes."""
    started = agent()
    notes = ("likes green tea", "likes black coffee", "works on Linux")
    saved(started.batch(*({"action": "add", "content": note} for note in notes)))
    return started


def test_a_saved_entry_is_answered_as_the_contract_says(agent) -> None:
    answer = agent().add("x" * 264)
    assert answer.pop("message")
    assert answer == {
        "success": True,
        "done": True,
        "target": "memory",
        "usage": "12% — 264/2,200 chars",
        "entry_count": 1,
    }


def test_add_puts_the_entry_at_the_end_of_its_target(session, home: Path) -> None:
    answer = saved(session.add("called Ada", "user"))
    assert (answer["target"], answer["usage"]) == ("user", "0% — 10/1,375 chars")
    saved(session.add("uses vim"))
    assert stored(home)[-1] == "uses vim"
    assert stored(home, "user") == ["called Ada"]


def test_replace_changes_the_entry_with_the_text_in_its_place(session, home: Path) -> None:
    answer = saved(session.replace("black", "likes espresso"))
    assert answer["entry_count"] == 3
    assert answer["done"] is True
    assert stored(home) == ["likes green tea", "likes espresso", "works on Linux"]


def test_remove_takes_the_entry_with_the_text_away(session, home: Path) -> None:
    answer = saved(session.remove("coffee"))
    assert answer["entry_count"] == 2
    assert stored(home) == ["likes green tea", "works on Linux"]


def test_the_last_entry_can_be_removed(agent, home: Path) -> None:
    session = agent()
    saved(session.add("one"))
    assert saved(session.remove("one"))["usage"] == "0% — 0/2,200 chars"
    assert notes_text(home) == ""


def test_read_gives_the_entries_as_they_are_now(session, agent) -> None:
    saved(agent("s2").add("from another session"))
    answer = saved(session.memory(action="read"))
    assert answer["entries"][-1] == "from another session"
    assert answer["entry_count"] == 4
    assert answer["target"] == "memory"
    assert answer["usage"] == "3% — 76/2,200 chars"
    assert session.memory("user", action="read")["entries"] == []


def test_before_a_session_has_begun_the_answer_is_an_error(home: Path) -> None:
    manager = MemoryManager(home=home)
    manager.add_provider(BuiltinProvider())
    arguments = {"target": "memory", "action": "add", "content": "one"}
    assert "initialised" in json.loads(manager.handle_tool_call("memory", arguments))["error"]
    manager.shutdown_all()
    assert not notes_file(home).exists()


def test_the_usage_counts_the_characters_of_the_whole_file(session, home: Path) -> None:
    answer = session.add("é" * 100 + "🙂")
    length = len(notes_text(home))
    assert answer["usage"] == f"{length * 100 // 2200}% — {length}/2,200 chars"


# -- what is there already ------------------------------------------------------------------


@pytest.mark.parametrize("content", ["likes green tea", "  likes green tea\r\n"])
def test_an_exact_duplicate_is_a_success_that_changes_nothing(content, session, home) -> None:
    before = notes_state(home), recorded(home)
    answer = saved(session.add(content))
    assert answer["entry_count"] == 3
    assert (notes_state(home), recorded(home)) == before


def test_a_duplicate_with_headings_in_it_changes_nothing_either(agent, home: Path) -> None:
    session = agent()
    saved(session.add("## Deploy\nmake release\n## Roll back\nmake undo"))
    before = notes_state(home), recorded(home)
    saved(session.add("## Deploy\nmake release\n## Roll back\nmake undo"))
    assert (notes_state(home), recorded(home)) == before


def test_replacing_an_entry_by_itself_is_a_success_that_changes_nothing(session, home) -> None:
    before = notes_state(home), recorded(home)
    saved(session.replace("green", "likes green tea"))
    assert (notes_state(home), recorded(home)) == before


def test_replacing_an_entry_by_another_that_is_there_leaves_that_one_once(session, home) -> None:
    saved(session.replace("green", "likes black coffee"))
    assert stored(home) == ["likes black coffee", "works on Linux"]


def test_upper_and_lower_case_are_different_entries(session) -> None:
    assert saved(session.add("Likes green tea"))["entry_count"] == 4


# -- which entry is meant -------------------------------------------------------------------


@pytest.mark.parametrize("action", ["replace", "remove"])
def test_a_text_in_several_entries_is_refused_with_their_beginnings(action, session, home) -> None:
    saved(session.add("likes " + "x" * 200))
    before = stored(home)
    answer = session.memory(action=action, old_text="likes", content="new")
    refused(answer)
    first, second, third = answer["matches"]
    assert (first, second) == ("likes green tea", "likes black coffee")
    assert third.startswith(("likes " + "x" * 200)[:80])
    assert len(third) < 90
    assert stored(home) == before


@pytest.mark.parametrize("action", ["replace", "remove"])
def test_a_text_in_no_entry_is_refused_with_all_entries(action, session, home: Path) -> None:
    before = notes_state(home)
    answer = session.memory(action=action, old_text="Tea", content="new")
    assert "Tea" in refused(answer)
    assert answer["current_entries"] == ["likes green tea", "likes black coffee", "works on Linux"]
    assert answer["usage"] == "2% — 53/2,200 chars"
    assert notes_state(home) == before


@pytest.mark.parametrize("action", ["replace", "remove"])
@pytest.mark.parametrize("old_text", [None, "", " \n"])
def test_without_old_text_the_model_sees_what_it_can_choose(action, old_text, session) -> None:
    answer = session.memory(action=action, old_text=old_text, content="new")
    assert "old_text" in refused(answer)
    assert len(answer["current_entries"]) == 3
    assert "usage" in answer


def test_a_text_that_is_an_entry_means_that_entry(session, home: Path) -> None:
    saved(session.add("tea"))
    saved(session.remove("tea"))
    assert stored(home) == ["likes green tea", "likes black coffee", "works on Linux"]


def test_old_text_may_span_lines_and_have_other_line_ends(session, home: Path) -> None:
    saved(session.add("a list:\n- one\n- two"))
    saved(session.replace("one\r\n- two", "a list of none"))
    assert stored(home)[-1] == "a list of none"


def test_old_text_of_one_target_is_not_looked_for_in_the_other(session) -> None:
    refused(session.remove("Linux", "user"))


@pytest.mark.files_only
@pytest.mark.parametrize("action", ["add", "replace"])
@pytest.mark.parametrize("content", [None, "", " \t\r\n"])
def test_nothing_can_not_be_saved(action, content, session, home: Path) -> None:
    answer = session.memory(action=action, old_text="Linux", content=content)
    assert "content" in refused(answer)
    assert len(stored(home)) == 3


# -- failures in one turn -------------------------------------------------------------------


def test_from_the_fourth_failure_in_a_turn_on_the_model_is_told_to_stop(session) -> None:
    session.turn(1)
    for _ in range(3):
        answer = session.remove("no such entry")
        refused(answer)
        assert "done" not in answer
        assert answer["current_entries"]
    for _ in range(2):
        answer = session.remove("no such entry")
        assert "top" in refused(answer)
        assert answer["done"] is True
        assert "current_entries" not in answer


def test_failures_of_all_kinds_are_counted_together(session) -> None:
    session.turn(1)
    session.memory("nowhere", action="add", content="x")
    session.memory(action="dance")
    session.remove("likes")
    assert session.add("x" * 3000)["done"] is True


def test_each_turn_counts_its_failures_anew(session) -> None:
    for number in range(3):
        session.turn(number)
        for _ in range(3):
            assert "done" not in session.remove("no such entry")


def test_a_call_after_the_fourth_failure_is_still_carried_out(session, home: Path) -> None:
    for _ in range(5):
        session.remove("no such entry")
    saved(session.add("now it is right"))
    assert "now it is right" in stored(home)


def test_looking_between_the_failures_does_not_start_the_count_anew(session) -> None:
    session.turn(1)
    for _ in range(3):
        refused(session.remove("no such entry"))
        session.entries()
    assert session.remove("no such entry").get("done") is True


# -- what the model does not get to see -------------------------------------------------------

PLACEHOLDER = "[kept from you by the guard: hermes-plugins memory show]"


def test_what_the_guard_objects_to_does_not_reach_the_model(home: Path, agent) -> None:
    write_notes(home, f"one\n§\n{POISON}\n§\ntwo")
    session = agent()
    answer = session.memory(action="read")
    assert answer["entries"] == ["one", PLACEHOLDER, "two"]
    assert answer["entry_count"] == 3
    for failed in (
        session.remove("there is no such entry"),
        session.batch({"action": "add", "content": "x"}, {"action": "remove", "old_text": "?"}),
    ):
        assert failed["current_entries"] == ["one", PLACEHOLDER, "two"]


def test_it_is_not_among_the_candidates_either(home: Path, agent) -> None:
    write_notes(home, f"all is well\n§\n{POISON}")
    assert agent().remove("all")["matches"] == ["all is well", PLACEHOLDER]


def test_what_a_person_allowed_is_shown_to_the_model(home: Path, agent) -> None:
    write_notes(home, f"one\n§\n{POISON}")
    session = agent()
    session.notes.allow(entry_id(POISON))
    assert session.entries() == ["one", POISON]


def test_answers_about_a_file_that_is_far_too_long_are_bounded(home: Path, agent) -> None:
    # Over PostgreSQL, a call has 5 seconds for all that it does in a transaction.
    many = 2_000 if Storage.current.url else 20_000
    entries = [f"entry number {number} about the server" for number in range(many)]
    write_notes(home, "\n§\n".join(entries))
    session = agent()
    answer = session.memory(action="read")
    shown = answer["entries"]
    assert 0 < len("\n§\n".join(shown)) <= 4400
    assert shown == entries[: len(shown)]
    assert answer["entry_count"] == many
    assert f"{many - len(shown):,} entries" in answer["message"]
    failed = session.remove("there is no such entry")
    assert failed["current_entries"] == shown
    assert "left out" in failed["error"]
    assert len(session.remove("server")["matches"]) == 20
