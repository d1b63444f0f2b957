"""A change touches its own path alone, keeps every comment, or is refused."""

from __future__ import annotations

import copy

import pytest
import yaml
from support.configs import (
    FIELD,
    PROVIDER,
    ConfigFile,
    by_yaml_11,
    by_yaml_12,
    comments,
    snapshot,
    with_change,
)

from hermes_core.config import load_config
from hermes_core.config.editor import DELETE, change_config
from hermes_core.errors import ConfigError

pytestmark = pytest.mark.usefixtures("loader")

REAL = """\
# Hermes, my home
model:
    default: "anthropic/claude"   # quoted, aligned
    provider:    'auto'
toolsets: [hermes-cli, web]
agent: {max_turns: 90, verbose: no}

# --- memory -----------------------------------------------
memory:
    memory_enabled: yes     # YAML 1.1
    memory_char_limit: 02200
    provider: mem0          # the one that works

    # settings of mem0
    mem0:
        url: http://localhost:8080/#x
        note: |
            # this is text

              indented

    honcho: {workspace: "a, b"}
# --- the rest ---------------------------------------------
display:
  skin: >-
    dark
    blue
  banner: ~
last: [1,
  2,   # two
  3]
"""


def changed_right_or_refused(config: ConfigFile, text: str, keys: tuple[str, ...]) -> None:
    home = config.write(text)
    failure = None
    try:
        change_config(home, {keys: "honcho"})
    except ConfigError as error:
        failure = str(error)
    if failure is None:
        assert by_yaml_11(config.text) == with_change(by_yaml_11(text), keys, "honcho")
    else:
        assert config.text == text
        assert failure.startswith(f"{config.path}: ")
        assert "nothing was written" in failure
        assert f"put this in by hand: {'.'.join(keys)}: honcho" in failure


def test_every_byte_besides_the_value_stays(config):
    config.write(REAL)
    assert config.change({PROVIDER: "honcho"}) == REAL.replace(
        "provider: mem0 ", "provider: honcho "
    )


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_long_life_of_changes_leaves_all_that_is_not_ours(config, ending):
    text = REAL.replace("\n", ending)
    config.write(text)
    for name in ("honcho", "mem0", "third-party", "mem0"):
        settings = {"url": f"http://{name}", "version": "1.0"}
        config.change({PROVIDER: name, ("memory", "acme", name): settings})
        assert load_config(config.home).selection.name == name
        config.change({PROVIDER: "", ("memory", "acme", name): DELETE})
        assert load_config(config.home).memory["acme"] == {}
    left = config.change({PROVIDER: "mem0", ("memory", "acme"): DELETE})
    assert left == text


def test_setting_what_is_there_already_changes_nothing(config):
    home = config.write(REAL)
    before = snapshot(home)
    change_config(home, {PROVIDER: "mem0", FIELD: DELETE})
    assert snapshot(home) == before


@pytest.mark.parametrize(
    "name",
    ["no", "y", "on", "null", "1.0", "1e3", "0x1", "2001-01-01", "12:30", "=", "~", "", "<<"],
)
def test_a_name_that_yaml_would_take_for_something_else_stays_a_string(config, name):
    config.write("memory:\n  provider: x  # 1\n")
    after = config.change({PROVIDER: name, ("memory", name): {name: [name]}})
    assert yaml.safe_load(after) == {"memory": {"provider": name, name: {name: [name]}}}
    assert by_yaml_11(after) == by_yaml_12(after)


@pytest.mark.parametrize("name", ["y", "N"])
def test_a_letter_that_is_a_boolean_to_other_readers_of_yaml_1_1_is_quoted(config, name):
    config.write("memory:\n  provider: x\n")
    assert config.change({PROVIDER: name}) == f'memory:\n  provider: "{name}"\n'


@pytest.mark.parametrize(
    "value",
    [
        *("a b", "x: y", "# no comment", "- a", "é家🧠", "a\nb\tc", "\\", "\"'", "{a}", "%x", "@x"),
        *(True, False, None, 0, -7, 1.5, [], {}, [1, ["a"]], {"a": {"b": None}}, "a" * 2000),
    ],
)
def test_any_value_is_written_so_that_both_parsers_read_it(config, value):
    config.write("memory:\n  provider: x  # 1\nlast: 1\n")
    after = config.change({PROVIDER: value})
    for parse in (by_yaml_11, by_yaml_12):
        assert parse(after) == with_change(
            parse("memory:\n  provider: x\nlast: 1\n"), PROVIDER, value
        )
    assert comments(after) == ["# 1"]


@pytest.mark.parametrize(
    "value", ["\x7f", "\x85", "\u2028", "\ufeff", "\ud800", 1e-7, float("nan")]
)
def test_a_value_that_yaml_makes_trouble_with_is_written_right_or_refused(config, value):
    text = "memory:\n  provider: x\n"
    config.write(text)
    try:
        after = config.change({PROVIDER: value})
    except ConfigError:
        assert config.text == text
    else:
        assert (
            by_yaml_11(after) == by_yaml_12(after) == with_change(by_yaml_11(text), PROVIDER, value)
        )


def test_a_value_that_yaml_does_not_have_is_refused(config):
    config.write("memory:\n  provider: x\n")
    with pytest.raises(ConfigError):
        config.change({PROVIDER: b"bytes"})


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("base: &b\n  provider: mem0\nmemory: *b\n", PROVIDER),
        ("memory: &m\n  provider: mem0\nother: *m\n", PROVIDER),
        ("a: &a {}\nmemory: *a\n", PROVIDER),
        ("memory:\n  acme: &p\n    a: x\n  other: *p\n", FIELD),
        ("memory: &m\n  acme: {a: x}\nother:\n  <<: *m\n", FIELD),
    ],
)
def test_what_is_shared_by_an_alias_is_not_changed_elsewhere(config, text, keys):
    changed_right_or_refused(config, text, keys)


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("name: &n mem0\nmemory: {provider: *n, a: *n}\n", PROVIDER),
        ("memory:\n  provider: &p mem0\n  again: *p\n", PROVIDER),
        ("base: &b {provider: x}\nmemory: {<<: *b}\n", PROVIDER),
        ("memory: {provider: x}\nmemory: {provider: y}\n", PROVIDER),
        ("memory: {provider}\n", PROVIDER),
        ("memory: {provider: x}\n1: a\n", ("1",)),
        ("memory: {yes: a}\n", ("memory", "yes")),
        ("a: |+\n  kept\n\n\n", PROVIDER),
        ("a: 1\nb: >\n  no newline", PROVIDER),
        ("memory: &m\n", PROVIDER),
        ("~\n", PROVIDER),
    ],
)
def test_an_odd_file_is_changed_right_or_left_alone_with_what_to_do(config, text, keys):
    changed_right_or_refused(config, text, keys)


@pytest.mark.parametrize("text", ["~\n", "null\n"])
def test_two_changes_of_a_file_that_resists_the_first_are_refused_as_one(config, text):
    config.write(text)
    with pytest.raises(ConfigError, match="nothing was written"):
        config.change({PROVIDER: "a", FIELD: {"owner": "b"}})
    assert config.text == text


@pytest.mark.parametrize("text", ["memory: words\n", "memory:\n  - a\n", "memory: {acme: [a]}\n"])
def test_a_value_where_a_section_should_be_is_not_thrown_away(config, text):
    config.write(text)
    with pytest.raises(ConfigError):
        config.change({FIELD: {"owner": "x"}})
    assert config.text == text


def test_the_callers_values_are_not_changed(config):
    section = {"a": 1}
    changes = {("memory",): section, ("memory", "provider"): "x"}
    before = copy.deepcopy(changes)
    config.change(changes)
    assert changes == before


def test_all_changes_are_made_or_none(config):
    text = "memory: {provider: x}\nother: a\n"
    config.write(text)
    with pytest.raises(ConfigError):
        config.change({PROVIDER: "y", ("other", "below"): "b"})
    assert config.text == text


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("memory:\n  provider:  # 1\n    mem0\n", PROVIDER),
        ("memory:\n  provider: >-  # 1\n    mem0\n", PROVIDER),
        ("memory:\n  acme:\n    mem0:  # 1\n      owner: x\n", FIELD),
    ],
)
def test_a_comment_on_the_keys_line_outlives_a_value_below_it(config, text, keys):
    config.write(text)
    assert comments(config.change({keys: "honcho"})) == ["# 1"]


@pytest.mark.parametrize(
    "text",
    [
        "memory: {acme: {mem0: 1,\n  # 1\n  b: 2}}\n",
        "memory: {acme: {b: 2, # 1\n  mem0: 1}}\n",
        "memory:\n  acme: { # 1\n    mem0: 1\n  }\n",
    ],
)
def test_a_comment_in_a_flow_mapping_outlives_the_entry_beside_it(config, text):
    config.write(text)
    assert comments(config.change({FIELD: DELETE})) == ["# 1"]


def test_removing_the_first_section_keeps_the_byte_order_mark(config):
    config.write("\ufeffmemory:\n  provider: x\nmodel: y\n")
    assert config.change({("memory",): DELETE}) == "\ufeffmodel: y\n"


@pytest.mark.parametrize("value", ["no", "1.0", None, {"owner": "x", "version": None}])
def test_what_is_to_be_put_in_by_hand_is_yaml_that_means_it(config, value):
    config.write("memory: words\n")
    with pytest.raises(ConfigError) as caught:
        config.change({PROVIDER: value})
    line = str(caught.value).partition("by hand: memory.")[2].removesuffix(")")
    assert yaml.safe_load(line) == {"provider": value}


def test_removing_what_a_merge_brings_back_is_refused(config):
    text = "base: &b {mem0: 1}\nmemory:\n  acme:\n    <<: *b\n    mem0: 2\n    x: 3\n"
    config.write(text)
    with pytest.raises(ConfigError):
        config.change({FIELD: DELETE})
    assert config.text == text
