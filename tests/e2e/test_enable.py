"""`hermes-plugins enable`, where it succeeds."""

from __future__ import annotations

import os

import pytest
from support.commands import Machine
from support.sites import MEMORY, PLUGINS, provider_source

# tests/e2e/test_enable_processes.py has the real child process.
pytestmark = pytest.mark.usefixtures("forked_children")

TIMES = 4 if os.environ.get("HERMES_STRESS") else 1


def test_enabling_sets_the_provider_and_says_so(machine):
    machine.install("alpha")
    result = machine.run("enable", "alpha").done()
    assert result.out == "alpha is enabled.\n"
    assert machine.memory["provider"] == "alpha"
    listed = machine.providers()["alpha"]
    assert (listed["active"], listed["state"], listed["problem"]) == (True, "active", "")
    assert machine.run("status").done().code == 0


def test_enabling_records_owner_version_and_hash(machine):
    machine.install("alpha", version="2.1")
    machine.run("enable", "alpha").done()
    pins = machine.pins
    assert pins.keys() == {"alpha"}
    assert (pins["alpha"]["owner"], pins["alpha"]["version"]) == ("memory-alpha", "2.1")
    assert pins["alpha"]["hash"].startswith("sha256:")


def test_another_spelling_enables_the_same_and_writes_its_own_name(machine):
    machine.install("My-Memory")
    machine.run("enable", "my_MEMORY").done()
    assert machine.memory["provider"] == "My-Memory"


def test_a_name_that_yaml_takes_for_a_value_stays_a_name(machine):
    machine.install("no", distribution="memory-no")
    machine.run("enable", "no").done()
    assert machine.memory["provider"] == "no"
    assert machine.providers()["no"]["active"] is True


def test_a_directory_plugin_with_relative_imports_is_enabled(machine):
    folder = machine.add_directory(
        "beta", "from .part import register  # a MemoryProvider comes of it\n"
    )
    (folder / "part.py").write_text(provider_source("beta"))
    machine.run("enable", "beta").done()
    assert machine.pins["beta"]["owner"] == "directory"
    assert machine.json("status")["provider"]["works"] is True


@pytest.mark.parametrize(
    ("value", "code"),
    [
        pytest.param("alpha:Provider", "", marks=pytest.mark.stress),
        pytest.param("alpha", "", marks=pytest.mark.stress),
        ("alpha:box.provider", "class box:\n    provider = Provider()"),
    ],
)
def test_an_entry_point_in_another_shape_is_enabled(machine, value, code):
    machine.site.add(
        "memory-alpha",
        groups={MEMORY: {"alpha": value}},
        files={"alpha.py": provider_source("alpha") + code + "\n"},
    )
    machine.run("enable", "alpha").done()


def test_a_general_plugin_that_registers_a_provider_is_enabled(machine):
    machine.site.add(
        "big-plugin",
        groups={PLUGINS: {"alpha": "big_plugin"}},
        files={"big_plugin/__init__.py": provider_source("alpha")},
    )
    machine.run("enable", "alpha").done()
    assert machine.pins["alpha"]["owner"] == "big-plugin"


@pytest.mark.stress  # test_list.py enables one, too
def test_a_carried_directory_plugin_is_enabled_in_place(machine):
    machine.site.add(
        "some-tool",
        files={
            "some_tool/plug/__init__.py": provider_source("plug"),
            "some_tool/plug/plugin.yaml": "description: x\n",
        },
    )
    machine.run("enable", "plug").done()
    assert machine.pins["plug"]["owner"] == "some-tool"
    assert machine.json("status")["provider"]["works"] is True


def test_enabling_twice_changes_nothing_the_second_time(machine):
    machine.install("alpha")
    machine.run("enable", "alpha").done()
    with machine.unchanged():
        result = machine.run("enable", "alpha").done()
    assert "replaces" not in result.out


def test_enabling_another_says_that_it_replaces_the_active_one(machine):
    machine.install("alpha")
    machine.install("beta")
    machine.run("enable", "alpha").done()
    result = machine.run("enable", "beta").done()
    assert "beta replaces alpha" in result.out
    assert machine.memory["provider"] == "beta"
    assert machine.pins.keys() == {"beta"}
    states = {name: each["active"] for name, each in machine.providers().items()}
    assert states == {"builtin": True, "alpha": False, "beta": True}


def test_everything_else_in_the_file_stays_as_it_was(machine):
    machine.install("alpha")
    before = (
        "# mine\nmodel:   gpt # which\nlist: [1,\n  2]\nmemory:   # ours\n"
        "    provider: ''   # none yet\n    nudge_interval: 0x10\nlast: yes\n"
    )
    machine.write_config(before)
    machine.run("enable", "alpha").done()
    after = machine.config_file.read_text()
    kept = [line for line in before.splitlines() if "provider" not in line]
    assert [line for line in after.splitlines() if line in kept] == kept
    assert "provider: alpha   # none yet" in after


def test_enabling_the_builtin_changes_nothing(machine):
    with machine.unchanged():
        result = machine.run("enable", "builtin").done()
    assert "always active" in result.out


def test_the_home_is_made_for_its_owner_alone_when_it_is_missing(machine, tmp_path):
    machine.install("alpha")
    fresh = tmp_path / "not" / "there yet"
    machine.run("--home", str(fresh), "enable", "alpha").done()
    assert (fresh / "config.yaml").is_file()
    assert fresh.stat().st_mode & 0o077 == 0
    assert (fresh / "config.yaml").stat().st_mode & 0o077 == 0
    assert not machine.config_file.exists()


def conflicting(machine: Machine) -> None:
    machine.install("twice", distribution="first-owner")
    machine.install("twice", distribution="second-owner")


def test_a_conflict_is_refused_with_every_owner_until_one_is_chosen(machine):
    conflicting(machine)
    with machine.unchanged():
        line = machine.run("enable", "twice").failed()
    assert "first-owner, second-owner" in line
    assert "twice@first-owner" in line
    machine.run("enable", "twice@second-owner").done()
    assert machine.memory["provider"] == "twice@second-owner"
    assert machine.pins["twice"]["owner"] == "second-owner"
    report = machine.json("status")
    assert report["provider"]["distribution"] == "second-owner"
    assert report["provider"]["works"] is True


def test_a_directory_and_a_distribution_of_one_name_are_told_apart(machine):
    machine.install("twice", distribution="first-owner")
    machine.add_directory("twice")
    owners = machine.run("enable", "twice").failed().partition("claimed by")[2]
    assert "directory" in owners
    assert "first-owner" in owners
    machine.run("enable", "twice@directory").done()
    assert machine.json("status")["provider"]["source"] == "directory"


def test_another_owner_of_the_same_name_is_told_as_a_replacement(machine):
    conflicting(machine)
    machine.run("enable", "twice@first-owner").done()
    result = machine.run("enable", "twice@second-owner").done()
    assert "replaces twice@first-owner" in result.out


def test_a_plugin_sees_the_home_that_the_command_was_given(machine, tmp_path):
    seen = tmp_path / "seen"
    other = tmp_path / "other"
    source = f"import os\nopen({str(seen)!r}, 'w').write(os.environ['HERMES_HOME'])\n"
    machine.install("alpha", source + provider_source("alpha"))
    machine.run("--home", str(other), "enable", "alpha").done()
    assert seen.read_text() == str(other)


@pytest.mark.scaled
def test_two_who_enable_at_once_leave_one_of_the_two_choices(machine):
    machine.install("alpha")
    machine.install("beta")
    running = [machine.start("enable", name) for name in ("alpha", "beta") * TIMES]
    for process in running:
        out, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, ""), out
    assert machine.memory["provider"] in ("alpha", "beta")
    assert machine.memory["provider"] in machine.pins
    assert machine.run("status").done().code == 0


def test_a_register_that_fails_after_its_provider_is_enabled_with_a_warning(machine):
    source = provider_source("alpha") + "    raise RuntimeError('no room for tools')\n"
    machine.install("alpha", source=source)
    result = machine.run("enable", "alpha")
    assert result.code == 0
    assert result.out == "alpha is enabled.\n"
    assert "warning: plugin alpha: register() failed after" in result.err
    assert "no room for tools" in result.err
    status = machine.json("status")
    assert status["provider"]["works"] is True
    assert any("no room for tools" in each for each in status["warnings"])
