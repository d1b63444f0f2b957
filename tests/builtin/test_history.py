"""Every change is recorded: when, by whom, in which session, and the text before and after."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
from support.notes import (
    POISON,
    notes_text,
    recorded,
    refused,
    saved,
    start_python,
    stored,
    write_notes,
)

from hermes_builtin.notes import Author

pytestmark = pytest.mark.usefixtures("both_storages")


def test_a_change_by_the_tool_is_recorded_with_its_session_and_both_texts(home, agent) -> None:
    start = time.time()
    session = agent("chat-7")
    saved(session.add("one"))
    saved(session.replace("one", "1"))
    saved(session.add("about you", "user"))
    saved(session.remove("1"))
    saved(session.batch({"action": "add", "content": "2"}, {"action": "add", "content": "3"}))
    changes = recorded(home)[::-1]
    assert [(each["target"], each["before"], each["after"]) for each in changes] == [
        ("memory", "", "one"),
        ("memory", "one", "1"),
        ("user", "", "about you"),
        ("memory", "1", ""),
        ("memory", "", "2\n§\n3"),
    ]
    assert {each["who"] for each in changes} == {"tool"}
    assert {each["session"] for each in changes} == {"chat-7"}
    times = [each["at"] for each in changes]
    assert start <= times[0] <= times[-1] <= time.time()
    assert times == sorted(times)


def test_the_session_is_the_one_of_the_call(home: Path, agent) -> None:
    session = agent("s1")
    saved(session.call({"target": "memory", "action": "add", "content": "a"}, session_id="s9"))
    session.manager.on_session_switch("s2")
    saved(session.add("b"))
    assert [each["session"] for each in recorded(home)] == ["s2", "s9"]


def test_what_was_refused_is_not_recorded(home: Path, agent) -> None:
    session = agent()
    saved(session.add("one"))
    refused(session.remove("no such entry"))
    refused(session.add("x" * 5000))
    refused(session.add(POISON))
    assert len(recorded(home)) == 1


def test_the_newest_state_in_the_history_is_the_file(home: Path, agent) -> None:
    session = agent()
    for number, text in enumerate(("one\r\n§\r\ntwo", "three\n", "\ufefffour")):
        write_notes(home, text)
        saved(session.add(f"note {number}"))
        assert recorded(home)[0]["after"] == notes_text(home)


def test_the_history_is_shared_by_all_who_write(home: Path, agent) -> None:
    first, second = agent("s1"), agent("s2")
    saved(first.add("one"))
    saved(second.add("two"))
    saved(first.add("three"))
    assert [each["session"] for each in recorded(home)] == ["s1", "s2", "s1"]
    assert {each["who"] for each in recorded(home)} == {"tool"}


def test_every_change_goes_on_where_the_one_before_it_ended(home: Path, agent) -> None:
    session = agent()
    saved(session.add("one"))
    write_notes(home, "one\n§\nby hand\n")
    saved(session.add("two"))
    saved(session.remove("one"))
    changes = recorded(home)[::-1]
    for earlier, later in pairwise(changes):
        assert later["before"] == earlier["after"]


KILLED = """
import os, signal, sys
from pathlib import Path
from hermes_builtin.notes import Notes, Operation, Author
notes = Notes(Path(sys.argv[1]))
when = sys.argv[2]
replace = os.replace
def dying(*arguments):
    if when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    replace(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)
os.replace = dying
notes.change("memory", [Operation("add", "two")], Author("tool", "killed"))
"""


@pytest.mark.files_only
@pytest.mark.parametrize(
    ("when", "made"), [("before", ["one"]), ("after", ["one", "two"])], ids=["before", "after"]
)
def test_a_change_is_recorded_if_and_only_if_the_file_has_it(when, made, home, agent) -> None:
    """The process is killed right before or right after the new file is in place."""
    saved(agent("s1").add("one"))
    process = start_python(KILLED, home, when)
    process.communicate(timeout=60)
    assert process.returncode == -9
    assert stored(home) == made
    session = agent("s2")
    assert session.entries() == made
    saved(session.add("three"))
    assert stored(home) == [*made, "three"]
    sessions = [each["session"] for each in recorded(home)]
    assert sessions == (["s2", "killed", "s1"] if len(made) == 2 else ["s2", "s1"])


@pytest.mark.files_only
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_edit_after_a_killed_write_is_told_from_it(when, home: Path, agent) -> None:
    """The text says nothing then; whether the temporary file is left does."""
    saved(agent("s1").add("one"))
    start_python(KILLED, home, when).communicate(timeout=60)
    write_notes(home, "by hand")
    saved(agent("s2").add("three"))
    assert stored(home) == ["by hand", "three"]
    changes = [(each["who"], each["before"], each["after"]) for each in recorded(home)]
    left = "one" if when == "before" else "one\n§\ntwo"
    assert changes[:2] == [
        ("tool", "by hand", "by hand\n§\nthree"),
        ("file edit", left, "by hand"),
    ]
    assert len(changes) == (3 if when == "before" else 4)
    assert list((home / "memories").glob("*.tmp")) == []


FIRST_FORMAT = """
CREATE TABLE texts (id INTEGER PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE changes (
    id INTEGER PRIMARY KEY AUTOINCREMENT, target TEXT NOT NULL, done INTEGER NOT NULL,
    inode INTEGER NOT NULL, at REAL NOT NULL, who TEXT NOT NULL, action TEXT NOT NULL,
    session TEXT NOT NULL, before INTEGER NOT NULL REFERENCES texts,
    after INTEGER NOT NULL REFERENCES texts, entries TEXT
);
CREATE TABLE allowed (hash TEXT PRIMARY KEY, at REAL NOT NULL);
CREATE TABLE blocked (
    id TEXT PRIMARY KEY, at REAL NOT NULL, target TEXT NOT NULL, text TEXT NOT NULL,
    reason TEXT NOT NULL
);
INSERT INTO texts VALUES (1, ''), (2, 'one'), (3, 'one' || char(10, 167, 10) || 'two'), (4, 'x');
INSERT INTO changes VALUES
    (1, 'memory', 1, 0, 1.0, 'tool', 'add', 's1', 1, 2, NULL),
    (2, 'memory', 1, 0, 2.0, 'tool', 'add', 's1', 2, 3, NULL),
    (3, 'memory', 0, 0, 3.0, 'tool', 'add', 's1', 3, 4, NULL);
PRAGMA application_id = 0x48504E31;
PRAGMA user_version = 1;
"""


@pytest.mark.files_only
def test_a_history_of_the_first_format_is_taken_over(home: Path, agent) -> None:
    """One with a table of texts, and a change that was begun but not made."""
    write_notes(home, "one\n§\ntwo")
    with closing(sqlite3.connect(home / "memories" / "history.db")) as database:
        database.executescript(FIRST_FORMAT)
    session = agent("s2")
    assert session.entries() == ["one", "two"]
    saved(session.add("three"))
    changes = [(each["session"], each["before"], each["after"]) for each in recorded(home)]
    assert changes == [
        ("s2", "one\n§\ntwo", "one\n§\ntwo\n§\nthree"),
        ("s1", "one", "one\n§\ntwo"),
        ("s1", "", "one"),
    ]
    session.notes.undo(2, Author("command"))
    assert stored(home) == ["one", "three"]
