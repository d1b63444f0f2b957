"""A provider's settings are checked before it runs; the built-in goes on whatever they are."""

from __future__ import annotations

import json
import logging

import pytest
from support.fielded import FIELDS, TIMEOUT, add_plugin, run_with, saved_of

CHOSEN = "memory: {provider: acme}\n"

MALFORMED = {
    "no list": ("5", "returned int, expected list"),
    "text": ("'mode'", "returned str, expected list"),
    "no mapping": ("[3]", "field 1 is a int, not a mapping"),
    "no key": ("[{}, {'key': ''}]", "field 1 has no key; field 2 has no key"),
    "twice": ("[{'key': 'a'}, {'key': 'a'}]", "'a' is there twice"),
    "default": ("[{'key': 'a', 'choices': [1, 2], 'default': 3}]", "not among its choices"),
    "bounds": ("[{'key': 'a', 'minimum': 3, 'maximum': 1}]", "larger than its maximum"),
    "when": ("[{'key': 'a', 'when': {'b': 1}}]", "its when names 'b', which is not a field"),
    "variable": ("[{'key': 'a', 'env_var': 'A B'}]", "can't be an environment variable"),
    "raises": ("[][0]", "IndexError"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_schema_is_the_plugins_fault_and_the_built_in_goes_on(home, configured, name):
    text, words = MALFORMED[name]
    add_plugin(home, (), f"def get_config_schema(self):\n    return {text}\n")
    (home / "config.yaml").write_text(CHOSEN)
    manager = configured()
    assert [each.name for each in manager.providers] == ["builtin"]
    (problem,) = manager.problems
    assert words in str(problem)
    assert "plugin acme" in str(problem)
    assert "a bug in the plugin. Please report it to its author" in str(problem)


@pytest.mark.parametrize(
    "field",
    [
        "{'key': 'a', 'when': {'a': 1}, 'required': True}",
        "{'key': 'a', 'choices': {'x': 1}, 'default': 'y'}",
        "{'key': 'a', '$ref': 'http://localhost:9/schema.json', 'required': True}",
    ],
)
def test_no_schema_keeps_the_built_in_from_running(home, configured, field):
    odd_field(home, configured, field)


@pytest.mark.parametrize("field", ["['x']", "{}"])
def test_a_default_from_what_is_no_key_keeps_nobody_from_running(home, configured, field):
    odd_field(
        home, configured, f"{{'key': 'a', 'default_from': {{'field': {field}, 'map': {{}}}}}}"
    )


def test_an_enormous_bound_keeps_nobody_from_running(home, configured):
    odd_field(
        home, configured, "{'key': 'a', 'type': 'integer', 'minimum': 10**400, 'required': True}"
    )


def odd_field(home, configured, field: str) -> None:
    add_plugin(home, (), f"def get_config_schema(self):\n    return [{field}]\n")
    (home / "config.yaml").write_text(CHOSEN)
    manager = configured()
    assert "builtin" in [each.name for each in manager.providers]


def test_invalid_settings_keep_the_provider_out_and_name_all_that_is_wrong(
    home, configured, caplog
):
    add_plugin(home)
    (home / "config.yaml").write_text("memory: {provider: acme, acme: {timeout: 99}}\n")
    with caplog.at_level(logging.ERROR):
        manager = configured()
    assert [each.name for each in manager.providers] == ["builtin"]
    (problem,) = manager.problems
    text = str(problem)
    assert "memory.acme.timeout: 99 is too large" in text
    assert "from config.yaml (memory.acme.timeout)" in text
    assert "memory.acme.api_key: is missing" in text
    assert "set ACME_API_KEY; get one at https://acme.example/keys" in text
    assert "hermes-plugins setup acme" in text
    assert text in caplog.text


def test_a_secret_of_the_wrong_kind_is_not_shown(home, configured):
    add_plugin(home, ({"key": "pin", "secret": True, "type": "integer"},))
    (home / "config.yaml").write_text(CHOSEN)
    (home / ".env").write_text("ACME_PIN=canary-4711\n")
    (problem,) = configured().problems
    assert "memory.acme.pin: is not a whole number" in str(problem)
    assert "from .env (ACME_PIN)" in str(problem)
    assert "canary" not in str(problem)


def test_valid_settings_reach_initialize_as_what_they_mean(home, configured):
    fast = {"key": "fast", "type": "boolean"}
    ratio = {"key": "ratio", "type": "number", "default": "0.5"}
    add_plugin(home, (*FIELDS, fast, ratio))
    (home / "config.yaml").write_text(
        "memory: {provider: acme, acme: {timeout: '10', fast: 'yes', path: unused}}\n"
    )
    (home / ".env").write_text("ACME_API_KEY=canary-4711\n")
    manager = configured()
    manager.initialize_all("s1", platform="cli")
    assert manager.providers[1].kwargs["provider_config"] == {
        "mode": "cloud",
        "timeout": 10,
        "api_key": "canary-4711",
        "fast": True,
        "ratio": 0.5,
    }


def test_a_provider_without_fields_needs_none(home, configured):
    add_plugin(home, ())
    (home / "config.yaml").write_text(CHOSEN)
    manager = configured()
    assert manager.problems == ()
    assert len(manager.providers) == 2


def test_a_secret_in_a_config_file_works_and_is_warned_of(home, configured):
    add_plugin(home)
    (home / "config.yaml").write_text("memory: {provider: acme, acme: {api_key: canary-4711}}\n")
    manager = configured()
    assert len(manager.providers) == 2
    (warning,) = manager.warnings
    assert "api_key is in plain text in config.yaml" in warning
    assert "run hermes-plugins secrets set ACME_API_KEY" in warning
    assert "canary" not in warning


def test_enable_refuses_a_provider_that_is_not_set_up(machine):
    with machine.unchanged():
        line = machine.run("enable", "acme").failed()
    assert "memory.acme.api_key: is missing" in line
    assert "nothing was changed" in line


def test_save_config_gets_no_secret_and_nothing_that_does_not_apply(machine):
    run_with(machine, "canary-4711\n", "setup", "acme", "--secret-stdin", "api_key").done()
    assert saved_of(machine) == {"mode": "cloud", "timeout": 30}


@pytest.mark.parametrize(
    "body", ["raise RuntimeError('boom')", "raise SystemExit('boom')", "1 / 0  # boom"]
)
def test_a_save_config_that_fails_is_told_and_the_values_still_count(machine, body):
    add_plugin(
        machine.home, (TIMEOUT,), f"def save_config(self, values, hermes_home):\n    {body}\n"
    )
    result = machine.run("setup", "acme", "--no-input", "--set", "timeout=7")
    assert "acme could not save its settings" in result.out
    assert "Traceback" not in result.err
    assert "acme is enabled and works." in result.lines
    assert machine.json("config", "show")["settings"][-1]["value"] == 7
    assert not (machine.home / "setup.json").exists()


def test_the_settings_of_one_home_are_not_those_of_another(tmp_path, configured):
    found = []
    for number, folder in enumerate((tmp_path / "one", tmp_path / "two"), 5):
        folder.mkdir()
        add_plugin(folder, (TIMEOUT,))
        (folder / "config.yaml").write_text(
            json.dumps({"memory": {"provider": "acme", "acme": {"timeout": number}}})
        )
        manager = configured(folder)
        manager.initialize_all("s1")
        found.append(manager.providers[1].kwargs["provider_config"])
    assert found == [{"timeout": 5}, {"timeout": 6}]
