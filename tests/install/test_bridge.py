"""`bridge`: the real hermes-agent sees a provider that is installed as a package, and runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from textwrap import dedent

import pytest
from support.commands import Machine, snapshot
from support.hermes_agent import PEER, needs_hermes_agent
from support.sites import MEMORY, provider_source
from support.wheels import make_wheel

#: Written for hermes-agent; registers more than its context for memory plugins knows.
WILD = """
import json
from agent.memory_provider import MemoryProvider

class Wild(MemoryProvider):
    name = "wild"

    def __init__(self):
        self.turns = []

    def is_available(self):
        return True

    def initialize(self, session_id, **kwargs):
        self.home = kwargs["hermes_home"]

    def sync_turn(self, user_content, assistant_content, *, session_id="", messages=None):
        self.turns.append(user_content)

    def prefetch(self, query, *, session_id=""):
        return " ".join(self.turns)

    def get_tool_schemas(self):
        return [{"name": "wild_find", "description": "finds", "parameters": {"type": "object"}}]

    def handle_tool_call(self, tool_name, args, **kwargs):
        return json.dumps({"home": self.home})
"""
REGISTER = """
def register(ctx):
    ctx.register_skill("other")
    ctx.register_memory_provider(Wild())
"""

#: Every shape of an entry point: its value, and what makes it one.
SHAPES = {
    "register": ("wild_memory:register", REGISTER),
    "class": ("wild_memory:Wild", ""),
    "instance": ("wild_memory:wild", "\nwild = Wild()\n"),
    "factory": ("wild_memory:make", "\ndef make():\n    return Wild()\n"),
    "module with register": ("wild_memory", REGISTER),
    "module with a class": ("wild_memory", ""),
}

DRIVE = """
import json
from plugins.memory import load_memory_provider
from agent.memory_manager import MemoryManager

manager = MemoryManager()
manager.add_provider(load_memory_provider("wild"))
manager.initialize_all("session", platform="cli")
manager.sync_all("mangosteen", "Noted.")
manager.flush_pending(30)
result = {
    "recalled": manager.prefetch_all("fruit"),
    "tools": sorted(manager.get_all_tool_names()),
    "answer": json.loads(manager.handle_tool_call("wild_find", {})),
}
manager.shutdown_all()
print(json.dumps(result))
"""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "machine", in_process=True)


def add_wild(machine: Machine, shape: str = "register") -> None:
    value, more = SHAPES[shape]
    machine.site.add(
        "memory-wild",
        "1.5",
        groups={MEMORY: {"wild": value}},
        files={"wild_memory/__init__.py": WILD + more},
        summary='Wild "memory": # 記憶',
    )


class TheirVenv:
    """A venv with hermes-agent in it, and with nothing of ours."""

    def __init__(self, folder: Path, home: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        self.python = folder / "bin" / "python"
        self.packages = next(folder.glob("lib/*/site-packages"))
        (their,) = PEER.parents[1].glob("lib/*/site-packages")
        (self.packages / "peer.pth").write_text(f"import site; site.addsitedir({str(their)!r})\n")
        self.environment = {**os.environ, "HERMES_HOME": str(home), "HOME": str(folder)}

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            [self.python, "-P", *arguments],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def theirs(tmp_path: Path, machine: Machine) -> TheirVenv:
    return TheirVenv(tmp_path / "theirs", machine.home)


@needs_hermes_agent
def test_hermes_agent_shows_a_bridged_provider_and_its_manager_drives_it(machine, theirs):
    add_wild(machine)
    wheel = make_wheel(
        theirs.packages,
        "memory-wild",
        "1.5",
        groups={MEMORY: {"wild": "wild_memory:register"}},
        files={"wild_memory/__init__.py": WILD + REGISTER},
    )
    zipfile.ZipFile(wheel).extractall(theirs.packages)
    machine.write_config("memory:\n  provider: wild\n")
    assert "NOT installed" in theirs.run("-m", "hermes_cli.main", "memory", "status")

    machine.run("bridge", "wild").done()
    status = theirs.run("-m", "hermes_cli.main", "memory", "status")
    assert "Plugin:    installed" in status
    assert "Status:    available" in status
    assert "← active" in status
    told = json.loads(theirs.run("-c", DRIVE).splitlines()[-1])
    assert told == {
        "recalled": "mangosteen",
        "tools": ["wild_find"],
        "answer": {"home": str(machine.home)},
    }
    machine.run("bridge", "wild", "--remove").done()  # bytecode that they left is no edit
    assert "NOT installed" in theirs.run("-m", "hermes_cli.main", "memory", "status")


@needs_hermes_agent
def test_every_shape_of_an_entry_point_is_handed_over(machine, theirs):
    machine.site.add("nothing")
    names = {}
    for number, (shape, (value, more)) in enumerate(SHAPES.items()):
        module = f"shape{number}"
        name = f"wild{number}"
        names[name] = shape
        text = (WILD + more).replace('name = "wild"', f'name = "{name}"')
        (theirs.packages / f"{module}.py").write_text(text)
        machine.site.add(
            f"memory-{name}",
            groups={MEMORY: {name: value.replace("wild_memory", module)}},
            files={f"{module}.py": text},
        )
        machine.run("bridge", name).done()
    code = f"""
    import json
    from plugins.memory import load_memory_provider
    found = {{name: load_memory_provider(name) for name in {sorted(names)!r}}}
    print(json.dumps({{name: each and each.name for name, each in found.items()}}))
    """
    told = json.loads(theirs.run("-c", dedent(code)).splitlines()[-1])
    assert {names[name]: told[name] == name for name in names} == dict.fromkeys(SHAPES, True)


@needs_hermes_agent
def test_of_two_providers_of_one_package_the_one_that_was_meant_is_handed_over(machine, theirs):
    both = """
class Other(Wild):
    name = "other"

def register(ctx):
    ctx.register_memory_provider(Wild())
    ctx.register_memory_provider(Other())
"""
    (theirs.packages / "wild_memory.py").write_text(WILD + both)
    machine.site.add(
        "memory-wild",
        groups={MEMORY: dict.fromkeys(("wild", "other"), "wild_memory:register")},
        files={"wild_memory.py": WILD + both},
    )
    machine.run("bridge", "other", "--as", "second").done()
    code = "from plugins.memory import load_memory_provider as load; print(load('second').name)"
    assert theirs.run("-c", code).splitlines()[-1] == "other"


@needs_hermes_agent
def test_without_its_package_a_bridge_says_why_it_leads_nowhere(machine, theirs):
    add_wild(machine)
    line = machine.run("bridge", "wild").done().lines[-1]
    assert line.endswith("pip install memory-wild==1.5")
    code = (
        "import logging; logging.basicConfig(); import sys; sys.stderr = sys.stdout\n"
        "logging.getLogger().handlers[0].setStream(sys.stdout)\n"
        "from plugins.memory import load_memory_provider; print(load_memory_provider('wild'))"
    )
    said = theirs.run("-c", code)
    assert "memory provider wild of the package memory-wild can't be loaded" in said
    assert "No module named 'wild_memory'" in said


def test_a_bridge_and_its_package_are_one_provider(machine: Machine):
    add_wild(machine)
    files = {
        "tool/__init__.py": "",
        "tool/plug/__init__.py": provider_source("carried"),
        "tool/plug/plugin.yaml": "name: carried\n",
    }
    machine.site.add("some-tool", "3.0", files=files)
    for name in ("wild", "carried"):
        machine.run("bridge", name).done()
        machine.run("bridge", name).done()  # once more is no harm
        for options in ((), ("--all",)):
            rows = [each for each in machine.run("list", *options).done().lines if name in each]
            assert len(rows) == 1
            assert machine.providers(*options)[name]["state"] == "installed"
    assert machine.providers()["wild"]["distribution"] == "memory-wild"
    machine.run("enable", "carried").done()
    assert machine.providers()["carried"]["state"] == "active"


def test_a_name_that_hermes_agent_has_taken_is_bridged_under_another(machine: Machine):
    machine.site.add("hermes-agent", "0.19.0", files={"plugins/memory/honcho/__init__.py": ""})
    machine.site.add_provider("honcho", "memory-honcho")
    assert "bridge honcho --as hermes-honcho" in machine.run("bridge", "honcho").failed()
    said = machine.run("bridge", "honcho", "--as", "hermes-honcho").done().out
    assert "hermes memory setup hermes-honcho" in said
    assert (machine.home / "plugins" / "hermes-honcho" / "__init__.py").exists()
    assert set(machine.providers()) == {"builtin", "honcho"}
    machine.run("bridge", "hermes-honcho", "--remove").done()
    assert not (machine.home / "plugins" / "hermes-honcho").exists()


def test_a_name_that_is_ours_or_another_bridges_is_refused(machine: Machine):
    machine.site.add_provider("first", "memory-first")
    machine.site.add_provider("second", "memory-second")
    machine.run("bridge", "first", "--as", "mine").done()
    before = snapshot(machine.home)
    assert "is a bridge to memory-first" in machine.run("bridge", "second", "--as", "mine").failed()
    assert "is reserved" in machine.run("bridge", "second", "--as", "builtin").failed()
    assert snapshot(machine.home) == before
    machine.run("bridge", "first", "--as", "mine").done()


def test_a_bridge_whose_package_is_gone_is_listed_as_broken(machine: Machine):
    add_wild(machine)
    machine.run("bridge", "wild").done()
    machine.uninstall("memory-wild")
    listed = machine.providers()["wild"]
    assert listed["state"] == "broken"
    assert "bridge to memory-wild" in listed["problem"]
    machine.run("bridge", "wild", "--remove").done()
    assert "wild" not in machine.providers()


def test_a_directory_that_is_not_a_bridge_is_never_touched(machine: Machine):
    add_wild(machine)
    folder = machine.add_directory("wild", provider_source("wild"))
    before = snapshot(folder)
    assert (
        "is not a bridge made by hermes-plugins"
        in machine.run("bridge", "wild@memory-wild").failed()
    )
    assert (
        "is not a bridge made by hermes-plugins"
        in machine.run("bridge", "wild", "--remove").failed()
    )
    assert snapshot(folder) == before


def test_a_bridge_that_was_edited_is_not_removed(machine: Machine):
    add_wild(machine)
    machine.run("bridge", "wild").done()
    (machine.home / "plugins" / "wild" / "notes.txt").write_text("mine")
    before = snapshot(machine.home)
    assert "was edited after it was made" in machine.run("bridge", "wild", "--remove").failed()
    assert snapshot(machine.home).items() >= before.items()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("builtin", "its own notes and conversations"),
        ("mine", "finds directory plugins itself"),
        ("nobody", "no memory provider 'nobody'"),
        ("honcho", "hermes-agent 0.19.0 has a provider of that name"),
        ("a/b", "its name can't be the name of a folder"),
    ],
)
def test_what_needs_no_bridge_or_can_have_none_is_told_in_one_line(machine: Machine, name, said):
    machine.add_directory("mine")
    machine.site.add("hermes-agent", "0.19.0", files={"plugins/memory/honcho/__init__.py": ""})
    machine.site.add_provider("honcho", "memory-honcho")
    machine.site.add_provider("a/b", "memory-strange")
    with machine.unchanged():
        assert said in machine.run("bridge", name).failed()
    assert "there is no bridge" in machine.run("bridge", "nobody", "--remove").failed()
    assert "there is no bridge" in machine.run("bridge", "../config", "--remove").failed()
