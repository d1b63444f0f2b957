"""What is wrong with a config.yaml, said so that a person can put it right."""

from __future__ import annotations

import pytest
from support.configs import snapshot

from hermes_core.config import load_config, read_selection
from hermes_core.errors import ConfigError

LIST = "expected a string, got a list; only one external provider can be active"


def problems(home) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load_config(home)
    return caught.value.problems


@pytest.mark.parametrize("read", [load_config, read_selection])
@pytest.mark.parametrize(
    "value", ["[a, b]", "[]", "\n    - a\n    - b", "\n  - a  # one\n  # two\n  - b", "!!seq [a]"]
)
def test_a_list_of_providers_is_refused_with_its_line(config, read, value):
    head = "".join(f"# line {line}\n" for line in range(1, 10))
    home = config.write(f"{head}model: x\nmemory:\n  provider: {value}\nlast: 1\n")
    before = snapshot(home)
    with pytest.raises(ConfigError) as caught:
        read(home)
    assert caught.value.problems == (f"config.yaml:12: memory.provider: {LIST}",)
    assert "config.yaml" in caught.value.hint
    assert snapshot(home) == before


@pytest.mark.parametrize(
    "text",
    [
        "\r\n\r\nmemory:\r\n  provider: [a]\r\n",
        "\ufeff\n\nmemory:\n  provider: [a]\n",
        "\n\nmemory:\n  'provider': [a]\n",
        "memory:\n  provider: fine\nmemory:\n  provider: [a]\n",
        "\n\nother: &o\n  provider: [a]\nmemory: *o\n",
        "\n\nmemory: { user_char_limit: 3,\n  provider: [a] }\n",
        "text: |\n  memory:\nmemory:\n  provider: [a]\n",
    ],
)
def test_the_line_is_that_of_the_key_in_any_way_of_writing(config, text):
    assert problems(config.write(text)) == (f"config.yaml:4: memory.provider: {LIST}",)


def test_all_problems_are_reported_at_once_each_with_its_line(config):
    home = config.write(
        "memroy: 1\n"
        "memory:\n"
        "  provider: [a]\n"
        "  memory_enabled: maybe\n"
        "  memory_char_limit: -1\n"
        "  pin: sometimes\n"
        "  nudge_intervall: 3\n"
        "  pins:\n"
        "    mem0: {owner: 3}\n"
        "  observers: [a, 7]\n"
    )
    found = problems(home)
    assert sorted(found) == sorted(
        [
            "config.yaml:1: memroy: unknown key; did you mean memory?",
            f"config.yaml:3: memory.provider: {LIST}",
            "config.yaml:4: memory.memory_enabled: expected true or false, got a string",
            "config.yaml:5: memory.memory_char_limit: expected at least 1, got -1",
            "config.yaml:6: memory.pin: expected one of warn, strict, got 'sometimes'",
            "config.yaml:7: memory.nudge_intervall: unknown key; did you mean nudge_interval?",
            "config.yaml:9: memory.pins.mem0.owner: expected a string, got a number",
            "config.yaml:10: memory.observers.1: expected a string, got a number",
        ]
    )
    with pytest.raises(ConfigError) as caught:
        load_config(home)
    assert all(problem in str(caught.value) for problem in found)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "got"),
    [
        ("{a: 1}", "a mapping"),
        ("3", "a number"),
        ("1.5", "a number"),
        ("2020-01-01", "a date"),
        ("no", "a boolean"),
    ],
)
def test_a_provider_that_is_no_string_is_called_by_what_it_is(config, value, got):
    home = config.write(f"memory:\n  provider: {value}\n")
    (problem,) = problems(home)
    assert problem.startswith(f"config.yaml:2: memory.provider: expected a string, got {got}")
    with pytest.raises(ConfigError, match=f"^config.yaml:2: memory.provider: .* got {got}"):
        read_selection(home)


def test_a_provider_that_yaml_takes_for_a_boolean_wants_quotes(config):
    """``on`` or ``no`` would be a fine name; YAML 1.1 has other plans for it."""
    assert "put it in quotes" in problems(config.write("memory:\n  provider: on\n"))[0]
    assert load_config(config.write("memory:\n  provider: 'on'\n")).selection.name == "on"


@pytest.mark.parametrize("read", [load_config, read_selection])
@pytest.mark.parametrize(
    ("value", "got"),
    [("[]", "a list"), ("no", "a boolean"), ("0", "a number"), ('""', "a string")],
)
def test_a_memory_section_of_another_type_is_an_error_never_empty(config, read, value, got):
    home = config.write(f"model: x\nmemory: {value}\n")
    with pytest.raises(ConfigError) as caught:
        read(home)
    problem = f"config.yaml:2: memory: expected a mapping, got {got}"
    assert caught.value.problems == (problem,)


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("memory_char_limit: 0", "expected at least 1, got 0"),
        ("user_char_limit: many", "expected a whole number, got a string"),
        ("user_char_limit: 1.5", "expected a whole number, got a number"),
        ("user_char_limit: yes", "expected a whole number, got a boolean"),
        ("nudge_interval: -1", "expected at least 0, got -1"),
        ("write_approval: [a]", "expected true or false or a string, got a list"),
        ("prefetch_budget: 601", "expected at most 600, got 601"),
        ("prefetch_budget: yes", "expected a number, got a boolean"),
        ("observers: a", "expected a list, got a string"),
        ("deadlines: 3", "expected a mapping, got a number"),
        ("pins: [a]", "expected a mapping, got a list"),
    ],
)
def test_a_value_out_of_place_is_named_with_what_is_expected(config, line, cause):
    key = line.split(":")[0]
    home = config.write(f"memory:\n  {line}\n")
    assert problems(home) == (f"config.yaml:2: memory.{key}: {cause}",)


def test_a_deadline_that_is_too_long_is_refused(config):
    home = config.write("memory:\n  deadlines:\n    load: 1\n    tool: 3601\n")
    assert problems(home) == (
        "config.yaml:4: memory.deadlines.tool: expected at most 3600, got 3601",
    )


def test_a_deadline_of_nothing_is_refused_in_words_that_make_sense(config):
    (problem,) = problems(config.write("memory:\n  deadlines: {load: 0}\n"))
    assert "at least 0, got 0" not in problem


@pytest.mark.parametrize("line", ["prefetch_budget: .nan", "deadlines: {load: .nan}"])
def test_a_time_that_is_not_a_number_is_refused(config, line):
    assert problems(config.write(f"memory:\n  {line}\n"))


def test_a_pin_without_an_owner_is_refused(config):
    (problem,) = problems(config.write("memory:\n  pins:\n    mem0: {version: '1'}\n"))
    assert problem.startswith("config.yaml:3: memory.pins.mem0: ")
    assert "owner" in problem


@pytest.mark.parametrize("text", ["- a\n- b\n", "just words\n", "3\n", "no\n", '""\n', "[]\n"])
@pytest.mark.parametrize("read", [load_config, read_selection])
def test_a_file_without_keys_is_an_error_never_empty(config, read, text):
    with pytest.raises(ConfigError, match=r"^config\.yaml:1: expected keys and values, got a "):
        read(config.write(text))


@pytest.mark.parametrize("name", ["pins", "deadlines", "nudge_interval", "Nudge-Interval"])
def test_the_names_of_our_own_keys_cannot_be_a_providers(config, name):
    assert problems(config.write(f"memory:\n  provider: {name}\n"))


@pytest.mark.parametrize("word", ["required", "always", "ask", "maybe", "'tru'"])
def test_a_word_for_approval_that_nobody_knows_is_a_problem(config, word):
    (problem,) = problems(config.write(f"memory:\n  write_approval: {word}\n"))
    expected = f"expected true or false, got {word.strip(chr(39))!r}"
    assert problem == f"config.yaml:2: memory.write_approval: {expected}"


@pytest.mark.parametrize(
    "word", ["true", "'True '", "'on'", "approve", "Enabled", "'1'", "'OFF'", "disabled", "''", ""]
)
def test_words_for_approval_that_hermes_agent_knows_are_taken(config, word):
    load_config(config.write(f"memory:\n  write_approval: {word}\n"))
