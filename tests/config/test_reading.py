"""What a config.yaml that is in order means."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.configs import ConfigFile

from hermes_core.config import Config, Pin, Selection, load_config, read_selection
from hermes_core.dispatch import Deadlines
from hermes_core.errors import ConfigError


def test_a_missing_file_is_fine(home):
    assert load_config(home) == Config(home)
    assert read_selection(home) == Selection()


def test_a_missing_home_is_fine_and_is_not_made(tmp_path):
    home = tmp_path / "none"
    assert load_config(home).selection == read_selection(home) == Selection()
    assert not home.exists()


@pytest.mark.parametrize(
    "text",
    ["", "\n\n", "# only a comment\n", "---\n", "---\n...\n", "\ufeff", "{}\n", "memory:\n"],
)
def test_a_file_that_says_nothing_chooses_nothing(config, text):
    home = config.write(text)
    assert load_config(home).selection == read_selection(home) == Selection()
    assert load_config(home).warnings == ()


@pytest.mark.parametrize(
    ("value", "name", "owner"),
    [
        ("mem0", "mem0", ""),
        ("'mem0'", "mem0", ""),
        ('" mem0 "', "mem0", ""),
        ("mem0@hermes-memory-mem0", "mem0", "hermes-memory-mem0"),
        ("mem0 @ directory", "mem0", "directory"),
        ("mém0", "mém0", ""),
        ("builtin", "", ""),
        ("BuiltIn", "", ""),
        ("", "", ""),
        ("~", "", ""),
        ("null", "", ""),
        ('""', "", ""),
    ],
)
def test_the_provider_is_what_the_file_names(config, value, name, owner):
    home = config.write(f"memory:\n  provider: {value}\n")
    assert read_selection(home)[:2] == load_config(home).selection[:2] == (name, owner)


def test_a_pin_is_found_however_the_name_is_spelt(config):
    home = config.write(
        "memory:\n  provider: my_mem\n  pin: strict\n  pins:\n"
        "    My.Mem: {owner: dist, version: '1.0', hash: 'sha256:00'}\n    other: {owner: x}\n"
    )
    selection = read_selection(home)
    assert selection == load_config(home).selection
    assert selection.pin == Pin("dist", "1.0", "sha256:00")
    assert selection.strict
    assert selection._replace(name="OTHER").pin == Pin("x")
    assert selection._replace(name="third").pin is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", True),
        ("Yes", True),
        ("on", True),
        ("NO", False),
        ("off", False),
        ("true", True),
        ("~", None),
    ],
)
def test_switches_mean_what_yaml_1_1_says(config, text, value):
    home = config.write(f"memory:\n  memory_enabled: {text}\n")
    assert load_config(home).memory["memory_enabled"] is value


@pytest.mark.parametrize(
    ("text", "value"),
    [("010", 8), ("0x10", 16), ("1_000", 1000), ("1:30", 90), ("0b101", 5), ("2200", 2200)],
)
def test_numbers_mean_what_yaml_1_1_says(config, text, value):
    home = config.write(f"memory:\n  memory_char_limit: {text}\n")
    assert load_config(home).memory["memory_char_limit"] == value


@pytest.mark.parametrize(
    "text",
    [
        "memory:\n  provider: mem0\n",
        "\ufeffmemory:\n  provider: mem0\n",
        "memory:\r\n  provider: mem0\r\n",
        "---\nmemory:\n  provider: mem0\n...\n",
        "%YAML 1.1\n---\nmemory: {provider: mem0}\n",
        '{"memory": {"provider": "mem0"}}',
        "base: &b\n  provider: mem0\nmemory: *b\n",
        "base: &b\n  provider: mem0\nmemory:\n  <<: *b\n",
        "base: &b\n  provider: honcho\nmemory:\n  <<: *b\n  provider: mem0\n",
        "name: &n mem0\nmemory:\n  provider: *n\n",
        "memory:\n  provider: >-\n    mem0\n",
        "? memory\n: ? provider\n  : mem0\n",
        "memory: !!map\n  provider: !!str mem0\n",
        # The last of two equal keys counts, as it does for hermes-agent.
        "memory:\n  provider: honcho\nmemory:\n  provider: mem0\n",
        "memory:\n  provider: honcho\n  provider: mem0\n",
        "self: &s [*s]\nmemory: {provider: mem0}\n",
        "yes: 1\n2: x\n~: x\nmemory: {provider: mem0}\n",
    ],
)
def test_every_way_to_write_it_is_read_as_hermes_agent_reads_it(config, text):
    home = config.write(text)
    assert load_config(home).memory == yaml.safe_load(text)["memory"]
    assert load_config(home).selection.name == read_selection(home).name == "mem0"


def test_a_home_with_spaces_and_letters_of_any_alphabet_is_read(tmp_path):
    home = tmp_path / "mein Zuhause · дом 家"
    home.mkdir()
    ConfigFile(home).write("memory: {provider: mem0}\n")
    assert read_selection(home).name == "mem0"


def test_deadlines_and_the_budget_of_recall_are_those_of_the_file(config):
    home = config.write("memory:\n  prefetch_budget: 0.5\n  deadlines: {load: 3, shutdown: 0.25}\n")
    assert load_config(home).deadlines == {"prefetch": 0.5, "load": 3, "shutdown": 0.25}


def test_every_deadline_can_be_set(config):
    names = [name for name in Deadlines._fields if name != "prefetch"]
    home = config.write(json.dumps({"memory": {"deadlines": dict.fromkeys(names, 7)}}))
    assert Deadlines(**load_config(home).deadlines) == Deadlines(**dict.fromkeys(names, 7))


def test_observers_are_those_that_a_person_named(config):
    assert load_config(config.write("memory:\n  observers: [a, b]\n")).observers == ("a", "b")
    assert load_config(config.write("memory:\n  observers:\n")).observers == ()


def test_reading_changes_nothing_on_disk(config):
    home = config.write("memory: {provider: mem0}\n")
    before = config.path.stat()
    load_config(home)
    read_selection(home)
    assert [each.name for each in home.iterdir()] == ["config.yaml"]
    assert config.path.stat().st_mtime_ns == before.st_mtime_ns


_ODD = st.sampled_from([None, True, 3, 1.5, "", "mem0", "a@b", [], ["x"], {}, {"owner": "o"}])
_PINS = st.dictionaries(st.sampled_from(["mem0", "Mem_0", "honcho", "1"]), _ODD, max_size=3)


@settings(
    max_examples=100,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    memory=st.fixed_dictionaries(
        {},
        optional={
            "provider": _ODD,
            "pin": st.sampled_from(["warn", "strict", None, 3]),
            "pins": st.one_of(_PINS, _ODD),
        },
    )
)
def test_the_quick_look_and_the_full_one_never_contradict(tmp_path: Path, memory):
    home = ConfigFile(tmp_path).write(json.dumps({"memory": memory}))
    try:
        selection = load_config(home).selection
    except ConfigError:
        return
    assert read_selection(home) == selection
