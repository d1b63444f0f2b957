"""Many who write at once: everything is there once, and what was removed stays away."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from support.notes import Agent, output_of, recorded, refused, saved, start_python, stored
from support.scripts import run_script
from support.storages import Storage, scaled

from hermes_builtin.notes import Author, Notes, NotesSettings
from hermes_builtin.notes.notes_text import NotesFile

pytestmark = pytest.mark.scaled


# Waits for a line, so that all begin at once; prints what it was told.
WORKER = """
import json, sys
from pathlib import Path
from hermes_builtin.notes import Author, Notes

home, name, count, mode = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
where = json.loads(sys.argv[5])
notes = Notes.open(home, {"memory_char_limit": 10**7, **where})
tool = notes.tool(lambda *_: None, lambda _: None)

def call(**arguments):
    answer = json.loads(tool.call({"target": "memory", **arguments}, Author("tool", name)))
    if not answer["success"]:
        sys.exit(str(answer))

print("ready", flush=True)
sys.stdin.readline()
for number in range(count):
    text = f"note {number:04} of {name}."
    call(action="add", content=text)
    print(number, flush=True)
    if mode == "remove" and number % 2:
        call(action="remove", old_text=text)
    if mode == "replace" and number % 2:
        call(action="replace", old_text=text, content=text.replace("note", "kept"))
"""


def start_workers(home: Path, count: int, mode: str, processes: int) -> list:
    where = json.dumps(Storage.current.settings)
    workers = [
        start_python(WORKER, home, f"worker-{number}", count, mode, where)
        for number in range(processes)
    ]
    for worker in workers:
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        worker.stdin.write("go\n")
        worker.stdin.flush()
    return workers


def expected(count: int, mode: str, processes: int) -> set[str]:
    notes = {
        f"note {number:04} of worker-{worker}."
        for worker in range(processes)
        for number in range(count)
    }
    odd = {note for note in notes if int(note[5:9]) % 2}
    if mode == "remove":
        return notes - odd
    if mode == "replace":
        return notes - odd | {note.replace("note", "kept") for note in odd}
    return notes


@pytest.mark.stress
@pytest.mark.usefixtures("both_storages")
@pytest.mark.parametrize("mode", ["add", "remove", "replace"])
def test_what_many_processes_wrote_is_there_once(mode: str, home: Path) -> None:
    # Over PostgreSQL, a call waits for the others for 5 seconds at most.
    processes, adds = scaled(16, 3), scaled(200, 8)
    for worker in start_workers(home, adds, mode, processes):
        output_of(worker)
    found = Counter(stored(home))
    assert set(found.values()) == {1}
    assert set(found) == expected(adds, mode, processes)
    changes = recorded(home)
    per_note = 1 if mode == "add" else 1.5
    assert len(changes) == min(processes * adds * per_note, 5000)
    assert {each["who"] for each in changes} == {"tool"}
    assert changes[0]["after"].split("\n§\n") == stored(home)


@pytest.mark.usefixtures("both_storages")
def test_what_was_acknowledged_before_a_kill_is_there(home: Path) -> None:
    """Killed anywhere, again and again: no lock is left behind, no file is cut off."""
    workers = start_workers(home, 10_000, "remove", processes=3)
    told = {}
    for worker in workers:
        for _ in range(5):
            last = worker.stdout.readline()
        worker.send_signal(signal.SIGKILL)
        rest = worker.stdout.read()
        worker.communicate(timeout=60)
        told[worker] = [*rest.split(), last.strip()]
    found = Counter(stored(home))
    assert set(found.values()) <= {1}
    for number, worker in enumerate(workers):
        acknowledged = max(map(int, told[worker]))
        kept = {f"note {n:04} of worker-{number}." for n in range(0, acknowledged + 1, 2)}
        gone = {f"note {n:04} of worker-{number}." for n in range(1, acknowledged - 1, 2)}
        assert kept <= set(found)
        assert not gone & set(found)
    session = Agent(home, memory_char_limit=10**7)
    before = stored(home)
    saved(session.add("afterwards"))
    session.close()
    assert stored(home) == [*before, "afterwards"]


def test_who_looks_while_others_write_sees_whole_states_only(home: Path, agent) -> None:
    session = agent(memory_char_limit=10**7)
    (worker,) = start_workers(home, 40, "add", processes=1)
    seen = [[]]
    while len(seen[-1]) < 40 and worker.poll() is None:
        seen.append(session.entries())
    output_of(worker)
    full = [f"note {number:04} of worker-0." for number in range(40)]
    assert all(entries == full[: len(entries)] for entries in seen)
    assert [len(entries) for entries in seen] == sorted(len(entries) for entries in seen)
    assert session.entries() == full


def test_threads_that_share_the_notes_lose_nothing(home: Path) -> None:
    notes = Notes(home, NotesSettings(memory_char_limit=10**6))
    answers: list[str] = []

    def work(name: str) -> None:
        tool = notes.tool(lambda *_: None, lambda _: None)
        for number in range(10):
            arguments = {"target": "memory", "action": "add", "content": f"{name} {number}."}
            answers.append(tool.call(arguments, Author("tool", name)))

    threads = [threading.Thread(target=work, args=(f"thread-{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    notes.close()
    assert all(json.loads(answer)["success"] for answer in answers)
    assert sorted(stored(home)) == sorted(f"thread-{n} {m}." for n in range(4) for m in range(10))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_and_its_parent_both_write(home: Path) -> None:
    result = run_script(f"""
        from pathlib import Path
        from hermes_builtin.notes import Notes, Operation, Author
        notes = Notes(Path({str(home)!r}))
        def add(text):
            notes.change("memory", [Operation("add", text)], Author("tool", text))
        add("before")
        child = os.fork()
        for number in range(5):
            add(("child" if child == 0 else "parent") + str(number))
        if child == 0:
            notes.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        add("after")
        notes.close()
    """)
    assert result.returncode == 0, result.stderr
    names = [f"{who}{n}" for who in ("child", "parent") for n in range(5)]
    assert sorted(stored(home)) == sorted(["before", *names, "after"])
    assert len(recorded(home)) == 12


# -- somebody holds the lock --------------------------------------------------------------------

HOLDER = """
import sys
from pathlib import Path
from hermes_builtin.notes import Notes
with Notes(Path(sys.argv[1])).notebooks["memory"].text.locked():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_holder_that_is_killed_does_not_stop_the_next_one(home: Path, agent) -> None:
    process = start_python(HOLDER, home)
    assert process.stdout.readline() == "held\n"
    threading.Timer(0.3, process.kill).start()
    saved(agent().add("one"))  # else an error that names the holder
    process.communicate()


def test_a_lock_that_is_not_free_in_time_is_an_error_that_names_its_holder(home, agent) -> None:
    session = agent()
    saved(session.add("one"))
    notebook = session.notes.notebooks["memory"]
    notebook.text = NotesFile(Path(notebook.text.place), lock_seconds=0.2)
    process = start_python(HOLDER, home)
    try:
        assert process.stdout.readline() == "held\n"
        error = refused(session.add("two"))
        assert notebook.text.place in error
        if sys.platform.startswith("linux"):
            assert str(process.pid) in error
        assert session.entries() == ["one"]  # a look needs no lock
        assert "one" in agent("s2").prompt
        saved(session.add("about you", "user"))
    finally:
        process.kill()
        process.communicate()
    saved(session.add("two"))
    assert stored(home) == ["one", "two"]
