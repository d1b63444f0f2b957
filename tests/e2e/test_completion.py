"""The shell completes commands, options and the names of providers."""

from __future__ import annotations

import json

import pytest
from support.commands import Machine
from support.sites import add_directory, provider_source


def complete(machine: Machine, line: str, **env: str) -> list[str]:
    """What bash is offered for the last word of a line, by click's protocol."""
    words = line.split(" ")
    protocol = {
        "_HERMES_PLUGINS_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    result = machine.run(env={**protocol, **env})
    assert (result.code, result.err) == (0, ""), result
    return [each.partition(",")[2] for each in result.lines if each]


@pytest.fixture
def stocked(machine: Machine) -> Machine:
    """Three providers, one of them in the home."""
    machine.install("mnemosyne")
    machine.install("mnemonic")
    machine.add_directory("beta")
    return machine


@pytest.mark.parametrize("command", ["enable", "info", "disable"])
def test_names_of_providers_are_completed(stocked, command):
    assert complete(stocked, f"hermes-plugins {command} mn") == ["mnemonic", "mnemosyne"]


def test_an_empty_word_gets_all_names_and_an_unknown_one_gets_none(stocked):
    everything = ["builtin", "beta", "mnemonic", "mnemosyne"]
    assert complete(stocked, "hermes-plugins info ") == everything
    assert complete(stocked, "hermes-plugins info zzz") == []


def test_the_home_on_the_line_counts(stocked, tmp_path):
    add_directory(tmp_path / "other", "gamma")
    line = f"hermes-plugins --home {tmp_path / 'other'} enable ga"
    assert complete(stocked, line) == ["gamma"]


def test_completing_imports_no_plugin(machine, tmp_path):
    trace = tmp_path / "imported"
    machine.install("alpha", f"open({str(trace)!r}, 'w')\n" + provider_source("alpha"))
    assert complete(machine, "hermes-plugins enable al") == ["alpha"]
    assert not trace.exists()


def test_install_is_offered_the_names_of_the_index_or_else_files(machine):
    row = {"name": "alpha", "distribution": "memory-alpha"}
    rows = [row, {**row, "name": "beta"}, {**row, "distribution": "other-alpha"}]
    index = {"schema": 1, "made": "2999-01-01", "plugins": rows}
    (machine.home / "plugin-index.json").write_text(json.dumps(index))
    assert complete(machine, "hermes-plugins install Al") == ["alpha"]
    assert complete(machine, "hermes-plugins install ") == ["alpha", "beta"]
    assert complete(machine, "hermes-plugins install ./wh") == ["./wh"]


def test_what_cannot_be_enabled_is_not_offered(stocked):
    add_directory(stocked.home, "beta-tools", "def register(ctx):\n    ctx.register_tool()\n")
    assert complete(stocked, "hermes-plugins enable be") == ["beta"]


def test_commands_and_options_are_completed(machine):
    assert complete(machine, "hermes-plugins en") == ["enable"]
    assert "--force" in complete(machine, "hermes-plugins enable --f")


def test_an_invalid_config_is_no_obstacle(stocked):
    stocked.write_config("memory: [1\n")
    assert complete(stocked, "hermes-plugins enable be") == ["beta"]


@pytest.mark.parametrize("kind", ["bash", "zsh", "fish"])
def test_the_script_for_every_shell_can_be_had(machine, kind):
    result = machine.run(env={"_HERMES_PLUGINS_COMPLETE": f"{kind}_source"})
    assert result.code == 0
    assert "_HERMES_PLUGINS_COMPLETE" in result.out


def test_a_home_that_is_a_file_completes_to_nothing_in_silence(machine, tmp_path):
    (tmp_path / "file").write_text("")
    assert complete(machine, "hermes-plugins enable x", HERMES_HOME=str(tmp_path / "file")) == []


def test_a_conflict_is_completed_with_its_owners(machine):
    machine.install("twice", distribution="first-owner")
    machine.install("twice", distribution="second-owner")
    offered = complete(machine, "hermes-plugins enable tw")
    assert offered == ["twice@first-owner", "twice@second-owner"]


def test_another_spelling_of_the_beginning_is_completed(machine):
    machine.install("My-Memory")
    assert complete(machine, "hermes-plugins enable my") == ["My-Memory"]
