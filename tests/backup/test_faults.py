"""A full disk, a kill, a wrong target: `backup`, `restore`, `export` and `import` lose nothing."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from support.commands import Machine, posix_only
from support.talks import past

from hermes_builtin.portable import export_file, import_file
from hermes_builtin.sessions import session_merge
from hermes_builtin.sessions.importers import import_file as import_conversations
from hermes_builtin.sessions.location import locate
from hermes_core import HermesError, MemoryManager
from hermes_core.backup.backup import create_backup
from hermes_core.backup.restore import is_proper, restore

FAST = True
pytestmark = posix_only
TURNS = [(f"question {number} " + "x" * 500, "an answer") for number in range(40)]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    past(made, "s1", TURNS)
    manager = MemoryManager.from_config(made)
    manager.initialize_all("s2")
    manager.handle_tool_call("memory", {"action": "add", "target": "memory", "content": "tea"})
    manager.shutdown_all()
    return made


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "place"
    folder.mkdir()
    return folder


def in_child(work: Callable[[], object], *, largest: int | None = None) -> tuple[int, str]:
    """Run something in a child, for which the disk is full when a file has so many bytes."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        if largest is not None:
            import resource  # not on Windows

            resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
        text = ""
        try:
            work()
        except HermesError as error:
            text = str(error)
        except BaseException as error:
            text = f"unexpected {error!r}"
        os.write(writing, text.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    return os.waitpid(child, 0)[1], text


def killing(number: int) -> Callable[..., None]:
    """A progress that kills its process when it is called the nth time."""
    calls = iter(range(1, 1_000_000))

    def progress(*_given: object) -> None:
        if next(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    return progress


# -- a full disk ----------------------------------------------------------------------------------


@pytest.mark.parametrize("largest", [0, 1_000, 20_000])
def test_a_full_disk_leaves_no_backup_and_no_export(home: Path, place: Path, largest: int) -> None:
    for work in (
        lambda: create_backup(home, place / "b.zip"),
        lambda: export_file(home, place / "e.jsonl"),
    ):
        _, error = in_child(work, largest=largest)
        assert "can't be" in error
        assert "unexpected" not in error
        assert list(place.iterdir()) == []


@pytest.mark.parametrize("largest", [0, 1_000, 50_000])
def test_a_full_disk_leaves_no_home(home: Path, place: Path, largest: int) -> None:
    create_backup(home, place / "b.zip")
    _, error = in_child(lambda: restore(place / "b.zip", place / "new"), largest=largest)
    assert error
    assert "unexpected" not in error
    assert [each.name for each in place.iterdir()] == ["b.zip"]


def test_an_import_that_fills_the_disk_is_finished_by_repeating_it(home: Path, place: Path) -> None:
    export_file(home, place / "e.jsonl")
    new = place / "new"
    past(new, "s0", [("hello", "ok")])
    _, error = in_child(lambda: import_file(new, place / "e.jsonl"), largest=40_000)
    assert error
    assert "unexpected" not in error
    import_file(new, place / "e.jsonl")
    again = import_file(new, place / "e.jsonl")
    assert (again.notes, again.messages) == (0, 0)
    assert again.known == 1 + 2 * len(TURNS)


# -- a wrong target -------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["missing/file", "file/below", "folder"])
def test_a_target_that_can_not_be_written_is_one_line(
    home: Path, place: Path, tmp_path: Path, target: str
) -> None:
    (place / "file").write_text("mine")
    (place / "folder").mkdir()
    for work in (create_backup, export_file):
        with pytest.raises(HermesError) as error:
            work(home, place / target)
        assert str(place / target) in str(error.value)
        assert "\n" not in str(error.value)
    assert sorted(each.name for each in place.iterdir()) == ["file", "folder"]
    assert (place / "file").read_text() == "mine"


def test_an_export_in_the_home_is_a_file_like_any_other(home: Path, place: Path) -> None:
    export_file(home, home / "e.jsonl")
    made = create_backup(home, place / "b.zip")
    assert "home/e.jsonl" in {each.path for each in made.files}


# -- kill -9 --------------------------------------------------------------------------------------


def test_an_export_that_is_killed_leaves_no_file_and_the_next_one_cleans_up(
    home: Path, place: Path
) -> None:
    export_file(home, place / "good.jsonl")
    for number in (1, 10, 80):
        code, _ = in_child(lambda n=number: export_file(home, place / "e.jsonl", killing(n)))
        assert os.WIFSIGNALED(code)
        assert not (place / "e.jsonl").exists()
        # What it left is not in a backup, should it be in the home.
        (left,) = [each for each in place.iterdir() if each.name.startswith(".e.jsonl")]
        left.rename(home / left.name)
        made = create_backup(home, place / f"{number}.zip")
        assert not [each.path for each in made.files if ".e.jsonl" in each.path]
        (home / left.name).rename(left)
    export_file(home, place / "e.jsonl")
    assert (place / "e.jsonl").read_bytes() == (place / "good.jsonl").read_bytes()
    assert not [each for each in place.iterdir() if each.name.startswith(".")]


def test_an_import_that_is_killed_is_finished_by_repeating_it(home: Path, place: Path) -> None:
    export_file(home, place / "e.jsonl")
    lines = len((place / "e.jsonl").read_text().splitlines())
    for number in (3, lines // 2, lines):
        code, _ = in_child(
            lambda n=number: import_file(place / "new", place / "e.jsonl", killing(n))
        )
        assert os.WIFSIGNALED(code)
    import_file(place / "new", place / "e.jsonl")
    export_file(place / "new", place / "f.jsonl")
    assert (place / "f.jsonl").read_bytes() == (place / "e.jsonl").read_bytes()


def test_conversations_of_others_are_imported_once_however_often_it_is_killed(place: Path) -> None:
    talks = [
        {"uuid": f"u-{n}", "name": "", "chat_messages": [{"sender": "human", "text": f"hello {n}"}]}
        for n in range(20)
    ]
    (place / "conversations.json").write_text(json.dumps(talks))

    def work(progress: Callable[..., None] | None) -> None:
        with closing(locate(place / "new").open()) as archive:
            import_conversations(archive, place / "conversations.json", progress=progress)

    for number in (1, 7, 15):
        assert os.WIFSIGNALED(in_child(lambda n=number: work(killing(n)))[0])
    work(None)
    with closing(locate(place / "new").open()) as archive:
        assert archive.stats()[:2] == (20, 20)


@pytest.mark.parametrize("name", [{}, {"session_id": "s-1"}])
def test_a_long_conversation_is_imported_once_however_often_it_is_killed(
    place: Path, monkeypatch: pytest.MonkeyPatch, name: dict[str, str]
) -> None:
    monkeypatch.setattr(session_merge, "BATCH", 3)
    said = [{"role": "user", "content": f"hello {n % 7}", **name} for n in range(30)]
    (place / "chat.jsonl").write_text("".join(json.dumps(each) + "\n" for each in said))

    def work(progress: Callable[..., None] | None) -> None:
        with closing(locate(place / "new").open()) as archive:
            import_conversations(archive, place / "chat.jsonl", progress=progress)

    for number in (1, 2, 4, 9):
        # Lines are also counted when the kind of the file is found.
        code = in_child(lambda n=number: work(killing(n)))[0]
        assert os.WIFSIGNALED(code) or number == 9
    work(None)
    with closing(locate(place / "new").open()) as archive:
        (session,) = archive.sessions()
        assert [each.content for each in archive.messages(session)] == [
            each["content"] for each in said
        ]


# -- agents that write ----------------------------------------------------------------------------


def test_an_export_while_agents_write_is_whole_and_can_be_imported(home: Path, place: Path) -> None:
    manager = MemoryManager.from_config(home)
    manager.initialize_all("busy")
    stop, turns = threading.Event(), 0

    def write() -> None:
        nonlocal turns
        while not stop.is_set():
            manager.sync_all(f"while exporting {turns}", "ok", session_id="busy")
            turns += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(3):
            before = turns
            done = export_file(home, place / f"{number}.jsonl")
            assert done.counts.messages >= 2 * (len(TURNS) + before)
    finally:
        stop.set()
        writer.join()
        manager.shutdown_all()
    for number in range(3):
        counts = import_file(place / "new", place / f"{number}.jsonl")
    assert counts.known >= 2 * len(TURNS)
    import_file(home, place / "2.jsonl")  # into where it came from: nothing is new
    with closing(locate(home).open()) as archive:
        assert archive.stats().messages == 2 * (len(TURNS) + turns)


# -- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["home/a:b", "home/CON", "home/nul.txt", "home/com1.log", "home/a. ", "home/a.", 'home/a"b',
     "home/x/aux/y", "home/a\x01b", "home/a\\b", "home/..\\b"],
)  # fmt: skip
def test_names_that_are_something_else_on_windows_are_refused_there(name: str) -> None:
    assert is_proper(name, "posix")
    assert not is_proper(name, "nt")


@pytest.mark.parametrize(
    "name", ["home/.env", "home/a b", "home/console", "home/x.y/ü", "home/com"]
)
def test_usual_names_are_restored_on_windows(name: str) -> None:
    assert is_proper(name, "nt")


def test_the_commands_say_it_in_one_line(tmp_path: Path) -> None:
    machine = Machine(tmp_path, in_process=True)
    past(machine.home, "s1", TURNS[:1])
    error = machine.run("export", str(tmp_path / "no" / "e.jsonl")).failed()
    assert "can't be written" in error
    error = machine.run("backup", str(tmp_path / "no" / "b.zip")).failed()
    assert "can't be written" in error
