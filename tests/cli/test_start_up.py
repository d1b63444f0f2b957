"""`list` is fast because of what it does not import."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.commands import Machine
from support.sites import PLUGINS, provider_source

#: Left to the commands that need them: each costs more than a whole listing.
SLOW = {
    "click",
    "hermes_builtin",
    "importlib.metadata",
    "importlib_metadata",
    "jsonschema",
    "keyring",
    "pluggy",
    "rich",
    "ruamel",
    "ruamel.yaml",
}

# Runs in the real command, before anything else; tells at its end what was imported.
SPY = """
import atexit, os, sys

def tell(names=sys.modules, target=os.environ["IMPORTED"]):
    names = sorted(names)
    import json
    with open(target, "w") as file:
        json.dump(names, file)

atexit.register(tell)
"""


@pytest.fixture
def spied(machine: Machine, tmp_path: Path) -> Machine:
    """A machine whose command leaves the names of all imported modules in a file."""
    (machine.site.folder / "sitecustomize.py").write_text(SPY)
    machine.in_process = False
    machine.environment["IMPORTED"] = str(tmp_path / "imported.json")
    return machine


def imported(machine: Machine) -> set[str]:
    return set(json.loads(Path(machine.environment["IMPORTED"]).read_text()))


def make_used_home(machine: Machine) -> None:
    """A home as it is after a while: a config.yaml with a pinned provider, and others."""
    machine.install("alpha")
    machine.add_directory("beta", manifest="version: 1\ndescription: In the home.\n")
    machine.site.add(
        "general-plugin",
        groups={PLUGINS: {"gamma": "general_plugin.deep:register"}},
        files={"general_plugin/__init__.py": "", "general_plugin/deep.py": provider_source("g")},
    )
    machine.in_process = True
    machine.run("enable", "alpha").done()
    machine.in_process = False
    machine.write_config(
        "# mine\nmodel: x\n" + machine.config_file.read_text() + "  nudge_interval: 5\n"
    )


@pytest.mark.parametrize(
    "arguments", [(), pytest.param(("--json",), marks=pytest.mark.stress), ("--all",)]
)
def test_list_imports_neither_what_is_slow_nor_a_plugin(spied, arguments):
    make_used_home(spied)
    result = spied.run("list", *arguments).done()
    assert "active" in result.out
    names = imported(spied)
    assert "hermes_core.discovery" in names  # the spy sees what is imported
    assert names & SLOW == set()
    assert [
        name for name in names if name.startswith(("memory_", "general_", "_hermes_plugin_"))
    ] == []


@pytest.mark.parametrize("words", [("local",), pytest.param((), marks=pytest.mark.stress)])
def test_search_imports_no_more_than_list_does(spied, words):
    make_used_home(spied)
    assert spied.run("search", *words).done().lines
    names = imported(spied)
    assert "hermes_core.install.index" in names
    assert names & SLOW == set()
    assert "hermes_core.install._installers" not in names


def test_list_imports_nothing_more_where_the_pin_does_not_fit(spied):
    make_used_home(spied)
    spied.install("alpha", version="2.0")
    assert "changed" in spied.run("list").done().out
    assert imported(spied) & SLOW == set()


def test_list_imports_none_of_300_distributions(spied):
    make_used_home(spied)
    spied.run("list").done()
    few = imported(spied)
    for number in range(300):
        spied.site.add(
            f"dist-{number}",
            groups={"console_scripts": {f"run-{number}": f"dist_{number}:main"}},
            files={f"dist_{number}/__init__.py": "raise SystemExit('imported')\n"},
        )
    listed = spied.providers()
    assert listed.keys() == {"builtin", "alpha", "beta", "gamma"}
    spied.run("list").done()
    assert imported(spied) == few
