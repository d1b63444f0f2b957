"""Help, version and wrong usage."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hermes_core import __version__

COMMANDS = ("demo", "disable", "enable", "info", "list", "status")


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_the_help_names_every_command(machine, option):
    out = machine.run(option).done().out
    listed = out.partition("Commands:")[2]
    for command in COMMANDS:
        assert f"\n  {command} " in listed
    assert "--home" in out
    assert "--debug" in out
    assert "--version" in out


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("list", ["--all", "--json"]),
        ("info", ["NAME", "--json"]),
        ("enable", ["NAME", "--force"]),
        ("disable", ["[NAME]"]),
        ("status", ["--json"]),
        ("demo", ["temporary home"]),
    ],
)
def test_every_command_has_help(machine, command, words):
    out = machine.run(command, "--help").done().out
    assert out.startswith(f"Usage: hermes-plugins {command} ")
    for word in words:
        assert word in out


def test_the_version_is_told_with_the_name(machine):
    assert machine.run("--version").done().out == f"hermes-plugins {__version__}\n"


def test_the_package_runs_as_a_module_too(machine):
    done = subprocess.run(
        [sys.executable, "-P", "-m", "hermes_core", "list"],
        env=machine.environment,
        capture_output=True,
        check=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == (machine.run("list").out, "")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["list", "extra"], "extra"),
        (["list", "--jsn"], "--jsn"),
        (["list", "--json=yes"], "--json"),
        (["info"], "NAME"),
        (["enable"], "NAME"),
        (["enable", "a", "b"], "b"),
        (["disable", "a", "b"], "b"),
        (["status", "x"], "x"),
        (["--home"], "--home"),
        (["--nonsense", "list"], "--nonsense"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_says_what(machine, arguments, told):
    with machine.unchanged():
        said = machine.run(*arguments).misused()
    assert told in said.splitlines()[-1]


def test_without_a_command_the_help_is_shown_as_wrong_usage(machine):
    assert "Commands:" in machine.run().misused()


def test_an_unknown_command_is_wrong_usage(machine):
    assert "'frobnicate'" in machine.run("frobnicate").misused()


@pytest.mark.parametrize(("typed", "meant"), [("lst", "list"), ("enabel", "enable")])
def test_a_misspelt_command_gets_the_one_that_was_meant(machine, typed, meant):
    assert meant in machine.run(typed).misused().splitlines()[-1]
