"""A home that can't be written can be read: a read-only disk, or somebody else's folder."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.archives import Talk, fill, rare_word, search
from support.commands import Machine, posix_only
from support.disks import Disk, small_disk
from support.notes import start_python
from support.other_user import bound_by_modes

from hermes_builtin.sessions.sqlite import SqliteArchive
from hermes_core.errors import DatabaseError
from hermes_core.outbox import OutboxStore, StreamKey
from hermes_core.outbox.sqlite import OutboxFile

pytestmark = posix_only

LOOKS = [
    ("sessions", "list"),
    ("sessions", "search", "okapi"),
    ("sessions", "show", "s1"),
    ("sessions", "stats"),
    ("sessions", "check"),
    ("memory", "show"),
    ("memory", "history"),
    ("list",),
    ("status",),
    ("info", "builtin"),
    ("explain", "boats"),
    ("log",),
    ("outbox", "list"),
    ("outbox", "status"),
]

#: An agent that is killed: what it stored is in the WAL, and not in the index.
AGENT = """
import os, sys, time
from hermes_core import MemoryManager
from hermes_core.outbox import OutboxStore, StreamKey
from hermes_core.outbox.sqlite import OutboxFile
from pathlib import Path
manager = MemoryManager.from_config(sys.argv[1])
manager.initialize_all("s1")
manager.sync_all("Where does the okapi sleep?", "In the barn.")
arguments = {"action": "add", "target": "memory", "content": "Likes boats."}
manager.handle_tool_call("memory", arguments)
store = OutboxStore(OutboxFile(Path(sys.argv[1]) / "outbox.db"), max_bytes=10**6)
store.put(StreamKey("ext", "", "s1", "{}"), 0, ("event", "sync_turn", "{}"), claim=False)
if sys.argv[2] == "killed":
    os._exit(0)
store.close()
manager.shutdown_all()
"""


def a_life(home: Path, end: str) -> None:
    agent = start_python(AGENT, home, end)
    _, errors = agent.communicate(timeout=60)
    assert agent.returncode == 0, errors
    assert (home / "state.db-wal").exists() == (end == "killed")


@pytest.fixture
def machine(tmp_path: Path, few_distributions: None, forked_children: None) -> Machine:
    return Machine(tmp_path / "machine", in_process=True)


@pytest.fixture
def disk(tmp_path: Path, machine: Machine) -> Iterator[Disk]:
    with small_disk(tmp_path / "disk") as made:
        machine.home = made.home
        machine.environment["HERMES_HOME"] = str(made.home)
        yield made


def everything_reads(machine: Machine) -> None:
    said = {look: machine.run(*look).done().out for look in LOOKS}
    assert "s1" in said["sessions", "list"]
    assert "okapi" in said["sessions", "search", "okapi"]
    assert "In the barn." in said["sessions", "show", "s1"]
    assert "Likes boats." in said["memory", "show"]
    assert "Likes boats." in said["memory", "history"]
    assert "read-only" in said["status",]
    assert "sync_turn" in said["outbox", "list"]
    doctor = machine.run("doctor")
    assert doctor.code == 1
    assert "is read-only" in doctor.out
    assert "report it" not in doctor.out
    assert doctor.out.count("PROBLEM") == 1, doctor.out
    for change in (("memory", "add", "No."), ("sessions", "delete", "s1", "--yes")):
        machine.run(*change).failed()


@pytest.mark.parametrize("end", ["orderly", "killed"])
def test_a_read_only_disk_is_read(end: str, disk: Disk, machine: Machine) -> None:
    a_life(disk.home, end)
    disk.make_read_only()
    everything_reads(machine)
    disk.make_writable()


@pytest.mark.parametrize("end", ["orderly", "killed"])
def test_a_folder_that_one_may_not_change_is_read(end: str, machine: Machine) -> None:
    a_life(machine.home, end)
    for left in machine.home.rglob("*-shm"):
        left.unlink()  # as in a copy: SQLite could use them
    folders = [machine.home, *(each for each in machine.home.rglob("*") if each.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    try:
        with bound_by_modes():
            everything_reads(machine)
    finally:
        for folder in folders:
            folder.chmod(0o755)


# -- one file ------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    made = tmp_path / "theirs"
    made.mkdir()
    yield made
    made.chmod(0o755)


def test_what_somebody_else_stores_later_is_seen(folder: Path) -> None:
    path = folder / "state.db"
    fill(path, 3)
    folder.chmod(0o555)
    with closing(SqliteArchive(path)) as archive:
        with bound_by_modes():
            assert search(archive, rare_word(2)) == ["talk-2"]
        folder.chmod(0o755)
        fill(path, 5)
        folder.chmod(0o555)
        with bound_by_modes():
            assert search(archive, rare_word(4)) == ["talk-4"]


def test_a_damaged_index_that_can_not_be_rebuilt_is_replaced_in_memory(folder: Path) -> None:
    path = folder / "state.db"
    fill(path, 3)
    with closing(sqlite3.connect(path)) as database:
        database.execute("INSERT INTO archive_meta VALUES ('index', 'damaged')")
        database.execute("INSERT INTO archive_index (archive_index) VALUES ('delete-all')")
        database.execute("DELETE FROM archive_terms")
        database.commit()
    folder.chmod(0o555)
    with bound_by_modes(), closing(SqliteArchive(path)) as archive:
        assert search(archive, rare_word(1)) == ["talk-1"]
        assert search(archive, "never said") == []


def test_an_outbox_that_may_not_be_written_is_read_and_refuses_writes(folder: Path) -> None:
    path = folder / "outbox.db"
    key = StreamKey("ext", "", "s1", "{}")
    with closing(OutboxStore(OutboxFile(path), max_bytes=10**6)) as store:
        stream, _ = store.put(key, 0, ("one", "sync_turn", "{}"), claim=False)
    folder.chmod(0o555)
    with bound_by_modes(), closing(OutboxStore(OutboxFile(path), max_bytes=10**6)) as store:
        assert store.count(stream) == 1
        with pytest.raises(DatabaseError):
            store.put(key, stream, ("two", "sync_turn", "{}"), claim=False)
    folder.chmod(0o755)
    with closing(OutboxStore(OutboxFile(path), max_bytes=10**6)) as store:
        store.put(key, stream, ("two", "sync_turn", "{}"), claim=False)
        assert store.count(stream) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="looks at open files in /proc")
def test_no_copy_is_left_behind(folder: Path, tmp_path: Path, monkeypatch) -> None:
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    path = folder / "state.db"
    a_life(folder, "killed")
    for left in folder.rglob("*-shm"):
        left.unlink()
    folder.chmod(0o555)
    with bound_by_modes(), closing(SqliteArchive(path)) as archive:
        assert search(archive, "okapi") == ["s1"]
        assert len(list(place.iterdir())) == 1
    assert list(place.iterdir()) == []
    folder.chmod(0o755)
    talk = Talk(folder, "s2")
    assert talk.found("okapi") == ["s1"]
    talk.close()
