"""How much a notebook holds, and what is said when it is full."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.notes import notes_text, refused, saved, stored, write_notes

from hermes_core import MemoryManager

pytestmark = pytest.mark.usefixtures("both_storages")


@pytest.mark.parametrize(("target", "limit"), [("memory", 2200), ("user", 1375)])
def test_the_default_cap_is_reached_and_not_passed(target, limit, agent, home: Path) -> None:
    session = agent()
    saved(session.add("x" * (limit - 5), target))
    refused(session.add("yyy", target))
    answer = saved(session.add("yy", target))
    assert answer["usage"] == f"100% — {limit:,}/{limit:,} chars"
    assert len(notes_text(home, target)) == limit


def test_full_says_what_is_there_and_asks_to_consolidate(agent, home: Path) -> None:
    session = agent(memory_char_limit=50)
    saved(session.add("a" * 20))
    saved(session.add("b" * 20))
    answer = session.add("c" * 20)
    error = refused(answer)
    assert "onsolidate" in error
    assert "43" in error
    assert "50" in error
    assert answer["current_entries"] == ["a" * 20, "b" * 20]
    assert answer["usage"] == "86% — 43/50 chars"
    assert stored(home) == ["a" * 20, "b" * 20]


def test_a_replacement_that_does_not_fit_is_refused(agent, home: Path) -> None:
    session = agent(memory_char_limit=50)
    saved(session.add("a" * 20))
    saved(session.add("b" * 20))
    answer = session.replace("aaa", "c" * 40)
    refused(answer)
    assert answer["current_entries"] == ["a" * 20, "b" * 20]
    assert stored(home) == ["a" * 20, "b" * 20]


def test_the_cap_counts_characters_not_bytes(agent) -> None:
    session = agent(memory_char_limit=20)
    assert saved(session.add("日" * 20))["usage"] == "100% — 20/20 chars"


def test_the_cap_counts_what_is_written_for_the_delimiter_in_an_entry(agent, home: Path) -> None:
    session = agent(memory_char_limit=6)
    saved(session.add("a\n§\nb"))
    assert session.memory(action="read")["usage"] == "100% — 6/6 chars"
    assert len(notes_text(home)) == 6


def test_one_target_that_is_full_does_not_fill_the_other(agent) -> None:
    session = agent(memory_char_limit=10, user_char_limit=10)
    saved(session.add("x" * 10))
    refused(session.add("y"))
    saved(session.add("z" * 10, "user"))


def test_a_smaller_cap_than_what_is_there_loses_nothing(agent, home: Path) -> None:
    session = agent("s1")
    for letter in "abc":
        saved(session.add(letter * 100))
    session = agent("s2", memory_char_limit=150)
    refused(session.add("d"))
    refused(session.replace("aaa", "a" * 101))
    assert stored(home) == ["a" * 100, "b" * 100, "c" * 100]
    assert saved(session.replace("aaa", "a" * 90))["usage"] == "100% — 296/150 chars"
    saved(session.remove("bbb"))
    saved(session.remove("ccc"))
    saved(session.add("d"))
    assert stored(home) == ["a" * 90, "d"]


def test_the_caps_come_from_the_configuration(home: Path) -> None:
    (home / "config.yaml").write_text(
        "memory:\n  memory_char_limit: 30\n  user_char_limit: 40\n", "utf-8"
    )
    manager = MemoryManager.from_config(home)
    manager.initialize_all("s1")
    try:
        for target, limit in (("memory", 30), ("user", 40)):
            arguments = {"target": target, "action": "add", "content": "x" * limit}
            answer = manager.handle_tool_call("memory", arguments)
            assert f"100% — {limit}/{limit} chars" in answer
    finally:
        manager.shutdown_all()


@pytest.mark.parametrize("batch", [False, True])
def test_an_entry_that_is_too_large_alone_gets_what_is_there_like_any_overflow(
    home: Path, agent, batch: bool
) -> None:
    write_notes(home, "likes tea")
    session = agent(memory_char_limit=100)
    large = {"action": "add", "content": "x" * 101}
    answer = session.batch(large) if batch else session.memory(**large)
    assert "101" in refused(answer)
    assert answer["current_entries"] == ["likes tea"]
    assert answer["usage"] == "9% — 9/100 chars"
