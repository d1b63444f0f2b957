"""The conformance kit, with the network cut off and with a server."""

import os

import pytest
from support.commands import Machine
from support.forked_children import run_forked
from support.our_plugins import install_plugin

from hermes_core.conformance import _runner

UNSEEN = "sessions are kept by the server; test_turns.py looks there"


@pytest.fixture
def machine(tmp_path, monkeypatch) -> Machine:
    if os.name == "posix":
        monkeypatch.setattr(_runner, "run_child", run_forked)
    made = Machine(tmp_path / "machine", in_process=True)
    install_plugin("honcho", made.site.folder)
    return made


@pytest.mark.stress
def test_it_passes_without_a_network(machine):
    done = machine.run(
        "check", "honcho", "--level", "should", "--env", "HONCHO_API_KEY=key-for-tests"
    )
    assert done.code == 0, done.out


@pytest.mark.stress
def test_it_passes_without_settings(machine):
    done = machine.run("check", "honcho", "--level", "should")
    assert done.code == 0, done.out


@pytest.mark.stress
def test_it_passes_with_a_server(machine, server):
    server.behaviour.key = "key-for-tests"
    known = [f"HONCHO_BASE_URL={server.url}", "HONCHO_SERVER_KEY=key-for-tests"]
    given = [part for each in known for part in ("--env", each)]
    left = [part for each in ("HP705", "HP706") for part in ("--skip", f"{each}={UNSEEN}")]
    done = machine.run("check", "honcho", "--level", "should", "--live", *given, *left, timeout=120)
    assert done.code == 0, done.out
    assert " 0 failed" in done.out + done.err
    assert "2 skipped" in done.out + done.err
