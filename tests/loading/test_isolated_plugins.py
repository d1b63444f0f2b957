"""Other plugins, and the commands, with `isolation: process`."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from support.commands import Machine, posix_only
from support.fielded import TIMEOUT
from support.fielded import add_plugin as add_fielded
from support.isolated import PATIENT, add_plugin, started
from support.sites import add_directory
from support.terminals import Dialogue

from hermes_core.conformance.scaffold import create_project
from hermes_core.dispatch.isolation import is_isolated

pytestmark = [pytest.mark.usefixtures("few_distributions"), posix_only]


def enable(home: Path, name: str) -> None:
    (home / "config.yaml").write_text(
        f"memory:\n  provider: {name}\n  prefetch_budget: 60\n"
        f"  deadlines: {json.dumps(PATIENT)}\n  {name}:\n    isolation: process\n"
    )


def test_the_scaffolds_plugin(home: Path, tmp_path: Path) -> None:
    files = create_project("globex", tmp_path / "project")
    package = next(each.parent for each in files if each.name == "provider.py")
    shutil.copytree(package, home / "plugins" / "globex")
    enable(home, "globex")
    manager = started(home)
    assert is_isolated(manager.get_provider("globex"))
    manager.sync_all("The release is on Monday.", "Noted.")
    assert manager.flush_pending(60)
    assert "Monday" in manager.recall_block("When is the release?")
    manager.shutdown_all()


def test_a_fake_provider(home: Path) -> None:
    """It implements every method of the contract."""
    source = "from hermes_core import FakeProvider\n\ndef register(ctx):\n"
    source += "    ctx.register_memory_provider(FakeProvider('fake', prefetch='a memory'))\n"
    add_directory(home, "fake", source)
    enable(home, "fake")
    manager = started(home)
    assert "a memory" in manager.recall_block("question")
    manager.on_turn_start(1, "question")
    manager.sync_all("question", "answer")
    manager.on_memory_write("add", "memory", "a note")
    manager.on_delegation("task", "result")
    manager.on_session_end([{"role": "user", "content": "question"}])
    assert manager.flush_pending(60)
    failures = {hook: each.failures for hook, each in manager.health()["fake"].items()}
    assert not any(failures.values())
    assert {"sync_turn", "on_memory_write", "on_delegation", "on_session_end"} <= {*failures}
    manager.shutdown_all()


def test_the_commands_say_that_it_is_isolated(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "machine", in_process=True)
    add_plugin(machine.home, 'def prefetch(self, query, *, session_id=""): return "a memory"')
    status = machine.json("status")
    assert status["provider"]["isolation"] == "process"
    assert status["ok"]
    assert "isolation: process" in machine.run("info", "acme").out
    assert machine.json("info", "acme")["provider"]["isolation"] == "process"
    assert "acme (in its own process): " in machine.run("explain", "question").out
    machine.run("config", "set", "memory.acme.isolation", "none").done()
    assert machine.json("info", "acme")["provider"]["isolation"] == "none"
    refused = machine.run("config", "set", "memory.acme.isolation", "proces")
    assert "expected one of none, process, got 'proces'" in refused.err


@pytest.mark.stress
@pytest.mark.skipif(sys.platform == "win32", reason="needs a terminal")
def test_its_own_set_up_asks_on_the_terminal(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "machine")
    own = """
    def post_setup(self, hermes_home, config):
        answer = input("And the colour? ")
        text = json.dumps([answer, os.getppid() != 1])
        pathlib.Path(hermes_home, "own.json").write_text(text)
    """
    add_fielded(machine.home, (TIMEOUT,), own)
    (machine.home / "config.yaml").write_text("memory:\n  acme:\n    isolation: process\n")
    talk = Dialogue(machine, "setup", "acme")
    talk.answer(
        (r"  value[^\n]*: ", "5"), (r"Write this\?[^\n]*: ", ""), (r"And the colour\? ", "blue")
    )
    assert talk.end() == 0
    assert json.loads((machine.home / "own.json").read_text())[0] == "blue"
