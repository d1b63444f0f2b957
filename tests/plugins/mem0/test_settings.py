"""Settings: from our host, from hermes-agent's file and variables, and what set-up asks."""

import json
import stat

import pytest

from hermes_core import ConfigError
from hermes_core.config.fields import Value, in_order, read_fields, validate_values
from hermes_memory_mem0 import Mem0Provider
from hermes_memory_mem0.settings import read_settings


def _asked(mode):
    fields = read_fields(Mem0Provider().get_config_schema(), "mem0")
    values = validate_values(fields, {"mode": Value(mode, "argument")}, "").values
    return [field.key for field in in_order(fields) if field.is_prompted(values)]


@pytest.mark.parametrize(
    ("mode", "questions"),
    [
        ("platform", ["api_key"]),
        ("self-hosted", ["host", "server_key"]),
        ("oss", ["llm_url", "llm_model", "llm_key", "embedder_url", "embedder_model"]),
    ],
)
def test_set_up_asks_what_the_mode_needs_and_nothing_else(home, mode, questions):
    assert _asked(mode) == ["mode", *questions]


def test_the_platforms_key_is_needed_unless_hermes_agents_file_names_a_server(home):
    def is_needed():
        fields = Mem0Provider().get_config_schema()
        return next(each["required"] for each in fields if each["key"] == "api_key")

    assert is_needed()
    (home / "mem0.json").write_text('{"mode": "platform", "host": "http://mem0.lan:8888"}')
    assert not is_needed()


def test_a_file_of_hermes_agent_is_understood(home):
    (home / "mem0.json").write_text(
        json.dumps(
            {
                "mode": "platform",
                "host": "http://mem0.lan:8888/",
                "api_key": "k1",
                "user_id": "hermes-user",
                "agent_id": "",
                "rerank": "true",
            }
        )
    )
    settings = read_settings(home)
    assert (settings.mode, settings.address) == ("self-hosted", "http://mem0.lan:8888")
    assert (settings.key, settings.user_id, settings.agent_id) == ("k1", "", "hermes")
    assert settings.rerank is True


def test_its_file_counts_more_than_variables_and_the_host_more_than_both(home, monkeypatch):
    monkeypatch.setenv("MEM0_AGENT_ID", "from-variable")
    monkeypatch.setenv("MEM0_API_KEY", "k2")
    assert read_settings(home).agent_id == "from-variable"
    (home / "mem0.json").write_text('{"agent_id": "from-file"}')
    assert read_settings(home).agent_id == "from-file"
    assert read_settings(home, {"agent_id": "from-host"}).agent_id == "from-host"
    assert read_settings(home).key == "k2"


def test_an_engine_of_hermes_agents_file_is_understood(home):
    oss = {
        "llm": {"provider": "ollama", "config": {"model": "llama3.1:8b", "api_base": "http://o:1"}},
        "embedder": {"provider": "openai", "config": {"model": "m", "api_key": "k"}},
        "vector_store": {"provider": "qdrant", "config": {"path": "~/.hermes/mem0_qdrant"}},
    }
    (home / "mem0.json").write_text(json.dumps({"mode": "oss", "oss": oss}))
    engine = read_settings(home).engine
    assert engine.config["llm"]["config"] == {
        "model": "llama3.1:8b",
        "ollama_base_url": "http://o:1",
    }
    assert engine.config["embedder"]["config"] == {"model": "m", "api_key": "k"}
    assert engine.path.parts[-2:] == (".hermes", "mem0_qdrant")
    assert engine.missing == ""
    assert Mem0Provider().backup_paths() == [str(engine.path)]


def test_one_address_serves_model_and_embeddings_and_its_key_goes_nowhere_else(home):
    told = {"mode": "oss", "llm_url": "http://a/v1", "llm_key": "k1"}
    both = read_settings(home, told).engine.config
    assert both["embedder"]["config"]["openai_base_url"] == "http://a/v1"
    assert both["embedder"]["config"]["api_key"] == "k1"
    apart = read_settings(home, {**told, "embedder_url": "http://b/v1"}).engine.config
    assert apart["embedder"]["config"]["openai_base_url"] == "http://b/v1"
    assert apart["embedder"]["config"]["api_key"] == "none"
    assert apart["llm"]["config"]["api_key"] == "k1"


def test_embeddings_of_hermes_agents_file_are_asked_where_it_says(home):
    oss = {
        "llm": {"provider": "openai", "config": {"openai_base_url": "http://a/v1"}},
        "embedder": {"provider": "openai", "config": {"model": "text-embedding-3-small"}},
    }
    (home / "mem0.json").write_text(json.dumps({"mode": "oss", "oss": oss}))
    assert "openai_base_url" not in read_settings(home).engine.config["embedder"]["config"]


def test_everything_of_the_engine_is_below_the_home(home):
    engine = read_settings(home, {"mode": "oss"}).engine
    assert engine.path == home / "mem0" / "qdrant"
    assert engine.config["history_db_path"] == str(home / "mem0" / "history.db")
    assert Mem0Provider().backup_paths() == []


def test_what_is_saved_is_private_has_no_secret_and_keeps_what_others_wrote(home):
    path = home / "mem0.json"
    path.write_text('{"oss": {"llm": {}}, "host": "http://old"}')
    values = {"mode": "platform", "agent_id": "a", "api_key": "m0-secret"}
    Mem0Provider().save_config(values, str(home))
    assert json.loads(path.read_text()) == {"oss": {"llm": {}}, "mode": "platform", "agent_id": "a"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("text", ["{", "[]", '{"mode": "cloud"}', '{"timeout": "soon"}'])
def test_a_broken_file_is_an_error_that_names_it_and_never_taken_for_an_empty_one(home, text):
    (home / "mem0.json").write_text(text)
    with pytest.raises(ConfigError, match=r"mem0\.json"):
        read_settings(home)
    assert "mem0.json" in Mem0Provider().unavailable_reason()


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({}, "MEM0_API_KEY"),
        ({"MEM0_API_KEY": "k"}, ""),
        ({"MEM0_MODE": "self-hosted"}, "MEM0_HOST"),
        ({"MEM0_HOST": "http://mem0.lan"}, ""),
        ({"MEM0_MODE": "oss"}, "OPENAI_API_KEY"),
        ({"MEM0_MODE": "oss", "OPENAI_API_KEY": "k"}, ""),
        ({"MEM0_MODE": "oss", "MEM0_LLM_URL": "http://localhost:1/v1"}, ""),
    ],
)
def test_without_its_settings_it_says_what_is_missing(home, monkeypatch, variables, reason):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    provider = Mem0Provider()
    assert provider.is_available() is not bool(reason)
    assert reason in provider.unavailable_reason()


def test_status_shows_where_memories_really_go(home):
    (home / "mem0.json").write_text('{"host": "http://mem0.lan:8888"}')
    shown = Mem0Provider().get_status_config({"mode": "platform"})
    assert shown == {"mode in use": "self-hosted", "memories are at": "http://mem0.lan:8888"}
    again = Mem0Provider().get_status_config({"mode": "self-hosted"})
    assert again == {"memories are at": "http://mem0.lan:8888"}
