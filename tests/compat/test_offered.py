"""What the offered modules do: config, secrets, files and the manager are ours."""

from __future__ import annotations

import json
import stat
from types import SimpleNamespace

import pytest
from support.providers import TOOL, Recorder
from support.sites import add_directory
from support.theirs import their_source

import hermes_core
from hermes_core import ConfigError, MemoryManager, StreamScrubber
from hermes_core.loading.compat import offer_hermes_agent_modules

CONFIG = """\
# mine
memory:
  provider: ''   # none yet
  theirs:
    url: http://here
other: [1, 2]
"""


@pytest.fixture(autouse=True)
def _offered(home) -> None:
    offer_hermes_agent_modules()


def test_the_manager_is_ours_under_their_name(home):
    from agent.memory_manager import MemoryManager as Theirs

    assert issubclass(Theirs, MemoryManager)
    manager = Theirs(external_prefetch_timeout=2.0)
    add_directory(home, "theirs", their_source())
    assert manager.providers == []
    manager.add_provider(hermes_core.load_provider("theirs", home))
    manager.initialize_all("s", platform="cli")
    assert manager.get_provider("theirs") is manager.providers[0]
    manager.shutdown_all()


def test_the_fence_is_ours_under_their_names():
    from agent import memory_manager as theirs

    block = theirs.build_memory_context_block("likes tea")
    assert block.startswith("<memory-context>")
    assert "likes tea" in block
    assert theirs.build_memory_context_block("  ") == ""
    assert theirs.sanitize_context(f"before {block} after").split() == ["before", "after"]
    assert theirs.StreamingContextScrubber is StreamScrubber
    scrubber = theirs.StreamingContextScrubber()
    shown = scrubber.feed("Hi.\n<memory-con") + scrubber.feed("text>\nx\n</memory-context>\nBye.")
    assert "x" not in shown + scrubber.flush()
    scrubber.reset()


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        (TOOL, "ext_tool"),
        ({"type": "function", "function": TOOL}, "ext_tool"),
        ({}, None),
        (5, None),
    ],
)
def test_a_schema_is_unwrapped_or_refused(schema, name):
    from agent.memory_manager import normalize_tool_schema

    found = normalize_tool_schema(schema)
    assert (found and found["name"]) == name


def test_tools_are_given_to_an_agent_once():
    from agent.memory_manager import inject_memory_provider_tools

    manager = MemoryManager()
    manager.add_provider(Recorder(tools=[TOOL]))
    agent = SimpleNamespace(_memory_manager=manager, tools=[], enabled_toolsets=None)
    assert inject_memory_provider_tools(agent) == 1
    assert inject_memory_provider_tools(agent) == 0
    assert agent.tools == [{"type": "function", "function": manager.get_all_tool_schemas()[0]}]
    assert agent.valid_tool_names == {"ext_tool"}
    without = SimpleNamespace(_memory_manager=manager, tools=[], enabled_toolsets=["web"])
    assert inject_memory_provider_tools(without) == 0
    manager.shutdown_all()


def test_a_change_of_the_config_keeps_every_other_line(home):
    from hermes_cli.config import cfg_get, load_config, save_config

    (home / "config.yaml").write_text(CONFIG, "utf-8")
    config = load_config()
    assert cfg_get(config, "memory", "theirs", "url") == "http://here"
    assert cfg_get(config, "memory", "theirs", "nothing", default=3) == 3
    assert cfg_get(None, "x", default=4) == 4
    config["memory"]["theirs"]["url"] = "http://there"
    config["memory"]["theirs"]["more"] = True
    save_config(config)
    text = (home / "config.yaml").read_text("utf-8")
    assert "# mine" in text
    assert "# none yet" in text
    assert load_config() == config
    del config["other"]
    save_config(config)
    assert load_config() == config


def test_a_config_that_would_not_be_valid_is_not_written(home):
    from hermes_cli.config import load_config, save_config

    (home / "config.yaml").write_text(CONFIG, "utf-8")
    with pytest.raises(ConfigError):
        save_config({**load_config(), "memory": {"provider": ["two", "of them"]}})
    assert (home / "config.yaml").read_text("utf-8") == CONFIG


def test_a_part_is_merged_where_that_is_asked_for(home):
    from hermes_cli.config import load_config, save_config

    (home / "config.yaml").write_text(CONFIG, "utf-8")
    save_config({"memory": {"theirs": {"more": 1}}}, merge_existing=True)
    assert load_config()["memory"]["theirs"] == {"url": "http://here", "more": 1}
    assert load_config()["other"] == [1, 2]


def test_secrets_go_where_ours_are(home, monkeypatch):
    from agent.secret_scope import get_secret, reset_secret_scope, set_secret_scope
    from hermes_cli.config import get_env_value, remove_env_value, save_env_value

    (home / "config.yaml").write_text("secrets: {backend: dotenv}\n", "utf-8")
    save_env_value("THEIRS_KEY", "s3cret")
    assert stat.S_IMODE((home / ".env").stat().st_mode) == 0o600
    assert get_env_value("THEIRS_KEY") == get_secret("THEIRS_KEY") == "s3cret"
    monkeypatch.setenv("THEIRS_KEY", "inherited")
    assert get_env_value("THEIRS_KEY") == "inherited"
    token = set_secret_scope({"THEIRS_KEY": "scoped"})
    assert get_secret("THEIRS_KEY") == "scoped"
    assert get_secret("OTHER_KEY", "no") == "no"
    reset_secret_scope(token)
    monkeypatch.delenv("THEIRS_KEY")
    assert remove_env_value("THEIRS_KEY") is True
    assert get_env_value("THEIRS_KEY") is None


def test_the_home_can_be_another_for_a_while(home, tmp_path):
    import hermes_constants

    assert hermes_constants.get_hermes_home() == home
    token = hermes_constants.set_hermes_home_override(tmp_path / "profiles" / "coder")
    assert hermes_constants.get_config_path() == tmp_path / "profiles" / "coder" / "config.yaml"
    assert hermes_constants.get_default_hermes_root() == tmp_path
    from hermes_cli.profiles import get_active_profile_name

    assert get_active_profile_name() == "coder"
    hermes_constants.reset_hermes_home_override(token)
    assert hermes_constants.get_hermes_home() == home
    assert hermes_constants.hermes_home_key() == hermes_constants.hermes_home_key(f"{home}/.")


def test_results_and_files_have_their_formats(tmp_path):
    from tools.registry import tool_error, tool_result
    from utils import atomic_json_write, read_json_or_empty

    assert json.loads(tool_error("no", success=False)) == {"error": "no", "success": False}
    assert tool_result(done=True) == tool_result({"done": True}) == '{"done": true}'
    path = tmp_path / "new" / "file.json"
    assert read_json_or_empty(path) == {}
    atomic_json_write(path, {"ä": 1}, mode=0o600)
    assert read_json_or_empty(path) == {"ä": 1}
    assert "ä" in path.read_text("utf-8")
    assert [each.name for each in path.parent.iterdir()] == ["file.json"]


@pytest.mark.parametrize(
    ("text", "trivial"),
    [(None, True), ("", True), ("/new", True), ("Thank you!!", True), ("ok.", True),
     ("okapi", False), ("yes, but why?", False)],
)  # fmt: skip
def test_a_prompt_is_trivial_if_it_says_nothing(text, trivial):
    from agent.memory_provider import is_trivial_prompt

    assert is_trivial_prompt(text) is trivial
