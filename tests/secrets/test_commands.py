"""`hermes-plugins secrets`, as a person and as a script runs it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands import Machine, Result, posix_only
from support.terminals import Dialogue

CANARY = "canary-4711"
NO_KEYRING = "no keyring is available; .env is plain text, readable only by you"


def piped(machine: Machine, value: str | bytes, *arguments: str, **env: str) -> Result:
    """Run `secrets set` with a value on stdin."""
    if isinstance(value, str):
        return machine.run("secrets", "set", *arguments, input=value, env=env)
    done = subprocess.run(
        machine.command("secrets", "set", *arguments),
        input=value,
        env={**machine.environment, **env},
        capture_output=True,
        timeout=60,
        check=False,
    )
    return Result(done.returncode, done.stdout.decode(), done.stderr.decode())


def env(machine: Machine) -> str:
    path = machine.home / ".env"
    return path.read_bytes().decode() if path.exists() else ""


@pytest.fixture
def dialogue(machine: Machine) -> Iterator:
    opened: list[Dialogue] = []

    def start(*arguments: str, **options: str) -> Dialogue:
        opened.append(Dialogue(machine, *arguments, env=options))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


@pytest.mark.parametrize("value", ["v w\n", "v w\r\n"])
def test_a_value_comes_from_stdin_without_its_line_end(machine, value):
    result = piped(machine, value, "KEY", "--provider", "honcho").done()
    assert result.out == f"Stored KEY in .env: {NO_KEYRING}.\n"
    assert env(machine) == "KEY='v w'\n"
    assert machine.run("secrets", "list").done().out == "KEY\thoncho\tset (.env)\n"


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("", "KEY: the value is empty; nothing was stored"),
        ("\n", "KEY: the value is empty; nothing was stored"),
        ("canary\0", "KEY: the value has a NUL character"),
        (b"canary\xff", "KEY: the value is not UTF-8; nothing was stored"),
        ("canary" * 30_000, "a variable can't hold more than 100,000; nothing was stored"),
    ],
)
def test_a_bad_value_is_refused_without_being_shown(machine, value, problem):
    result = piped(machine, value, "KEY")
    assert problem in result.failed()
    assert "canary" not in result.err + result.out
    assert env(machine) == ""


@pytest.mark.parametrize(
    "arguments",
    [["KEY", CANARY], ["KEY", f"--{CANARY}"], ["KEY", f"-{CANARY}"], ["KEY", "--value", CANARY]],
)
def test_a_value_on_the_command_line_is_refused_without_being_shown(machine, arguments):
    result = machine.run("secrets", "set", *arguments)
    assert "other users can see a command line" in result.misused()
    assert CANARY not in result.err
    assert env(machine) == ""


@pytest.mark.parametrize("name", [f"KEY={CANARY}", CANARY, "1A", "A B"])
def test_what_is_no_name_is_refused_without_being_shown(machine, name):
    for command in ("set", "delete"):
        result = machine.run("secrets", command, name)
        assert "the name given is not the name of a variable" in result.failed()
        assert CANARY not in result.err


def test_a_bad_provider_is_refused_before_the_value_is_asked_for(machine):
    assert "reserved" in piped(machine, CANARY, "KEY", "--provider", "pins").failed()
    assert env(machine) == ""


@posix_only
def test_a_person_is_asked_and_nothing_that_is_typed_is_shown(machine, dialogue):
    talk = dialogue("secrets", "set", "KEY")
    talk.answer((r"Value of KEY \(hidden\): ", f"{CANARY} 'é'"))
    assert talk.end() == 0
    assert CANARY not in talk.shown
    assert f"Stored KEY in .env: {NO_KEYRING}." in " ".join(talk.shown.split())
    assert env(machine) == f"KEY=\"{CANARY} 'é'\"\n"
    shown = dialogue("secrets", "list")
    assert shown.end() == 0
    rows = [line.rstrip().split(maxsplit=2) for line in shown.shown.splitlines()]
    assert rows == [["VARIABLE", "PROVIDER", "STATE"], ["KEY", "-", "set (.env)"]]


@posix_only
@pytest.mark.parametrize("keys", ["\n", "\x03", "\x04"], ids=["return", "ctrl_c", "ctrl_d"])
def test_whoever_says_nothing_has_changed_nothing(machine, dialogue, keys):
    talk = dialogue("secrets", "set", "KEY")
    talk.wait_for(r"\(hidden\): ")
    with machine.unchanged():
        talk.type(keys)
        assert talk.end() != 0
    assert "Traceback" not in talk.shown


@posix_only
def test_a_line_that_the_terminal_has_cut_is_not_stored(machine, dialogue):
    talk = dialogue("secrets", "set", "KEY")
    talk.answer((r"\(hidden\): ", CANARY * 1000))
    assert talk.end() == 1
    assert "a terminal cuts lines off after" in talk.shown
    assert CANARY not in talk.shown
    assert env(machine) == ""


def test_an_environment_that_shadows_it_is_told(machine):
    result = piped(machine, "v", "KEY", KEY=CANARY)
    assert result.err == ("warning: overridden by environment variable KEY\n")
    assert env(machine) == "KEY=v\n"


@pytest.mark.skipif(os.name == "nt", reason="modes are POSIX")
def test_a_file_that_others_can_read_is_told(machine):
    path = machine.home / ".env"
    path.write_text("A=1\n")
    path.chmod(0o644)
    listed = machine.run("secrets", "list")
    assert listed.err == (f"warning: {path} can be read by others (mode 0644): chmod 600 {path}\n")
    assert machine.json("secrets", "list")["warnings"] == [listed.err[9:-1]]
    stored = piped(machine, "v", "KEY")
    assert stored.err == f"warning: other users could read {path} until now; it is private now\n"
    assert machine.run("secrets", "list").err == ""


def test_the_keyring_is_taken_where_there_is_one(machine):
    machine.environment["PYTHON_KEYRING_BACKEND"] = "support.keyrings.InFile"
    assert piped(machine, "v", "KEY").done().lines == [
        "Stored KEY in the OS keyring: the OS keyring answers.",
        "hermes-agent, and services that run outside your session, can't read it there.",
    ]
    assert env(machine) == ""
    assert machine.run("secrets", "move", "--to", "dotenv").done().out == "Moved to .env: KEY.\n"
    assert env(machine) == "KEY=v\n"
    assert machine.run("secrets", "move", "--to", "dotenv").done().out == (
        "There is nothing to move.\n"
    )


def test_the_configuration_chooses_the_store(machine):
    machine.environment["PYTHON_KEYRING_BACKEND"] = "support.keyrings.InFile"
    machine.write_config("secrets: {backend: dotenv}\n")
    assert "Stored KEY in .env: secrets.backend is dotenv." in piped(machine, "v", "KEY").done().out
    machine.environment["PYTHON_KEYRING_BACKEND"] = "keyring.backends.null.Keyring"
    machine.write_config("secrets: {backend: keyring}\n")
    assert "the keyring is disabled" in piped(machine, "w", "KEY").failed()
    assert env(machine) == "KEY=v\n"


@pytest.mark.parametrize(
    ("backend", "reason"),
    [
        ("keyring.backends.null.Keyring", "the keyring is disabled"),
        ("keyring.backends.fail.Keyring", "no keyring is available"),
        ("no.such.Keyring", "the keyring can't be loaded: ModuleNotFoundError"),
        ("support.keyrings.Hanging", "the keyring does not answer within 3 s"),
        ("support.keyrings.RaisesOnSet", "the keyring failed: PasswordSetError"),
        ("support.keyrings.Plaintext", "is not a safe one"),
    ],
)
def test_without_a_real_keyring_dotenv_is_taken_and_the_reason_told(machine, backend, reason):
    result = piped(machine, CANARY, "KEY", PYTHON_KEYRING_BACKEND=backend).done()
    assert f"Stored KEY in .env: {reason}" in result.out or reason in result.out
    assert CANARY not in result.out
    assert env(machine) == f"KEY={CANARY}\n"


def test_deleting_says_whether_there_was_anything(machine):
    piped(machine, "v", "KEY")
    assert machine.run("secrets", "delete", "KEY").done().out == "Deleted KEY.\n"
    again = machine.run("secrets", "delete", "KEY").done()
    assert again.out == "KEY is not set. Nothing was changed.\n"


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_no_value_is_in_the_arguments_of_a_process(machine, dialogue, tmp_path):
    machine.in_process = False
    keyring = {"PYTHON_KEYRING_BACKEND": "support.keyrings.Watching"}
    talk = dialogue("secrets", "set", "KEY", **keyring, TEST_SEEN=str(tmp_path / "seen"))
    talk.answer((r"\(hidden\): ", CANARY))
    assert talk.end() == 0
    seen = (tmp_path / "seen").read_bytes()
    assert b"secrets" in seen
    assert CANARY.encode() not in seen
