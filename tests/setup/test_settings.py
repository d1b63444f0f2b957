"""Where a value comes from, and what a provider finds in its environment."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import keyring
import pytest
from support.fielded import FIELDS, TIMEOUT, add_plugin
from support.keyrings import InMemory

from hermes_core.secrets import Secrets

KEY = {"key": "api_key", "secret": True}
CHOSEN = "memory: {provider: acme"


def values_of(manager):
    return {row["key"]: (row["value"], row["origin"]) for row in manager.setting_rows}


def provider_of(manager):
    (found,) = [each for each in manager.providers if each.name == "acme"]
    return found


def at_import(manager):
    return sys.modules[type(provider_of(manager)).__module__].AT_IMPORT


def test_each_source_counts_more_than_the_next(home, configured, monkeypatch):
    add_plugin(home, (TIMEOUT,))

    def now():
        manager = configured()
        found = values_of(manager)["timeout"]
        manager.shutdown_all()
        return found

    config = home / "config.yaml"
    config.write_text(f"{CHOSEN}}}\n")
    assert now() == (30, "default")
    (home / "acme.json").write_text('{"timeout": "1"}')
    assert now() == (1, str(home / "acme.json"))
    config.write_text(f"{CHOSEN}, acme: {{timeout: '2'}}}}\n")
    assert now() == (2, "config.yaml (memory.acme.timeout)")
    backend = InMemory()
    monkeypatch.setattr(keyring, "get_keyring", lambda: backend)
    Secrets(home, "keyring").set("ACME_TIMEOUT", "3", "acme")
    assert now() == (3, "keyring (ACME_TIMEOUT)")
    (home / ".env").write_text("ACME_TIMEOUT=4\n")
    assert now() == (4, ".env (ACME_TIMEOUT)")
    monkeypatch.setenv("ACME_TIMEOUT", "5")
    assert now() == (5, "environment (ACME_TIMEOUT)")


def test_an_empty_value_is_none(home, configured, monkeypatch):
    add_plugin(home, (TIMEOUT,))
    (home / "config.yaml").write_text(f"{CHOSEN}, acme: {{timeout: ''}}}}\n")
    (home / ".env").write_text("ACME_TIMEOUT=\n")
    monkeypatch.setenv("ACME_TIMEOUT", "")
    assert values_of(configured())["timeout"] == (30, "default")


def test_a_provider_file_in_its_own_folder_is_read(home, configured):
    add_plugin(home, (TIMEOUT,))
    (home / "config.yaml").write_text(f"{CHOSEN}}}\n")
    (home / "acme").mkdir()
    (home / "acme" / "config.json").write_text('{"timeout": 6}')
    assert values_of(configured())["timeout"][0] == 6


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff", b"[" * 100_000])
def test_a_broken_provider_file_does_not_disturb(home, configured, content):
    add_plugin(home, (TIMEOUT,))
    (home / "config.yaml").write_text(f"{CHOSEN}}}\n")
    (home / "acme.json").write_bytes(content)
    assert values_of(configured())["timeout"] == (30, "default")


def test_the_section_may_be_spelt_in_other_letters(home, configured):
    add_plugin(home, (TIMEOUT,))
    (home / "config.yaml").write_text(f"{CHOSEN}, Acme: {{timeout: 8}}}}\n")
    assert values_of(configured())["timeout"] == (8, "config.yaml (memory.Acme.timeout)")


def grant(home: Path, *names: str, env: tuple[str, ...] = ()) -> None:
    """What `enable` records; the owner of a directory plugin is "directory"."""
    entry = {"owner": "directory", "grants": names, "env": env}
    lock = {"version": 1, "plugins": {"acme": entry}}
    (home / "plugins.lock.json").write_text(json.dumps(lock))


def test_what_a_provider_needs_is_there_when_it_is_imported_and_nothing_else(home, configured):
    declared = {**KEY, "env_var": "DECLARED_KEY"}
    needs = "requires_env: [NEEDED, {name: ALSO}, ACME_NEEDED, NOT_GRANTED]"
    add_plugin(home, (declared,), manifest=f"version: 1\n{needs}\n")
    (home / "config.yaml").write_text(f"{CHOSEN}, acme: {{env: [LISTED]}}}}\n")
    Secrets(home, "dotenv").set("STORED", "x", "acme")
    given = {"DECLARED_KEY", "NEEDED", "ALSO", "ACME_NEEDED", "LISTED", "STORED"}
    others = {"OTHER_KEY", "ACMES", "ACME_ANYTHING", "NOT_GRANTED"}
    with (home / ".env").open("a") as file:
        file.write("".join(f"{name}=x\n" for name in sorted((given | others) - {"STORED"})))
    grant(home, "DECLARED_KEY", "NEEDED", "ALSO")
    manager = configured()
    early = {name for name in given | others if at_import(manager).get(name) == "x"}
    assert early == given
    manager.shutdown_all()
    assert not given & set(os.environ)


def test_a_variable_that_a_field_declares_is_there_before_the_import(home, configured):
    add_plugin(home, ({**KEY, "env_var": "DECLARED_KEY"}, {"key": "own"}))
    (home / "config.yaml").write_text(f"{CHOSEN}}}\n")
    (home / ".env").write_text("DECLARED_KEY=x\nACME_OWN=y\n")
    grant(home, "DECLARED_KEY", env=("ACME_OWN", "DECLARED_KEY"))
    manager = configured()
    assert at_import(manager).get("DECLARED_KEY") == "x"
    assert at_import(manager).get("ACME_OWN") == "y"


def test_the_process_has_the_last_word_and_keeps_its_variable(home, configured, monkeypatch):
    add_plugin(home, (KEY,))
    (home / "config.yaml").write_text(f"{CHOSEN}}}\n")
    (home / ".env").write_text("ACME_API_KEY=file\n")
    monkeypatch.setenv("ACME_API_KEY", "process")
    manager = configured()
    assert at_import(manager)["ACME_API_KEY"] == "process"
    manager.shutdown_all()
    assert os.environ["ACME_API_KEY"] == "process"


def test_an_empty_variable_of_the_process_does_not_hide_the_stored_one(
    home, configured, monkeypatch
):
    add_plugin(home, (KEY,))
    (home / "config.yaml").write_text(f"{CHOSEN}}}\n")
    (home / ".env").write_text("ACME_API_KEY=file\n")
    grant(home, env=("ACME_API_KEY",))
    monkeypatch.setenv("ACME_API_KEY", "")
    manager = configured()
    assert values_of(manager)["api_key"][1] == ".env (ACME_API_KEY)"
    assert at_import(manager)["ACME_API_KEY"] == "file"


def two_homes(tmp_path: Path, first: str, second: str) -> list[Path]:
    homes = [tmp_path / "one", tmp_path / "two"]
    for each, env in zip(homes, (first, second), strict=True):
        each.mkdir()
        add_plugin(each, (KEY,))
        (each / "config.yaml").write_text(f"{CHOSEN}}}\n")
        (each / ".env").write_text(env)
        grant(each, env=("ACME_API_KEY",))
    return homes


def test_a_second_manager_that_needs_another_value_is_refused_until_the_first_is_gone(
    tmp_path, configured
):
    one, two = two_homes(tmp_path, "ACME_API_KEY=canary-1\n", "ACME_API_KEY=canary-2\n")
    first, second = configured(one), configured(two)
    assert [each.name for each in second.providers] == ["builtin"]
    (problem,) = second.problems
    assert "ACME_API_KEY has another value here, for plugin acme" in str(problem)
    assert "separate processes" in str(problem)
    assert "canary" not in str(problem)
    assert at_import(first)["ACME_API_KEY"] == "canary-1"
    first.shutdown_all()
    second.shutdown_all()
    third = configured(two)
    assert third.problems == ()
    assert at_import(third)["ACME_API_KEY"] == "canary-2"


def test_managers_that_need_the_same_value_share_it_until_the_last_is_gone(tmp_path, configured):
    one, two = two_homes(tmp_path, "ACME_API_KEY=x\n", "ACME_API_KEY=x\n")
    first, second = configured(one), configured(two)
    assert first.problems == second.problems == ()
    first.shutdown_all()
    first.shutdown_all()
    second.initialize_all("s")
    assert provider_of(second).kwargs["provider_config"]["api_key"] == "x"
    second.shutdown_all()
    assert "ACME_API_KEY" not in os.environ


def test_a_manager_without_a_value_does_not_get_that_of_another_home(tmp_path, configured):
    one, two = two_homes(tmp_path, "ACME_API_KEY=canary-1\n", "")
    configured(one)
    second = configured(two)
    used = [each for each in second.providers if each.name == "acme"]
    assert not used or os.environ.get("ACME_API_KEY") != "canary-1"


def test_a_variable_goes_back_when_the_provider_is_not_activated(home, configured):
    add_plugin(home, FIELDS, "def is_available(self):\n    return False\n")
    (home / "config.yaml").write_text(f"{CHOSEN}}}\n")
    (home / ".env").write_text("ACME_API_KEY=x\n")
    assert len(configured().problems) == 1
    assert "ACME_API_KEY" not in os.environ
