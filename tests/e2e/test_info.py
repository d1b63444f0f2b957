"""`hermes-plugins info`."""

from __future__ import annotations

import pytest
from support.sites import PLUGINS


def test_info_says_what_is_known_in_lines(machine):
    machine.install("alpha", version="2.1")
    lines = machine.run("info", "alpha").done().lines
    assert lines[0].split() == ["alpha", "installed"]
    fields = dict(line.split(": ", 1) for line in lines[1:])
    assert fields["description"] == "Memory by memory-alpha"
    assert fields["distribution"] == "memory-alpha 2.1"
    assert fields["source"] == "entry-point"
    assert fields["entry point"] == "memory_alpha:register"
    assert fields["location"] == str(machine.site.folder)


def test_json_is_what_list_has_and_where_it_lies(machine):
    machine.install("alpha", version="2.1")
    data = machine.json("info", "alpha")
    assert data.keys() == {"schema", "provider"}
    listed = machine.providers()["alpha"]
    assert data["provider"] == {
        **listed,
        "commit": "",
        "location": str(machine.site.folder),
        "grants": [],
        "isolation": "none",
        "grade": "not checked",
    }


def test_the_builtin_has_info_too(machine):
    provider = machine.json("info", "builtin")["provider"]
    assert (provider["state"], provider["source"]) == ("active", "builtin")


@pytest.mark.parametrize("spelling", ["my_memory", "My.Memory", "MY--MEMORY", "ｍｙ-memory"])  # noqa: RUF001
def test_names_compare_after_normalisation(machine, spelling):
    machine.install("My-Memory", distribution="memory-mine")
    assert machine.run("info", spelling).done().lines[0].split()[0] == "My-Memory"


@pytest.mark.parametrize(
    "spelling",
    [
        "gadget-box",
        "Gadget_Box",
    ],
)
def test_what_cannot_be_loaded_can_be_looked_at_under_every_spelling(machine, spelling):
    machine.site.add(
        "tools-only",
        groups={PLUGINS: {"gadget-box": "tools_only"}},
        files={"tools_only/__init__.py": "def register(ctx):\n    ctx.register_tool()\n"},
    )
    result = machine.run("info", spelling).done()
    assert "no-provider" in result.lines[0]
    assert "registers no memory provider" in result.out


def test_a_broken_one_can_be_looked_at_by_its_owner(machine):
    (machine.home / "plugins" / "hollow").mkdir(parents=True)
    assert "has no __init__.py" in machine.run("info", "hollow").done().out
    assert "has no __init__.py" in machine.run("info", "hollow@directory").done().out


def test_of_two_owners_each_can_be_asked_for(machine):
    machine.install("twice", distribution="first-owner")
    machine.install("twice", distribution="second-owner")
    line = machine.run("info", "twice").failed()
    assert "first-owner, second-owner" in line
    assert "twice@first-owner" in line
    for owner in ("first-owner", "second-owner"):
        provider = machine.json("info", f"twice@{owner}")["provider"]
        assert (provider["distribution"], provider["state"]) == (owner, "conflict")


def test_an_owner_that_does_not_have_it_is_told_who_has(machine):
    machine.install("alpha")
    line = machine.run("info", "alpha@somebody").failed()
    assert "alpha is provided by memory-alpha, not by somebody" in line


def test_the_version_of_a_directory_plugin_is_not_called_its_distribution(machine):
    machine.add_directory("beta", manifest="version: 1.2.3\n")
    lines = machine.run("info", "beta").done().lines
    assert "distribution: 1.2.3" not in lines
    assert any("1.2.3" in line for line in lines)


def test_files_that_hermes_agent_reads_beside_a_plugin_are_named_and_not_imported(machine):
    folder = machine.add_directory("beta")
    for name in ("config_schema.py", "cli.py"):
        (folder / name).write_text("raise SystemExit('nobody imports this')\n")
    lines = machine.run("info", "beta").done().lines
    assert "has: config_schema.py and cli.py (for hermes-agent, not used here)" in lines
    provider = machine.json("info", "beta")["provider"]
    assert provider["config_schema"] == str(folder / "config_schema.py")
    assert provider["cli"] == str(folder / "cli.py")
    assert machine.run("enable", "beta").done()


def test_the_same_files_of_a_package_are_named_too(machine):
    machine.install("alpha")
    (machine.module("memory-alpha").parent / "cli.py").write_text("raise SystemExit\n")
    lines = machine.run("info", "alpha").done().lines
    assert "has: cli.py (for hermes-agent, not used here)" in lines
