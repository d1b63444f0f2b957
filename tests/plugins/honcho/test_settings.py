"""Settings: hermes-agent's file and variables, and our host's."""

import json
from pathlib import Path

import pytest

from hermes_core import ConfigError
from hermes_memory_honcho.settings import CLOUD, LOCAL, config_file, read_settings


def write(home: Path, **values) -> None:
    (home / "honcho.json").write_text(json.dumps(values), "utf-8")


def test_without_anything_it_is_the_cloud_and_says_what_is_missing(home: Path):
    settings = read_settings(home)
    assert settings.address == CLOUD
    assert "HONCHO_API_KEY" in settings.missing
    assert "https://app.honcho.dev" in settings.missing


def test_a_key_in_the_environment_is_enough(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HONCHO_API_KEY", "k")
    settings = read_settings(home)
    assert (settings.key, settings.missing) == ("k", "")
    assert (settings.workspace, settings.ai_peer) == ("hermes", "hermes")


def test_the_hosts_block_counts_more_than_the_root_and_that_more_than_a_variable(
    home: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HONCHO_TIMEOUT", "7")
    write(home, timeout=8, recallMode="context", hosts={"hermes": {"recallMode": "tools"}})
    settings = read_settings(home)
    assert (settings.timeout, settings.recall_mode) == (8, "tools")
    (home / "honcho.json").unlink()
    assert read_settings(home).timeout == 7


def test_what_the_host_has_from_elsewhere_counts_most_and_what_it_has_from_the_file_does_not(
    home: Path,
):
    write(home, recallMode="context", hosts={"hermes": {"recallMode": "tools"}})
    assert read_settings(home, given={"recallMode": "hybrid"}).recall_mode == "hybrid"
    assert read_settings(home, given={"recallMode": "context"}).recall_mode == "tools"
    write(home, timeout=8, hosts={"hermes": {"timeout": 9}})
    assert read_settings(home, given={"timeout": 8.0}).timeout == 9


def test_a_profile_has_its_own_block_workspace_and_agent(home: Path):
    write(
        home,
        apiKey="k",
        hosts={"hermes_coder": {"aiPeer": "coder"}, "hermes.old": {"peerName": "o"}},
    )
    coder = read_settings(home, "coder")
    assert (coder.workspace, coder.ai_peer) == ("hermes_coder", "coder")
    assert read_settings(home, "old").peer_name == "o"
    assert read_settings(home).workspace == "hermes"


def test_a_variable_or_the_file_may_name_another_host(home: Path, monkeypatch: pytest.MonkeyPatch):
    write(home, defaultHost="local", apiKey="k")
    assert read_settings(home).workspace == "local"
    assert read_settings(home, "coder").workspace == "hermes_coder"
    monkeypatch.setenv("HERMES_HONCHO_HOST", "named")
    assert read_settings(home, "coder").workspace == "named"


def test_the_file_of_the_home_counts_more_than_that_of_all_programs(home: Path):
    shared = Path.home() / ".honcho" / "config.json"
    shared.parent.mkdir(parents=True)
    shared.write_text('{"apiKey": "shared"}', "utf-8")
    assert read_settings(home).key == "shared"
    write(home, apiKey="own")
    assert read_settings(home).key == "own"
    assert config_file(home) == home / "honcho.json"


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("http://localhost:8000", ""),
        ("http://192.168.2.4:8000", ""),
        ("http://100.100.1.2", ""),
        ("http://[::1]:8000", ""),
        ("https://honcho.example.org", "cloud"),
    ],
)
def test_the_clouds_key_does_not_go_to_a_server_in_the_neighbourhood(
    home: Path, monkeypatch: pytest.MonkeyPatch, url: str, key: str
):
    monkeypatch.setenv("HONCHO_API_KEY", "cloud")
    write(home, baseUrl=url)
    assert read_settings(home).key == key
    monkeypatch.setenv("HONCHO_SERVER_KEY", "own")
    assert read_settings(home).key == "own"


def test_a_block_may_have_the_key_of_its_server(home: Path):
    write(home, apiKey="cloud", baseUrl="http://localhost:1", hosts={"hermes": {"apiKey": "own"}})
    assert read_settings(home).key == "own"


def test_an_address_may_end_with_the_version(home: Path):
    write(home, baseUrl="http://localhost:38000/v3/")
    assert read_settings(home).address == "http://localhost:38000"


def test_the_environment_local_has_an_address(home: Path):
    write(home, environment="local")
    assert read_settings(home).address == "http://localhost:8000"
    assert read_settings(home).missing == ""


@pytest.mark.parametrize(
    ("told", "every"), [("async", 1), ("turn", 1), ("session", 0), (5, 5), ("5", 5), (1, 1)]
)
def test_how_often_is_written(home: Path, told: object, every: int):
    write(home, writeFrequency=told)
    assert read_settings(home).write_every == every


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("writeFrequency", "sometimes", "async, turn, session"),
        ("recallMode", "all", "hybrid, context, tools"),
        ("sessionStrategy", "x", "per-directory"),
        ("timeout", "soon", "a number"),
        ("saveMessages", "maybe", "true or false"),
        ("sessions", ["x"], "an object"),
        ("dialecticDepthLevels", ["deep"], "minimal"),
    ],
)
def test_what_can_not_be_meant_is_said(home: Path, key: str, value: object, told: str):
    write(home, **{key: value})
    with pytest.raises(ConfigError) as error:
        read_settings(home)
    assert key in str(error.value)
    assert told in str(error.value)


def test_a_broken_file_is_not_taken_for_an_empty_one(home: Path):
    (home / "honcho.json").write_text("{", "utf-8")
    with pytest.raises(ConfigError, match=r"honcho\.json"):
        read_settings(home)


def test_older_names_of_values_are_understood(home: Path):
    write(home, recallMode="auto", pinPeerName=True, requestTimeout=5)
    settings = read_settings(home)
    assert (settings.recall_mode, settings.pin_user_peer, settings.timeout) == ("hybrid", True, 5)


def test_who_has_set_honcho_up_in_a_block_keeps_the_one_way_picture(home: Path):
    write(home, hosts={"hermes": {"aiPeer": "a"}})
    settings = read_settings(home)
    assert settings.user_observed == (True, False)
    assert settings.ai_observed == (False, True)
    write(home, observation={"ai": {"observeMe": False}})
    assert read_settings(home).ai_observed == (False, True)
    assert read_settings(home).user_observed == (True, True)


def test_a_key_is_not_part_of_what_is_printed(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HONCHO_API_KEY", "s3cret")
    assert "s3cret" not in repr(read_settings(home))


def test_the_default_of_a_host_does_not_count_more_than_a_block(home: Path):
    write(home, hosts={"hermes": {"environment": "local"}})
    assert read_settings(home, given={"environment": "production"}).address == LOCAL
    assert read_settings(home, given={"environment": "production"}).missing == ""
