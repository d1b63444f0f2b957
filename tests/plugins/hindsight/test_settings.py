"""Settings: of a host that reads them, and of hermes-agent, which leaves that to the plugin."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hermes_core import ConfigError
from hermes_core.config.fields import Value, read_fields, validate_values
from hermes_core.service import SessionStart
from hermes_memory_hindsight.provider import HindsightProvider
from hermes_memory_hindsight.settings import TYPES, VARIABLES, HindsightSettings

CLOUD_URL = "https://api.hindsight.vectorize.io"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)


def read(home: Path, **config: Any) -> HindsightSettings:
    return HindsightSettings.read(SessionStart("s", home, config=config))


def write(path: Path, **values: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values), "utf-8")


def test_nothing_said_is_the_cloud(home):
    settings = read(home)
    assert (settings.mode, settings.api_url) == ("cloud", CLOUD_URL)
    assert settings.recall_types == TYPES


def test_the_address_follows_the_mode(home):
    assert read(home, mode="local_external").api_url == "http://localhost:8888"
    given = read(home, mode="cloud", api_url="https://eu.example/")
    assert given.api_url == "https://eu.example"


def test_what_hermes_agents_plugin_wrote_is_read(home):
    write(
        home / "hindsight" / "config.json",
        mode="local_external",
        api_url="http://box:8888",
        apiKey="k",
        timeout=120,
        banks={"hermes": {"bankId": "mine", "budget": "high"}},
        recall_types="world, experience",
        recall_tags=["a", "b", "a"],
        auto_retain="false",
        observation_scopes=[["a"], ["b", "c"]],
    )
    settings = read(home)
    assert settings.api_key == "k"
    assert (settings.bank_id, settings.recall_budget) == ("mine", "high")
    assert settings.recall_types == ("world", "experience")
    assert settings.recall_tags == ("a", "b")
    assert not settings.auto_retain
    assert settings.observation_scopes == [["a"], ["b", "c"]]
    assert settings.timeout < 120  # what a host gives a write


def test_the_old_file_for_all_homes_is_read_where_there_is_no_other(home):
    write(Path.home() / ".hindsight" / "config.json", mode="local_external", bank_id="old")
    assert read(home).bank_id == "old"
    write(home / "hindsight" / "config.json", mode="local_external")
    assert read(home).bank_id == ""


def test_variables_count_less_than_the_file(home, monkeypatch):
    monkeypatch.setenv("HINDSIGHT_API_KEY", "from-env")
    monkeypatch.setenv("HINDSIGHT_BUDGET", "low")
    monkeypatch.setenv("HINDSIGHT_RETAIN_TAGS", '["x", "y"]')
    write(home / "hindsight" / "config.json", recall_budget="high")
    settings = read(home)
    assert (settings.api_key, settings.recall_budget) == ("from-env", "high")
    assert settings.retain_tags == ("x", "y")
    write(home / "hindsight" / "config.json", mode="local_external", api_key="in-the-file")
    assert read(home).api_key == "in-the-file"


def test_a_host_that_reads_settings_is_believed(home, monkeypatch):
    monkeypatch.setenv("HINDSIGHT_BUDGET", "low")
    write(home / "hindsight" / "config.json", mode="cloud", api_key="in-the-file", bank_id="no")
    settings = read(home, mode="local_external", recall_budget="high", server_key="k")
    assert (settings.mode, settings.recall_budget, settings.bank_id) == (
        "local_external", "high", "",
    )  # fmt: skip
    assert settings.api_key == "k"


@pytest.mark.parametrize("mode", ["local_embedded", "local"])
def test_a_server_inside_the_agent_is_refused_with_what_to_do_instead(home, mode):
    with pytest.raises(ConfigError) as refused:
        read(home, mode=mode)
    told = str(refused.value)
    assert "\n" not in told
    assert f"mode {mode} runs a server inside the agent" in told
    assert "pip install hindsight-api-slim" in told
    assert "local_external" in told


def test_a_file_that_is_broken_is_not_taken_for_empty(home):
    (home / "hindsight").mkdir()
    (home / "hindsight" / "config.json").write_text("{", "utf-8")
    with pytest.raises(ConfigError, match=r"config\.json"):
        read(home)


@pytest.mark.parametrize(
    "setting",
    [
        {"timeout": "soon"}, {"recall_tags": "[1"}, {"mode": "moon"}, {"retain_tags": 3},
        {"server_key": "a\nb"}, {"api_url": "no address"}, {"api_url": "ftp://x"}, {"api_url": "http://"},
    ],
)  # fmt: skip
def test_what_can_not_be_meant_is_one_line(home, setting):
    with pytest.raises(ConfigError) as refused:
        read(home, **{"mode": "local_external", **setting})
    assert str(refused.value).startswith("hindsight: ")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["per_tag"], "per_tag"), ("combined", "combined"), (["a", "b"], [["a", "b"]]),
        ('[["a"], ["b"]]', [["a"], ["b"]]), ([], None), ("", None),
    ],
)  # fmt: skip
def test_observations_are_scoped_by_a_word_or_by_lists_of_tags(home, given, meant):
    assert read(home, mode="cloud", observation_scopes=given).observation_scopes == meant


def test_a_setting_for_each_field_and_a_field_for_each_setting():
    keys = {each["key"] for each in HindsightProvider().get_config_schema()}
    assert keys == {*HindsightSettings._fields, "server_key"}


def test_defaults_of_the_fields_are_those_of_the_settings(home):
    fields = read_fields(HindsightProvider().get_config_schema(), "hindsight")
    values = validate_values(fields, {"api_key": Value("k", "")}, "").values
    assert HindsightSettings.read(SessionStart("s", home, config=values)) == read(home, api_key="k")


@pytest.mark.parametrize(
    ("mode", "asked"),
    [
        ("cloud", ["mode", "api_key"]),
        ("local_external", ["mode", "api_url", "server_key"]),
    ],
)
def test_set_up_asks_what_the_mode_needs_and_nothing_else(mode, asked):
    fields = read_fields(HindsightProvider().get_config_schema(), "hindsight")
    assert [each.key for each in fields if each.is_prompted({"mode": mode})] == asked


def test_settings_are_saved_for_their_owner_alone_and_others_are_kept(home):
    path = home / "hindsight" / "config.json"
    write(path, profile="hermes")
    HindsightProvider().save_config({"mode": "cloud"}, str(home))
    assert json.loads(path.read_text("utf-8")) == {"profile": "hermes", "mode": "cloud"}
    assert path.stat().st_mode & 0o777 == 0o600
