"""Nobody but SQLite opens the archive's files: a raw open and close would cancel its locks.

POSIX locks belong to the process and the file: to close any handle of that file gives all of
them up, and SQLite would go on as if it had them.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from support.archives import SUFFIXES, Talk, fill, rare_word, search
from support.commands import Machine
from support.scripts import run_script

from hermes_builtin.sessions.archive import EVERYBODY, NewMessage, Scope, SessionFacts
from hermes_builtin.sessions.hermes_agent import archive_files
from hermes_builtin.sessions.importers import import_file
from hermes_builtin.sessions.sqlite import SqliteArchive
from hermes_core.errors import HermesError

LOCKS = Path("/proc/locks")

pytestmark = [
    pytest.mark.skipif(not LOCKS.exists(), reason="/proc/locks is Linux"),
    pytest.mark.files_only("about locks on the file"),
]

FACTS = SessionFacts("new", started=1.0)
MESSAGES = [NewMessage("user", "okapi", 1.0)]


def locks(path: Path) -> set[tuple[str, ...]]:
    """The locks that this process holds on the archive's files: kind, inode, range."""
    files = [path.with_name(path.name + suffix) for suffix in SUFFIXES]
    inodes = {str(each.stat().st_ino) for each in files if each.exists()}
    found = set()
    for line in LOCKS.read_text().splitlines():
        fields = line.split()
        if "->" in fields:
            continue
        _, _, _, kind, pid, inode, first, last = fields
        if pid == str(os.getpid()) and inode.split(":")[-1] in inodes:
            found.add((kind, inode.split(":")[-1], first, last))
    return found


@contextmanager
def held(path: Path, *, reading: bool = True) -> Iterator[set[tuple[str, ...]]]:
    """A connection of this process, in the middle of reading or idle, and what it has locked."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        if reading:
            database.execute("BEGIN")
        database.execute("SELECT count(*) FROM archive_messages").fetchone()
        found = locks(path)
        assert len(found) >= (3 if reading else 2), found
        yield found


def test_a_raw_open_is_noticed(home: Path) -> None:
    """What the other tests rely on."""
    fill(home / "state.db", 1)
    with held(home / "state.db") as before:
        (home / "state.db").open("rb").close()
        assert not before <= locks(home / "state.db")


def first_session(archive: SqliteArchive) -> Any:
    return archive.session("talk-0", Scope())


CALLS: dict[str, Callable[[SqliteArchive], Any]] = {
    "append": lambda archive: archive.append(FACTS, MESSAGES),
    "append, much": lambda archive: [archive.append(FACTS, MESSAGES * 20) for _ in range(20)],
    "end": lambda archive: archive.end("talk-0", 5.0, EVERYBODY),
    "session": first_session,
    "lineage": lambda archive: archive.lineage(first_session(archive)),
    "browse": lambda archive: archive.browse(Scope(), 5),
    "search": lambda archive: search(archive, rare_word(1)),
    "around": lambda archive: archive.around(first_session(archive), 1 << 22, 3, ()),
    "first": lambda archive: archive.first(first_session(archive), 3),
    "last": lambda archive: archive.last(first_session(archive), 3),
    "messages": lambda archive: list(archive.messages(first_session(archive))),
    "sessions": lambda archive: list(archive.sessions(Scope())),
    "imported": lambda archive: archive.imported("x", "y"),
    "take_over": lambda archive: archive.take_over("x", 1, FACTS, MESSAGES),
    "once": lambda archive: archive.once("something"),
    "stats": lambda archive: archive.stats(),
    "check": lambda archive: archive.check(),
    "repair": lambda archive: archive.repair(),
    "close": lambda archive: archive.close(),
    "delete": lambda archive: archive.delete([first_session(archive)]),
    "place": lambda archive: archive_files(archive.path.parent),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_leaves_the_locks_of_other_connections_alone(name: str, home: Path) -> None:
    path = home / "state.db"
    fill(path, 3)
    reading = name != "delete"  # which would wait for a reader, to leave no trace
    with closing(SqliteArchive(path)) as archive, held(path, reading=reading) as before:
        CALLS[name](archive)
        assert before <= locks(path)


def test_an_import_leaves_the_locks_on_its_source_alone(home: Path, tmp_path: Path) -> None:
    source = tmp_path / "state.db"
    fill(source, 3)
    with closing(sqlite3.connect(source)) as database:  # so that it is taken for hermes-agent's
        database.execute("DROP VIEW sessions")
        database.execute("DROP VIEW messages")
        database.execute("CREATE TABLE schema_version (version)")
        database.execute("CREATE TABLE sessions (id, started_at)")
        database.execute("CREATE TABLE messages (session_id)")
    with closing(SqliteArchive(home / "state.db")) as archive, held(source) as before:
        with suppress(HermesError):
            import_file(archive, source)
        assert before <= locks(source)


def test_an_import_of_another_programs_database_is_an_error_in_one_line(machine: Machine) -> None:
    fill(machine.user / "other.db", 1)
    result = machine.run("sessions", "import", str(machine.user / "other.db"))
    assert "other.db" in result.failed()


def test_nothing_that_an_agent_does_touches_the_locks(home: Path) -> None:
    path = home / "state.db"
    fill(path, 3)
    with held(path) as before:
        talk = Talk(home, "s1", user_id="ann", chat_id="home")
        steps: list[Callable[[], Any]] = [
            lambda: talk.say("The okapi sleeps."),
            lambda: talk.ask(query=rare_word(1)),
            lambda: talk.ask(query="nowhere to be found"),
            lambda: talk.ask(session_id="talk-1"),
            lambda: talk.ask(session_id="talk-1", around_message_id=2 << 22),
            talk.ask,
            lambda: talk.note("Notes work."),
            lambda: talk.manager.on_session_switch("s2", parent_session_id="s1"),
            lambda: talk.say("It still does."),
            lambda: talk.manager.on_session_end([{"role": "user", "content": "x"}]),
            talk.close,
            lambda: Talk(home, "s3").close(),
        ]
        for number, step in enumerate(steps):
            step()
            assert before <= locks(path), f"step {number}"


def test_a_repair_refuses_while_another_connection_is_in_use(home: Path) -> None:
    path = home / "state.db"
    fill(path, 30, 4, words=3)
    with closing(sqlite3.connect(path)) as database:
        database.execute(
            "DELETE FROM archive_messages WHERE id = (SELECT max(id) FROM archive_messages)"
        )
        database.commit()
    inode = path.stat().st_ino
    with closing(SqliteArchive(path)) as archive, held(path) as before:
        with pytest.raises(HermesError, match="in use"):
            archive.repair()
        assert before <= locks(path)
        assert path.stat().st_ino == inode


# -- opened by Python -----------------------------------------------------------------------

WATCH = """
opened = []
def watch(event, arguments):
    if event == "open" and isinstance(arguments[0], (str, bytes)):
        name = os.path.basename(os.fsdecode(arguments[0]))
        if name in {names!r}:
            opened.append((name, arguments[2]))
    if event in ("os.chmod", "os.truncate", "shutil.copyfile", "os.link") and isinstance(
        arguments[0], (str, os.PathLike)
    ):
        if os.path.basename(os.fspath(arguments[0])) in {names!r}:
            opened.append((event, os.fspath(arguments[0])))
sys.addaudithook(watch)
"""
NAMES = tuple(f"{name}.db{suffix}" for name in ("state", "sessions") for suffix in SUFFIXES)

COMMANDS = [
    ("list",), ("search", "okapi"), ("show", "talk-0"), ("export",), ("stats",), ("check",),
    ("repair",), ("delete", "talk-1", "--yes"), ("forget", "--user", "ann", "--yes"),
    ("prune", "--older-than", "1d", "--yes"), ("import", "STATE"),
]  # fmt: skip


def watched(source: str) -> None:
    """Run a program in which nobody but SQLite may open the files."""
    result = run_script(WATCH.format(names=NAMES) + source + "\nassert opened == [], opened\n")
    assert result.returncode == 0, result.stderr


def test_no_command_opens_the_files_by_itself(machine: Machine) -> None:
    path = machine.home / "state.db"
    fill(path, 3)
    commands = [[str(path) if part == "STATE" else part for part in each] for each in COMMANDS]
    watched(
        f"""
os.environ["HERMES_HOME"] = {str(machine.home)!r}
from hermes_core.cli import main
for command in {commands!r}:
    sys.argv = ["hermes-plugins", "sessions", *command]
    try:
        main()
    except SystemExit:
        pass
    assert opened == [], (command, opened)
"""
    )


def test_no_hook_of_the_agent_opens_the_files_by_itself(home: Path) -> None:
    source = f"""
from pathlib import Path
from support.archives import Talk
for session in ("s1", "s2"):
    talk = Talk(Path({str(home)!r}), session)
    for number in range(30):
        talk.say(f"okapi {{number}}")
    talk.ask(query="okapi"), talk.ask(session_id="s1"), talk.ask(), talk.ask(query="nothing")
    talk.manager.on_session_end([{{"role": "user", "content": "x"}}])
    talk.close()
"""
    watched(source)


def test_an_import_of_a_damaged_database_does_not_open_it(tmp_path: Path) -> None:
    """It may be in use in this process, and SQLite said that it is a database."""
    path = tmp_path / "state.db"
    fill(path, 2)
    path.write_bytes(path.read_bytes()[:5000])
    watched(
        f"""
from pathlib import Path
from hermes_core.errors import HermesError
from hermes_builtin.sessions.importers import import_file
from hermes_builtin.sessions.sqlite import SqliteArchive
archive = SqliteArchive(Path({str(tmp_path / "ours.db")!r}))
try:
    import_file(archive, Path({str(path)!r}))
except HermesError:
    pass
archive.close()
"""
    )


def test_the_watch_sees_an_open(tmp_path: Path) -> None:
    (tmp_path / "state.db").touch()
    with pytest.raises(AssertionError, match="state"):
        watched(f"open({str(tmp_path / 'state.db')!r}, 'rb').close()")
