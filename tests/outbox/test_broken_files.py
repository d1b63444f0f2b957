"""outbox.db is damaged, somebody else's, or can't be written: the turn goes on, and it is told."""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.commands import posix_only
from support.journals import Journal, texts
from support.other_user import as_other_user, shared_folder
from support.providers import Gate, Recorder, eventually

from hermes_core import MemoryManager
from hermes_core.outbox import StreamKey
from hermes_core.storage.processes import this_process

pytestmark = [pytest.mark.scaled, pytest.mark.files_only("about damaged files")]

STRESS = bool(os.environ.get("HERMES_STRESS"))


def filled(home: Path, count: int = 3) -> Path:
    """An outbox in which turns wait."""
    (home / "down").touch()
    manager = MemoryManager(home=home)
    manager.add_provider(Journal())
    manager.initialize_all("before")
    for number in range(count):
        manager.sync_all(f"waiting {number}", "answer")
    manager.shutdown_all()
    (home / "down").unlink()
    return home / "outbox.db"


def a_life(home: Path) -> MemoryManager:
    """A session that must go well, whatever lies there."""
    manager = MemoryManager(home=home)
    manager.add_provider(Journal())
    manager.initialize_all("s1")
    manager.sync_all("turn 0", "answer")
    manager.on_session_switch("s2", parent_session_id="s1")
    manager.sync_all("turn 1", "answer")
    manager.on_memory_write("add", "memory", "a note")
    manager.on_session_end([])
    manager.flush_pending(2)
    told = manager.warnings
    manager.shutdown_all()
    assert manager.warnings == told
    return manager


def other_program(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE theirs (it)")


def newer(path: Path) -> None:
    filled(path.parent)
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 99")


DAMAGE: dict[str, Callable[[Path], object]] = {
    "random bytes": lambda path: path.write_bytes(random.Random(7).randbytes(9000)),
    "a text": lambda path: path.write_text("my shopping list\n" * 50),
    "truncated": lambda path: os.truncate(filled(path.parent), 5000),
    "header only": lambda path: os.truncate(filled(path.parent), 100),
}
FOREIGN: dict[str, Callable[[Path], object]] = {
    "another program's": other_program,
    "a newer version's": newer,
    "a folder": lambda path: path.mkdir(),
    "a pipe": os.mkfifo if hasattr(os, "mkfifo") else lambda path: path.mkdir(),
    "a dangling link": lambda path: path.symlink_to(path.with_name("nowhere") / "x"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_outbox_is_set_aside_by_name_and_a_new_one_begun(
    home: Path, damage: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    damage(home / "outbox.db")
    for stale in ("-wal", "-shm"):
        (home / f"outbox.db{stale}").unlink(missing_ok=True)
    manager = a_life(home)
    aside = [path.name for path in home.glob("outbox.db.damaged-*")]
    assert len(aside) == 1
    assert any(aside[0] in warning for warning in manager.warnings)
    assert aside[0] in caplog.text
    assert texts(home) == ["turn 0", "turn 1"]


@pytest.mark.parametrize("foreign", FOREIGN.values(), ids=FOREIGN.keys())
def test_what_is_not_ours_is_left_alone_and_every_write_that_is_not_kept_is_told(
    home: Path, foreign: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    path = home / "outbox.db"
    foreign(path)
    before = path.read_bytes() if path.is_file() else None
    manager = a_life(home)
    assert (path.read_bytes() if path.is_file() else None) == before
    assert not list(home.glob("outbox.db.damaged-*"))
    assert any("not stored" in warning for warning in manager.warnings)
    assert "not stored" in caplog.text
    assert manager.health()["journal"]["sync_turn"].failures == 2
    assert manager.health()["journal"]["on_memory_write"].failures == 1


def test_an_empty_file_has_lost_what_waited_and_is_set_aside(home: Path) -> None:
    (home / "outbox.db").touch()
    (warning,) = a_life(home).warnings
    assert "writes that waited in it were not delivered" in warning
    assert texts(home) == ["turn 0", "turn 1"]


def pages(path: Path) -> Iterator[int]:
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        size = int(database.execute("PRAGMA page_size").fetchone()[0])
    yield from range(0, path.stat().st_size, size)


@pytest.mark.parametrize(
    "filler",
    [b"\0", b"\xff", b"\x0d"] if STRESS else [b"\0", b"\x0d"],
    ids=["zeros", "ones", "leaf"] if STRESS else ["zeros", "leaf"],
)
@pytest.mark.parametrize("span", [4096, 200], ids=["pages", "heads"])
def test_whichever_page_is_overwritten_the_turns_that_follow_are_kept(
    home: Path, filler: bytes, span: int
) -> None:
    path = filled(home, 60 if STRESS else 12)
    whole = path.read_bytes()
    for offset in pages(path):
        whole = path.read_bytes() if offset == 0 else whole
        for left in home.glob("outbox.db*"):
            left.unlink()
        (home / "journal.jsonl").unlink(missing_ok=True)
        broken = whole[:offset] + filler * span + whole[offset + span :]
        path.write_bytes(broken)
        manager = a_life(home)
        told = "\n".join(manager.warnings)
        got = [text for text in texts(home) if text.startswith("turn")]
        # Two sessions: the file that had them in order is gone.
        assert sorted(got) == ["turn 0", "turn 1"] or "not stored" in told, (offset, told)
        again = MemoryManager(home=home)
        again.add_provider(Journal())
        again.initialize_all("after")
        again.sync_all("turn 2", "answer")
        assert eventually(lambda: "turn 2" in texts(home)), (offset, again.warnings)
        again.shutdown_all()


def test_a_file_that_breaks_under_a_running_session_costs_it_nothing_that_comes_after(
    home: Path,
) -> None:
    manager = MemoryManager(home=home)
    manager.add_provider(Journal())
    manager.initialize_all("s1")
    (home / "hold").touch()
    manager.sync_all("turn 0", "answer")
    manager.sync_all("turn 1", "answer")
    assert eventually(lambda: (home / "journal.jsonl").read_text().count("begin") == 1)
    other = ("other", "sync_turn", "{}")
    store = manager._writes._outbox.store
    store.put(StreamKey("journal", "", "other", "{}"), 0, other, claim=False)
    with store.lock:  # the worker must not open it in between
        store.close()
        (home / "outbox.db").write_bytes(b"\xff" * 9000)
    for number in range(2, 12):
        manager.sync_all(f"turn {number}", "answer")
    (stream,) = store.waiting_streams()
    assert stream.holder == this_process()
    assert store.claimed == {stream.id}
    (home / "hold").unlink()
    assert manager.flush_pending(10)
    told = "\n".join(manager.warnings)
    manager.shutdown_all()
    assert "set aside" in told
    assert texts(home)[-10:] == [f"turn {number}" for number in range(2, 12)]


def test_an_outbox_that_can_t_be_written_any_more_does_not_keep_a_provider_from_its_end(
    home: Path,
) -> None:
    with Gate() as gate:
        provider = Recorder(sync_turn=gate)
        manager = MemoryManager(home=home)
        assert manager.add_provider(provider)
        manager.initialize_all("s1")
        manager.sync_all("turn", "answer")
        assert eventually(lambda: provider.of("sync_turn"))
        outbox = manager._writes._outbox  # type: ignore[union-attr]
        outbox.store.database.read(lambda database: database.execute("PRAGMA query_only = 1"))  # type: ignore[union-attr]
        gate.open()
        manager.shutdown_all()
    assert provider.of("shutdown")


@posix_only
def test_an_outbox_that_can_t_be_written_is_told_and_stops_no_turn() -> None:
    def life() -> list[str]:
        path = filled(folder)
        path.chmod(0o400)
        folder.chmod(0o500)
        return list(a_life(folder).warnings)

    with shared_folder() as folder:
        assert "not stored" in as_other_user(life)


@pytest.mark.parametrize("moved", [True, False], ids=["moved", "removed"])
def test_writes_go_to_the_file_that_has_the_name_now(home: Path, moved: bool) -> None:
    (home / "down").touch()
    manager = MemoryManager(home=home)
    manager.add_provider(Journal())
    manager.initialize_all("s1")
    manager.sync_all("turn 0", "answer")
    for path in home.glob("outbox.db*"):
        if moved:
            path.rename(path.with_name(f"old-{path.name}"))
        else:
            path.unlink()
    manager.sync_all("turn 1", "answer")
    manager.shutdown_all()
    assert any("outbox.db was moved or removed" in each for each in manager.warnings)
    (home / "down").unlink()
    later = MemoryManager(home=home)
    later.add_provider(Journal())
    later.initialize_all("s1")
    assert later.flush_pending(10)
    later.shutdown_all()
    assert texts(home) == ["turn 1"]
