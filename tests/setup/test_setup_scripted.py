"""`hermes-plugins setup` in a script: nothing is asked, everything is told."""

from __future__ import annotations

import stat

import pytest
from support.commands import posix_only
from support.fielded import API_KEY, FIELDS, MODE, TIMEOUT, add_plugin, env_of, run_with, saved_of
from support.sites import OBSERVERS

from hermes_core.secrets import Secrets

CANARY = "canary-4711"
SECOND = {"key": "token", "secret": True, "env_var": "ACME_TOKEN"}


def test_it_writes_everything_enables_the_provider_and_proves_it(machine):
    result = run_with(
        machine, f"{CANARY}\n", "setup", "acme", "--set", "timeout=07", "--secret-stdin", "api_key"
    ).done()
    assert result.lines[-1] == "acme is enabled and works."
    assert machine.memory["acme"] == {"timeout": 7}
    assert machine.memory["provider"] == "acme"
    assert machine.pins["acme"]["owner"] == "directory"
    assert env_of(machine) == f"ACME_API_KEY={CANARY}\n"
    assert saved_of(machine) == {"mode": "cloud", "timeout": 7}
    assert not (machine.home / "setup.json").exists()
    assert machine.json("status")["provider"]["works"] is True


def test_a_key_that_the_service_refuses_is_told_by_the_plugins_probe(machine):
    probe = f"""
    def probe(self, write):
        from types import SimpleNamespace
        told = "the key {CANARY} was refused" if not write else "it must not write"
        return SimpleNamespace(ok=False, detail=told)
    """
    add_plugin(machine.home, methods=probe)
    result = run_with(machine, f"{CANARY}\n", "setup", "acme", "--secret-stdin", "api_key")
    assert result.code == 1
    assert result.err == "acme is enabled, but does not work yet: the key *** was refused\n"
    assert CANARY not in result.out


def test_it_shows_what_goes_where_and_why(machine):
    result = run_with(
        machine, f"{CANARY}\n", "setup", "acme", "--set", "timeout=7", "--secret-stdin", "api_key"
    ).done()
    lines = [line.strip() for line in result.lines]
    assert "config.yaml:  memory.acme.timeout = 7" in lines
    assert "config.yaml:  memory.provider = acme" in lines
    assert ".env:  ACME_API_KEY" in lines
    assert "no keyring is available; .env is plain text, readable only by you" in lines
    assert CANARY not in result.out


@posix_only
def test_what_it_writes_is_for_its_owner_alone(machine):
    run_with(machine, "k\n", "setup", "acme", "--secret-stdin", "api_key").done()
    for name in (".env", "secrets.json"):
        assert stat.S_IMODE((machine.home / name).stat().st_mode) == 0o600


def test_a_keyring_takes_the_secret_and_who_can_not_read_it_is_told(machine, tmp_path):
    machine.environment["PYTHON_KEYRING_BACKEND"] = "support.keyrings.InFile"
    result = run_with(machine, f"{CANARY}\n", "setup", "acme", "--secret-stdin", "api_key").done()
    assert "the keyring:  ACME_API_KEY" in result.out
    assert "hermes-agent, cron jobs and services can't read the keyring" in result.out
    assert env_of(machine) == ""
    kept = (tmp_path / "keyring.json").read_text()
    assert kept.count(CANARY) == 1
    assert "STAGED" not in kept
    assert "  api_key: set (keyring)" in machine.run("status").done().lines


def test_all_that_is_missing_or_wrong_is_listed_at_once_and_nothing_changes(machine):
    with machine.unchanged():
        line = machine.run("setup", "acme", "--no-input", "--set", "timeout=99").failed()
    assert "memory.acme.api_key: is missing" in line
    assert "https://acme.example/keys" in line
    assert "memory.acme.timeout: '99' is too large" in line or "99 is too large" in line
    assert "at least 1, at most 60" in line
    assert "from argument" in line


def test_without_a_terminal_nothing_is_asked(machine):
    with machine.unchanged():
        assert "api_key: is missing" in machine.run("setup", "acme").failed()


def test_a_field_that_its_when_does_not_call_for_is_not_missed(machine):
    machine.run("setup", "acme", "--no-input", "--set", "mode=local", "--set", "path=x").done()
    assert saved_of(machine) == {"mode": "local", "path": "x", "timeout": 30}
    with machine.unchanged():
        line = machine.run("setup", "acme", "--no-input", "--set", "path=").failed()
    assert "path: is missing" in line
    assert "api_key" not in line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "shoe=46"], "has no field 'shoe'; its fields are: mode, timeout, api_key, path"),
        (["--set", "shoe"], "needs KEY=VALUE"),
        (["--set", "=46"], "needs KEY=VALUE"),
        (["--secret-stdin", "shoe"], "has no field 'shoe'"),
    ],
)
def test_a_field_that_is_not_there_is_wrong_usage(machine, arguments, words):
    with machine.unchanged():
        assert words in run_with(machine, f"{CANARY}\n", "setup", "acme", *arguments).misused()


def test_a_secret_in_the_arguments_is_refused_and_not_shown(machine):
    with machine.unchanged():
        said = machine.run("setup", "acme", "--set", f"api_key={CANARY}").misused()
    assert "--secret-stdin api_key" in said
    assert CANARY not in said


def test_standard_input_without_a_line_for_a_secret_is_an_error(machine):
    with machine.unchanged():
        line = run_with(machine, "", "setup", "acme", "--secret-stdin", "api_key").failed()
    assert "standard input has no line for api_key" in line


def test_several_secrets_come_in_the_order_of_their_names(machine):
    add_plugin(machine.home, (*FIELDS, SECOND))
    run_with(
        machine, "second\r\nfirst", "setup", "acme",
        "--secret-stdin", "token", "--secret-stdin", "api_key",
    ).done()  # fmt: skip
    assert sorted(env_of(machine).splitlines()) == ["ACME_API_KEY=first", "ACME_TOKEN=second"]


def test_secrets_reach_the_provider_as_they_were_given(machine):
    values = ["a'b\"c", "a # b", "${HOME}", "$(id)", "é 漢 🎉", " b ", "x" * 65536]
    wanted = {f"ACME_K{number}": value for number, value in enumerate(values)}
    fields = [{"key": f"k{number}", "secret": True} for number in range(len(values))]
    add_plugin(
        machine.home,
        fields,
        f"def is_available(self):\n    return AT_IMPORT.items() >= {wanted!r}.items()\n",
    )
    options = [part for field in fields for part in ("--secret-stdin", field["key"])]
    run_with(machine, "\n".join(values), "setup", "acme", *options).done()


@pytest.mark.parametrize("value", ["a\0b", "x" * 100_001])
def test_a_secret_that_no_store_holds_is_refused_and_nothing_is_lost(machine, value):
    run_with(machine, "old\n", "setup", "acme", "--secret-stdin", "api_key").done()
    before = env_of(machine)
    line = run_with(machine, f"{value}\n", "setup", "acme", "--secret-stdin", "api_key").failed()
    assert "ACME_API_KEY" in line or "api_key" in line
    assert value not in line
    assert env_of(machine) == before
    assert machine.json("status")["ok"] is True


def test_one_secret_that_is_refused_leaves_nothing_of_the_others(machine):
    add_plugin(machine.home, (*FIELDS, SECOND))
    with machine.unchanged():
        line = run_with(
            machine, f"{CANARY}\na\0b\n", "setup", "acme",
            "--secret-stdin", "api_key", "--secret-stdin", "token",
        ).failed()  # fmt: skip
    assert "STAGED" not in line


def test_a_second_set_up_keeps_what_it_is_not_told(machine):
    machine.write_config("# mine\nmodel: x  # and this\n")
    run_with(
        machine, f"{CANARY}\n", "setup", "acme", "--set", "timeout=7", "--secret-stdin", "api_key"
    ).done()
    machine.run("setup", "acme", "--no-input").done()
    assert machine.memory["acme"]["timeout"] == 7
    assert env_of(machine) == f"ACME_API_KEY={CANARY}\n"
    machine.run("setup", "acme", "--no-input", "--set", "timeout=8").done()
    assert machine.memory["acme"]["timeout"] == 8
    assert saved_of(machine)["timeout"] == 8
    assert machine.config_file.read_text().startswith("# mine\nmodel: x  # and this\n")


def test_a_stored_secret_counts_when_the_mode_that_needs_it_comes_back(machine):
    run_with(machine, "k\n", "setup", "acme", "--secret-stdin", "api_key").done()
    machine.run("setup", "acme", "--no-input", "--set", "mode=local", "--set", "path=x").done()
    machine.run("setup", "acme", "--no-input", "--set", "mode=cloud").done()
    assert machine.memory["acme"]["mode"] == "cloud"


@pytest.mark.parametrize("arguments", [["--secret-stdin", "api_key"], ["--set", "endpoint=x"]])
def test_an_answer_to_a_question_that_is_not_asked_is_not_dropped_silently(machine, arguments):
    endpoint = {"key": "endpoint", "when": {"mode": "cloud"}}
    add_plugin(machine.home, (MODE, API_KEY, endpoint))
    result = run_with(machine, "k\n", "setup", "acme", "--set", "mode=local", *arguments)
    assert arguments[1].partition("=")[0] in result.out + result.err


@pytest.mark.parametrize("where", ["environment", ".env"])
def test_a_source_that_counts_more_than_the_answer_is_told(machine, where):
    add_plugin(machine.home, (TIMEOUT,))
    env = {"ACME_TIMEOUT": "5"} if where == "environment" else {}
    if where == ".env":
        (machine.home / ".env").write_text("ACME_TIMEOUT=5\n")
    result = run_with(machine, "", "setup", "acme", "--set", "timeout=10", **env)
    assert "ACME_TIMEOUT" in result.out + result.err


def test_a_variable_that_shadows_the_new_secret_is_told(machine):
    result = run_with(
        machine, "new\n", "setup", "acme", "--secret-stdin", "api_key", ACME_API_KEY=CANARY
    )
    said = result.out + result.err
    assert "environment" in said
    assert CANARY not in said


def test_a_name_in_other_letters_is_written_as_the_plugin_calls_itself(machine):
    run_with(machine, "k\n", "setup", "ACME", "--secret-stdin", "api_key").done()
    assert machine.memory["provider"] == "acme"


def test_the_built_in_needs_none(machine):
    with machine.unchanged():
        assert "needs no setup" in machine.run("setup", "builtin").done().out


def test_a_name_that_nobody_has_is_told_with_the_one_that_may_be_meant(machine):
    with machine.unchanged():
        assert "acme" in machine.run("setup", "acmee").failed()


def test_without_a_name_it_shows_what_there_is_and_what_there_could_be(machine):
    with machine.unchanged():
        result = machine.run("setup")
    assert result.code == 2
    assert "1. acme  Memory by Acme." in result.out
    assert "honcho  not installed; in a checkout of hermes-plugins, run: " in result.out
    assert result.err == (
        "hermes-plugins: the plugin's name is missing\nhint: run: hermes-plugins setup acme\n"
    )


def test_a_broken_observer_is_not_the_providers_failure(machine):
    add_plugin(machine.home, ())
    machine.site.add(
        "tracing",
        groups={OBSERVERS: {"trace": "tracing_module"}},
        files={"tracing_module.py": "raise RuntimeError('boom')\n"},
    )
    machine.write_config("memory: {observers: [trace]}\n")
    result = machine.run("setup", "acme", "--no-input")
    assert "acme is enabled and works." in result.lines
    assert "acme is enabled, but does not work" not in result.err


def test_a_config_that_can_not_be_changed_leaves_everything_as_it_was(machine):
    text = "memory: &all\n  acme: 3\nother: *all\n"
    machine.write_config(text)
    result = run_with(machine, f"{CANARY}\n", "setup", "acme", "--secret-stdin", "api_key")
    assert result.failed()
    assert machine.config_file.read_text() == text
    assert CANARY not in env_of(machine)
    assert not (machine.home / "setup.json").exists()


def test_a_config_that_is_not_valid_is_not_set_up(machine):
    machine.write_config("memory: [1]\n")
    with machine.unchanged():
        run_with(machine, f"{CANARY}\n", "setup", "acme", "--secret-stdin", "api_key").failed()


def test_a_key_that_a_shell_reads_differently_is_stored_and_that_is_said(machine):
    done = run_with(machine, "it's $5\n", "setup", "acme", "--secret-stdin", "api_key")
    assert done.code == 0, done.err
    assert "a shell that sources .env reads something else for ACME_API_KEY" in done.out
    assert Secrets(machine.home).get("ACME_API_KEY").value == "it's $5"
