"""A key that is listed more than once: asked, written, shown and validated as it is in force."""

from __future__ import annotations

import pytest
from support.commands import posix_only
from support.fielded import add_plugin, env_of, run_with

from hermes_core import MemoryManager

CANARY = "canary-4711"
FIELDS = (
    {"key": "mode", "choices": ["cloud", "local", "off"], "default": "cloud"},
    {"key": "url", "description": "Cloud URL", "default": "https://acme",
     "when": {"mode": "cloud"}},
    {"key": "url", "description": "Local URL", "default": "http://here", "when": {"mode": "local"}},
    {"key": "key", "secret": True, "required": True, "env_var": "ACME_CLOUD_KEY",
     "when": {"mode": "cloud"}},
    {"key": "key", "secret": True, "env_var": "ACME_LOCAL_KEY", "when": {"mode": "local"}},
)  # fmt: skip


@pytest.fixture
def machine(machine):
    add_plugin(machine.home, FIELDS)
    return machine


def shown(machine) -> dict[str, object]:
    rows = machine.json("config", "show")["settings"]
    return {row["key"]: row["value"] for row in rows if row["name"].startswith("memory.acme.")}


def set_up(machine, *arguments: str):
    return run_with(machine, f"{CANARY}\n", "setup", "acme", "--secret-stdin", "key", *arguments)


def test_each_secret_goes_to_the_variable_of_the_one_in_force(machine):
    set_up(machine).done()
    assert env_of(machine) == f"ACME_CLOUD_KEY={CANARY}\n"
    assert shown(machine) == {"mode": "cloud", "url": "https://acme", "key": None}
    set_up(machine, "--set", "mode=local").done()
    assert "ACME_LOCAL_KEY" in env_of(machine)
    assert shown(machine) == {"mode": "local", "url": "http://here", "key": None}


def test_a_stored_secret_is_not_shown_where_another_condition_makes_it_plain(machine):
    plain = {"key": "key", "when": {"mode": "local"}}
    add_plugin(
        machine.home, (FIELDS[0], {**plain, "secret": True, "when": {"mode": "cloud"}}, plain)
    )
    set_up(machine).done()
    result = run_with(machine, "", "setup", "acme", "--no-input", "--set", "mode=local").done()
    told = [result, *(machine.run(*each).done() for each in (("status",), ("config", "show")))]
    assert not any(CANARY in each.out + each.err for each in told)
    assert CANARY not in machine.config_file.read_text("utf-8")


def test_the_value_for_another_condition_is_not_kept_for_this_one(machine):
    set_up(machine, "--set", "url=https://mine").done()
    assert machine.memory["acme"] == {"url": "https://mine"}
    result = run_with(machine, "", "setup", "acme", "--no-input", "--set", "mode=local").done()
    assert "memory.acme.url = http://here" in result.out
    assert machine.memory["acme"] == {"url": "http://here", "mode": "local"}


def test_a_value_for_another_condition_that_has_no_default_here_is_removed(machine):
    fields = (*FIELDS[:2], {"key": "url", "when": {"mode": "local"}})
    add_plugin(machine.home, fields)
    run_with(machine, "", "setup", "acme", "--no-input", "--set", "url=https://mine").done()
    result = run_with(machine, "", "setup", "acme", "--no-input", "--set", "mode=local").done()
    assert "memory.acme.url removed" in result.out
    assert machine.memory["acme"] == {"mode": "local"}


def test_a_missing_secret_is_that_of_the_one_in_force(machine):
    refused = run_with(machine, "", "setup", "acme", "--no-input")
    assert "key: is missing (set ACME_CLOUD_KEY)" in refused.err
    run_with(machine, "", "setup", "acme", "--no-input", "--set", "mode=local").done()
    status = machine.json("status")
    assert [row["variable"] for row in status["provider"]["settings"] if row["secret"]] == [
        "ACME_LOCAL_KEY"
    ]


def test_what_no_condition_calls_for_is_refused_with_all_of_them(machine):
    result = run_with(
        machine, "", "setup", "acme", "--no-input", "--set", "mode=off", "--set", "url=x"
    )
    assert "url applies only if mode is cloud, or mode is local" in result.misused()
    run_with(machine, "", "setup", "acme", "--no-input", "--set", "mode=off").done()
    refused = machine.run("config", "set", "memory.acme.url", "x").failed()
    assert "it applies if mode is cloud, or mode is local" in refused


def test_config_set_checks_against_the_one_in_force(machine):
    fields = (
        FIELDS[0],
        {"key": "n", "type": "integer", "maximum": 5, "when": {"mode": "local"}},
        {"key": "n", "when": {"mode": "cloud"}},
    )
    add_plugin(machine.home, fields)
    run_with(machine, "", "setup", "acme", "--no-input").done()
    machine.run("config", "set", "memory.acme.n", "many").done()
    run_with(
        machine, "", "setup", "acme", "--no-input", "--set", "mode=local", "--set", "n=1"
    ).done()
    assert "too large" in machine.run("config", "set", "memory.acme.n", "9").failed()


def test_an_agent_gets_the_value_of_the_one_in_force(home, monkeypatch):
    monkeypatch.setenv("ACME_CLOUD_KEY", "cloud")
    monkeypatch.setenv("ACME_LOCAL_KEY", "local")
    add_plugin(home, FIELDS)
    for mode, url in (("cloud", "https://acme"), ("local", "http://here")):
        (home / "config.yaml").write_text(
            f"memory: {{provider: acme, acme: {{mode: {mode}}}}}\n", "utf-8"
        )
        manager = MemoryManager.from_config(home)
        manager.initialize_all("s1")
        given = manager.get_provider("acme").kwargs["provider_config"]
        manager.shutdown_all()
        assert given == {"mode": mode, "url": url, "key": mode}


@posix_only
def test_a_person_is_asked_each_key_once(machine, dialogue):
    talk = dialogue("setup", "acme")
    value = r"  value[^\n]*: "
    talk.answer((value, "local"))
    asked = talk.wait_for(rf"(?s)url.*{value}")
    assert "Local URL" in asked
    assert "http://here" in asked
    talk.answer(("", ""), (value, ""), (r"Write this\?[^\n]*: ", "y"))
    assert talk.end() == 0
    assert "Cloud URL" not in talk.shown
    assert talk.shown.count("Local URL") == 1
