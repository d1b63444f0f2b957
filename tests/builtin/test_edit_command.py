"""`hermes-plugins memory edit`: a notebook in the editor of the person whose it is."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.commands import Machine, Result
from support.notes import POISON, recorded, stored, write_notes

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="the editor is a shell command"),
    pytest.mark.usefixtures("both_storages"),
]

Edit = Callable[..., Result]


@pytest.fixture
def edit(machine: Machine, tmp_path: Path) -> Edit:
    """Runs the command with an editor that does what the given Python source does.

    The source has the text in ``text`` and the path in ``path``.
    """

    def run(source: str, *arguments: str, **env: str) -> Result:
        script = tmp_path / "editor.py"
        script.write_text(
            "import subprocess, sys\n"
            "from pathlib import Path\n"
            "path = Path(sys.argv[-1])\n"
            "text = path.read_text('utf-8')\n"
            f"{source}\n",
            "utf-8",
        )
        env = {"EDITOR": f"{sys.executable} {script}", **env}
        return machine.run("memory", "edit", *arguments, env=env)

    return run


def test_what_the_editor_saved_is_taken_over(edit: Edit, machine: Machine) -> None:
    write_notes(machine.home, "one\n§\ntwo\n§\nthree")
    edit("path.write_text(text.replace('two', '2') + '\\n§\\nfour\\n')").done()
    assert stored(machine.home) == ["one", "2", "three", "four"]
    assert (recorded(machine.home)[0]["who"], recorded(machine.home)[0]["action"]) == (
        "command",
        "edit",
    )


def test_the_editor_sees_the_notebook_that_was_asked_for(edit: Edit, machine: Machine) -> None:
    write_notes(machine.home, "one")
    write_notes(machine.home, "called Ada", "user")
    source = "assert text.strip() == 'called Ada'; path.write_text('called Bea')"
    edit(source, "--target", "user").done()
    assert stored(machine.home, "user") == ["called Bea"]
    assert stored(machine.home) == ["one"]


def test_a_file_saved_with_a_byte_order_mark_and_crlf_is_read_well(edit, machine) -> None:
    write_notes(machine.home, "one\n§\ntwo")
    edit(
        "windows = (text + '\\n§\\nthree').replace('\\n', '\\r\\n')\n"
        "path.write_bytes(b'\\xef\\xbb\\xbf' + windows.encode())"
    ).done()
    assert stored(machine.home) == ["one", "two", "three"]


def test_an_emptied_file_removes_everything_and_can_be_undone(edit: Edit, machine) -> None:
    write_notes(machine.home, "one\n§\ntwo")
    edit("path.write_text('')").done()
    assert stored(machine.home) == []
    machine.run("memory", "undo").done()
    assert stored(machine.home) == ["one", "two"]


def test_an_empty_notebook_can_be_begun_in_the_editor(edit: Edit, machine: Machine) -> None:
    edit("path.write_text('one\\n§\\ntwo\\n')").done()
    assert stored(machine.home) == ["one", "two"]


def test_entries_in_another_order_are_saved_and_said_so(edit: Edit, machine: Machine) -> None:
    write_notes(machine.home, "one\n§\ntwo")
    out = edit("path.write_text('two\\n§\\none')").done().out
    assert stored(machine.home) == ["two", "one"]
    assert "Saved" in out


def test_an_editor_that_saves_nothing_changes_nothing(edit: Edit, machine: Machine) -> None:
    write_notes(machine.home, "one\r\n§\r\ntwo\r\n")
    with machine.unchanged():
        assert "othing" in edit("pass").done().out


def test_what_others_wrote_while_the_editor_was_open_is_kept(edit: Edit, machine) -> None:
    write_notes(machine.home, "one\n§\ntwo")
    command = [*machine.command("memory", "add", "meanwhile")]
    edit(
        f"subprocess.run({command!r}, check=True)\n"
        "path.write_text(text.replace('two', '2') + '\\n§\\nthree')"
    ).done()
    assert sorted(stored(machine.home)) == ["2", "meanwhile", "one", "three"]


def test_an_entry_removed_meanwhile_does_not_come_back(edit: Edit, machine: Machine) -> None:
    write_notes(machine.home, "one\n§\ntwo")
    command = [*machine.command("memory", "remove", "one")]
    edit(f"subprocess.run({command!r}, check=True); path.write_text(text + '\\n§\\nthree')").done()
    assert sorted(stored(machine.home)) == ["three", "two"]


@pytest.mark.parametrize("text", [POISON, "x" * 5000], ids=["poisoned", "too long"])
def test_a_text_that_is_refused_is_shown_so_that_it_is_not_lost(text, edit, machine) -> None:
    write_notes(machine.home, "one")
    result = edit(f"path.write_text(text + '\\n§\\nprecious words\\n§\\n' + {text!r})")
    result.failed()
    assert "precious words" in result.out
    assert text in result.out
    assert stored(machine.home) == ["one"]


@pytest.mark.files_only
def test_a_text_for_a_file_that_became_unreadable_is_shown(edit: Edit, machine) -> None:
    path = write_notes(machine.home, "one")
    result = edit(f"Path({str(path)!r}).write_bytes(b'\\xff'); path.write_text('precious words')")
    assert "UTF-8" in result.failed()
    assert "precious words" in result.out
    assert path.read_bytes() == b"\xff"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc can't be written")
def test_a_text_for_a_home_that_can_not_be_made_is_shown(edit: Edit) -> None:
    result = edit("path.write_text('precious words')", HERMES_HOME="/proc/hermes")
    assert "/proc/hermes" in result.failed()
    assert "precious words" in result.out


@pytest.mark.parametrize("editor", ["false", "/nonexistent/editor"])
def test_an_editor_that_fails_is_one_line_and_changes_nothing(editor, machine: Machine) -> None:
    write_notes(machine.home, "one")
    with machine.unchanged():
        result = machine.run("memory", "edit", env={"EDITOR": editor})
    assert editor in result.failed()
    assert result.err.splitlines()[1] == "hint: set EDITOR to the command of your editor"


def kept(result: Result) -> Path:
    """The file that a failure says the text is in."""
    return Path(result.failed().rsplit("kept in ", 1)[1].rstrip(")"))


@pytest.mark.parametrize(
    "source",
    ["path.write_bytes(b'\\xff\\xfeprecious')", "path.write_text('precious'); sys.exit(3)"],
    ids=["another encoding", "a failure after saving"],
)
def test_what_can_not_be_taken_over_is_kept_in_a_file(source: str, edit, machine) -> None:
    write_notes(machine.home, "one")
    with machine.unchanged():
        path = kept(edit(source))
    assert b"precious" in path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600
    path.unlink()


@pytest.mark.parametrize("option", [[], ["--json"]], ids=["text", "json"])
def test_a_text_that_is_refused_is_kept_in_a_file_too(option, edit, machine) -> None:
    result = edit(f"path.write_text('precious\\n§\\n' + {POISON!r})", *option)
    path = kept(result)
    assert "precious" in path.read_text("utf-8")
    assert ("precious" in result.out) is not bool(option)
    path.unlink()


def test_the_file_of_the_editor_is_gone_when_it_was_taken_over(edit: Edit, tmp_path) -> None:
    folder = tmp_path / "drafts"
    folder.mkdir()
    edit("path.write_text('one')", TMPDIR=str(folder)).done()
    edit("pass", TMPDIR=str(folder)).done()
    edit("sys.exit(3)", TMPDIR=str(folder))
    assert list(folder.iterdir()) == []


def test_edit_says_in_json_that_nothing_was_changed(edit: Edit, machine: Machine) -> None:
    write_notes(machine.home, "one")
    answer = json.loads(edit("pass", "--json").done().out)
    assert (answer["schema"], answer["changed"], answer["entry_count"]) == (1, False, 1)


def test_edit_says_in_json_what_was_done(edit: Edit, machine: Machine) -> None:
    answer = json.loads(edit("path.write_text('one')", "--json").done().out)
    assert (answer["schema"], answer["changed"], answer["entry_count"]) == (1, True, 1)
