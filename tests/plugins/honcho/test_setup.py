"""Set-up: only what is needed is asked, the key is checked, files are private."""

from __future__ import annotations

import json
import stat
import sys

import pytest
from support.commands import Machine
from support.our_plugins import install_plugin

from hermes_core.config.fields import read_fields
from hermes_memory_honcho.provider import HonchoProvider
from hermes_memory_honcho.settings import CLOUD, read_settings


def asked(environment: str) -> list[str]:
    fields = read_fields(HonchoProvider().get_config_schema(), "honcho")
    return [each.key for each in fields if each.is_prompted({"environment": environment})]


def test_the_cloud_needs_a_key_and_an_own_server_an_address():
    assert asked("production") == ["environment", "api_key", "peerName"]
    assert asked("local") == ["environment", "baseUrl", "server_key", "peerName"]


def test_where_to_get_the_key_is_said():
    (field,) = [each for each in HonchoProvider().get_config_schema() if each["key"] == "api_key"]
    assert field["url"] == "https://app.honcho.dev"
    assert field["env_var"] == "HONCHO_API_KEY"


def test_settings_are_kept_beside_others_without_secrets_for_their_owner_alone(home):
    path = home / "honcho.json"
    path.write_text(json.dumps({"peerName": "old", "sessions": {"/x": "y"}}), "utf-8")
    values = {"peerName": "new", "timeout": 5, "api_key": "s3cret", "server_key": "s3cret"}
    HonchoProvider().save_config(values, str(home))
    kept = json.loads(path.read_text("utf-8"))
    assert kept == {"peerName": "new", "timeout": 5, "sessions": {"/x": "y"}}
    if sys.platform != "win32":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_who_goes_to_the_cloud_leaves_the_own_server(home):
    provider = HonchoProvider()
    own = {"environment": "local", "baseUrl": "http://localhost:1"}
    provider.save_config(own, str(home))
    provider.save_config({"environment": "local", "timeout": 5}, str(home))
    assert read_settings(home).address == "http://localhost:1"
    provider.save_config({"environment": "production"}, str(home))
    assert read_settings(home).address == CLOUD


def test_an_address_of_hermes_agents_file_stays(home):
    (home / "honcho.json").write_text('{"baseUrl": "http://localhost:1"}', "utf-8")
    HonchoProvider().save_config({"environment": "production", "timeout": 5}, str(home))
    assert read_settings(home, given={"environment": "production"}).address == "http://localhost:1"


def test_a_hosts_block_that_has_a_setting_gets_it_too(home):
    path = home / "honcho.json"
    block = {"recallMode": "hybrid", "aiPeer": "a"}
    path.write_text(json.dumps({"hosts": {"hermes": block}}), "utf-8")
    HonchoProvider().save_config({"recallMode": "tools", "timeout": 5}, str(home))
    kept = json.loads(path.read_text("utf-8"))
    assert kept["hosts"] == {"hermes": {"recallMode": "tools", "aiPeer": "a"}}


def test_set_up_hides_nothing_of_the_settings_that_all_programs_share(home, tmp_path):
    shared = tmp_path / "user" / ".honcho" / "config.json"
    shared.parent.mkdir(parents=True)
    said = {"workspace": "mine", "hosts": {"hermes": {"aiPeer": "al"}, "other": {"aiPeer": "x"}}}
    shared.write_text(json.dumps(said), "utf-8")
    HonchoProvider().save_config({"peerName": "ann"}, str(home))
    settings = read_settings(home)
    assert (settings.workspace, settings.ai_peer, settings.peer_name) == ("mine", "al", "ann")
    assert json.loads(shared.read_text("utf-8")) == said


def test_what_is_missing_is_said_and_what_is_wrong_too(home, monkeypatch):
    provider = HonchoProvider()
    assert not provider.is_available()
    assert "HONCHO_API_KEY" in provider.unavailable_reason()
    (home / "honcho.json").write_text('{"timeout": "soon"}', "utf-8")
    assert "timeout" in provider.unavailable_reason()
    (home / "honcho.json").write_text('{"enabled": false, "apiKey": "k"}', "utf-8")
    assert "switched off" in provider.unavailable_reason()
    (home / "honcho.json").write_text('{"apiKey": "k"}', "utf-8")
    assert provider.is_available()


def test_status_shows_where_turns_go_and_when(home, agent):
    shown = agent(config={"writeFrequency": 5}).provider.get_status_config({})
    assert shown["turns"] == "5 together"
    assert shown["workspace in use"] == "hermes"
    before = HonchoProvider().get_status_config({"saveMessages": False, "workspace": "w"})
    assert (before["turns"], before["workspace in use"]) == ("not sent", "w")


def test_the_settings_of_all_programs_are_named_for_a_backup(home, tmp_path):
    assert HonchoProvider().backup_paths() == []
    (tmp_path / "user" / ".honcho").mkdir(parents=True)
    assert HonchoProvider().backup_paths() == [str(tmp_path / "user" / ".honcho")]


@pytest.fixture
def machine(tmp_path) -> Machine:
    made = Machine(tmp_path / "machine", in_process=True)
    install_plugin("honcho", made.site.folder)
    return made


def test_set_up_ends_with_a_proof(machine, server):
    server.behaviour.key = "right"
    given = ("--set", "environment=local", "--set", f"baseUrl={server.url}", "--set", "peerName=al")
    wrong = machine.run("setup", "honcho", "--no-input", *given, env={"HONCHO_SERVER_KEY": "wrong"})
    assert wrong.code == 1
    assert "the key was refused" in wrong.err
    right = machine.run("setup", "honcho", "--no-input", *given, env={"HONCHO_SERVER_KEY": "right"})
    assert right.code == 0, right
    assert "works" in right.out + right.err
    assert "right" not in (machine.home / "honcho.json").read_text("utf-8")


def test_status_says_that_the_server_is_away(machine, server):
    given = ("--set", "environment=local", "--set", f"baseUrl={server.url}")
    assert machine.run("setup", "honcho", "--no-input", *given).code == 0
    server.stop()
    done = machine.run("status")
    assert done.code == 1
    assert "loads, but DOES NOT ANSWER" in done.out
    assert "can't be reached" in done.out + done.err
