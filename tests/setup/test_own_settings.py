"""``own_settings``: what a plugin finds in files that the host would not look at."""

from __future__ import annotations

import pytest
from support.fielded import add_plugin

OLD = '[("/old/file", {"mode": "local", "path": "/there", "api_key": "canary-4711"})]'
CHOSEN = "memory: {provider: acme}\n"


def add(machine, body: str) -> None:
    add_plugin(machine.home, methods=f"def own_settings(self, hermes_home):\n    {body}\n")
    machine.write_config(CHOSEN)


def rows(machine) -> dict[str, dict]:
    return {row["key"]: row for row in machine.json("status")["provider"]["settings"]}


def test_what_a_plugin_finds_counts_and_status_says_where_it_is_from(machine):
    add(machine, f"return {OLD}")
    found = rows(machine)
    assert found["mode"]["value"] == "local"
    assert found["mode"]["origin"] == "/old/file"
    assert found["path"]["value"] == "/there"


def test_every_other_source_counts_more(machine):
    add(machine, f"return {OLD}")
    machine.write_config("memory: {provider: acme, acme: {path: /here}}\n")
    assert rows(machine)["path"]["value"] == "/here"
    machine.write_config(CHOSEN)
    (machine.home / "acme.json").write_text('{"path": "/mine"}', "utf-8")
    assert rows(machine)["path"]["value"] == "/mine"


def test_a_secret_there_is_used_shown_nowhere_and_warned_of_once_in_one_line(machine):
    add(machine, f"return {OLD.replace('local', 'cloud')}")
    assert rows(machine)["api_key"]["origin"] == "/old/file"
    out = machine.run("doctor").out
    (line,) = [each for each in out.splitlines() if "api_key is in plain text" in each]
    assert line.count("plugin acme") == 1
    assert (
        "api_key is in plain text in /old/file; run hermes-plugins secrets set ACME_API_KEY" in line
    )
    assert "canary" not in out


def test_set_up_takes_it_for_an_answer(machine):
    add(machine, f"return {OLD}")
    result = machine.run("setup", "acme", "--no-input")
    assert result.code == 0, result
    assert rows(machine)["path"]["value"] == "/there"


@pytest.mark.parametrize("body", ["raise OSError('gone')", "return 3", "return [1]"])
def test_one_that_fails_is_told_in_one_line(machine, body):
    add(machine, body)
    (problem,) = machine.json("status", code=1)["problems"]
    assert problem.startswith("plugin acme: own_settings failed: ")
    assert "\n" not in problem


def test_one_that_hangs_is_left_at_its_deadline(machine):
    add(machine, "import threading; threading.Event().wait()")
    machine.write_config("memory: {provider: acme, deadlines: {hook: 0.3}}\n")
    (problem,) = machine.json("status", code=1)["problems"]
    assert "no answer within 0.3 s" in problem
