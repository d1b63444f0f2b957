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
    ("arguments", "error", "hint"),
    [
        (["list", "extra"], "got unexpected extra argument (extra)", "see: {} list --help"),
        (["list", "--jsn"], "no such option: --jsn", "did you mean --json?"),
        (["log", "--fail"], "no such option: --fail", "did you mean --failed?"),
        (["list", "--qqq"], "no such option: --qqq", "see: {} list --help"),
        (["list", "-x"], "no such option: -x", "see: {} list --help"),
        (["list", "--json=yes"], "option '--json' does not take a value", "see: {} list --help"),
        (["info"], "missing argument 'NAME'", "see: {} info --help"),
        (["enable", "a", "b"], "got unexpected extra argument (b)", "see: {} enable --help"),
        (["outbox", "show"], "missing argument 'ID'", "see: {} outbox show --help"),
        (["--home"], "option '--home' requires an argument", "see: {} --help"),
        (["--home", "", "list"], "invalid value for '--home': the name of the folder is empty",
         "see: {} --help"),
        (["--debgu", "list"], "no such option: --debgu", "did you mean --debug?"),
        (["frobnicate"], "no such command: frobnicate", "see: {} --help"),
        (["lst"], "no such command: lst", "did you mean `{} list`?"),
        (["enabel"], "no such command: enabel", "did you mean `{} enable`?"),
        (["outbox", "stauts"], "no such command: stauts", "did you mean `{} outbox status`?"),
        (["sessions", "serch"], "no such command: serch", "did you mean `{} sessions search`?"),
        (["config", "x"], "no such command: x", "see: {} config --help"),
        (["outbox", "list", "--state", "wait"],
         ("invalid value for '--state': 'wait' is not one of 'waiting', 'skipped', 'failed', "
          "'missed'"), "did you mean waiting?"),
        (["secrets", "move"], "missing option '--to'. Choose from: keyring, dotenv",
         "see: {} secrets move --help"),
        (["setup", "--no-input", "--set"], "option '--set' requires an argument",
         "see: {} setup --help"),
        (["config", "set", "memory.nudge_intervall", "5"],
         "memory.nudge_intervall is not a setting", "did you mean `memory.nudge_interval`?"),
        (["config", "set", "model", "x"], "model is not a setting",
         "use memory.KEY or memory.PROVIDER.KEY; to see them: {} config show"),
        (["config", "set", "memory.provider", "acme"],
         "memory.provider is set by `enable`, which tests the provider first",
         "run: {} enable acme"),
        (["check"], "the plugin's name is missing",
         "name a folder, or an installed plugin: {} list"),
        (["check", "-k", "zzz"], "no check has 'zzz' in its id, family or title",
         "see: {} check --list"),
        (["check", "x", "--skip", "Z9=no"], "unknown check in --skip: Z9", "see: {} check --list"),
        (["sessions", "import"],
         "FILE is missing: hermes-agent has no conversations in this home",
         "run: {} sessions import FILE"),
    ],
)  # fmt: skip
def test_wrong_usage_is_one_line_and_a_hint(machine, arguments, error, hint):
    with machine.unchanged():
        said = machine.run(*arguments).misused()
    hint = hint.format("hermes-plugins")
    # Older versions of click quote the names of options differently.
    assert said.replace('"', "'") == f"hermes-plugins: {error}\nhint: {hint}\n"


def test_a_command_of_commands_alone_shows_its_help(machine):
    for arguments in ((), ("outbox",)):
        result = machine.run(*arguments)
        assert (result.code, result.out) == (2, "")
        assert result.err.startswith("Usage: ")
        assert "Commands:" in result.err
