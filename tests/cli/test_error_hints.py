"""What a person reads after a mistake: one line, and a hint that says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.commands import Machine

TWO_MISTAKES = "memory:\n  nudge_interval: abc\n  durability: ful\n"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.chdir(tmp_path)
    return Machine(tmp_path / "machine", in_process=True)


FAILED = {
    "memory approve zz": ("nothing with the id zz is pending", "memory pending"),
    "memory reject zz": ("nothing with the id zz is pending", "memory pending"),
    "memory remove zzz": ("No entry contains 'zzz'.", "memory show"),
    "memory undo 99": ("no such change", "memory history"),
    "memory allow zz": ("rejected nothing with the id zz", "memory show"),
    "install ./nosuch": ("./nosuch: no such file or folder", "name a package"),
    "export nosuch/x": ("can't be written", "check that the folder exists"),
    "restore nosuch": ("no such file", "check the path"),
    "storage migrate --to foo": ("expected files, or postgresql://", "--to files"),
    "disable builtin": ("can't be disabled", "hermes-plugins disable"),
    "disable acme": ("acme is not active", "hermes-plugins list"),
    "config set memory.nudge_interval abc": (
        "hermes-plugins: memory.nudge_interval: expected a whole number, got a string",
        "config set memory.nudge_interval 10",
    ),
    "config set memory.durability ful": (
        "hermes-plugins: memory.durability: expected one of normal, full",
        "config set memory.durability full",
    ),
    "config set memory.prefetch_budget -1": ("expected at least 0, got -1", "prefetch_budget 2"),
}


@pytest.mark.parametrize("command", FAILED)
def test_an_error_says_what_to_do(machine, command):
    what, todo = FAILED[command]
    text = machine.run(*command.split()).failed()
    error, _, hint = text.partition(" hint: ")
    assert what in error
    assert todo in hint


def test_an_approval_that_fails_says_that_it_is_pending_only_if_it_is(machine):
    text = machine.run("memory", "approve", "zz").failed()
    assert "still pending" not in text


def test_an_empty_secret_is_refused_with_what_to_do(machine):
    text = machine.run("secrets", "set", "FOO", input="\n").failed()
    assert "secrets delete FOO" in text


def test_a_file_without_a_byte_is_not_an_import(machine, tmp_path):
    (tmp_path / "empty.zip").write_bytes(b"")
    text = machine.run("sessions", "import", "empty.zip").failed()
    assert "empty.zip: is empty" in text
    assert "hint: export or copy it again" in text


def test_a_folder_to_check_that_does_not_exist_is_named(machine):
    result = machine.run("check", "./nosuch")
    error, hint = result.err.splitlines()
    assert error.endswith("nosuch: no such folder")
    assert "find failed" not in error
    assert "hermes-plugins list" in hint


@pytest.mark.parametrize(
    ("command", "what", "todo"),
    [
        ("ui --port abc", "expected a whole number from 0 to 65535, got 'abc'", "ui --help"),
        ("ui --port 99999", "expected a whole number from 0 to 65535, got 99999", "ui --help"),
        ("mcp install cladue-code", "invalid value for 'CLIENT'", "did you mean claude-code?"),
    ],
)
def test_wrong_usage_says_what_was_expected(machine, command, what, todo):
    text = machine.run(*command.split()).misused()
    assert what in text
    assert todo in text
    assert text.count("claude-desktop") <= 1


@pytest.mark.parametrize("command", ["list", "config set memory.durability full", "memory show"])
def test_a_broken_config_is_named_with_its_path(machine, command):
    machine.write_config("memory: [\n")
    result = machine.run(*command.split())
    assert f"hint: correct {machine.home / 'config.yaml'}" in result.err


def test_status_says_where_to_correct_the_config(machine):
    machine.write_config(TWO_MISTAKES)
    result = machine.run("status")
    assert result.out.count("problem:") == 2
    assert result.out.count(f"hint: correct {machine.home / 'config.yaml'}\n") == 1


def test_doctor_reports_each_mistake_of_the_config_once(machine):
    machine.write_config(TWO_MISTAKES)
    result = machine.run("doctor")
    assert "config.yaml: line 2: memory.nudge_interval" in result.out
    assert "config.yaml: line 3: memory.durability" in result.out
    assert result.out.count("memory.durability") == 1
    assert result.out.count("hint: correct ") == 4  # one for each finding that depends on it
