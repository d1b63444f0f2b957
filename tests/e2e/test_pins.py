"""What was enabled is pinned; what is there later is held against it."""

from __future__ import annotations

import shutil
import sys
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
)

import pytest
from support.commands import Machine
from support.sites import provider_source

pytestmark = pytest.mark.usefixtures("forked_children")

FILES = ("config.yaml", "plugins.lock.json")


@pytest.fixture(scope="module")
def pin(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The files that enabling alpha 1.0 of memory-alpha writes: the same everywhere."""
    machine = Machine(tmp_path_factory.mktemp("pin") / "machine", in_process=True)
    machine.install("alpha")
    machine.run("enable", "alpha").done()
    return {name: (machine.home / name).read_text() for name in FILES}


@pytest.fixture
def pinned(machine: Machine, pin: dict[str, str]) -> Machine:
    """A machine on which alpha 1.0 of memory-alpha is enabled."""
    machine.install("alpha")
    for name, text in pin.items():
        (machine.home / name).write_text(text)
    return machine


def be_strict(machine: Machine) -> None:
    text = machine.config_file.read_text()
    machine.write_config(text.replace("memory:\n", "memory:\n  pin: strict\n"))


def another_version(machine: Machine) -> str:
    machine.install("alpha", version="1.1")
    return "is version 1.1, but was enabled as 1.0"


def other_content(machine: Machine) -> str:
    with machine.module("memory-alpha").open("a") as file:
        file.write("# changed\n")
    return "its files differ from those that were enabled"


def another_owner(machine: Machine) -> str:
    machine.uninstall("memory-alpha")
    machine.install("alpha", distribution="usurper")
    return "belongs to usurper, but was enabled as memory-alpha's"


@pytest.mark.parametrize("change", [another_version, other_content])
def test_another_version_or_content_loads_with_a_warning(pinned, change):
    told = change(pinned)
    with pinned.unchanged():
        listed = pinned.providers()["alpha"]
        assert (listed["state"], listed["active"]) == ("changed", True)
        assert told in listed["problem"]
        assert "hermes-plugins enable alpha" in listed["problem"]
        assert told in pinned.run("list").done().out
        report = pinned.json("status")
        assert (report["ok"], report["problems"]) == (True, [])
        assert told in report["warnings"][0]
        assert report["provider"]["state"] == "changed"
        assert report["provider"]["works"] is True
        assert f"warning:   plugin alpha: {told}" in pinned.run("status").done().out


@pytest.mark.parametrize(
    "change", [pytest.param(another_version, marks=pytest.mark.stress), other_content]
)
def test_a_strict_pin_refuses_another_version_or_content(pinned, change):
    be_strict(pinned)
    pinned.run("status").done()
    told = change(pinned)
    listed = pinned.providers()["alpha"]
    assert (listed["state"], listed["active"]) == ("changed", False)
    report = pinned.json("status", code=1)
    assert told in report["problems"][0]
    assert report["provider"]["works"] is False
    assert report["builtin"]["active"] is True


class LoaderOfALibrary(SourceFileLoader):
    """As beartype has one: for every module that is imported from now on."""


def test_a_library_that_hooks_into_imports_does_not_disable_a_pinned_plugin(pinned, monkeypatch):
    hook = FileFinder.path_hook(
        (ExtensionFileLoader, EXTENSION_SUFFIXES), (LoaderOfALibrary, SOURCE_SUFFIXES)
    )
    monkeypatch.setattr(sys, "path_hooks", [hook, *sys.path_hooks])
    monkeypatch.setattr(sys, "path_importer_cache", {})
    be_strict(pinned)
    pinned.run("status").done()
    told = other_content(pinned)
    assert told in pinned.json("status", code=1)["problems"][0]


@pytest.mark.parametrize("strict", [pytest.param(False, marks=pytest.mark.stress), True])
def test_another_owner_is_refused_until_it_is_enabled_again(pinned, strict):
    if strict:
        be_strict(pinned)
    told = another_owner(pinned)
    listed = pinned.providers()["alpha"]
    assert (listed["state"], listed["active"]) == ("changed", False)
    assert told in listed["problem"]
    report = pinned.json("status", code=1)
    assert told in report["problems"][0]
    assert report["provider"]["works"] is False
    pinned.run("enable", "alpha").done()
    assert pinned.pins["alpha"]["owner"] == "usurper"
    assert pinned.run("status").done().code == 0


def test_an_owner_that_is_refused_is_not_imported(pinned, tmp_path):
    trace = tmp_path / "imported"
    pinned.uninstall("memory-alpha")
    source = f"open({str(trace)!r}, 'w')\n" + provider_source("alpha")
    pinned.install("alpha", source, distribution="usurper")
    pinned.run("status")
    assert not trace.exists()


@pytest.mark.parametrize(
    "change", [another_owner, pytest.param(other_content, marks=pytest.mark.stress)]
)
def test_status_gives_a_refused_provider_the_state_that_list_gives_it(pinned, change):
    be_strict(pinned)
    change(pinned)
    assert pinned.providers()["alpha"]["state"] == "changed"
    assert pinned.json("status", code=1)["provider"]["state"] == "changed"


def test_enabling_again_pins_what_is_there_now(pinned):
    be_strict(pinned)
    before = pinned.pins["alpha"]
    another_version(pinned)
    pinned.run("enable", "alpha").done()
    after = pinned.pins["alpha"]
    assert after["version"] == "1.1"
    assert after["hash"] == before["hash"]  # the files are the same, only the version is not
    assert pinned.providers()["alpha"]["state"] == "active"


def test_bytecode_and_metadata_are_no_change(pinned, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)  # whatever runs the tests
    pinned.run("status").done()
    assert list(pinned.site.folder.rglob("*.pyc"))  # loading has left some
    be_strict(pinned)
    (info,) = pinned.site.folder.glob("memory_alpha-*.dist-info")
    (info / "INSTALLER").write_text("something else\n")
    assert pinned.providers()["alpha"]["state"] == "active"
    assert pinned.run("status").done().code == 0


def test_a_directory_plugin_is_pinned_by_its_files(machine, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    folder = machine.add_directory("beta", manifest="version: 1.0\n")
    machine.run("enable", "beta").done()
    shutil.rmtree(folder / "__pycache__")  # bytecode comes and goes
    assert machine.providers()["beta"]["state"] == "active"
    (folder / "data.txt").write_text("new")
    listed = machine.providers()["beta"]
    assert (listed["state"], listed["active"]) == ("changed", True)


def test_what_version_control_keeps_in_a_directory_plugin_is_no_change(machine):
    folder = machine.add_directory("beta")
    (folder / ".git").mkdir()
    (folder / ".git" / "index").write_text("as cloned")
    machine.run("enable", "beta").done()
    (folder / ".git" / "index").write_text("as git status leaves it")
    assert machine.providers()["beta"]["state"] == "active"


def test_a_provider_that_was_never_pinned_is_not_called_changed(machine):
    machine.install("alpha")
    machine.write_config("memory: {provider: alpha, pin: strict}\n")
    assert machine.providers()["alpha"]["state"] == "active"
    assert machine.run("status").done().code == 0


COMMAND = """
import click

@click.group()
def alpha():
    \"\"\"Manage alpha.\"\"\"

@alpha.command()
def hello():
    click.echo("hello from alpha")
"""


@pytest.fixture
def commanding(machine: Machine) -> Machine:
    """A machine on which alpha is enabled, which adds a command, with strict pins."""
    machine.in_process = False  # a command of its own process, since imports stay
    machine.site.add(
        "memory-alpha",
        "1.0",
        groups={
            "hermes_agent.memory_providers": {"alpha": "memory_alpha:register"},
            "hermes_plugins.commands": {"alpha": "memory_alpha.commands:alpha"},
        },
        files={
            "memory_alpha/__init__.py": provider_source("alpha"),
            "memory_alpha/commands.py": COMMAND,
        },
    )
    machine.run("enable", "alpha").done()
    be_strict(machine)
    return machine


@pytest.mark.stress
def test_a_command_of_the_active_provider_obeys_its_strict_pin(commanding: Machine) -> None:
    assert "hello from alpha" in commanding.run("alpha", "hello").done().out
    with (commanding.site.folder / "memory_alpha" / "commands.py").open("a") as file:
        file.write("print('changed code runs')\n")
    for arguments in (("alpha", "hello"), ("--help",)):
        result = commanding.run(*arguments)
        assert "changed code runs" not in result.out + result.err
    assert "its files differ from those that were enabled" in commanding.run("alpha", "x").err
    helped = commanding.run("--help").done().out
    assert "can't be loaded" in helped
    assert "doctor" in helped
