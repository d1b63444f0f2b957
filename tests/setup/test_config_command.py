"""`hermes-plugins config`: every value with its source, and one changed after a look at it."""

from __future__ import annotations

import pytest
from support.fielded import MODE, TIMEOUT, add_plugin, saved_of

CONFIG = "# mine\nmemory:\n  provider: acme\n  acme: {timeout: 5}  # slow line\n"


@pytest.fixture
def acme(machine):
    """The provider is chosen, and has its key."""
    machine.write_config(CONFIG)
    (machine.home / ".env").write_text("ACME_API_KEY=canary-4711\n")
    (machine.home / ".env").chmod(0o600)
    return machine


def shown(machine, *arguments, **options):
    lines = machine.run("config", "show", *arguments, **options).done().lines
    return dict(line.split(": ", 1) for line in lines)


def test_every_value_is_shown_and_no_secret(acme):
    assert shown(acme) == {
        "memory.provider": "acme",
        "secrets.backend": "auto",
        "memory.acme.mode": "cloud",
        "memory.acme.timeout": "5",
        "memory.acme.api_key": "set (.env)",
    }


def test_every_value_comes_with_its_source(acme):
    (acme.home / "acme.json").write_text('{"mode": "cloud", "timeout": 9}')
    found = shown(acme, "--origin", env={"ACME_TIMEOUT": "8"})
    assert found["memory.provider"] == "acme  (config.yaml)"
    assert found["secrets.backend"] == "auto  (default)"
    assert found["memory.acme.mode"] == f"cloud  ({acme.home / 'acme.json'})"
    assert found["memory.acme.timeout"] == "8  (environment (ACME_TIMEOUT))"
    assert found["memory.acme.api_key"] == "set (.env)"
    rows = acme.json("config", "show")["settings"]
    assert {row["name"]: row["value"] for row in rows if row["secret"]} == {
        "memory.acme.api_key": None
    }


def test_a_secret_in_the_keyring_is_shown_as_such(machine):
    from support.fielded import run_with

    machine.environment["PYTHON_KEYRING_BACKEND"] = "support.keyrings.InFile"
    machine.write_config(CONFIG)
    run_with(machine, "k", "secrets", "set", "ACME_API_KEY").done()
    assert shown(machine, "--origin")["memory.acme.api_key"] == "set (keyring)"


def test_what_is_missing_is_shown_with_where_to_get_it(machine):
    machine.write_config(CONFIG)
    assert shown(machine)["memory.acme.api_key"] == "missing, get it at https://acme.example/keys"


def test_values_of_a_plugin_that_can_not_be_loaded_are_not_passed_over_in_silence(acme):
    add_plugin(acme.home, module="raise RuntimeError('boom')")
    result = acme.run("config", "show")
    assert "boom" in result.out + result.err


def test_a_value_is_set_and_nothing_else_of_the_file_changes(acme):
    result = acme.run("config", "set", "memory.acme.timeout", "10").done()
    assert result.out == "Set memory.acme.timeout to 10.\n"
    assert acme.config_file.read_text() == CONFIG.replace("timeout: 5", "timeout: 10")
    assert shown(acme)["memory.acme.timeout"] == "10"


def test_a_value_is_kept_as_what_it_means(acme):
    add_plugin(acme.home, ({"key": "fast", "type": "boolean"}, TIMEOUT))
    acme.run("config", "set", "memory.acme.fast", "yes").done()
    acme.run("config", "set", "memory.acme.timeout", "007").done()
    assert acme.memory["acme"] == {"timeout": 7, "fast": True}


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("memory.acme.timeout", "99", "99 is too large (a whole number, at least 1, at most 60"),
        ("memory.acme.timeout", "soon", "'soon' is not a whole number"),
        ("memory.acme.mode", "moon", "'moon' is not one of the choices (one of cloud, local"),
        ("memory.acme.shoe", "46", "acme has no field shoe"),
        ("memory.nobody.shoe", "46", "nobody"),
        ("memory.nudge_interval", "soon", "nudge_interval"),
        ("secrets.backend", "paper", "backend"),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_allowed(acme, key, value, words):
    assert words in acme.run("config", "set", key, value).failed()
    assert acme.config_file.read_text() == CONFIG


@pytest.mark.parametrize("key", ["model", "memory.provider", "memory.pins", "memory.x", "a.b.c.d"])
def test_what_is_no_setting_is_wrong_usage(acme, key):
    with acme.unchanged():
        acme.run("config", "set", key, "acme").misused()


def test_a_secret_does_not_go_to_the_config(acme):
    with acme.unchanged():
        line = acme.run("config", "set", "memory.acme.api_key", "canary-0815").failed()
    assert "hermes-plugins secrets set ACME_API_KEY" in line
    assert "canary-0815" not in line


def test_a_secret_that_does_not_apply_now_is_no_less_a_secret(acme):
    acme.write_config("memory: {provider: acme, acme: {mode: local, path: x}}\n")
    line = acme.run("config", "set", "memory.acme.api_key", "canary-0815").failed()
    assert "has no field" not in line


def test_a_field_that_does_not_apply_now_is_not_said_to_be_no_field(acme):
    line = acme.run("config", "set", "memory.acme.path", "x").failed()
    assert "has no field" not in line
    assert "mode" in line


@pytest.mark.parametrize("where", ["environment", ".env"])
def test_a_source_that_counts_more_is_told(acme, where):
    env = {"ACME_TIMEOUT": "5"} if where == "environment" else {}
    if where == ".env":
        (acme.home / ".env").write_text("ACME_API_KEY=x\nACME_TIMEOUT=5\n")
    result = acme.run("config", "set", "memory.acme.timeout", "10", env=env)
    assert "ACME_TIMEOUT" in result.out + result.err


def test_our_own_settings_can_be_set(machine):
    machine.run("config", "set", "memory.nudge_interval", "5").done()
    machine.run("config", "set", "memory.memory_enabled", "false").done()
    machine.run("config", "set", "secrets.backend", "dotenv").done()
    found = shown(machine, "--origin")
    assert found["memory.nudge_interval"] == "5  (config.yaml)"
    assert found["memory.memory_enabled"] == "false  (config.yaml)"
    assert found["secrets.backend"] == "dotenv  (config.yaml)"


def test_the_keys_of_our_sections_can_be_set(machine):
    machine.run("config", "set", "memory.outbox.max_mb", "100").done()
    machine.run("config", "set", "memory.deadlines.tool", "30").done()
    assert machine.memory == {"outbox": {"max_mb": 100}, "deadlines": {"tool": 30}}
    found = shown(machine)
    assert found["memory.outbox.max_mb"] == "100"
    assert found["memory.deadlines.tool"] == "30"


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("memory.deadlines.tol", "30", "did you mean tool?"),
        ("memory.outbox.max_mb", "-1", "expected more than 0"),
        ("memory.outbox", "100", "config set memory.outbox.max_mb 100"),
    ],
)
def test_what_our_sections_do_not_have_is_refused(machine, key, value, reason):
    result = machine.run("config", "set", key, value)
    assert result.code in (1, 2)
    assert reason in result.err
    assert not machine.config_file.exists()


def test_values_are_shown_as_the_file_has_them(machine):
    result = machine.run("config", "set", "memory.observers", "[trace]").done()
    assert result.out == "Set memory.observers to [trace].\n"
    assert shown(machine)["memory.observers"] == "[trace]"


def test_a_provider_that_is_not_the_chosen_one_can_be_set(machine):
    add_plugin(machine.home, (MODE,), name="beta")
    machine.write_config(CONFIG)
    machine.run("config", "set", "memory.beta.mode", "local").done()
    assert machine.memory["beta"] == {"mode": "local"}
    assert machine.memory["provider"] == "acme"


def test_a_setting_is_the_same_wherever_the_provider_looks(acme):
    acme.run("setup", "acme", "--no-input").done()
    acme.run("config", "set", "memory.acme.timeout", "10").done()
    assert '"timeout": 5' not in (acme.home / "acme.json").read_text()


def test_what_is_not_yaml_is_a_value_that_is_not_allowed(acme):
    result = acme.run("config", "set", "memory.pin", "[")
    assert "expected one of warn, strict, got '['" in result.failed()
    assert "unexpected" not in result.err


def test_a_value_with_a_parenthesis_is_shown_whole(acme):
    add_plugin(acme.home, ({"key": "label"},))
    acme.write_config("memory:\n  provider: acme\n  acme: {label: 'a  (b'}\n")
    # Blanks in a row are shown as one.
    assert shown(acme)["memory.acme.label"] == "a (b"
    origin = "(config.yaml (memory.acme.label))"
    assert shown(acme, "--origin")["memory.acme.label"] == f"a (b  {origin}"


def test_a_plugin_that_can_not_save_the_value_is_an_error_until_it_can(acme):
    broken = "def save_config(self, values, hermes_home):\n    raise OSError('disk full')\n"
    add_plugin(acme.home, (TIMEOUT,), broken)
    result = acme.run("config", "set", "memory.acme.timeout", "8")
    assert "could not save its settings: OSError: disk full" in result.failed()
    assert acme.memory["acme"] == {"timeout": 8}
    report = acme.json("status")
    assert report["provider"]["works"] is True
    assert any("could not save its settings" in each for each in report["warnings"])
    add_plugin(acme.home, (TIMEOUT,))
    assert not any("save" in each for each in acme.json("status")["warnings"])
    assert saved_of(acme) == {"timeout": 8}
    assert not (acme.home / "setup.json").exists()


def test_a_plugin_that_is_not_set_up_yet_is_a_warning(machine):
    machine.write_config(CONFIG)
    result = machine.run("config", "set", "memory.acme.timeout", "8")
    assert result.code == 0
    assert "acme could not be asked to save it: " in result.err
    assert machine.memory["acme"] == {"timeout": 8}


def test_the_name_that_a_provider_gives_itself_reaches_its_save_config(machine):
    add_plugin(machine.home, (TIMEOUT,), name="outer")
    source = machine.home / "plugins" / "outer" / "__init__.py"
    source.write_text(source.read_text().replace("name = 'outer'", "name = 'inner'"))
    machine.run("enable", "outer").done()
    machine.run("config", "set", "memory.inner.timeout", "8").done()
    assert machine.memory["outer"] == {"timeout": 8}
    assert saved_of(machine, "outer") == {"timeout": 8}


def test_a_provider_can_be_named_as_it_calls_itself(machine):
    add_plugin(machine.home, (TIMEOUT,), "name = 'acme2'\n")
    machine.run("enable", "acme").done()
    result = machine.run("config", "set", "memory.acme2.timeout", "10").done()
    assert result.out == "Set memory.acme.timeout to 10.\n"
    assert shown(machine)["memory.acme.timeout"] == "10"
    machine.write_config("memory: {provider: acme, acme2: {timeout: 5}}\n")
    machine.run("config", "set", "memory.acme.timeout", "10").done()
    assert machine.memory == {"provider": "acme", "acme2": {"timeout": 10}}


def test_a_plugin_that_dies_when_it_saves_a_value_is_asked_again(acme):
    once = """
        def save_config(self, values, hermes_home):
            import os
            if not os.path.exists(hermes_home + "/died"):
                open(hermes_home + "/died", "w").close()
                os._exit(3)
            open(hermes_home + "/saved", "w").write(str(values["timeout"]))
    """
    add_plugin(acme.home, (TIMEOUT,), once)
    result = acme.run("config", "set", "memory.acme.timeout", "10")
    assert (result.code, result.out) == (0, "Set memory.acme.timeout to 10.\n")
    assert result.err == (
        "warning: acme could not be asked to save it: plugin acme: ended the process that loaded "
        "it (exit code 3)\n"
    )
    assert not (acme.home / "saved").exists()
    acme.run("status").done()
    assert (acme.home / "saved").read_text() == "10"
    assert not (acme.home / "setup.json").exists()


# -- homes of older versions -------------------------------------------------------------------

PIN = 'pins: {acme: {owner: acme, version: "1"}}'
OLD_HOME = CONFIG.replace("  acme:", f"  {PIN}\n  acme:")


@pytest.mark.parametrize(
    "arguments",
    [
        ("config", "set", "memory.nudge_interval", "5"),
        ("config", "set", "secrets.backend", "dotenv"),
        ("config", "set", "memory.acme.timeout", "10"),
    ],
)
def test_config_set_moves_the_pins_of_an_older_version(acme, arguments):
    acme.write_config(OLD_HOME)
    for reading in (("config", "show"), ("list",), ("status",), ("info", "acme")):
        acme.run(*reading)
        assert acme.config_file.read_text() == OLD_HOME
        assert acme.pins == {}
    acme.run(*arguments).done()
    assert acme.pins == {"acme": {"owner": "acme", "version": "1"}}
    text = acme.config_file.read_text()
    assert "pins" not in text
    assert text.startswith("# mine\nmemory:\n  provider: acme\n  acme: {timeout: ")
    assert "  # slow line\n" in text
