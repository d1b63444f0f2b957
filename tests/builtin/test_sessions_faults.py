"""The archive when things go wrong around it: killed, out of space, something else in its place."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from support.archives import Talk, assert_sound, fill, rare_word, stored
from support.commands import Machine
from support.notes import start_python

from hermes_builtin.sessions.archive import NewMessage, Scope, SessionFacts
from hermes_builtin.sessions.spool import Spool
from hermes_builtin.sessions.sqlite import SqliteArchive

STRESS = bool(os.environ.get("HERMES_STRESS"))
KILLS = 60 if STRESS else 2
#: Seconds that nothing may take, whatever lies there.
PATIENCE = 20.0

pytestmark = [
    pytest.mark.scaled,
    pytest.mark.skipif(os.name != "posix", reason="signals, links and modes are POSIX"),
    pytest.mark.files_only(
        "about the file and its disk; tests/live/postgres has the faults of a server"
    ),
]

# -- killed ---------------------------------------------------------------------------------

APPENDS = """
import sys
from itertools import count
from support.archives import Talk
from pathlib import Path
talk = Talk(Path(sys.argv[1]), sys.argv[2])
provider = talk.manager.providers[0]
for number in count():
    messages = [
        {"role": "user", "content": "?"},
        {"role": "tool", "name": "look", "content": f"seen {number} " + "lorem ipsum " * 300},
    ]
    provider.sync_turn(f"question {number}", f"answer {number}", messages=messages)
    print(number, flush=True)
"""


def start(source: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a program that may import tests/support."""
    folder = str(Path(__file__).parents[1])
    return start_python(f"import sys; sys.path.insert(0, {folder!r})\n{source}", *arguments)


def test_what_was_acknowledged_before_a_kill_is_there(home: Path) -> None:
    told: dict[str, int] = {}
    for number in range(KILLS):
        name = f"killed-{number}"
        worker = start(APPENDS, home, name)
        assert worker.stdout is not None
        for _ in range(1 + number % 7):  # each time after another turn, in the middle of the next
            last = worker.stdout.readline()
        worker.send_signal(signal.SIGKILL)
        rest, errors = worker.communicate(timeout=60)
        lines = [line for line in (last + rest).split("\n")[:-1] if line]
        assert lines, errors
        told[name] = int(lines[-1])
    found = stored(home / "state.db")
    for name, last_number in told.items():
        questions = found[name][::3]
        assert len(questions) > last_number
        assert questions == [f"question {number}" for number in range(len(questions))]
        assert found[name][2::3] == [f"answer {number}" for number in range(len(questions))]
    assert_sound(home / "state.db")


DELETES = """
import os, sys
from pathlib import Path
from hermes_builtin.sessions.archive import Scope
from hermes_builtin.sessions.sqlite import SqliteArchive, maintenance
archive, real, calls = SqliteArchive(Path(sys.argv[1])), maintenance._unindex, []
def dying(*arguments):
    calls.append(1)
    if len(calls) == 2:
        os.kill(os.getpid(), 9)
    return real(*arguments)
maintenance._unindex = dying
archive.delete([archive.session("long", Scope())])
"""


def test_a_kill_in_the_middle_of_forgetting_leaves_a_sound_archive(home: Path) -> None:
    path = home / "state.db"
    messages = [NewMessage("user", f"okapi {number}", 1.0) for number in range(500)]
    with closing(SqliteArchive(path)) as archive:
        archive.append(SessionFacts("long", started=1.0), messages)
    worker = start(DELETES, path)
    worker.communicate(timeout=60)
    assert worker.returncode == -signal.SIGKILL
    assert 0 < len(stored(path)["long"]) < 500
    assert_sound(path)


# -- out of space ---------------------------------------------------------------------------

FULL = """
import json, resource, signal, sys
from pathlib import Path
from support.archives import Talk
from hermes_core.errors import HermesError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write fails instead
talk = Talk(Path(sys.argv[1]), "s1")
provider = talk.manager.providers[0]
told, error = -1, ""
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
for number in range(400):
    try:
        provider.sync_turn(f"question {number}", "lorem ipsum " * 200)
        told = number
    except HermesError as problem:
        error = str(problem)
        break
answer = talk.ask(session_id="s1")
notes = talk.note("Notes work.")
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
provider.sync_turn("afterwards", "there is room again")
talk.close()
print(json.dumps([told, error, answer["success"], notes]))
"""


@pytest.mark.parametrize(
    "limit",
    [*(pytest.param(each, marks=pytest.mark.stress) for each in (100_000, 600_000)), 250_000],
)
def test_a_full_disk_is_an_error_and_costs_nothing_that_was_there(limit: int, home: Path) -> None:
    fill(home / "state.db", 3)
    worker = start(FULL, home, limit)
    out, errors = worker.communicate(timeout=120)
    assert worker.returncode == 0, errors
    told, error, readable, notes = json.loads(out)
    assert "can't be used" in error
    assert "Traceback" not in error
    assert readable or told < 0
    assert notes
    # The limit holds for each file, so turns were spooled until that file was full, too.
    with closing(SqliteArchive(home / "state.db")) as archive:
        assert Spool(home, lambda: archive).hand_over(archive) is None
    questions = stored(home / "state.db")["s1"][::2]
    assert questions == [*(f"question {number}" for number in range(told + 1)), "afterwards"]
    assert_sound(home / "state.db")


# -- something else in its place ------------------------------------------------------------


def text_file(path: Path) -> None:
    path.write_text("My notes on Boats.\n" * 500)


def short_text(path: Path) -> None:
    path.write_text("hi\n")


def folder(path: Path) -> None:
    path.mkdir()


def fifo(path: Path) -> None:
    os.mkfifo(path)


def link_to_itself(path: Path) -> None:
    path.symlink_to(path)


def link_to_a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def a_socket(path: Path) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as server:
        here = Path.cwd()
        os.chdir(path.parent)  # the names of sockets are short
        try:
            server.bind(path.name)
        finally:
            os.chdir(here)


def another_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE boats (name)")
        database.commit()


KINDS = [
    text_file, short_text, folder, fifo, link_to_itself, link_to_a_device,
    a_socket, another_database,
]  # fmt: skip
PLACES = [
    (kind, name)
    for kind in KINDS
    for name in ("state.db", "sessions.db")
    if (kind, name) != (link_to_itself, "sessions.db")  # not there, as far as one can see
]


def content_of(path: Path) -> object:
    return path.read_bytes() if path.is_file() and path.stat().st_size else path.lstat().st_mode


@pytest.mark.parametrize(("kind", "name"), PLACES, ids=lambda of: getattr(of, "__name__", of))
def test_what_is_no_archive_is_an_error_and_stays_as_it_is(
    kind: Callable[[Path], None], name: str, home: Path
) -> None:
    path = home / name
    kind(path)
    before = content_of(path)
    talk = Talk(home, "s1")
    try:
        talk.say("The okapi sleeps.")
        assert [each for each in talk.manager.warnings if "1 turn waits in the spool" in each]
        for arguments in ({"query": "okapi"}, {"session_id": "s2"}, {}):
            answer = talk.ask(**arguments)
            assert not answer.get("success"), answer
            assert str(path) in answer["error"]
            assert "Error:" not in answer["error"]
        assert talk.note("Notes work.")
    finally:
        talk.close()
    assert content_of(path) == before


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_commands_say_so_in_one_line(kind: Callable[[Path], None], machine: Machine) -> None:
    path = machine.home / "state.db"
    kind(path)
    before = content_of(path)
    for command in (("list",), ("search", "okapi"), ("stats",), ("repair",)):
        assert str(path) in machine.run("sessions", *command, timeout=PATIENCE).failed()
    assert content_of(path) == before


def test_a_file_without_a_byte_becomes_an_archive(home: Path) -> None:
    (home / "state.db").touch()
    talk = Talk(home, "s1")
    talk.say("The okapi sleeps.")
    talk.close()
    assert stored(home / "state.db") == {"s1": ["The okapi sleeps.", "Noted."]}
    assert_sound(home / "state.db")


def test_a_link_to_an_archive_is_followed(home: Path, tmp_path: Path) -> None:
    fill(tmp_path / "elsewhere.db", 3)
    (home / "state.db").symlink_to(tmp_path / "elsewhere.db")
    talk = Talk(home, "s1", user_id="ann")
    talk.say("The okapi sleeps.")
    assert talk.found(rare_word(2)) == ["talk-2"]
    talk.close()
    assert (home / "state.db").is_symlink()
    assert stored(tmp_path / "elsewhere.db")["s1"] == ["The okapi sleeps.", "Noted."]


def test_a_link_to_nowhere_is_an_error_or_the_place_of_the_archive(home: Path) -> None:
    (home / "state.db").symlink_to(home / "not-mounted" / "state.db")
    talk = Talk(home, "s1")
    talk.say("The okapi sleeps.")
    talk.close()
    other = Talk(home, "s2")
    answer = other.ask(query="okapi")
    other.close()
    assert not answer["success"] or answer["count"] == 1


# -- read-only ------------------------------------------------------------------------------

READ_ONLY = """
import ctypes, json, os, sys
from pathlib import Path
if os.geteuid() == 0:  # modes mean nothing to one who may override them
    libc = ctypes.CDLL(None, use_errno=True)
    header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert libc.capset(header, data) == 0
from support.archives import Talk
home = Path(sys.argv[1])
talk = Talk(home, "s1", user_id="ann")
talk.say("The okapi sleeps.")
answers = [talk.ask(query=sys.argv[2]), talk.ask(session_id="talk-2"), talk.ask()]
talk.close()
print(json.dumps(answers))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="capabilities are Linux")
@pytest.mark.parametrize("what", ["the file", "the folder", "both"])
def test_an_archive_that_can_only_be_read_is_searched_or_an_error_and_stays_as_it_is(
    what: str, home: Path
) -> None:
    path = home / "state.db"
    fill(path, 4)
    before = path.read_bytes()
    if what != "the folder":
        path.chmod(0o400)
    if what != "the file":
        home.chmod(0o500)
    try:
        worker = start(READ_ONLY, home, rare_word(2))
        out, errors = worker.communicate(timeout=60)
    finally:
        home.chmod(0o700)
        path.chmod(0o600)
    assert worker.returncode == 0, errors
    found, read, browsed = answers = json.loads(out)
    if what != "the file" and not found["success"]:  # SQLite wants to make files beside it
        assert all(str(path) in each["error"] for each in answers)
    else:
        assert [each["session_id"] for each in found["results"]] == ["talk-2"]
        assert len(read["messages"]) == 8
        assert browsed["count"] == 3
    if what != "the folder":
        assert path.read_bytes() == before
        assert "s1" not in stored(path)
    with closing(SqliteArchive(path)) as archive:
        assert archive.stats().sessions == len(list(archive.sessions(Scope())))
