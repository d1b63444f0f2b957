"""The probe proves that it works, in the workspace in use, and leaves nothing."""

import pytest
from support.commands import Machine
from support.honcho_agents import said
from support.our_plugins import install_plugin

from hermes_core import HermesError
from hermes_memory_honcho import probe
from hermes_memory_honcho.names import Queue
from hermes_memory_honcho.probe import progress_line


def test_it_only_reads_and_makes_nothing_unless_told(server, agent):
    result = agent().provider.probe(write=False)
    assert result.ok
    assert server.url in result.detail
    assert "not there yet" in result.detail
    assert server.store.workspaces() == []
    assert [method for method, _ in server.requests] == ["GET"]


def test_it_writes_finds_and_removes_and_looks_whether_it_is_gone(server, agent):
    result = agent().provider.probe(write=True)
    assert result.ok, result.detail
    assert "written, found and removed" in result.detail
    assert [each["id"] for each in server.store.workspaces()] == ["hermes"]
    assert server.store.sessions("hermes") == []
    assert said(server) == []
    assert server.store.conclusions("hermes") == []


def test_a_removal_that_is_only_queued_is_said(server, agent, monkeypatch):
    monkeypatch.setattr(probe, "_REMOVED_SECONDS", 0.0)
    one = agent()
    one.say("x")
    server.behaviour.deriver = False
    result = one.provider.probe(write=True)
    assert result.ok
    assert "is queued" in result.detail
    assert "deriver" in result.detail
    server.behaviour.deriver = True
    for _ in range(3):
        one.provider.probe(write=False)
    assert [each["id"] for each in server.store.sessions("hermes") if "probe" in each["id"]] == []


def test_a_removal_that_is_refused_is_not_called_queued(agent, monkeypatch):
    from support import honcho_api
    from support.honcho_store import Refused

    def refuse(request):
        raise Refused(403, "nobody deletes here")

    routes = [
        (method, pattern, refuse if method == "DELETE" else handler)
        for method, pattern, handler in honcho_api.ROUTES
    ]
    monkeypatch.setattr(honcho_api, "ROUTES", routes)
    detail = agent().provider.probe(write=True).detail
    assert "queued" not in detail
    assert "stays: " in detail
    assert "nobody deletes here" in detail


def test_a_wrong_key_is_a_bad_result(server, agent, monkeypatch):
    server.behaviour.key = "right"
    result = agent().provider.probe(write=True)
    assert not result.ok
    assert "the key was refused" in result.detail


def test_a_key_for_one_workspace_is_enough(server, agent):
    server.behaviour.workspace = "hermes"
    one = agent()
    one.say("x")
    for write in (False, True):
        result = one.provider.probe(write=write)
        assert result.ok, result.detail
    server.behaviour.workspace = "another"
    assert not agent().provider.probe(write=False).ok


@pytest.fixture
def machine(tmp_path, server) -> Machine:
    made = Machine(tmp_path / "machine", in_process=True)
    install_plugin("honcho", made.site.folder)
    server.behaviour.workspace = "hermes"
    given = ("--set", "environment=local", "--set", f"baseUrl={server.url}")
    done = made.run("setup", "honcho", "--no-input", *given)
    assert done.code == 0, done
    return made


def test_setup_status_and_doctor_take_a_key_for_the_workspace_in_use(machine, server):
    done = machine.run("status")
    assert done.code == 0, done
    assert "conclusions" in done.out
    done = machine.run("doctor", "--write")
    assert "written, found and removed" in done.out, done
    assert "write:" not in done.out  # what a probe does not remove again stays for good
    assert [each["id"] for each in server.store.workspaces()] == ["hermes"]
    asked = {path.split("/")[3] for _, path in server.requests if path.count("/") > 2}
    assert asked == {"hermes"}
    assert server.store.sessions("hermes") == []


def test_the_setting_that_a_slow_recall_names_can_be_set(machine, server, agent):
    server.behaviour.frozen = True
    with pytest.raises(HermesError) as error:
        agent(config={"firstTurnBaseWait": 0.2}).recall("What do I like?")
    server.behaviour.frozen = False
    assert "config set memory.honcho.firstTurnBaseWait SECONDS" in error.value.hint
    done = machine.run("config", "set", "memory.honcho.firstTurnBaseWait", "5")
    assert done.code == 0, done


def test_a_dead_database_is_no_sign_of_life(server, agent):
    one = agent()
    one.say("x")
    server.behaviour.database = False
    result = one.provider.probe(write=False)
    assert not result.ok
    assert "the server failed" in result.detail
    assert "not known: the server failed" in one.provider.get_status_config({})["conclusions"]


def test_how_far_conclusions_are_is_shown(server, agent):
    one = agent()
    one.say("I like tea.", "Noted.")
    detail = one.provider.probe(write=False).detail
    assert "conclusions: 2 done, 0 at work, 0 waiting" in detail
    assert one.provider.get_status_config({})["conclusions"].startswith("2 done")


def test_a_deriver_that_does_not_run_is_named(server, agent):
    server.behaviour.deriver = False
    one = agent()
    one.say("I like tea.")
    detail = one.provider.probe(write=False).detail
    assert "0 done, 0 at work, 2 waiting" in detail
    assert "the deriver does not run" in detail


def test_a_standstill_is_warned_about_and_a_pause_is_not(tmp_path):
    waits = Queue(done=10, waiting=3)
    assert "WARNING" not in progress_line(waits, tmp_path, now=1_000_000.0)
    assert "WARNING" not in progress_line(waits, tmp_path, now=1_000_000.0 + 1800)
    assert "WARNING: nothing was done since" in progress_line(
        waits, tmp_path, now=1_000_000.0 + 3600
    )
    assert "WARNING" not in progress_line(
        Queue(done=11, waiting=3), tmp_path, now=1_000_000.0 + 3700
    )
    assert "WARNING" not in progress_line(Queue(done=11), tmp_path, now=2_000_000.0)
    assert "WARNING" not in progress_line(Queue(done=11, waiting=1), tmp_path, now=3_000_000.0)


def test_status_of_a_frozen_server_says_that_it_does_not_know(server, agent, monkeypatch):
    from hermes_memory_honcho import provider

    monkeypatch.setattr(provider, "_STATUS_SECONDS", 0.1)
    server.behaviour.frozen = True
    shown = agent().provider.get_status_config({})
    assert shown["conclusions"] == "not known: did not answer in time"
