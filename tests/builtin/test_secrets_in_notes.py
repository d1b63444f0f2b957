"""No secret becomes a note, by whatever door, and one in the files is not in the prompt."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from support.notes import (
    Agent,
    append,
    notes_file,
    recorded,
    refused,
    saved,
    stored,
    write_notes,
)
from support.providers import Recorder

from hermes_builtin.doctor import diagnose
from hermes_builtin.notes import Author, Notes, NotesError, RefusalError, entry_id
from hermes_builtin.notes.commands import memory

pytestmark = pytest.mark.usefixtures("both_storages")

CORPUS = Path(__file__).parents[1]
TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
NOTE = f"Deploy key: {TOKEN}"

StartAgent = Callable[..., Agent]


def command(home: Path, *arguments: str, given: str | None = None) -> Result:
    """`hermes-plugins memory`, in this process."""
    return CliRunner().invoke(memory, arguments, obj=str(home), input=given)


def is_refused_for_a_secret(answer: dict[str, Any]) -> None:
    error = refused(answer)
    assert "github-token" in error
    assert "hermes-plugins secrets" in error
    assert TOKEN not in json.dumps(answer)


def nothing_holds_it(home: Path) -> bool:
    """Whether no file of a home has the token in it."""
    return not any(
        TOKEN.encode() in each.read_bytes() for each in home.rglob("*") if each.is_file()
    )


# -- doors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        {"action": "add", "content": NOTE},
        {"action": "replace", "old_text": "tea", "content": NOTE},
        {"action": "replace", "old_text": "tea", "new_text": NOTE},
        {"operations": [{"action": "add", "content": "fine"}, {"action": "add", "content": NOTE}]},
    ],
)
def test_the_tool_refuses_it_with_its_kind_and_says_where_it_belongs(
    home: Path, agent: StartAgent, arguments: dict[str, Any]
) -> None:
    write_notes(home, "likes tea")
    session = agent(external=Recorder())
    is_refused_for_a_secret(session.memory(**arguments))
    assert stored(home) == ["likes tea"]
    assert session.mirrored == []
    assert nothing_holds_it(home)


def test_it_is_not_staged(home: Path, agent: StartAgent) -> None:
    session = agent(write_approval=True)
    is_refused_for_a_secret(session.add(NOTE))
    assert nothing_holds_it(home)


def test_a_staged_write_of_another_program_with_one_is_not_carried_out(home: Path) -> None:
    folder = home / "pending" / "memory"
    folder.mkdir(parents=True)
    payload = {"action": "add", "target": "memory", "content": NOTE}
    record = {"id": "0123abcd", "created_at": 1.0, "origin": "x", "session_id": "s", "summary": "x"}
    (folder / "0123abcd.json").write_text(json.dumps({**record, "payload": payload}))
    notes = Notes(home)
    with pytest.raises(RefusalError, match="github-token"):
        notes.approve("0123abcd", Author("tool, approved"))
    notes.close()
    assert not notes_file(home).exists()


@pytest.mark.parametrize("arguments", [("add", NOTE), ("replace", "tea", NOTE), ("add", "-")])
def test_the_command_refuses_it(home: Path, arguments: tuple[str, ...]) -> None:
    write_notes(home, "likes tea")
    result = command(home, *arguments, given=NOTE)
    assert "github-token" in str(result.exception)
    assert "hermes-plugins secrets" in str(result.exception)
    assert stored(home) == ["likes tea"]


def test_the_editor_refuses_a_new_one_and_leaves_an_old_one(home: Path, agent: StartAgent) -> None:
    write_notes(home, NOTE)
    notebook = agent().notes.notebooks["memory"]
    with pytest.raises(RefusalError, match="github-token"):
        notebook.edited([NOTE], f"{NOTE}\n§\nstaging: {TOKEN}", Author("command"))
    notebook.edited([NOTE], f"{NOTE}\n§\nlikes tea", Author("command"))
    assert stored(home) == [NOTE, "likes tea"]


def test_undo_does_not_bring_one_back_and_takes_one_away(home: Path, agent: StartAgent) -> None:
    write_notes(home, "likes tea")
    session = agent()
    saved(session.add("likes figs"))
    append(home, f"\n§\n{NOTE}")
    session.notes.undo(None, Author("command"))  # the edit that brought it
    assert stored(home) == ["likes tea", "likes figs"]
    with pytest.raises(RefusalError, match="github-token"):
        session.notes.undo(None, Author("command"))
    assert stored(home) == ["likes tea", "likes figs"]


def test_what_a_person_allowed_may_be_written(home: Path, agent: StartAgent) -> None:
    write_notes(home, NOTE)
    session = agent()
    session.notes.allow(entry_id(NOTE))
    saved(session.remove("Deploy"))
    saved(session.add(NOTE))
    assert NOTE in agent("s2").prompt


def test_a_refused_write_can_not_be_allowed_since_it_is_not_kept(agent: StartAgent) -> None:
    session = agent()
    is_refused_for_a_secret(session.add(NOTE))
    with pytest.raises(NotesError):
        session.notes.allow(entry_id(NOTE))


# -- what is in the files already -----------------------------------------------------------------


def test_an_entry_with_one_is_left_out_of_the_prompt_and_of_the_log(
    home: Path, agent: StartAgent, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    write_notes(home, f"likes tea\n§\n{NOTE}")
    session = agent()
    assert "likes tea" in session.prompt
    assert TOKEN not in session.prompt
    assert "secret: github-token" in caplog.text
    assert TOKEN not in caplog.text
    assert stored(home) == ["likes tea", NOTE]


def test_the_model_does_not_see_it_in_any_answer(home: Path, agent: StartAgent) -> None:
    write_notes(home, f"likes tea\n§\n{NOTE}\n§\nThe other deploy key: {TOKEN[::-1]} likes {TOKEN}")
    session = agent(memory_char_limit=200)
    for answer in (
        session.memory(action="read"),
        session.remove("eploy key"),
        session.remove("nobody has this"),
        session.add("x" * 150),
        session.batch({"action": "remove", "old_text": "nope"}),
    ):
        assert TOKEN not in json.dumps(answer)
    assert TOKEN not in session.builtin.review_prompt([])


def test_an_appended_secret_is_kept_and_not_passed_on(home: Path, agent: StartAgent) -> None:
    write_notes(home, "likes tea")
    session = agent(external=Recorder())
    append(home, f"\n§\n{NOTE}")
    saved(session.add("likes figs"))
    saved(session.remove("Deploy key"))
    assert stored(home) == ["likes tea", "likes figs"]
    assert [(each.action, each.content) for each in session.mirrored] == [
        ("add", "likes figs"),
        ("remove", "Deploy key: [redacted: github-token]"),
    ]
    assert TOKEN not in json.dumps(session.mirrored[-1].metadata)
    assert recorded(home)


@pytest.mark.files_only
def test_the_person_sees_it_and_what_to_do(home: Path) -> None:
    write_notes(home, f"likes tea\n§\n{NOTE}")
    shown = command(home, "show").output
    assert NOTE in shown
    assert "not in the prompt: secret: github-token" in shown
    assert "hermes-plugins secrets set" in shown
    entries = json.loads(command(home, "show", "--json").output)["notebooks"]["memory"]["entries"]
    assert [each["objection"] for each in entries] == ["", "secret: github-token"]


@pytest.mark.files_only
def test_doctor_names_the_kind_and_not_the_secret(home: Path) -> None:
    write_notes(home, NOTE)
    rows = [row for row in diagnose(home, fix=False) if row[1] == "warning" and "secret" in row[2]]
    assert [row[0] for row in rows] == ["MEMORY.md"]
    assert "github-token" in rows[0][2]
    assert "hermes-plugins secrets set" in rows[0][3]
    assert TOKEN not in str(rows)


# -- what is none ----------------------------------------------------------------------------------


def test_plain_notes_are_none(home: Path) -> None:
    lines = (CORPUS / "corpus" / "harmless.jsonl").read_text("utf-8").splitlines()
    plain = [json.loads(line)["text"] for line in lines]
    plain += (CORPUS / "privacy" / "harmless.txt").read_text("utf-8").splitlines()
    plain += [
        "The wifi password is on the fridge.",
        "The password is stored in 1Password; the API key is rotated every month.",
        "OPENAI_API_KEY lives in .env; token: ask Ada.",
        "Secret santa is on Friday, and the key point is to be on time.",
    ]
    notes = Notes(home)
    objections = notes.notebooks["memory"].findings(plain)
    notes.close()
    assert [text for text, found in objections.items() if found.kind == "secret"] == []
