"""A config.yaml that can't be used: told in one line, and left as it is."""

from __future__ import annotations

import pytest
from support.commands import Machine


def folder(machine: Machine) -> str:
    machine.config_file.mkdir()
    return "config.yaml: is a folder"


def binary(machine: Machine) -> str:
    machine.config_file.write_bytes(bytes(range(256)) * 4)
    return "config.yaml"


def control(machine: Machine) -> str:
    machine.config_file.write_bytes(b"memory:\n  provider: a\x00b\n")
    return "config.yaml"


def huge(machine: Machine) -> str:
    line = b"# a comment to fill the file with, and then some more of it\n"
    machine.config_file.write_bytes(line * (10_000_000 // len(line) + 1))
    return "config.yaml: has 10,"


def unclosed(machine: Machine) -> str:
    machine.write_config("model: x\nmemory:\n  provider: [a\n")
    return "config.yaml:"


def scalar(machine: Machine) -> str:
    machine.write_config("just words\n")
    return "config.yaml:1: expected keys and values, got a string"


def provider_list(machine: Machine) -> str:
    machine.write_config("# one\n# two\nmemory:\n  provider: [a, b]\n")
    return (
        "config.yaml:4: memory.provider: expected a string, got a list; "
        "only one external provider can be active"
    )


def memory_list(machine: Machine) -> str:
    machine.write_config("memory: [provider]\n")
    return "config.yaml:1: memory: expected a mapping, got a list"


def provider_number(machine: Machine) -> str:
    machine.write_config("memory:\n  provider: 5\n")
    return "config.yaml:2: memory.provider: expected a string, got a number"


def pins_list(machine: Machine) -> str:
    machine.write_config("memory:\n  pins: [alpha]\n")
    return "config.yaml:2: memory.pins: expected a mapping, got a list"


CASES = [
    folder,
    binary,
    control,
    huge,
    unclosed,
    scalar,
    provider_list,
    memory_list,
    provider_number,
    pins_list,
]


@pytest.mark.parametrize("case", CASES)
def test_list_lists_everything_and_tells_the_error_on_stderr(machine, case):
    machine.install("alpha")
    machine.add_directory("beta")
    told = case(machine)
    with machine.unchanged():
        result = machine.run("list")
        assert told in result.failed()
        assert result.rows.keys() == {"builtin", "alpha", "beta"}
        assert machine.providers(code=1).keys() == {"builtin", "alpha", "beta"}


@pytest.mark.parametrize("case", CASES)
def test_status_gives_the_reason_in_one_line_and_fails(machine, case):
    told = case(machine)
    with machine.unchanged():
        result = machine.run("status")
    assert (result.code, result.err) == (1, "")
    (problem,) = [line for line in result.lines if line.startswith("problem:")]
    assert told in problem
    assert "built-in:  active (always)" in result.lines


@pytest.mark.parametrize("case", [folder, provider_list])
def test_status_gives_the_reason_in_json_too(machine, case):
    told = case(machine)
    report = machine.json("status", code=1)
    assert report["ok"] is False
    (problem,) = report["problems"]
    assert told in problem
    assert report["builtin"]["active"] is True


@pytest.mark.parametrize("case", [folder, binary, huge, unclosed, provider_list])
def test_what_would_write_it_refuses_and_leaves_it_as_it_is(machine, case):
    machine.install("alpha")
    told = case(machine)
    with machine.unchanged():
        assert told in machine.run("enable", "alpha", "--force").failed()
        assert told in machine.run("disable").failed()


def test_a_misspelt_key_of_ours_is_an_error_that_says_what_was_meant(machine):
    machine.install("alpha")
    machine.write_config("memory:\n  provder: alpha\n")
    told = "config.yaml:2: memory.provder: unknown key; did you mean provider?"
    with machine.unchanged():
        assert told in machine.run("status").out
        assert told in machine.run("enable", "alpha").failed()


def test_all_that_is_wrong_is_told_at_once(machine):
    machine.write_config("memory:\n  provider: [a]\n  pin: maybe\n  deadlines: {load: soon}\n")
    problems = machine.json("status", code=1)["problems"]
    assert len(problems) == 3
    for line, problem in zip((4, 3, 2), sorted(problems, reverse=True), strict=True):
        assert problem.startswith(f"config.yaml:{line}: memory.")


def test_an_unreadable_link_is_an_error_and_not_an_empty_file(machine):
    machine.config_file.symlink_to(machine.config_file)  # a loop
    with machine.unchanged():
        assert "config.yaml" in machine.run("list").failed()
        assert machine.run("status").code == 1


def test_a_missing_or_empty_file_is_fine(machine):
    machine.run("status").done()
    machine.write_config("")
    machine.run("status").done()
    machine.write_config("# nothing but words\n")
    machine.run("list").done()


def test_a_link_stays_a_link_when_it_is_written(machine, tmp_path):
    real = tmp_path / "dotfiles.yaml"
    real.write_text("# mine\n")
    machine.config_file.symlink_to(real)
    machine.install("alpha")
    machine.run("enable", "alpha").done()
    assert machine.config_file.is_symlink()
    assert real.read_text().startswith("# mine\n")
    assert "provider: alpha" in real.read_text()
