"""`uninstall`: disabled first, then gone; what it stored and was told stays."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.commands import Machine
from support.sites import MEMORY, provider_source
from support.wheels import Venv, make_wheel

from hermes_core.outbox import StreamKey
from hermes_core.outbox.store import open_store


def test_a_package_is_disabled_then_removed_and_its_turns_wait(venv: Venv):
    files = {"two/__init__.py": provider_source("one"), "two/other.py": provider_source("other")}
    groups = {MEMORY: {"one": "two:register", "other": "two.other:register"}}
    venv.put(make_wheel(venv.links, "two", groups=groups, files=files))
    venv.run("enable", "one").done()
    venv.run("bridge", "one").done()
    store = open_store(venv.home, max_mb=1)
    origin = StreamKey("one", "two", "session", "{}")
    for number in range(2):
        store.put(origin, 0, (f"event-{number}", "sync_turn", "{}"), claim=False)
    store.close()
    venv.write_config(venv.config_file.read_text() + "  one:\n    url: here\n")

    assert "--yes" in venv.run("uninstall", "one").failed()
    assert venv.installed() == {"two"}
    done = venv.run("uninstall", "one", "--yes").done()
    assert "one is disabled. 2 writes stay in the outbox" in done.out
    assert "Removed its bridge to hermes-agent" in done.out
    assert "Uninstalled: two 1.0" in done.out
    assert venv.installed() == set()
    assert set(venv.providers()) == {"builtin"}
    assert venv.memory["provider"] == ""
    assert venv.memory["one"] == {"url": "here"}
    assert not (venv.home / "plugins" / "one").exists()


@pytest.mark.stress
def test_what_is_ours_or_not_there_is_refused_by_name(venv: Venv):
    for name in ("builtin", "hermes-plugins", "Hermes_Plugins"):
        assert (
            "is part of this program, not a plugin" in venv.run("uninstall", name, "--yes").failed()
        )
    assert "no memory plugin 'nobody'" in venv.run("uninstall", "nobody", "--yes").failed()
    assert "builtin" in venv.providers()


def test_what_another_environment_has_is_told_and_not_called_removed(venv: Venv, tmp_path: Path):
    site = Machine(tmp_path / "other").site
    site.add_provider("far", "memory-far")
    line = venv.run("uninstall", "far", "--yes", env={"PYTHONPATH": str(site.folder)}).failed()
    assert "memory-far" in line
    assert (site.folder / "memory_far").exists()


def test_a_directory_that_was_installed_goes_and_one_that_was_not_stays(tmp_path: Path, repo):
    machine = Machine(tmp_path / "machine", in_process=True)
    machine.run("install", repo.url, "--yes").done()
    by_hand = machine.add_directory("mine")
    machine.run("enable", "gitty").done()
    assert "gitty is disabled." in machine.run("uninstall", "gitty", "--yes").done().out
    assert not (machine.home / "plugins" / "gitty").exists()
    assert machine.memory["provider"] == ""
    assert "was not installed by hermes-plugins" in machine.run("uninstall", "mine", "-y").failed()
    assert by_hand.exists()


def test_a_directory_in_which_something_has_been_stored_is_left_alone(tmp_path: Path, repo):
    machine = Machine(tmp_path / "machine", in_process=True)
    machine.run("install", repo.url, "--yes").done()
    (machine.home / "plugins" / "gitty" / "facts.db").write_text("what it knows")
    with machine.unchanged():
        line = machine.run("uninstall", "gitty", "--yes").failed()
    assert "has changed since it was installed" in line
