"""The whole way with a real Secret Service (gnome-keyring), as on a desktop."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.commands import Machine
from support.secret_service import Session, needs_secret_service

pytestmark = needs_secret_service

NASTY = 'it\'s "q" #1 ${HOME} `id` \\ пароль 🔑'


@pytest.fixture
def session(machine: Machine, tmp_path: Path) -> Session:
    return Session(machine, tmp_path)


def states(machine: Machine, text: str) -> dict[str, str]:
    return {each["variable"]: each["state"] for each in json.loads(text)["secrets"]}


def test_a_secret_goes_to_the_keyring_and_is_read_in_the_next_session(session, machine, tmp_path):
    first = session.run('printf "%s\\n" "$VALUE" | "$CLI" secrets set KEY', VALUE=NASTY)
    assert "Stored KEY in the OS keyring: the OS keyring answers." in first.stdout, first
    assert not (machine.home / ".env").exists()
    out = tmp_path / "out"
    second = session.run(
        """
        python3=$(dirname "$CLI")/python
        "$python3" -P -c 'if 1:
            import pathlib, sys
            from hermes_core.secrets import Secrets
            found = Secrets(pathlib.Path(sys.argv[1])).get("KEY")
            pathlib.Path(sys.argv[2]).write_text(f"{found.store}:{found.value}", "utf-8")
        ' "$HERMES_HOME" "$OUT"
        "$CLI" secrets list --json
        """,
        OUT=str(out),
    )
    assert out.read_text("utf-8") == f"keyring:{NASTY}", second
    assert states(machine, second.stdout) == {"KEY": "set (keyring)"}


@pytest.mark.stress
def test_it_moves_to_dotenv_and_back_and_is_deleted(session, machine):
    done = session.run(
        """
        printf 'v w\\n' | "$CLI" secrets set KEY --provider honcho
        "$CLI" secrets move --to dotenv
        cat "$HERMES_HOME/.env"
        "$CLI" secrets move --to keyring
        cat "$HERMES_HOME/.env"
        "$CLI" secrets list
        "$CLI" secrets delete KEY
        "$CLI" secrets list
        """
    )
    assert done.stdout.splitlines()[2:] == [
        "Moved to .env: KEY.",
        "KEY='v w'",
        "Moved to the OS keyring: KEY.",
        "KEY\thoncho\tset (keyring)",
        "Deleted KEY.",
    ], done


@pytest.mark.stress
def test_64_kb_fit(session, machine):
    done = session.run(
        """
        head -c 65536 /dev/zero | tr '\\0' x | "$CLI" secrets set KEY
        "$CLI" secrets move --to dotenv
        """
    )
    assert "Stored KEY in the OS keyring" in done.stdout, done
    assert (machine.home / ".env").read_text() == f"KEY={'x' * 65536}\n"


def test_a_locked_one_does_not_answer_and_auto_says_so(session, machine):
    session.run("printf 'v\\n' | \"$CLI\" secrets set KEY")
    done = session.run(
        """
        "$CLI" secrets list --json
        printf 'w\\n' | "$CLI" secrets set OTHER
        "$CLI" secrets move --to dotenv
        """,
        unlocked=False,
    )
    text, rest = done.stdout.split("Stored OTHER", 1)
    assert states(machine, text) == {"KEY": "in the keyring, which does not answer"}
    assert "in .env: the keyring is locked; .env is plain text" in rest
    assert "which does not answer here (cron, ssh): the keyring is locked" in done.stderr
    assert done.returncode == 1


def test_without_a_session_it_is_told_from_not_set(session, machine):
    session.run("printf 'v\\n' | \"$CLI\" secrets set KEY")
    listed = machine.json("secrets", "list")["secrets"]
    assert [each["state"] for each in listed] == ["in the keyring, which does not answer"]
    assert (
        "move --to dotenv where it does"
        in machine.run("secrets", "move", "--to", "dotenv").failed()
    )


def test_the_value_is_in_no_file_but_the_keyrings(session, machine, tmp_path):
    session.run("printf 'canary-4711\\n' | \"$CLI\" secrets set KEY")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert session.keyrings / "login.keyring" in files
    assert [path for path in files if b"canary-4711" in path.read_bytes()] == []
