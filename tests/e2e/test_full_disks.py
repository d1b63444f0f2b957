"""A disk that fills up while an agent runs: nothing that is stored is lost or denied."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.archives import Talk, assert_sound, stored
from support.commands import Machine
from support.disks import Disk, small_disk
from support.providers import Recorder

from hermes_core import MemoryManager

LONG = "lorem ipsum " * 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with small_disk(tmp_path / "disk") as made:
        yield made


@pytest.fixture
def machine(tmp_path: Path, disk: Disk, few_distributions: None) -> Machine:
    made = Machine(tmp_path / "machine", in_process=True)
    made.home = disk.home
    made.environment["HERMES_HOME"] = str(disk.home)
    return made


def fill_up(disk: Disk, talk: Talk, leave: int) -> list[str]:
    """Talk until nothing fits any more; the questions that were stored."""
    for number in range(10):
        talk.say(f"okapi{number} sleeps", LONG)
    disk.fill(leave)
    for number in range(10, 300):
        talk.say(f"okapi{number} sleeps", LONG)
        if any("not stored" in each for each in talk.manager.warnings):
            break
    with closing(sqlite3.connect(f"{(disk.home / 'state.db').as_uri()}?mode=ro", uri=True)) as it:
        rows = it.execute("SELECT content FROM archive_messages ORDER BY id").fetchall()
    return [text.split()[0] for (text,) in rows if text.startswith("okapi")]


def searched(talk: Talk, word: str) -> str:
    answer = talk.ask(query=word, limit=1)
    assert answer["success"], answer
    return answer["results"][0]["snippet"] if answer["results"] else ""


@pytest.mark.parametrize("leave", [0, 60_000, 250_000])
def test_what_was_stored_is_found_and_what_was_not_is_reported(
    leave: int, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    talk = Talk(disk.home, "s1")
    kept = fill_up(disk, talk, leave)
    talk.manager.on_session_switch("s2", reset=True)
    for word in (kept[0], kept[-1]):
        assert word in searched(talk, word)
    caplog.clear()
    with caplog.at_level(logging.ERROR):
        talk.say("the zebra is not kept", LONG)
        talk.say("nor is the gnu", LONG)
    assert caplog.text.count("a turn was not stored") == 2
    (warning,) = (each for each in talk.manager.warnings if "turns were not stored" in each)
    failures = talk.manager.health()["builtin"]["sync_turn"].failures
    assert warning.startswith(f"{failures:,} turns were not stored")

    disk.make_room()
    talk.say("There is room for the gnu again.")
    assert "gnu" in searched_after_switch(talk, "gnu")
    talk.close()
    found = stored(disk.home / "state.db")
    assert [text.split()[0] for text in found["s1"][::2]] == kept
    assert found["s2"] == ["There is room for the gnu again.", "Noted."]
    assert_sound(disk.home / "state.db")


def searched_after_switch(talk: Talk, word: str) -> str:
    talk.manager.on_session_switch("s3", reset=True)
    return searched(talk, word)


def test_a_note_that_does_not_fit_changes_nothing_and_is_reported(disk: Disk) -> None:
    talk = Talk(disk.home, "s1")
    assert talk.note("The first note.")
    before = (disk.home / "memories" / "MEMORY.md").read_bytes()
    disk.fill()
    arguments = {"target": "memory", "action": "add", "content": "It does not fit. " * 50}
    answer = json.loads(talk.manager.handle_tool_call("memory", arguments))
    assert answer["success"] is False
    assert "\n" not in answer["error"]
    assert "move the file away" not in answer["error"]
    assert any("note was not stored" in each for each in talk.manager.warnings)
    assert talk.manager.health()["builtin"]["handle_tool_call"].failures == 1
    assert (disk.home / "memories" / "MEMORY.md").read_bytes() == before
    disk.make_room()
    assert talk.note("The second note.")
    talk.close()
    notes = (disk.home / "memories" / "MEMORY.md").read_text("utf-8")
    assert notes.split("\n§\n") == ["The first note.", "The second note."]
    assert [each.name for each in (disk.home / "memories").glob(".*")] == []


def test_each_write_that_the_outbox_could_not_store_is_counted(disk: Disk) -> None:
    recorder = Recorder()
    manager = MemoryManager.from_config(disk.home)
    manager.add_provider(recorder)
    manager.initialize_all("s1")
    manager.sync_all("first", LONG)
    assert manager.flush_pending(30)
    disk.fill()
    for number in range(40):
        manager.sync_all(f"turn {number}", LONG * 10)
    name = recorder.name
    failures = manager.health()[name]["sync_turn"].failures
    assert failures > 0
    texts = [each for each in manager.warnings if each.startswith(f"provider {name}: ")]
    assert any(f"{failures:,} writes were not stored" in each for each in texts), texts
    disk.make_room()
    manager.sync_all("last", "There is room.")
    assert manager.flush_pending(30)
    manager.shutdown_all()
    delivered = [call.args[0] for call in recorder.of("sync_turn")]
    assert (delivered[0], delivered[-1]) == ("first", "last")


COMMANDS: list[tuple[str, ...]] = [
    ("config", "set", "memory.memory_char_limit", "3000"),
    ("memory", "add", "A note that does not fit. " * 20),
    ("secrets", "set", "NUT_API_KEY"),
]


def test_commands_on_a_full_disk_change_no_file_and_say_so_in_one_line(
    disk: Disk, machine: Machine
) -> None:
    talk = Talk(disk.home, "s1")
    talk.say("The okapi sleeps in the barn.")
    assert talk.note("The first note.")
    talk.close()
    machine.write_config("# mine\nmemory:\n  memory_char_limit: 2000\n")
    (disk.home / ".env").write_text("OTHER=1\n")
    disk.fill()
    texts = {path: path.read_bytes() for path in disk.home.rglob("*") if path.suffix == ".md"}
    texts |= {each: each.read_bytes() for each in (machine.config_file, disk.home / ".env")}
    for command in COMMANDS:
        options: dict[str, Any] = {"input": "a-secret-value\n"} if "secrets" in command else {}
        machine.run(*command, **options).failed()
    for path, content in texts.items():
        assert path.read_bytes() == content
    # Reading goes on, though SQLite can't even create its shared memory.
    assert "okapi" in machine.run("sessions", "search", "okapi").done().out
    assert "first note" in machine.run("memory", "show").done().out
    status = machine.run("status")
    assert status.code == 1
    assert "is full" in status.out
    doctor = machine.run("doctor")
    assert doctor.code == 1
    assert "report it" not in doctor.out
    assert "nothing can be stored" in doctor.out
    assert "sessions repair" not in doctor.out
