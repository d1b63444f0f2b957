"""Where output and errors go, and what happens when nobody takes them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from support.commands import Machine, posix_only
from support.sites import provider_source

TWO = ["list", pytest.param("info builtin", marks=pytest.mark.stress)]


def shell(machine: Machine, command: str) -> tuple[int, str, str]:
    """Run a line of shell, in which ``hermes-plugins`` is the installed command."""
    path = f"{machine.script.parent}{os.pathsep}{machine.environment['PATH']}"
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        env={**machine.environment, "PATH": path},
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


@posix_only
@pytest.mark.parametrize(
    "command",
    [
        "list",
        "status",
        pytest.param("list --json", marks=pytest.mark.stress),
        pytest.param("info builtin", marks=pytest.mark.stress),
    ],
)
def test_a_reader_that_goes_away_is_no_error(machine, command):
    _, out, err = shell(machine, f"hermes-plugins {command} | head -n 0")
    assert (out, err) == ("", "")


@posix_only
def test_a_reader_that_goes_away_in_the_middle_is_no_error(machine):
    for number in range(60):  # more than a buffer and a pipe hold
        machine.add_directory(f"plugin-{number}", manifest=f"description: {'word ' * 1000}\n")
    _, out, err = shell(machine, "hermes-plugins list --json | head -n 1")
    assert (out, err) == ("{\n", "")


@posix_only
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("command", TWO)
def test_a_full_disk_is_told_in_one_line(machine, command):
    code, _, err = shell(machine, f"hermes-plugins {command} > /dev/full")
    assert code == 1
    (line,) = err.splitlines()
    assert line.startswith("hermes-plugins: ")
    assert "No space left on device" in line
    assert "unexpected" not in line


@posix_only
@pytest.mark.parametrize("command", TWO)
def test_a_closed_stdout_is_no_error_of_ours(machine, command):
    _, out, err = shell(machine, f"hermes-plugins {command} >&-")
    assert out == ""
    assert "unexpected" not in err
    assert "Traceback" not in err


@posix_only
def test_a_closed_stderr_changes_neither_output_nor_exit_code(machine):
    machine.write_config("memory: [1]\n")
    code, out, err = shell(machine, "hermes-plugins list 2>&-")
    assert (code, err) == (1, "")
    assert out.startswith("builtin\t")


@posix_only
def test_a_closed_stdin_is_no_obstacle(machine):
    machine.install("alpha")
    for command in ("list", "enable alpha", "status", "disable"):
        code, _, err = shell(machine, f"hermes-plugins {command} <&-")
        assert (code, err) == (0, ""), command


def test_errors_go_to_stderr_and_leave_json_alone(machine):
    machine.write_config("memory: [1]\n")
    result = machine.run("list", "--json")
    assert json.loads(result.out)["schema"] == 1
    assert "expected a mapping" in result.failed()


def test_debug_shows_the_traceback_of_our_error(machine):
    machine.write_config("memory: [1]\n")
    result = machine.run("--debug", "list")
    assert result.code == 1
    assert "Traceback" in result.err
    assert "expected a mapping, got a list" in result.err
    assert "builtin\t" in result.out


def test_debug_shows_the_line_of_a_plugin_that_failed(machine):
    source = "def register(ctx):\n    broken_line = 1 / 0  # MemoryProvider\n"
    machine.install("alpha", source)
    quiet = machine.run("enable", "alpha")
    assert "ZeroDivisionError" in quiet.failed()
    result = machine.run("--debug", "enable", "alpha")
    assert result.code == 1
    assert "Traceback" in result.err
    assert "broken_line = 1 / 0" in result.err


def test_debug_shows_why_the_status_is_bad(machine):
    source = "def register(ctx):\n    broken_line = 1 / 0  # MemoryProvider\n"
    machine.install("alpha", source)
    machine.write_config("memory: {provider: alpha}\n")
    result = machine.run("--debug", "status")
    assert result.code == 1
    assert "broken_line = 1 / 0" in result.err


@posix_only
def test_ctrl_c_while_listing_shows_no_traceback(machine):
    (machine.site.folder / "sitecustomize.py").write_text(
        "import os, signal\n"
        "scan = os.scandir\n"
        "def scandir(*arguments):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    return scan(*arguments)\n"
        "os.scandir = scandir\n"
    )
    result = machine.run_process("list")
    assert result.code not in (0, 2)
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    "env",
    [
        {"LANG": "C", "LC_ALL": "C"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "cp1252"},
    ],
    ids=["C", "really C", "cp1252"],
)
class TestUnderAPoorLocale:
    """Names and texts that the output's encoding does not have."""

    def test_all_providers_are_listed(self, machine, env):
        self.stock(machine)
        result = machine.run("list", env=env).done()
        assert len(result.lines) == 3

    def test_an_error_about_such_a_name_is_one_line(self, machine, env):
        machine.write_config("memory:\n  Größe: 5\n  provider: [é]\n")
        machine.run("list", env=env).failed()

    def test_json_remains_json(self, machine, env):
        self.stock(machine)
        listed = machine.providers(env=env)
        assert listed.keys() == {"builtin", "mémoire", "brain"}
        assert listed["brain"]["description"] == "🧠 für alles"

    @staticmethod
    def stock(machine):
        machine.install("mémoire", provider_source("memoire"), distribution="memory-memoire")
        machine.add_directory("brain", manifest="description: 🧠 für alles\n")
