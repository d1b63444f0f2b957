"""Plugins for hermes-agent in the shapes in which they are published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from support.commands import Machine
from support.sites import MEMORY, PLUGINS, add_directory
from support.theirs import their_source

from hermes_core import MemoryManager, discover, load_provider


@pytest.fixture
def machine(tmp_path: Path, few_distributions: None, forked_children: None) -> Machine:
    """The command with an empty home and an empty site."""
    return Machine(tmp_path / "machine", in_process=True)


def config_of(machine: Machine) -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load((machine.home / "config.yaml").read_text("utf-8"))
    return data


def test_a_directory_plugin_may_import_itself_below_plugins_memory(home):
    source = "from plugins.memory.theirs.client import ANSWER\n"
    methods = "def answer(self):\n    return ANSWER\n"
    folder = add_directory(home, "theirs", source + their_source(methods=methods))
    (folder / "client.py").write_text("ANSWER = 42\n", "utf-8")
    assert load_provider("theirs", home).answer() == 42


def test_two_homes_have_each_their_own_below_plugins_memory(tmp_path):
    for answer in (1, 2):
        home = tmp_path / str(answer)
        source = "from plugins.memory.theirs.client import ANSWER\n"
        methods = "def answer(self):\n    return ANSWER\n"
        folder = add_directory(home, "theirs", source + their_source(methods=methods))
        (folder / "client.py").write_text(f"ANSWER = {answer}\n", "utf-8")
        assert load_provider("theirs", home).answer() == answer


def test_a_distribution_may_install_itself_below_plugins_memory(home, site):
    files = {
        "plugins/memory/acme/__init__.py": "from .provider import register\n",
        "plugins/memory/acme/provider.py": their_source("acme"),
    }
    site.add("acme-memory", groups={MEMORY: {"acme": "plugins.memory.acme"}}, files=files)
    assert load_provider("acme", home).name == "acme"


def test_a_payload_that_an_installer_renames_is_used_in_place(home, site):
    files = {
        "acme/__init__.py": "",
        "acme/_payload/__init__.py": '"""Copied to the plugins folder. MemoryProvider."""\n',
        "acme/_payload/adapter.py": their_source("acme"),
        "acme/_payload/plugin.yaml": "name: acme\ndescription: Acme: not valid: YAML\nversion: 2\n",
    }
    site.add("acme-memory", files=files)
    (info,) = [each for each in discover(home, everything=True) if each.name == "acme"]
    assert info.state == "broken"
    assert "not valid YAML" in info.problem
    assert load_provider("acme", home).name == "acme"


def test_what_a_plugin_carries_yields_to_the_one_that_is_built_on_it(home, site):
    carried = {
        "core/__init__.py": "",
        "core/plugin/__init__.py": their_source("acme"),
        "core/plugin/plugin.yaml": "name: acme\n",
    }
    site.add("acme-core", files=carried)
    files = {"acme_hermes.py": their_source("acme")}
    info = site.add("acme-hermes", groups={MEMORY: {"acme": "acme_hermes"}}, files=files)
    rivals = [each.state for each in discover(home, everything=True) if each.name == "acme"]
    assert rivals == ["conflict", "conflict"]
    metadata = (info / "METADATA").read_text("utf-8")
    required = metadata.replace("\n\n", "\nRequires-Dist: Acme_Core>=1\n\n", 1)
    (info / "METADATA").write_text(required, "utf-8")
    states = {each.owner: each.state for each in discover(home, everything=True)}
    assert states["acme-hermes"] == "installed"
    assert load_provider("acme", home).name == "acme"


def test_several_plugins_of_one_distribution_are_each_their_own(home, site):
    both = their_source("one") + "    ctx.register_memory_provider(Other())\n"
    both += 'class Other(Theirs):\n    name = "two"\n'
    entries = {"one": "acme_both", "two": "acme_both"}
    site.add("acme-memory", groups={MEMORY: entries}, files={"acme_both.py": both})
    assert [load_provider(name, home).name for name in entries] == ["one", "two"]


def test_either_name_selects_a_provider_that_calls_itself_otherwise(machine):
    files = {"acme.py": their_source("short")}
    machine.site.add("acme-memory", groups={MEMORY: {"acme-memory": "acme"}}, files=files)
    machine.run("enable", "acme-memory").done()
    pin = machine.pins["acme-memory"]
    assert pin["provider"] == "short"
    assert config_of(machine)["memory"]["provider"] == "acme-memory"
    for name in ("acme-memory", "short"):
        assert "calls itself: short" in machine.run("info", name).done().out
    config = machine.home / "config.yaml"
    config.write_text(config.read_text("utf-8").replace("provider: acme-memory", "provider: short"))
    assert machine.run("list").done().rows["acme-memory"][1] == "active"
    status = machine.json("status")
    assert (status["ok"], status["provider"]["name"]) == (True, "acme-memory")
    machine.run("disable", "short").done()
    assert not config_of(machine)["memory"]["provider"]


def test_the_manager_calls_it_what_the_configuration_calls_it(home, site):
    methods = "def sync_turn(self, user_content, assistant_content, *, session_id=''):\n    pass"
    files = {"acme_named.py": their_source("short", methods=methods)}
    site.add("acme-memory", groups={MEMORY: {"acme-long": "acme_named"}}, files=files)
    (home / "config.yaml").write_text("memory: {provider: acme-long}\n", "utf-8")
    manager = MemoryManager.from_config(home)
    try:
        manager.initialize_all("s")
        assert manager.get_provider("short") is manager.get_provider("acme-long") is not None
        assert "acme-long" in manager.health()
        assert "short" not in manager.health()
    finally:
        manager.shutdown_all()


def test_what_else_a_plugin_registers_is_shown_and_not_run(machine):
    registers = """
    for number in range(3):
        ctx.register_tool(f"t{number}", lambda: 1 / 0)
    ctx.register_hook("on_start", print)
    ctx.register_hook("on_end", print)
    """
    files = {"acme.py": their_source("acme", registers=registers)}
    machine.site.add("acme-memory", groups={PLUGINS: {"acme": "acme:register"}}, files=files)
    machine.run("enable", "acme").done()
    shown = machine.run("info", "acme").done().out
    assert "registers: 3 tools, 2 hooks (not memory, not used here)" in shown
    assert machine.json("info", "acme")["provider"]["registers"] == "3 tools, 2 hooks"


def test_a_plugin_with_tools_and_no_provider_says_what_it_has(machine):
    source = """
    def register(ctx):
        # register_memory_provider comes later
        ctx.register_tool("one", print)
        ctx.register_skill("two")
    """
    machine.site.add("acme", groups={MEMORY: {"acme": "acme"}}, files={"acme.py": source})
    failure = machine.run("enable", "acme").failed()
    assert "registered no memory provider, only 1 tool, 1 skill" in failure


@pytest.mark.parametrize("group", ["hermes.memory_providers", "hermes_agent.memory_provider"])
def test_a_misspelt_group_is_reported_as_what_it_is(home, site, group):
    files = {"acme_misspelt.py": their_source("acme")}
    site.add("acme-memory", groups={group: {"acme": "acme_misspelt"}}, files=files)
    (found,) = [each for each in discover(home) if each.name == "acme"]
    assert found.state == "broken"
    assert group in found.problem
    assert "hermes_agent.memory_providers" in found.problem


def test_a_misspelt_group_beside_a_right_one_is_reported_and_no_obstacle(home, site):
    groups = {name: {"acme": "acme_both_groups"} for name in (PLUGINS, "hermes.memory_providers")}
    files = {"acme_both_groups.py": their_source("acme")}
    site.add("acme-memory", groups=groups, files=files)
    (found,) = [each for each in discover(home) if each.name == "acme"]
    assert found.state == "installed"
    assert "hermes.memory_providers" in found.problem
    assert load_provider("acme", home).name == "acme"


def test_a_field_that_nobody_can_be_asked_for_is_left_to_the_plugin(home, site):
    methods = """
    def get_config_schema(self):
        return [{"key": "roles", "default": ["user"]}, {"key": "url", "default": "here"}]
    """
    files = {"acme_fields.py": their_source("acme", methods=methods)}
    site.add("acme-memory", groups={MEMORY: {"acme": "acme_fields"}}, files=files)
    (home / "config.yaml").write_text("memory: {provider: acme}\n", "utf-8")
    manager = MemoryManager.from_config(home)
    assert manager.problems == ()
    assert [row["key"] for row in manager.setting_rows] == ["url"]
    manager.shutdown_all()
