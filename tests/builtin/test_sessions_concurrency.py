"""Many who write and read at once: nothing is lost, nobody waits in vain, turns are whole."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.archives import Talk, assert_sound, fill, open_archive, search, stored
from support.notes import output_of, start_python
from support.storages import Storage

from hermes_builtin.sessions.archive import NewMessage, Scope, SearchAnswer, SessionFacts
from hermes_builtin.sessions.sqlite import SqliteArchive, maintenance

pytestmark = [pytest.mark.scaled, pytest.mark.usefixtures("both_storages")]

STRESS = bool(os.environ.get("HERMES_STRESS"))
MANY, SECONDS = (8, 15.0) if STRESS else (2, 0.4)

PRELUDE = f"""
import json, sys, time
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from itertools import count
from pathlib import Path
from support.archives import Talk
home, name, seconds = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
talk = Talk(home, name)
provider = talk.manager.providers[0]
print("ready", flush=True)
sys.stdin.readline()
end = time.monotonic() + seconds
"""

# A turn is a question, a tool's word and an answer, with the same number in each.
WRITER = """
for number in count():
    if time.monotonic() > end:
        break
    messages = [{"role": "user", "content": "?"}, {"role": "tool", "content": f"seen {number}"}]
    provider.sync_turn(f"asked {number} by {name}", f"told {number}", messages=messages)
talk.close()
print(number)
"""

# The tool gives a typed error where something is wrong, and the program ends with it.
READER = """
asked = 0
while time.monotonic() < end:
    for arguments in ({"query": "asked"}, {"limit": 10}, {"query": "told", "sort": "newest"}):
        answer = talk.ask(**arguments)
        if not answer.get("success"):
            sys.exit(str(answer))
        asked += 1
        for result in answer["results"]:
            if answer["mode"] == "browse" and result["message_count"] % 3:
                sys.exit(f"half a turn: {result}")
            read = talk.ask(session_id=result["session_id"])
            if not read.get("success") or read["message_count"] % 3:
                sys.exit(f"half a turn: {read}")
            words = [each["content"].split()[:2] for each in read["messages"]]
            numbers = [number for _, number in words]
            if not read.get("truncated") and numbers != [str(n // 3) for n in range(len(words))]:
                sys.exit(f"not in order: {words}")
talk.close()
print(asked)
"""


@pytest.mark.stress
def test_writers_and_readers_in_processes_lose_nothing_and_see_whole_turns(home: Path) -> None:
    # Over PostgreSQL, tests/live has those that write for long.
    many, seconds = (MANY, SECONDS) if not Storage.current.url else (3, 3.0)
    writers = [
        start_python(PRELUDE + WRITER, home, f"writer-{number}", seconds) for number in range(many)
    ]
    readers = [
        start_python(PRELUDE + READER, home, f"reader-{number}", seconds) for number in range(many)
    ]
    for process in (*writers, *readers):
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in (*writers, *readers):
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    written = [int(output_of(process, seconds + 120)) for process in writers]
    asked = [int(output_of(process, seconds + 120)) for process in readers]
    assert min(written) > 0
    assert min(asked) > 0
    found = stored(home / "state.db")
    for number, count in enumerate(written):
        expected = [
            text
            for n in range(count)
            for text in (f"asked {n} by writer-{number}", f"seen {n}", f"told {n}")
        ]
        assert found[f"writer-{number}"] == expected
    assert_sound(home / "state.db")
    with closing(open_archive(home)) as archive:
        assert set(search(archive, "asked")) == {f"writer-{number}" for number in range(many)}


@pytest.mark.stress
@pytest.mark.files_only
def test_processes_that_begin_at_once_on_a_new_home_all_succeed(home: Path) -> None:
    many = 4 if STRESS else 3
    for attempt in range(12 if STRESS else 1):
        folder = home / str(attempt)
        folder.mkdir()
        workers = [start_python(PRELUDE + WRITER, folder, f"writer-{n}", 0.05) for n in range(many)]
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
        counts = [int(output_of(worker)) for worker in workers]
        found = stored(folder / "state.db")
        assert [len(found[f"writer-{n}"]) for n in range(many)] == [3 * count for count in counts]
        assert list(folder.glob(".*")) == []


def test_threads_that_share_an_archive_lose_nothing(home: Path) -> None:
    problems: list[BaseException] = []
    asked: Counter[str] = Counter()
    end = time.monotonic() + 60
    with closing(open_archive(home)) as archive:

        def write(name: str) -> None:
            for number in range(40):
                messages = [NewMessage("user", f"okapi {number} {name}", 1.0 + number)] * 2
                archive.append(SessionFacts(name, started=1.0), messages)

        def read(name: str) -> None:
            while archive.stats().messages < 320 and time.monotonic() < end:
                found = search(archive, "okapi")
                for session in archive.browse(Scope(), 10):
                    assert len(archive.first(session, 1000)) % 2 == 0
                    assert session.messages % 2 == 0
                asked[name] += bool(found)

        def guarded(work, name: str) -> None:
            try:
                work(name)
            except BaseException as problem:
                problems.append(problem)

        threads = [
            threading.Thread(target=guarded, args=(work, f"{work.__name__}-{number}"))
            for number in range(4)
            for work in (write, read)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert problems == []
        assert len(search(archive, "okapi")) == 4
    assert sum(asked.values()) > 0
    found = stored(home / "state.db")
    assert {name: len(texts) for name, texts in found.items()} == {
        f"write-{number}": 80 for number in range(4)
    }
    assert_sound(home / "state.db")


# Over PostgreSQL, the tool reads through a `Reader`, which this does not come between.
@pytest.mark.files_only
def test_a_conversation_that_is_forgotten_during_a_search_is_no_error(home: Path) -> None:
    """What was found may be gone a moment later, when it is to be shown."""
    talk = Talk(home, "s1")
    talk.say("The okapi sleeps.", session_id="s0")
    archive = talk.manager.providers[0]._conversations.archive
    real = archive.search

    def meanwhile(*arguments: Any) -> SearchAnswer:
        found = real(*arguments)
        with closing(open_archive(home)) as other:
            other.delete([hit.session for hit in found.hits])
        return found

    archive.search = meanwhile
    try:
        answer = talk.ask(query="okapi")
    finally:
        talk.close()
    assert answer.get("success"), answer
    assert answer["count"] == 0


@pytest.mark.files_only
def test_what_is_forgotten_leaves_the_log_without_waiting_for_who_reads(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint that waits for a reader has all writers wait."""
    monkeypatch.setattr(maintenance, "_PAUSE", 0.0)
    monkeypatch.setattr(maintenance, "_CHECKPOINTS", 2)
    path = home / "state.db"
    fill(path, 5)
    statements: list[str] = []
    with (
        closing(SqliteArchive(path)) as archive,
        closing(sqlite3.connect(path, isolation_level=None)) as reader,
    ):
        with archive._file.writing() as database:
            database.set_trace_callback(statements.append)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM archive_messages").fetchone()
        archive.delete([archive.session("talk-1", Scope())])
        reader.execute("ROLLBACK")
    wait, waits = "", []
    for each in statements:
        if "busy_timeout =" in each:
            wait = each
        elif "wal_checkpoint" in each:
            waits.append(wait)
    assert set(waits) == {"PRAGMA busy_timeout = 0"}


HOLDER = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.readline()
database.execute("ROLLBACK")
"""


@pytest.mark.files_only
def test_a_turn_waits_for_another_writer_and_a_search_does_not(home: Path) -> None:
    talk = Talk(home, "s1")
    talk.say("The okapi sleeps.", session_id="s0")
    assert talk.found("okapi") == ["s0"]
    holder = start_python(HOLDER, home / "state.db")
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    assert talk.found("okapi") == ["s0"]
    assert len(talk.read("s0")) == 2
    assert holder.poll() is None  # and has the lock all the time
    released = threading.Event()

    def release() -> None:
        released.set()
        holder.stdin.write("\n")
        holder.stdin.flush()

    threading.Timer(0.3, release).start()
    talk.say("The tapir sleeps too.")
    assert released.is_set()
    output_of(holder)
    talk.close()
    assert stored(home / "state.db")["s1"] == ["The tapir sleeps too.", "Noted."]
