"""A notebook that can't be read is an error: never empty, never overwritten."""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.notes import file_state, notes_file, recorded, refused, saved, stored, write_notes
from support.other_user import bound_by_modes

pytestmark = pytest.mark.files_only("about files that can't be read")

#: Seconds after which a FIFO gets its writer, so that no test waits for ever.
PATIENCE = 60.0
LATE: list[threading.Timer] = []

WRITES: dict[str, dict[str, Any]] = {
    "add": {"action": "add", "content": "new"},
    "replace": {"action": "replace", "old_text": "one", "content": "new"},
    "remove": {"action": "remove", "old_text": "one"},
    "read": {"action": "read"},
    "batch": {"operations": [{"action": "add", "content": "new"}]},
}


@pytest.fixture(autouse=True)
def _modes_count():
    if os.name != "posix":
        yield
        return
    with bound_by_modes():
        yield


@pytest.fixture(autouse=True)
def _nothing_waits_for_a_writer():
    yield
    while LATE:
        late = LATE.pop()
        assert late.is_alive()  # it has not come yet
        late.cancel()


def latin_1(path: Path) -> None:
    path.write_bytes("one\n§\ncafé\n".encode("latin-1"))


def cut_off(path: Path) -> None:
    path.write_bytes("one\n§".encode()[:-1])


def utf_16(path: Path) -> None:
    path.write_bytes("one\n§\ntwo".encode("utf-16"))


def folder(path: Path) -> None:
    path.mkdir()


def fifo(path: Path) -> None:
    """Who opens it without care waits for a writer: one comes, but too late."""
    os.mkfifo(path)
    late = threading.Timer(PATIENCE, os.open, [path, os.O_RDWR])
    late.daemon = True
    late.start()
    LATE.append(late)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(50_000_000)


def locked_away(path: Path) -> None:
    path.write_text("one", "utf-8")
    path.chmod(0)


posix_only = pytest.mark.skipif(os.name != "posix", reason="a POSIX kind of file")

KINDS = [
    pytest.param(latin_1, "UTF-8", id="latin-1"),
    pytest.param(cut_off, "UTF-8", id="cut off within a character"),
    pytest.param(utf_16, "UTF-8", id="utf-16"),
    pytest.param(folder, "", id="folder"),
    pytest.param(fifo, "regular file", id="fifo", marks=posix_only),
    pytest.param(device, "regular file", id="device", marks=posix_only),
    pytest.param(loop, "", id="link to itself", marks=posix_only),
    pytest.param(huge, "50,000,000", id="huge"),
    pytest.param(locked_away, "ermission", id="no permission", marks=posix_only),
]


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize(("make", "cause"), KINDS)
def test_every_call_is_a_clear_error_and_nothing_is_touched(
    make: Callable[[Path], None], cause: str, home: Path, agent
) -> None:
    path = notes_file(home)
    path.parent.mkdir()
    make(path)
    before = file_state(path)
    session = agent()
    for arguments in WRITES.values():
        session.turn()
        error = refused(session.memory(**arguments))
        assert str(path) in error
        assert cause in error
        assert "Traceback" not in error
    assert file_state(path) == before
    assert recorded(home) == []
    saved(session.add("the other notebook works", "user"))


@pytest.mark.parametrize(("make", "cause"), KINDS)
def test_the_prompt_says_that_it_can_not_be_read(make, cause, home: Path, agent) -> None:
    write_notes(home, "about the user", "user")
    path = notes_file(home)
    make(path)
    before = file_state(path)
    prompt = agent().prompt
    assert "MEMORY (your personal notes) [can't be read]" in prompt
    assert str(path) in prompt
    assert "about the user" in prompt
    assert file_state(path) == before


def test_an_unreadable_notebook_is_no_edit_and_all_is_there_when_it_is_repaired(
    home: Path, agent
) -> None:
    session = agent()
    saved(session.add("one"))
    saved(session.add("two"))
    path = notes_file(home)
    good = path.read_bytes()
    path.write_bytes(good + b"\xff")
    refused(session.add("three"))
    refused(session.remove("one"))
    path.write_bytes(good)
    saved(session.add("three"))
    assert stored(home) == ["one", "two", "three"]
    assert {each["who"] for each in recorded(home)} == {"tool"}


def test_the_error_says_where_the_bad_byte_is(home: Path, agent) -> None:
    write_notes(home, b"one\ntwo\ncaf\xe9 three\n")
    assert "line 3" in refused(agent().add("new"))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
@pytest.mark.parametrize(
    "make",
    [
        folder,
        latin_1,
        fifo,
        huge,
    ],
)
def test_no_open_file_is_left_behind(make: Callable[[Path], None], home: Path, agent) -> None:
    path = notes_file(home)
    path.parent.mkdir()
    make(path)
    session = agent()
    session.memory(action="read")
    before = open_files()
    for _ in range(10):
        session.memory(action="read")
    assert open_files() == before


# -- the folder and the disk --------------------------------------------------------------


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc can't be written")
def test_a_home_that_can_not_be_made_is_a_clear_error(agent) -> None:
    session = agent()
    session.manager.initialize_all("s2", hermes_home="/proc/hermes")
    error = refused(session.add("new"))
    assert "/proc/hermes" in error
    assert session.entries() == []


def test_a_home_below_a_file_is_a_clear_error(tmp_path: Path, agent) -> None:
    (tmp_path / "file").write_text("x")
    session = agent()
    session.manager.initialize_all("s2", hermes_home=str(tmp_path / "file" / "home"))
    assert "file" in refused(session.add("new"))
    assert (tmp_path / "file").read_text() == "x"


def test_a_home_that_vanishes_is_made_again(home: Path, agent) -> None:
    session = agent()
    saved(session.add("one"))
    session.notes.close()
    for path in (home / "memories").iterdir():
        path.unlink()
    (home / "memories").rmdir()
    home.rmdir()
    assert session.entries() == []
    saved(session.add("two"))
    assert stored(home) == ["two"]


@posix_only
def test_a_read_only_folder_is_a_clear_error_and_its_notes_are_in_the_prompt(home, agent) -> None:
    write_notes(home, "likes tea")
    (home / "memories").chmod(0o500)
    try:
        session = agent()
        assert "likes tea" in session.prompt
        assert "memories" in refused(session.add("new"))
        assert stored(home) == ["likes tea"]
    finally:
        (home / "memories").chmod(0o700)


def test_an_error_under_the_lock_is_not_taken_for_one_of_the_lock(home: Path, agent) -> None:
    file = agent().notes.notebooks["memory"].text

    def full() -> None:
        with file.locked():
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        full()
