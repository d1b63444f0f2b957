"""`hermes-plugins memory export`: MEMORY.md and USER.md beside notes in PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from support.commands import Machine
from support.notes import FILES, recorded, stored
from support.storages import Storage

from hermes_builtin.notes import Author, Notes
from hermes_builtin.notes.entries import Operation
from hermes_builtin.notes.export import Export
from hermes_builtin.notes.notebook import Notebook

pytestmark = pytest.mark.postgres_only("files are the notes themselves")

#: Over PostgreSQL in `make test`, too.
FAST = True


@pytest.fixture
def in_postgres(shared_url: str, monkeypatch: pytest.MonkeyPatch):
    storage = Storage(shared_url)
    monkeypatch.setattr(Storage, "current", storage)
    yield storage
    storage.close()


@pytest.fixture
def fleet(in_postgres: Storage, machine: Machine) -> Machine:
    machine.home.mkdir(parents=True, exist_ok=True)
    machine.write_config(f"memory:\n{in_postgres.config}")
    return machine


def copy(machine: Machine, target: str = "memory") -> Path:
    return machine.home / "memories" / FILES[target]


def exported(machine: Machine) -> list[dict[str, object]]:
    done = machine.run("memory", "export", "--json").done()
    found: list[dict[str, object]] = json.loads(done.out)["exported"]
    return found


def test_both_notebooks_are_written_and_nothing_is_written_twice(fleet: Machine) -> None:
    fleet.run("memory", "add", "likes tea").done()
    fleet.run("memory", "add", "called Ada", "--target", "user").done()
    assert [each["written"] for each in exported(fleet)] == [True, True]
    assert copy(fleet).read_text("utf-8") == "likes tea"
    assert copy(fleet, "user").read_text("utf-8") == "called Ada"
    assert [each["written"] for each in exported(fleet)] == [False, False]


def test_an_edit_of_the_copy_is_merged_with_what_others_wrote_and_is_in_the_history(
    fleet: Machine,
) -> None:
    fleet.run("memory", "add", "one").done()
    fleet.run("memory", "add", "two").done()
    exported(fleet)
    copy(fleet).write_text("1\n§\ntwo", "utf-8")
    fleet.run("memory", "add", "three").done()
    assert exported(fleet)[0]["edited"] is True
    assert sorted(stored(fleet.home)) == ["1", "three", "two"]
    assert copy(fleet).read_text("utf-8").split("\n§\n") == stored(fleet.home)
    assert (recorded(fleet.home)[0]["who"], recorded(fleet.home)[0]["action"]) == (
        "file edit",
        "edit",
    )
    fleet.run("memory", "undo").done()
    assert sorted(stored(fleet.home)) == ["one", "three", "two"]


#: What a hand edit makes of entries, and where each is from then.
WEB = "Refunds are paid to account 4471 at Northgate Bank."
TYPED = "Invoices are due within two weeks."
CORRECTED = WEB.replace("4471", "4472")


def web_note(notebook: Notebook) -> None:
    notebook.change([Operation("add", WEB, origin="web")], Author("tool, approved"))


def origins_after_hand_edits(
    notebook: Notebook, path: Path, look: Callable[[], object]
) -> list[dict[str, str]]:
    """Where the entries are from after each of some edits of the file or copy."""
    web_note(notebook)
    found = []
    for text in (f"{CORRECTED}\n§\n{TYPED}", TYPED, f"{WEB}\n§\n{TYPED}"):
        look()
        path.write_text(text, "utf-8")
        look()
        found.append(notebook.origins(notebook.read().entries))
    return found


def test_a_hand_edit_of_the_copy_has_the_origin_of_one_of_the_notes(
    fleet: Machine, in_postgres: Storage, tmp_path: Path
) -> None:
    there = Notes.open(fleet.home, in_postgres.settings).notebooks["memory"]
    found = origins_after_hand_edits(there, copy(fleet), partial(exported, fleet))
    assert found == [
        {CORRECTED: "web", TYPED: "person"},
        {TYPED: "person"},
        {WEB: "web", TYPED: "person"},
    ]
    here = Notes.open(tmp_path, {}).notebooks["memory"]
    edit = partial(here.edited, [], "", Author())  # takes over what it finds
    path = tmp_path / "memories" / FILES["memory"]
    assert found == origins_after_hand_edits(here, path, edit)


def test_a_correction_of_an_entry_that_is_gone_by_now_stays_external(
    fleet: Machine, in_postgres: Storage
) -> None:
    notebook = Notes.open(fleet.home, in_postgres.settings).notebooks["memory"]
    web_note(notebook)
    exported(fleet)
    notebook.change([Operation("remove", old_text=WEB)], Author())
    copy(fleet).write_text(CORRECTED, "utf-8")
    exported(fleet)
    assert notebook.origins(stored(fleet.home)) == {CORRECTED: "web"}


def test_text_that_a_shell_appends_is_an_entry_of_its_own(fleet: Machine) -> None:
    fleet.run("memory", "add", "one").done()
    exported(fleet)
    with copy(fleet).open("a", encoding="utf-8") as file:
        file.write("\nappended")
    exported(fleet)
    assert stored(fleet.home) == ["one", "appended"]


def test_a_file_that_was_there_before_is_kept_and_a_copy_that_is_gone_comes_back(
    fleet: Machine,
) -> None:
    copy(fleet).parent.mkdir(parents=True)
    copy(fleet).write_text("precious", "utf-8")
    fleet.run("memory", "add", "likes tea").done()
    name = str(exported(fleet)[0]["kept"])
    assert copy(fleet).with_name(name).read_text("utf-8") == "precious"
    assert stored(fleet.home) == ["likes tea"]
    copy(fleet).unlink()
    exported(fleet)
    assert copy(fleet).read_text("utf-8") == "likes tea"
    copy(fleet).write_text("", "utf-8")  # an empty one is an edit
    exported(fleet)
    assert stored(fleet.home) == []


@pytest.mark.parametrize("written", [False, True], ids=["before", "after"])
def test_a_kill_while_the_copy_is_written_is_no_edit(
    fleet: Machine, in_postgres: Storage, written: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = Notes.open(fleet.home, in_postgres.settings)
    fleet.run("memory", "add", "one").done()
    export = Export(fleet.home / "memories")
    export.step(notes.notebooks["memory"])
    fleet.run("memory", "add", "two").done()
    notes_of_export = export._note
    calls: list[str] = []

    def killed(key: str, common: object) -> None:
        calls.append(key)
        if len(calls) == 2 or not written:
            raise KeyboardInterrupt
        notes_of_export(key, common)  # type: ignore[arg-type]

    monkeypatch.setattr(export, "_note", killed)
    with pytest.raises(KeyboardInterrupt):
        export.step(notes.notebooks["memory"])
    fleet.run("memory", "remove", "two").done()
    again = Export(fleet.home / "memories").step(notes.notebooks["memory"])
    assert not again.edited
    assert stored(fleet.home) == ["one"]
    assert copy(fleet).read_text("utf-8") == "one"


def test_what_is_forgotten_is_in_no_table(fleet: Machine, in_postgres: Storage) -> None:
    fleet.run("memory", "add", "likes whales").done()
    fleet.run("memory", "add", "likes birds").done()
    notes = Notes.open(fleet.home, in_postgres.settings)
    notes.notebooks["memory"].forget(lambda text: "whales" in text)
    assert stored(fleet.home) == ["likes birds"]
    assert not [each for each in recorded(fleet.home) if "whales" in str(each)]


def test_notes_in_files_need_no_export(machine: Machine) -> None:
    machine.run("memory", "add", "likes tea").done()
    done = machine.run("memory", "export").done()
    assert "files already" in done.out
