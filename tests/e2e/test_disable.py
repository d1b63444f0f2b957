"""`hermes-plugins disable`."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("arguments", [(), ("alpha",), ("ALPHA",), ("alpha@memory-alpha",)])
def test_disabling_goes_on_with_the_builtin_alone(machine, arguments):
    machine.install("alpha")
    machine.write_config("memory: {provider: alpha, pins: {alpha: {owner: memory-alpha}}}\n")
    result = machine.run("disable", *arguments).done()
    assert "alpha is disabled" in result.out
    assert not machine.memory["provider"]
    assert not machine.pins
    listed = machine.providers()
    assert (listed["builtin"]["active"], listed["alpha"]["active"]) == (True, False)


@pytest.mark.parametrize("name", ["builtin", "BuiltIn"])
def test_the_builtin_cannot_be_disabled_and_the_reason_is_given(machine, name):
    with machine.unchanged():
        line = machine.run("disable", name).failed()
    assert "built-in memory can't be disabled" in line
    assert "notes and conversations" in line


def test_disabling_when_nothing_is_active_says_so_and_changes_nothing(machine):
    with machine.unchanged():
        result = machine.run("disable").done()
    assert "No external provider is active" in result.out


def test_disabling_another_than_the_active_one_is_refused(machine):
    machine.install("alpha")
    machine.install("beta")
    machine.write_config("memory: {provider: alpha}\n")
    with machine.unchanged():
        line = machine.run("disable", "beta").failed()
    assert "beta is not active" in line
    assert "alpha is" in line


def test_disabling_the_name_of_another_owner_is_refused(machine):
    machine.write_config("memory: {provider: alpha@first-owner}\n")
    with machine.unchanged():
        machine.run("disable", "alpha@second-owner").failed()


def test_disabling_a_name_when_nothing_is_active_is_refused(machine):
    with machine.unchanged():
        assert "none is" in machine.run("disable", "alpha").failed()


def test_what_is_no_longer_installed_can_be_disabled(machine):
    machine.write_config("# mine\nmemory:\n  provider: vanished  # gone\nother: 1\n")
    machine.run("disable").done()
    assert not machine.memory["provider"]
    text = machine.config_file.read_text()
    assert text.startswith("# mine\n")
    assert text.endswith("other: 1\n")
    machine.run("status").done()


def test_disabling_imports_no_plugin(machine, tmp_path):
    trace = tmp_path / "imported"
    machine.install("alpha", f"open({str(trace)!r}, 'w')  # MemoryProvider\n")
    machine.write_config("memory: {provider: alpha}\n")
    machine.run("disable").done()
    assert not trace.exists()
