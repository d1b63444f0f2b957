"""HERMES_HOME in every state in which a person may have left it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.commands import Machine
from support.other_user import bound_by_modes
from support.sites import add_directory

pytestmark = pytest.mark.usefixtures("forked_children")

COMMANDS = (("list",), ("info", "builtin"), ("enable", "alpha"), ("disable",), ("status",))


@pytest.fixture
def stocked(machine: Machine) -> Machine:
    """A machine with a provider to enable."""
    machine.install("alpha")
    return machine


def test_a_missing_home_is_fine_and_is_not_made_by_looking(stocked, tmp_path):
    missing = tmp_path / "missing" / "home"
    for arguments in (("list",), ("info", "alpha"), ("status",), ("disable",)):
        stocked.run(*arguments, env={"HERMES_HOME": str(missing)}).done()
    assert not missing.parent.exists()


@pytest.mark.parametrize("arguments", COMMANDS)
def test_a_home_that_is_a_file_is_an_error_that_names_it(stocked, tmp_path, arguments):
    file = tmp_path / "a file"
    file.write_text("mine")
    line = stocked.run(*arguments, env={"HERMES_HOME": str(file)}).failed()
    assert f"{file}: the Hermes home is not a folder" in line
    assert "--home" in line
    assert file.read_text() == "mine"


def test_an_error_names_a_path_with_two_blanks_as_it_is(machine, tmp_path):
    file = tmp_path / "two  blanks"
    file.write_text("mine")
    assert str(file) in machine.run("list", env={"HERMES_HOME": str(file)}).failed()


def test_a_home_below_a_file_is_an_error(stocked, tmp_path):
    file = tmp_path / "a file"
    file.write_text("mine")
    line = stocked.run("enable", "alpha", env={"HERMES_HOME": str(file / "below")}).failed()
    assert str(file) in line
    assert file.read_text() == "mine"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a file system of that kind")
@pytest.mark.parametrize(
    "home", ["/proc/hermes", pytest.param("/sys/hermes", marks=pytest.mark.stress)]
)
def test_a_home_that_cannot_be_written_can_be_looked_at(stocked, home):
    env = {"HERMES_HOME": home}
    assert "alpha" in stocked.run("list", env=env).done().rows
    stocked.run("status", env=env).done()
    line = stocked.run("enable", "alpha", env=env).failed()
    assert home in line
    assert "can't be created" in line


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX modes")
def test_a_read_only_home_is_left_as_it_is(stocked):
    stocked.write_config("# mine\n")
    stocked.home.chmod(0o500)
    try:
        with bound_by_modes(), stocked.unchanged():
            stocked.run("list").done()
            stocked.run("status").done()
            assert "config.yaml" in stocked.run("enable", "alpha").failed()
    finally:
        stocked.home.chmod(0o700)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("with spaces and 'quotes\"", marks=pytest.mark.stress),
        "zuhause-für 'Gedächtnis\"-記憶-🧠",
    ],
)
def test_a_home_with_spaces_and_non_ascii_works_like_any_other(machine, tmp_path, name):
    home = tmp_path / name
    add_directory(home, "beta")
    env = {"HERMES_HOME": str(home)}
    machine.run("enable", "beta", env=env).done()
    report = machine.json("status", env=env)
    assert report["home"] == str(home)
    assert report["provider"]["works"] is True
    assert str(home) in machine.run("status", env=env).done().out
    machine.run("disable", env=env).done()


def test_a_relative_home_is_below_the_current_folder(machine, tmp_path):
    home = tmp_path / "here"
    add_directory(home, "beta")
    options = {"env": {"HERMES_HOME": "here"}, "cwd": tmp_path}
    machine.run("enable", "beta", **options).done()
    assert machine.json("status", **options)["home"] == str(home)


def test_without_a_home_it_is_dot_hermes_of_the_user(machine):
    add_directory(machine.user / ".hermes", "beta")
    env = {"HERMES_HOME": None, "LOCALAPPDATA": None}
    assert "beta" in machine.run("list", env=env).done().rows
    env["HERMES_HOME"] = ""  # as good as none
    assert "beta" in machine.run("list", env=env).done().rows


def test_a_tilde_is_the_user(machine):
    add_directory(machine.user / "mine", "beta")
    assert "beta" in machine.run("list", env={"HERMES_HOME": "~/mine"}).done().rows


def test_the_option_counts_more_than_the_variable(machine, tmp_path):
    add_directory(tmp_path / "other", "beta")
    found = machine.run("--home", str(tmp_path / "other"), "list").done()
    assert "beta" in found.rows


def test_the_tilde_of_nobody_is_an_error_that_names_it(machine):
    line = machine.run("list", env={"HERMES_HOME": "~nobody-of-this-name/x"}).failed()
    assert "~nobody-of-this-name" in line


def test_an_empty_home_option_is_wrong_usage_and_not_another_home(machine):
    (machine.user / ".hermes").mkdir()
    config = machine.user / ".hermes" / "config.yaml"
    config.write_text("memory: {provider: alpha}\n")
    result = machine.run("--home", "", "disable")
    assert config.read_text() == "memory: {provider: alpha}\n"
    assert result.code == 2


@pytest.mark.parametrize("name", ["x" * 300, "a/" * 3000 + "b"])
def test_a_path_that_no_file_system_takes_is_an_error(machine, name):
    machine.run("list", env={"HERMES_HOME": f"/{name}"}).failed()
