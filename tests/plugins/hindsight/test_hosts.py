"""In hosts: ours, from set-up to the kit; and one like hermes-agent, which keeps no outbox."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from support.commands import Machine
from support.hindsight_agents import own_server, provider_on, set_up
from support.hindsight_server import Refusal
from support.our_plugins import PLUGINS, install_plugin

from hermes_core import MemoryManager
from hermes_memory_hindsight.provider import HindsightProvider


@pytest.fixture
def machine(tmp_path) -> Machine:
    """The installed command, with the plugin installed beside it and no keyring."""
    made = Machine(tmp_path / "machine", in_process=True)
    made.environment["PYTHON_KEYRING_BACKEND"] = "keyring.backends.fail.Keyring"
    install_plugin("hindsight", made.site.folder)
    return made


def test_importing_the_package_and_making_a_provider_imports_no_sdk():
    code = (
        "import sys; from hermes_memory_hindsight.provider import HindsightProvider as It; It();"
        "print(sorted({'hindsight_client', 'aiohttp', 'pydantic', 'asyncio'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(PLUGINS / "hindsight" / "src")},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "[]\n"


@pytest.mark.stress  # tests/plugins/honcho runs the kit in every run
def test_the_kit_passes_at_level_should_without_a_network(machine):
    result = machine.run("check", "hindsight", "--level", "should", timeout=120)
    assert result.code == 0, result.out


def test_set_up_checks_the_key(machine, server):
    server.key = "right"
    arguments = ("setup", "hindsight", "--set", "mode=local_external", "--set",
                 f"api_url={server.url}", "--secret-stdin", "server_key")  # fmt: skip

    wrong = machine.run(*arguments, input="wrong\n")
    assert wrong.code == 1
    assert "the key was refused" in wrong.err
    assert len(wrong.err.splitlines()) == 1
    assert machine.run(*arguments, input="right\n").code == 0
    own = machine.home / "hindsight" / "config.json"
    assert own.stat().st_mode & 0o777 == 0o600
    assert "right" not in own.read_text("utf-8")
    assert (machine.home / ".env").read_text("utf-8") == "HINDSIGHT_API_KEY=right\n"


def test_doctor_proves_a_write_and_leaves_nothing_in_the_bank(machine, server):
    memory = {"provider": "hindsight", "hindsight": own_server(server.url, bank_id="b")}
    machine.write_config(json.dumps({"memory": memory}))
    result = machine.run("doctor", "--write")
    assert "bank b, stored and recalled" in result.done().out
    assert server.asked("/memories")
    assert server.banks == {}


def test_the_cloud_needs_a_key(machine):
    result = machine.run("setup", "hindsight", "--no-input")
    assert "api_key" in result.failed()


def test_a_file_that_names_the_embedded_mode_is_answered_with_what_to_do(machine):
    (machine.home / "hindsight").mkdir()
    (machine.home / "hindsight" / "config.json").write_text('{"mode": "local_embedded"}', "utf-8")
    told = machine.run("setup", "hindsight", "--no-input").failed()
    assert "start hindsight-api yourself" in told
    machine.write_config("memory: {provider: hindsight}")
    status = machine.json("status", code=1)
    assert status["provider"]["works"] is False
    assert "start hindsight-api yourself" in json.dumps(status)


def test_a_turn_in_our_host_arrives_and_is_recalled_in_the_next_session(home, site, server):
    set_up(home, site, server.url, bank_id="b")
    for session, said in (("one", "The colour is teal."), ("two", "")):
        manager = MemoryManager.from_config(home)
        assert manager.problems == ()
        manager.initialize_all(session)
        if said:
            manager.sync_all(said, "Yes.")
            assert manager.flush_pending(30)
        else:
            assert "teal" in manager.recall_block("colour?", session_id=session)
        manager.shutdown_all()
    assert len(server.banks["b"]) == 1


def test_a_host_without_an_outbox_has_its_writes_queued_and_delivered(home, server):
    config = home / "hindsight" / "config.json"
    config.parent.mkdir()
    settings = {"mode": "local_external", "api_url": server.url, "bank_id": "b"}
    config.write_text(json.dumps(settings), "utf-8")
    provider = HindsightProvider()
    provider.initialize("s", hermes_home=str(home), platform="cli")
    provider.sync_turn("The colour is teal.", "Yes.", session_id="s")
    for text in ("likes green tea", "likes coffee"):
        provider.on_memory_write("add", "user", text)
    change = {"old_text": "green"}  # hermes-agent tells a part of the old text
    provider.on_memory_write("replace", "user", "likes black tea", change)
    provider.shutdown()
    assert sorted(server.texts("b")) == [
        "User: The colour is teal.\nAssistant: Yes.", "likes black tea", "likes coffee",
    ]  # fmt: skip


def test_a_part_of_an_old_note_is_looked_for_again_after_a_failure(home, server):
    config = home / "hindsight" / "config.json"
    config.parent.mkdir()
    config.write_text(json.dumps(own_server(server.url, bank_id="b")), "utf-8")
    listed, failures = server._documents, iter([503])

    def once_away(bank, query):
        if status := next(failures, 0):
            raise Refusal(status, "away")
        return listed(bank, query)

    server._documents = once_away
    provider = HindsightProvider()
    provider.initialize("s", hermes_home=str(home), platform="cli")
    provider.on_memory_write("add", "user", "likes green tea")
    provider.on_memory_write("replace", "user", "likes black tea", {"old_text": "green"})
    provider.shutdown()
    assert next(failures, None) is None
    assert server.texts("b") == ["likes black tea"]


@pytest.mark.stress
def test_forget_with_the_provider_deletes_at_the_server_for_each_person(server, machine):
    for user in ("1001", "1002"):
        facts = {"platform": "telegram", "user_id": user}
        with provider_on(machine.home, server.url, facts=facts) as provider:
            provider.sync_turn("I live at 4711 Quibblefjord Road.", "Noted.", turn_id=f"a{user}")
            provider.sync_turn("I drink tea.", "Noted.", turn_id=f"b{user}")
        manager = MemoryManager.from_config(machine.home)  # the archive knows both of them
        manager.initialize_all(f"s-{user}", **facts)
        manager.sync_all("Hello.", "Hello, how are you?")
        manager.shutdown_all()
    config = {"memory": {"provider": "hindsight", "hindsight": own_server(server.url)}}
    machine.write_config(json.dumps(config))
    asked = machine.json("forget", "quibblefjord road", "--provider", "--dry-run")
    assert asked["provider"] == {"documents": 2}
    receipt = machine.json("forget", "quibblefjord road", "--provider", "--yes")
    assert receipt["provider"]["found"] == receipt["provider"]["deleted"] == {"documents": 2}
    assert (receipt["provider"]["remaining"], receipt["complete"]) == ({}, True)
    left = [text for bank in server.banks for text in server.texts(bank)]
    assert ["tea" in text for text in left] == [True, True]
    (path,) = (machine.home / "receipts").iterdir()
    assert "uibblefjord" not in path.read_text("utf-8")
