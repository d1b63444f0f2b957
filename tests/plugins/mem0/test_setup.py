"""The installed command with the plugin: set-up that checks the key, status, doctor."""

import stat

import pytest
from support.fielded import env_of, run_with
from support.mem0_places import KEY


def _set_up(machine, place, key):
    address = "platform_url" if place.mode == "platform" else "host"
    secret = "api_key" if place.mode == "platform" else "server_key"
    settings = [f"mode={place.mode}", f"{address}={place.config[address]}"]
    options = [part for each in settings for part in ("--set", each)]
    return run_with(machine, f"{key}\n", "setup", "mem0", *options, "--secret-stdin", secret)


@pytest.mark.parametrize("mode", ["platform", "server"])
def test_set_up_stores_the_key_apart_and_proves_it(mode, machine, request):
    place = request.getfixturevalue(mode)
    result = _set_up(machine, place, KEY)
    assert (result.code, result.err) == (0, "")
    assert result.lines[-1] == "mem0 is enabled and works."
    assert env_of(machine) == f"MEM0_API_KEY={KEY}\n"
    own = machine.home / "mem0.json"
    assert KEY not in own.read_text() + machine.config_file.read_text() + result.out
    assert stat.S_IMODE(own.stat().st_mode) == 0o600


def test_set_up_says_that_a_key_is_wrong(machine, platform):
    result = _set_up(machine, platform, "m0-wrong")
    assert result.code == 1
    assert "the key was refused" in result.err
    assert "m0-wrong" not in result.err


def test_the_engine_is_set_up_without_any_key(machine, oss):
    options = ("--set", "mode=oss", "--set", f"llm_url={oss.behind.url}")
    result = machine.run("setup", "mem0", "--no-input", *options)
    assert (result.code, result.lines[-1]) == (0, "mem0 is enabled and works.")
    assert (machine.home / "mem0" / "qdrant").is_dir()


def test_without_the_key_set_up_names_the_field(machine):
    result = machine.run("setup", "mem0", "--no-input")
    assert result.code == 1
    assert "api_key" in result.err


def test_status_shows_the_mode_and_the_address(machine, server):
    _set_up(machine, server, KEY)
    result = machine.run("status")
    assert result.code == 0
    assert "self-hosted" in result.out
    assert server.behind.url in result.out
    assert KEY not in result.out


def test_hermes_agents_settings_do_without_a_set_up(machine, server):
    (machine.home / "mem0.json").write_text(
        f'{{"mode": "platform", "host": "{server.behind.url}", "user_id": "hermes-user"}}'
    )
    (machine.home / ".env").write_text(f"MEM0_API_KEY={KEY}\n")
    (machine.home / ".env").chmod(0o600)
    result = machine.run("enable", "mem0")
    assert result.code == 0, result
    server.behind.store.rows.clear()
    assert "wrote, recalled and removed a memory" in machine.run("doctor", "--write").out
    assert not [row for row in server.rows() if row["user_id"].startswith("hermes-probe")]
