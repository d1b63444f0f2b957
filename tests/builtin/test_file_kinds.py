"""What surrounds the text: links, modes, and what is left in the folder."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from support.notes import notes_file, refused, saved, stored, write_notes

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="links and modes are POSIX"),
    pytest.mark.files_only("about links and modes of files"),
]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_link_stays_a_link_and_its_file_gets_the_text(home: Path, tmp_path, agent) -> None:
    target = tmp_path / "dotfiles" / "memory.md"
    target.parent.mkdir()
    target.write_text("one", "utf-8")
    link = notes_file(home)
    link.parent.mkdir()
    link.symlink_to(target)
    session = agent()
    assert session.entries() == ["one"]
    saved(session.add("two"))
    saved(session.replace("one", "1"))
    assert link.readlink() == target
    assert target.read_text("utf-8") == "1\n§\ntwo"
    assert [each.name for each in target.parent.iterdir()] == ["memory.md"]


def test_a_relative_link_through_another_link_stays_as_it_is(home: Path, agent) -> None:
    (home / "real").mkdir()
    (home / "real" / "notes.md").write_text("one", "utf-8")
    (home / "memories").mkdir()
    (home / "memories" / "other.md").symlink_to("../real/notes.md")
    notes_file(home).symlink_to("other.md")
    saved(agent().add("two"))
    assert notes_file(home).readlink() == Path("other.md")
    assert (home / "memories" / "other.md").readlink() == Path("../real/notes.md")
    assert (home / "real" / "notes.md").read_text("utf-8") == "one\n§\ntwo"


def test_a_linked_folder_stays_a_link(home: Path, tmp_path: Path, agent) -> None:
    (tmp_path / "synced").mkdir()
    (home / "memories").symlink_to(tmp_path / "synced")
    saved(agent().add("one"))
    assert (home / "memories").is_symlink()
    assert (tmp_path / "synced" / "MEMORY.md").read_text("utf-8") == "one"


def test_a_link_to_a_file_that_is_not_there_yet_is_kept(home: Path, tmp_path, agent) -> None:
    notes_file(home).parent.mkdir()
    notes_file(home).symlink_to(tmp_path / "later.md")
    saved(agent().add("one"))
    assert notes_file(home).is_symlink()
    assert (tmp_path / "later.md").read_text("utf-8") == "one"


def test_a_link_into_a_folder_that_is_not_there_is_a_clear_error(home, tmp_path, agent) -> None:
    notes_file(home).parent.mkdir()
    notes_file(home).symlink_to(tmp_path / "not mounted" / "memory.md")
    assert "MEMORY.md" in refused(agent().add("one"))
    assert notes_file(home).is_symlink()
    assert not (tmp_path / "not mounted").exists()


@pytest.mark.parametrize("umask", [0o022, 0o000, 0o077], ids=oct)
def test_everything_that_is_written_is_for_its_owner_alone(umask: int, home: Path, agent) -> None:
    before = os.umask(umask)
    try:
        session = agent(write_approval=False)
        saved(session.add("one"))
        saved(session.add("about you", "user"))
        files = {each.name: mode(each) for each in (home / "memories").iterdir()}
    finally:
        os.umask(before)
    assert mode(home / "memories") == 0o700
    assert {"MEMORY.md", "USER.md", "history.db"} <= set(files)
    assert set(files.values()) == {0o600}


def test_a_file_that_others_could_read_is_closed_to_them_by_the_first_write(home, agent) -> None:
    write_notes(home, "one").chmod(0o644)
    saved(agent().add("two"))
    assert mode(notes_file(home)) == 0o600


def test_staged_writes_are_for_their_owner_alone(home: Path, agent) -> None:
    agent(write_approval=True).add("one")
    (record,) = (home / "pending" / "memory").iterdir()
    assert mode(record) == 0o600
    assert mode(record.parent) == 0o700


def test_nothing_but_the_known_files_is_left_in_the_folder(home: Path, agent) -> None:
    session = agent()
    saved(session.add("one"))
    saved(session.replace("one", "1"))
    refused(session.remove("no such entry"))
    saved(session.remove("1"))
    session.close()
    left = {each.name for each in (home / "memories").iterdir()}
    assert left - {"history.db-wal", "history.db-shm"} == {
        "MEMORY.md",
        "MEMORY.md.lock",
        "history.db",
    }
    assert stored(home) == []
