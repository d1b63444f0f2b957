"""`hermes-plugins status` of a provider with settings: it says what an agent would find."""

from __future__ import annotations

import json

import pytest
from support.fielded import FIELDS, TIMEOUT, add_plugin, run_with

CHOSEN = "memory:\n  provider: acme\n"


def test_it_says_what_is_set_from_where_and_what_is_missing(machine):
    machine.write_config(CHOSEN + "  acme: {timeout: 7}\n")
    result = machine.run("status")
    assert (result.code, result.err) == (1, "")
    assert "built-in:  active (always)" in result.lines
    assert "external:  acme, does not work" in result.lines
    assert "  mode: cloud  (default)" in result.lines
    assert "  timeout: 7  (config.yaml (memory.acme.timeout))" in result.lines
    assert "  api_key: missing, get it at https://acme.example/keys" in result.lines
    report = machine.json("status", code=1)
    assert report["ok"] is False
    assert (report["provider"]["active"], report["builtin"]["active"]) == (False, True)
    rows = {row["key"]: row for row in report["provider"]["settings"]}
    assert (rows["api_key"]["set"], rows["api_key"]["url"]) == (False, "https://acme.example/keys")
    assert "is missing" in rows["api_key"]["problem"]
    assert rows.keys() == {"mode", "timeout", "api_key"}


def test_it_says_which_source_gave_a_wrong_value(machine):
    machine.write_config(CHOSEN + "  acme: {timeout: 7}\n")
    (machine.home / ".env").write_text("ACME_API_KEY=k\n")
    result = machine.run("status", env={"ACME_TIMEOUT": "soon"})
    assert result.code == 1
    (problem,) = [line for line in result.lines if line.startswith("problem:")]
    assert "memory.acme.timeout: 'soon' is not a whole number" in problem
    assert "from environment (ACME_TIMEOUT)" in problem
    assert machine.run("status").code == 0


def test_a_working_provider_is_shown_with_pin_and_settings(machine):
    run_with(machine, "canary-4711", "setup", "acme", "--secret-stdin", "api_key").done()
    with machine.unchanged():
        result = machine.run("status").done()
        report = machine.json("status")
    assert "external:  acme, works" in result.lines
    assert "pinned:    directory 1.0" in result.lines
    assert "  api_key: set (.env)" in result.lines
    assert report["provider"]["pin"]["owner"] == "directory"
    assert "canary" not in result.out + json.dumps(report)


def test_it_says_where_a_plugin_in_a_folder_came_from(machine):
    folder = add_plugin(machine.home, ())
    machine.write_config(CHOSEN)
    assert f"from:      {folder}" in machine.run("status").done().lines
    assert machine.json("status")["provider"]["path"] == str(folder)


def test_a_secret_in_a_keyring_that_does_not_answer_is_not_said_to_be_missing(machine):
    machine.environment["PYTHON_KEYRING_BACKEND"] = "support.keyrings.InFile"
    run_with(machine, "k", "setup", "acme", "--secret-stdin", "api_key").done()
    machine.environment["PYTHON_KEYRING_BACKEND"] = "keyring.backends.fail.Keyring"
    result = machine.run("status")
    assert result.code == 1
    (problem,) = [line for line in result.lines if line.startswith("problem:")]
    assert "in the keyring, which does not answer here (cron, ssh)" in problem
    assert "secrets move --to dotenv" in problem
    assert "is missing" not in problem
    assert "  api_key: missing, get it at https://acme.example/keys" not in result.lines


def test_a_malformed_schema_is_told_as_the_plugins_fault(machine):
    add_plugin(machine.home, ({"key": "a"}, {"key": "a"}))
    machine.write_config(CHOSEN)
    result = machine.run("status")
    assert result.code == 1
    assert "'a' is there twice" in result.out
    assert "a bug in the plugin. Please report it to its author" in result.out


def test_a_variable_of_the_process_can_make_it_work(machine):
    machine.write_config(CHOSEN)
    result = machine.run("status", env={"ACME_API_KEY": "canary-4711"}).done()
    assert "  api_key: set (environment)" in result.lines


def test_what_the_provider_shows_of_itself_is_shown(machine):
    own = """
    def get_status_config(self, provider_config):
        assert "api_key" not in provider_config
        return {"server": f"timeout {provider_config['timeout']}", "odd": "a\\x1b[31m\\nb"}
    """
    add_plugin(machine.home, FIELDS, own)
    machine.write_config(CHOSEN)
    (machine.home / ".env").write_text("ACME_API_KEY=k\n")
    result = machine.run("status").done()
    assert "  server: timeout 30" in result.lines
    assert "\x1b" not in result.out


def test_a_service_that_does_not_answer_is_not_said_to_work(machine):
    add_plugin(machine.home, (), "def probe(self, write):\n    raise OSError('wrong key')\n")
    machine.write_config(CHOSEN)
    result = machine.run("status")
    assert result.code == 1
    assert result.lines[3] == "external:  acme, loads, but DOES NOT ANSWER"
    assert "wrong key" in result.out + result.err
    told = machine.json("status", code=1)["provider"]
    assert (told["active"], told["answers"], told["works"]) == (True, False, False)


@pytest.mark.parametrize(
    "body", ["raise RuntimeError('boom')", "return 3", "import os; os._exit(3)"]
)
def test_a_broken_report_of_the_provider_does_not_end_the_status(machine, body):
    add_plugin(
        machine.home, (TIMEOUT,), f"def get_status_config(self, provider_config):\n    {body}\n"
    )
    machine.write_config(CHOSEN)
    result = machine.run("status")
    assert "Traceback" not in result.out + result.err
    assert "external:  acme" in result.out


@pytest.mark.parametrize("make", ["directory", "bytes"])
def test_an_env_file_that_can_not_be_read_is_told(machine, make):
    machine.write_config(CHOSEN)
    path = machine.home / ".env"
    if make == "directory":
        path.mkdir()
    else:
        path.write_bytes(b"A=\xff\xfe\n")
    result = machine.run("status")
    assert result.code == 1
    assert str(path) in result.out
    assert "Traceback" not in result.out + result.err
