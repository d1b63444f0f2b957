"""The archive's file: whose it is, who may see it, and what is left in it of what was forgotten."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.archives import (
    SUFFIXES,
    Talk,
    assert_sound,
    bytes_of,
    fill,
    rare_word,
    search,
    stored,
)
from support.scripts import run_script

from hermes_builtin.sessions.archive import NewMessage, Scope, SessionFacts
from hermes_builtin.sessions.sqlite import SqliteArchive
from hermes_builtin.sessions.sqlite.database import ARCHIVE
from hermes_builtin.sessions.sqlite.index import BATCH
from hermes_builtin.sessions.sqlite.tables import insert
from hermes_core.errors import DatabaseError, ForeignDatabase
from hermes_core.storage.sqlite_connection import open_database

pytestmark = pytest.mark.files_only("about the file of the archive")

StartTalk = Callable[..., Talk]


@pytest.fixture
def talk(home: Path) -> Iterator[StartTalk]:
    """Starts sessions on the home."""
    started: list[Talk] = []

    def start(*arguments: Any, **facts: Any) -> Talk:
        started.append(Talk(home, *arguments, **facts))
        return started[-1]

    yield start
    for each in started:
        each.close()


# -- the file -------------------------------------------------------------------------------


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX")
def test_files_are_for_their_owner_alone(home: Path, talk: StartTalk) -> None:
    before = os.umask(0)
    try:
        talk("s1").say("The okapi sleeps.")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in home.glob("state.db*")}
    assert modes == {f"state.db{suffix}": 0o600 for suffix in SUFFIXES}


def test_the_file_says_whose_it_is(home: Path, talk: StartTalk) -> None:
    talk("s1").say("The okapi sleeps.")
    with closing(sqlite3.connect(home / "state.db")) as database:
        assert database.execute("PRAGMA application_id").fetchone()[0] == ARCHIVE.application_id
        assert database.execute("PRAGMA user_version").fetchone()[0] == ARCHIVE.version
        assert database.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        names = database.execute("SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite%'")
        others = {name for (name,) in names if not name.startswith("archive_")}
        assert others == {"sessions", "messages"}


@pytest.mark.parametrize(
    "change",
    [
        f"PRAGMA user_version = {ARCHIVE.version + 1}",
        "PRAGMA application_id = 77",
        "PRAGMA application_id = 0",
    ],
)
def test_a_newer_or_another_programs_database_is_refused_untouched(change, home, talk) -> None:
    path = home / "state.db"
    fill(path, 2)
    with closing(sqlite3.connect(path)) as database:
        database.execute(change)
    before = (path.read_bytes(), path.stat().st_mtime_ns)
    with closing(SqliteArchive(path)) as archive, pytest.raises(ForeignDatabase):
        archive.append(SessionFacts("s1"), [NewMessage("user", "hello", 1.0)])
    session = talk("s1")
    session.say("The okapi sleeps.")
    answer = session.ask(query="okapi")
    assert not answer["success"]
    assert "not changed" in answer["error"]
    assert session.note("Notes work.")
    session.close()
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert [each.name for each in home.glob("s*.db*")] == ["state.db"]


def test_an_archive_of_an_older_version_is_brought_forward_with_all_that_it_has(home) -> None:
    path = home / "state.db"
    fill(path, 3)
    before = stored(path)
    newer = replace(
        ARCHIVE,
        migrations=(*ARCHIVE.migrations, "ALTER TABLE archive_sessions ADD COLUMN mood TEXT;\n"),
    )
    with closing(open_database(path, newer)) as database:
        assert database.execute("PRAGMA user_version").fetchone()[0] == newer.version
        assert database.execute("SELECT count(mood) FROM archive_sessions").fetchone() == (0,)
    assert stored(path) == before


def test_what_the_first_version_had_not_indexed_yet_is_found_after_the_step_forward(home) -> None:
    path = home / "state.db"
    first = replace(ARCHIVE, migrations=ARCHIVE.migrations[:1], additions={})
    words = [rare_word(session, turn) for session in (1, 2) for turn in range(3)]
    with closing(open_database(path, first)) as database:
        for session in (1, 2):
            facts = (session, f"s{session}", *[""] * 6, 1.0, None, 1.0, 3, 3, 0)
            database.execute(f"INSERT INTO archive_sessions VALUES ({', '.join('?' * 14)})", facts)
            said = [NewMessage("user", rare_word(session, turn), 1.0) for turn in range(3)]
            insert(database, session, 0, said)
        database.execute("INSERT INTO archive_pending SELECT id FROM archive_messages")
    with closing(SqliteArchive(path)) as archive:
        assert [word for word in words if not search(archive, word)] == []


def test_each_message_enters_the_index_wherever_a_batch_ends(home: Path) -> None:
    path = home / "state.db"
    sizes = (BATCH - 1, 1, 1, BATCH, BATCH + 1, 2)
    with closing(SqliteArchive(path)) as archive:
        for number, size in enumerate(sizes):
            said = [NewMessage("user", f"q7 {rare_word(number, at)}", 1.0) for at in range(size)]
            archive.append(SessionFacts(f"talk-{number}"), said)
        archive.index_pending()
        lost = [n for n, size in enumerate(sizes) if not search(archive, rare_word(n, size - 1))]
    assert lost == []
    with closing(sqlite3.connect(path)) as database:
        query = "SELECT count(*) FROM archive_index WHERE archive_index MATCH 'q7'"
        assert database.execute(query).fetchone()[0] == sum(sizes)
        assert database.execute("SELECT count(*) FROM archive_unindexed").fetchone() == (0,)


def test_a_step_forward_that_fails_changes_nothing(home: Path) -> None:
    path = home / "state.db"
    fill(path, 3)
    before = stored(path)
    broken = ("DROP TABLE archive_messages;\n", "ALTER TABLE nothing ADD COLUMN x;\n")
    with pytest.raises(DatabaseError):
        open_database(path, replace(ARCHIVE, migrations=(*ARCHIVE.migrations, *broken)))
    assert stored(path) == before
    assert_sound(path)


def test_many_who_use_a_home_share_its_archive_and_the_last_one_closes_it(home, talk) -> None:
    talks = [talk(f"s{number}") for number in range(20)]
    for number, each in enumerate(talks):
        each.say(f"okapi {number}")
    handles = len([name for name in _open_files() if name.startswith(str(home / "state.db"))])
    assert handles <= 8
    for each in talks[:-1]:
        each.close()
    talks[-1].say("still here")
    assert len(talks[-1].found("okapi")) == 10
    talks[-1].close()
    assert [path.name for path in home.glob("state.db*")] == ["state.db"]
    assert len(stored(home / "state.db")) == 20


def _open_files() -> list[str]:
    found = []
    with suppress(FileNotFoundError):  # a system without it
        for each in list(Path("/proc/self/fd").iterdir()):
            with suppress(FileNotFoundError):
                found.append(str(each.readlink()))
    return found


# -- forgetting -----------------------------------------------------------------------------

SECRET = "My passphrase is correcthorsebattery, I live in Ouagadougou."

LOOK = """
import sys
sys.exit(any(b"passphrase is" in open(name, "rb").read() for name in sys.argv[1:]))
"""


def forgettable(home: Path) -> None:
    """One old session of bob with a secret, among those of ann."""
    fill(home / "state.db", 4)
    with closing(SqliteArchive(home / "state.db")) as archive:
        facts = SessionFacts(
            "bobs", user_id="bob", profile="default", title="Passphrase", started=1e9
        )
        extra = {"tool_calls": [{"function": {"name": "vault", "arguments": SECRET}}]}
        for number in range(300):
            archive.append(facts, [NewMessage("user", f"{SECRET} {number}", 1e9, extra)])


FORGETTING = [("delete", "bobs"), ("forget", "--user", "bob"), ("prune", "--older-than", "10y")]


@pytest.mark.parametrize("command", FORGETTING, ids=lambda command: command[0])
def test_what_is_forgotten_is_not_in_the_file_and_the_rest_is_found(command, machine) -> None:
    forgettable(machine.home)
    assert SECRET.encode() in bytes_of(machine.home)
    done = machine.json("sessions", *command, "--yes")
    assert (done["sessions"], done["messages"]) == (1, 300)
    assert SECRET.encode() not in bytes_of(machine.home)
    assert b"passphrase is" not in bytes_of(machine.home)
    assert b"Passphrase" not in bytes_of(machine.home)
    assert_sound(machine.home / "state.db")
    with closing(SqliteArchive(machine.home / "state.db")) as archive:
        assert archive.session("bobs", Scope()) is None
        assert archive.stats().sessions == 4
    found = machine.json("sessions", "search", rare_word(2, 1))["results"]
    assert [each["id"] for each in found] == ["talk-2"]


def test_what_is_forgotten_is_gone_while_an_agent_has_the_archive_open(machine) -> None:
    forgettable(machine.home)
    agent = Talk(machine.home, "s1", user_id="bob")
    try:
        assert agent.found("Ouagadougou") == ["bobs"]
        machine.json("sessions", "delete", "bobs", "--yes")
        # Read by another process: to open these files here would cancel the agent's locks.
        files = map(str, machine.home.glob("state.db*"))
        result = subprocess.run([sys.executable, "-c", LOOK, *files], check=False)
        assert result.returncode == 0
        assert agent.found("Ouagadougou") == []
        assert not agent.ask(session_id="bobs")["success"]
        agent.say("I am still here.")
    finally:
        agent.close()
    assert_sound(machine.home / "state.db")
    with closing(SqliteArchive(machine.home / "state.db")) as archive:
        assert archive.session("s1", Scope()) is not None


@pytest.mark.parametrize("command", FORGETTING, ids=lambda command: command[0])
def test_not_even_its_words_are_left_in_the_file(command, machine) -> None:
    forgettable(machine.home)
    machine.json("sessions", *command, "--yes")
    content = bytes_of(machine.home).lower()
    assert b"correcthorse" not in content
    assert b"ouagadougou" not in content


# -- fork -----------------------------------------------------------------------------------

FORK = """
from pathlib import Path
from hermes_builtin.sessions.archive import NewMessage, SessionFacts
from hermes_builtin.sessions.sqlite import SqliteArchive
archive = SqliteArchive(Path({path!r}))
def add(name, *numbers):
    for number in numbers:
        archive.append(SessionFacts(name), [NewMessage("user", f"okapi {{number}}", 1.0)])
add("parent", 0)
to_child, to_parent = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    add("child", *range(20))
    os.write(to_parent[1], b"x")
    os.read(to_child[0], 1)
    add("child", *range(20, 40))
    {end}
add("parent", *range(1, 20))
os.read(to_parent[0], 1)
{meanwhile}
os.write(to_child[1], b"x")
assert os.waitpid(child, 0)[1] == 0
add("parent", *range(20, 40))
archive.close()
"""
NUMBERS = [f"okapi {number}" for number in range(40)]


def forked(home: Path, **parts: str) -> None:
    path = home / "state.db"
    parts = {"end": "os._exit(0)", "meanwhile": "", **parts}
    result = run_script(FORK.format(path=str(path), **parts))
    assert result.returncode == 0, result.stderr
    assert stored(path) == {"parent": NUMBERS, "child": NUMBERS}
    assert_sound(path)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("end", ["os._exit(0)", "sys.exit(0)", "archive.close(); os._exit(0)"])
def test_a_forked_child_and_its_parent_both_write(end: str, home: Path) -> None:
    forked(home, end=end)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_loses_nothing_when_its_parent_closes_the_archive(home: Path) -> None:
    forked(home, meanwhile="archive.close()")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_can_open_an_archive_although_another_thread_did_at_the_fork(home: Path) -> None:
    result = run_script(f"""
import signal
from pathlib import Path
from hermes_builtin.sessions.sqlite import SharedArchives, archive as module
shared, inside, go_on = SharedArchives(), threading.Event(), threading.Event()
first = shared.open(Path({str(home / "first.db")!r}))
made = module.SqliteArchive
def slow(*args, **kwargs):
    inside.set()
    go_on.wait(1)  # the fork waits for this thread, which must go on by itself
    return made(*args, **kwargs)
module.SqliteArchive = slow
thread = threading.Thread(target=shared.open, args=(Path({str(home / "second.db")!r}),))
thread.start()
inside.wait(60)
child = os.fork()
module.SqliteArchive = made
if child == 0:
    signal.alarm(20)
    shared.close(first)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
thread.join()
""")
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(("durability", "level"), [("normal", 1), ("full", 2)])
def test_durability_decides_whether_a_turn_is_synced_to_the_disk(home, durability, level):
    (home / "config.yaml").write_text(f"memory: {{durability: {durability}}}\n", "utf-8")
    talk = Talk(home)
    talk.say("hello")
    archive = talk.manager.get_provider("builtin")._conversations.archive
    with archive._file.writing() as database:
        assert database.execute("PRAGMA synchronous").fetchone() == (level,)
    talk.manager.shutdown_all()
