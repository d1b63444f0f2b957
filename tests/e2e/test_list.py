"""`hermes-plugins list`."""

from __future__ import annotations

import pytest
from support.commands import Machine
from support.sites import MEMORY, PLUGINS, provider_source

KEYS = {
    "name",
    "active",
    "state",
    "source",
    "distribution",
    "version",
    "entry_point",
    "description",
    "problem",
}


def carry(machine: Machine, name: str = "carried") -> None:
    """Install a distribution that carries a directory plugin and does not declare it."""
    machine.site.add(
        "some-tool",
        "3.0",
        files={
            f"{name}/__init__.py": provider_source(name),
            f"{name}/plugin.yaml": "description: Comes along.\n",
        },
    )


def test_an_empty_machine_has_the_builtin_and_nothing_else(machine):
    result = machine.run("list").done()
    (line,) = result.lines
    assert line.split("\t")[:2] == ["builtin", "active"]


def test_a_pipe_gets_one_line_for_each_provider_with_tabs_between_five_fields(machine):
    machine.install("zeta", version="2.1")
    machine.install("alpha")
    result = machine.run("list").done()
    assert [line.split("\t")[0] for line in result.lines] == ["builtin", "alpha", "zeta"]
    assert result.rows["zeta"] == [
        "zeta",
        "installed",
        "2.1",
        "memory-zeta",
        "Memory by memory-zeta",
    ]
    assert "\033" not in result.out


def test_json_has_schema_1_and_exactly_the_keys_of_the_contract(machine):
    machine.install("alpha", version="2.1")
    data = machine.json("list")
    assert data.keys() == {"schema", "providers"}
    assert all(each.keys() == KEYS for each in data["providers"])
    assert data["providers"][1] == {
        "name": "alpha",
        "active": False,
        "state": "installed",
        "source": "entry-point",
        "distribution": "memory-alpha",
        "version": "2.1",
        "entry_point": "memory_alpha:register",
        "description": "Memory by memory-alpha",
        "problem": "",
    }


def test_every_state_of_the_contract_shows_and_the_rest_is_listed_all_the_same(machine):
    machine.install("fine")
    machine.install("twice", distribution="first-owner")
    machine.install("twice", distribution="second-owner")
    machine.site.add("undecodable", entry_points=b"[hermes_agent.memory_providers]\nx\xff = y:z\n")
    machine.site.add(
        "tools-only",
        groups={PLUGINS: {"gadget": "tools_only"}},
        files={"tools_only/__init__.py": "def register(ctx):\n    ctx.register_tool()\n"},
    )
    machine.add_directory("odd", manifest="name: [unclosed\n")
    machine.install("pinned")
    machine.write_config("memory:\n  provider: pinned\n  pins: {pinned: {owner: memory-pinned}}\n")
    listed = machine.json("list")["providers"]
    states = {(each["name"], each["distribution"]): each["state"] for each in listed}
    assert states == {
        ("builtin", "hermes-plugins"): "active",
        ("fine", "memory-fine"): "installed",
        ("gadget", "tools-only"): "no-provider",
        ("odd", ""): "broken",
        ("pinned", "memory-pinned"): "active",
        ("twice", "first-owner"): "conflict",
        ("twice", "second-owner"): "conflict",
        ("undecodable", "undecodable"): "broken",
    }
    sources = {each["name"]: each["source"] for each in listed}
    assert (sources["builtin"], sources["odd"], sources["fine"]) == (
        "builtin",
        "directory",
        "entry-point",
    )
    for each in listed:
        assert each["active"] == (each["state"] == "active")
        assert bool(each["problem"]) == (each["state"] not in ("active", "installed"))


def test_a_conflict_names_every_owner(machine):
    machine.install("twice", distribution="first-owner")
    machine.install("twice", distribution="second-owner")
    lines = machine.run("list").done().lines[1:]
    assert len(lines) == 2
    assert all("first-owner, second-owner" in line for line in lines)


def test_a_claim_to_the_builtin_name_is_refused_and_the_builtin_stays(machine):
    machine.install("Builtin", distribution="usurper")
    listed = machine.json("list")["providers"]
    assert [(each["distribution"], each["state"]) for each in listed] == [
        ("hermes-plugins", "active"),
        ("usurper", "conflict"),
    ]
    assert "reserved" in listed[1]["problem"]


def test_listing_describing_and_completing_import_no_plugin(machine, tmp_path):
    trace = tmp_path / "imported"
    writes = f"open({str(trace)!r}, 'a').write(__name__)\n"
    machine.install("alpha", writes + provider_source("alpha"))
    machine.add_directory("beta", writes + provider_source("beta"))
    machine.site.add(
        "gamma-tools",
        groups={PLUGINS: {"gamma": "gamma_tools.deep.inside:register"}},
        files={
            "gamma_tools/__init__.py": writes,
            "gamma_tools/deep/__init__.py": writes,
            "gamma_tools/deep/inside.py": writes + provider_source("gamma"),
        },
    )
    assert machine.providers("--all").keys() == {"builtin", "alpha", "beta", "gamma"}
    for name in ("alpha", "beta", "gamma"):
        machine.run("info", name).done()
    assert not trace.exists()
    # The trap works: a trial does import.
    machine.run("enable", "beta").done()
    assert trace.exists()


def test_all_also_looks_inside_distributions_that_declare_nothing(machine):
    carry(machine)
    assert machine.providers().keys() == {"builtin"}
    found = machine.providers("--all")["carried"]
    assert (found["source"], found["distribution"]) == ("directory", "some-tool")
    assert (found["version"], found["description"]) == ("3.0", "Comes along.")


def test_one_distribution_in_both_groups_is_one_provider(machine):
    machine.site.add(
        "memory-alpha",
        groups={MEMORY: {"alpha": "alpha:register"}, PLUGINS: {"alpha": "alpha"}},
        files={"alpha.py": provider_source("alpha")},
    )
    assert [line.split("\t")[0] for line in machine.run("list").lines] == ["builtin", "alpha"]


@pytest.mark.parametrize("spelling", [("--home", "{}"), ("--home={}",)])
def test_the_home_can_be_given_before_the_command(machine, tmp_path, spelling):
    other = tmp_path / "other"
    (other / "plugins" / "beta").mkdir(parents=True)
    (other / "plugins" / "beta" / "__init__.py").write_text(provider_source("beta"))
    option = [part.format(other) for part in spelling]
    assert "beta" in machine.run(*option, "list").done().rows
    assert "beta" not in machine.run("list").done().rows


def test_an_active_provider_that_a_distribution_only_carries_is_listed(machine):
    carry(machine)
    machine.run("enable", "carried").done()
    assert machine.run("status").code == 0
    assert machine.providers()["carried"]["active"] is True


def test_a_chosen_provider_that_is_not_installed_is_an_error_beside_the_list(machine):
    machine.install("alpha")
    machine.write_config("memory:\n  provider: vanished\n")
    with machine.unchanged():
        result = machine.run("list")
    assert result.rows.keys() == {"builtin", "alpha"}
    assert "vanished" in result.failed()


def test_control_characters_of_metadata_reach_no_terminal(machine):
    machine.install("alpha")
    machine.add_directory("be\033[2Jta", provider_source("beta"))
    machine.site.add(
        "memory-gamma",
        groups={MEMORY: {"gamma": "gamma:register"}},
        files={"gamma.py": provider_source("gamma")},
        summary="good\033]0;title\007\rbuiltin  broken\b\b",
    )
    shown = machine.run("list").out + machine.run("info", "gamma").out
    assert "gamma" in shown
    assert [each for each in shown if not each.isprintable() and each not in "\n\t"] == []
