"""Every command that reads or changes memory answers the same over files and over PostgreSQL."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.commands import Machine
from support.full_home import fill

from hermes_core.checkup import storage
from hermes_core.config import load_config
from hermes_core.storage.postgres import shared_database

#: In order: later ones see what earlier ones changed. Each with its exit code.
COMMANDS: tuple[tuple[int, str], ...] = (
    (0, "sessions list"),
    (0, "sessions list --limit 2"),
    (0, "sessions search Rhine"),
    (0, "sessions search 日本語 --limit 3"),
    (0, "sessions search nothing-like-this"),
    (0, "sessions show tuesday"),
    (1, "sessions show not-there"),
    (0, "sessions stats"),
    (0, "sessions check"),
    (0, "sessions repair"),
    (0, "memory show"),
    (0, "memory history"),
    (0, "memory pending"),
    (0, "memory add --target user likes-tea"),
    (0, "memory replace --target user likes-tea likes-coffee"),
    (1, "memory replace --target user not-there anything"),
    (0, "memory undo"),
    (0, "memory remove --target user likes-tea"),
    (0, "memory show"),
    (1, "outbox status"),
    (0, "outbox list"),
    (0, "outbox list --state failed"),
    (0, "outbox show 1"),
    (0, "outbox drop 1 --yes"),
    (1, "outbox show 1"),
    (0, "outbox list"),
    (0, "forget Rhine --dry-run"),
    (0, "forget Rhine --yes"),
    (0, "sessions search Rhine"),
    (0, "sessions delete tuesday --yes"),
    (0, "sessions forget --user bob --platform telegram --yes"),
    (0, "sessions prune --older-than 1d --yes"),
    (0, "sessions list"),
    (0, "storage check"),
)
#: What differs by nature: where things are, how large they are, and when this test ran.
DIFFERING = frozenset(
    ("bytes", "max_bytes", "place", "path", "archive", "receipt", "searched", "unreachable",
     "at", "seconds", "files", "number", "when", "database",
     "subject", "salt")
)  # fmt: skip


@pytest.fixture
def machines(
    tmp_path: Path, database_url: str, few_distributions: None, forked_children: None
) -> Iterator[dict[str, Machine]]:
    """Two homes with the same memory, one of them in a database."""
    made = {name: Machine(tmp_path / name, in_process=True) for name in ("files", "postgres")}
    fill(made["files"].home)
    shutil.copytree(made["files"].home, made["postgres"].home, dirs_exist_ok=True)
    storage.migrate(load_config(made["postgres"].home), database_url)
    for name in ("state.db", "outbox.db", "memories", "pending"):
        for path in made["postgres"].home.glob(f"{name}*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    yield made
    shared_database(database_url, "default", is_default=True).close()


def answer(machine: Machine, command: str) -> Any:
    result = machine.run(*command.split(), "--json")
    out = json.loads(result.out) if result.out.strip() else None
    return result.code, normalised(out), shortened(machine, result.err)


def normalised(value: Any) -> Any:
    if isinstance(value, dict):
        value = {**value, "id": ""} if "salt" in value else value  # a receipt, with a random id
        return {key: normalised(each) for key, each in value.items() if key not in DIFFERING}
    if isinstance(value, list):
        return [normalised(each) for each in value]
    if isinstance(value, str):
        return re.sub(r"\d{4}-\d\d-\d\dT[\d:.+Z-]+", "TIME", value)
    return value


def shortened(machine: Machine, text: str) -> str:
    return re.sub(r"postgresql://\S+( \(\S+\))?", "PLACE", text.replace(str(machine.home), "PLACE"))


def test_every_command_answers_the_same(machines: dict[str, Machine]) -> None:
    wrong = []
    for code, command in COMMANDS:
        files, postgres = (answer(machines[name], command) for name in ("files", "postgres"))
        if files != postgres or files[0] != code:
            wrong.append(f"{command}:\n  {files}\n  {postgres}")
    assert not wrong, "\n".join(wrong)


def test_an_export_is_the_same(machines: dict[str, Machine]) -> None:
    files, postgres = (each.run("sessions", "export", "-") for each in machines.values())
    assert files.code == postgres.code == 0
    assert files.out == postgres.out
    assert '"messages"' in files.out


@pytest.mark.parametrize("command", ["doctor", "status"])
def test_checks_of_the_home_find_nothing_wrong(machines: dict[str, Machine], command: str) -> None:
    files, postgres = (answer(each, command) for each in machines.values())
    assert (files[0], postgres[0]) == (0, 0), postgres


def test_the_status_of_each_storage(machines: dict[str, Machine]) -> None:
    files, postgres = (each.json("storage", "status") for each in machines.values())

    assert files["storage"] == "files"
    assert postgres["storage"].startswith("postgresql://hermes@")
    assert postgres["namespace"] == "default"
    assert postgres["server"]["role"] == "hermes_tenant"
    assert postgres["server"]["schemas"].keys() == {"archive", "notes", "outbox"}
    for mine, theirs in zip(files["parts"], postgres["parts"], strict=True):
        assert mine["counts"] == theirs["counts"]
        assert (mine["bytes"] > 0, theirs["bytes"] > 0) == (True, True)


def test_a_server_that_is_down_is_said_in_one_line(machines: dict[str, Machine]) -> None:
    machine = machines["files"]
    path = machine.home / "config.yaml"
    path.write_text(path.read_text() + "  storage: postgresql://hermes@127.0.0.1:1/none\n")

    shown = machine.run("storage", "status")
    found = machine.json("storage", "status", code=1)
    checked = machine.json("storage", "check", code=1)

    assert shown.code == 1
    assert "refused" in found["problem"]
    assert "check that the server is running" in found["hint"]
    assert found["parts"] == []
    assert len(checked["problems"]) == 1
    assert "refused" in checked["problems"][0]


def test_an_editor_gets_a_copy_and_both_changes_are_kept(
    machines: dict[str, Machine], tmp_path: Path
) -> None:
    machine = machines["postgres"]
    script = tmp_path / "editor.py"
    script.write_text(
        "import subprocess, sys\n"
        "path = sys.argv[1]\n"
        f"subprocess.run([{str(machine.script)!r}, 'memory', 'add', 'said meanwhile'],"
        " check=True)\n"
        "text = open(path, encoding='utf-8').read()\n"
        "open(path, 'w', encoding='utf-8').write(text + '\\n§\\nwritten in the editor')\n"
    )
    editor = {"EDITOR": f"python3 {script}", "VISUAL": ""}

    done = machine.run_process("memory", "edit", env=editor)

    notebook = machine.json("memory", "show")["notebooks"]["memory"]
    entries = [each["text"] for each in notebook["entries"]]
    assert done.code == 0, done
    assert {"said meanwhile", "written in the editor"} <= set(entries)
    assert not list(machine.home.glob("memories/*.md"))


# -- what `storage check` finds -----------------------------------------------------------------

INVALID_INDEX = (
    "UPDATE pg_index SET indisvalid = false"
    " WHERE indexrelid = 'hermes.archive_words_index'::regclass"
)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("ALTER TABLE hermes.archive_messages DISABLE ROW LEVEL SECURITY", "security of the table"),
        ("ALTER TABLE hermes.notes_texts NO FORCE ROW LEVEL SECURITY", "security of the table"),
        ("DROP POLICY outbox_writes_rows ON hermes.outbox_writes", "outbox_writes is missing"),
        (INVALID_INDEX, "not valid"),
        ("UPDATE hermes.notes_changes SET entries = '{{'", "has entries that are not JSON"),
        ("UPDATE hermes.archive_sessions SET key = gen_random_uuid()", "not found by their ids"),
        ("DELETE FROM hermes.archive_messages WHERE content = 'line 7'", "1099 messages"),
        ("UPDATE hermes.outbox_writes SET state = 'odd' WHERE id = 2", "odd"),
        ("UPDATE hermes.versions SET version = 99 WHERE component = 'notes'", "newer version"),
    ],
)  # fmt: skip
def test_check_finds_what_is_wrong(
    machines: dict[str, Machine], postgres_server: Any, database_url: str, damage: str, said: str
) -> None:
    with postgres_server.admin(database_url.rpartition("/")[2]) as admin:
        admin.execute(damage)
    shared_database(database_url, "default", is_default=True).close()

    problems = machines["postgres"].json("storage", "check", code=1)["problems"]

    assert any(said in each for each in problems), problems
    assert not any("\n" in each for each in problems)
