"""Keys that are not ours: a slip of the finger, a provider's, or hermes-agent's."""

from __future__ import annotations

import pytest
from support.configs import snapshot

from hermes_core.config import load_config, read_selection
from hermes_core.errors import ConfigError

#: The contract's names, and those of the design.
OURS = [
    "provider",
    "memory_enabled",
    "user_profile_enabled",
    "memory_char_limit",
    "user_char_limit",
    "write_approval",
    "nudge_interval",
    "user_notes",
    "observers",
    "deadlines",
    "prefetch_budget",
]


def slips(word: str) -> set[str]:
    """What comes of one slip: a letter missing, doubled or swapped, or another case."""
    places = range(len(word))
    missing = {word[:at] + word[at + 1 :] for at in places}
    doubled = {word[:at] + word[at] + word[at:] for at in places}
    swapped = {word[:at] + word[at + 1] + word[at] + word[at + 2 :] for at in places[:-1]}
    other = {word.upper(), word.title(), word.replace("_", "-"), word.replace("_", "")}
    return (missing | doubled | swapped | other) - {word}


@pytest.mark.parametrize("key", OURS)
def test_a_key_close_to_one_of_ours_is_an_error_with_did_you_mean(config, key):
    for slip in sorted(slips(key)):
        home = config.write(f"memory:\n  # c\n  '{slip}': 3\n")
        with pytest.raises(ConfigError) as caught:
            load_config(home)
        expected = f"config.yaml:3: memory.{slip}: unknown key; did you mean {key}?"
        assert caught.value.problems == (expected,)


@pytest.mark.parametrize("value", ["1", "{provider: mem0}", ""])
def test_a_top_level_key_close_to_memory_is_an_error_with_did_you_mean(config, value):
    for slip in sorted(slips("memory")):
        home = config.write(f"model: x\n{slip}: {value}\n")
        with pytest.raises(ConfigError) as caught:
            load_config(home)
        expected = f"config.yaml:2: {slip}: unknown key; did you mean memory?"
        assert caught.value.problems == (expected,)


def test_a_slip_is_found_beside_the_right_key_too(config):
    home = config.write("memory: {provider: a}\nMemory: {provider: b}\n")
    with pytest.raises(ConfigError, match=r"config\.yaml:2: Memory: .*did you mean memory"):
        load_config(home)


@pytest.mark.parametrize("slip", ["laod", "Load", "shutdwn", "prefetch"])
def test_a_slip_below_deadlines_is_an_error_that_names_it(config, slip):
    home = config.write(f"memory:\n  deadlines:\n    {slip}: 3\n")
    with pytest.raises(ConfigError, match=rf"memory\.deadlines\.{slip}: unknown key; "):
        load_config(home)


def test_a_slip_below_deadlines_gets_did_you_mean_and_its_own_line(config):
    home = config.write("memory:\n  deadlines:\n    tool: 3\n    laod: 3\n")
    with pytest.raises(ConfigError) as caught:
        load_config(home)
    expected = "config.yaml:4: memory.deadlines.laod: unknown key; did you mean load?"
    assert caught.value.problems == (expected,)


@pytest.mark.parametrize("value", ["3", "[a, b]", "words", "", "yes"])
def test_any_other_key_under_memory_gets_a_warning_with_its_line(config, value):
    home = config.write(f"memory:\n  provider: mem0\n  flavour: {value}\n")
    before = snapshot(home)
    loaded = load_config(home)
    assert loaded.warnings == ("config.yaml:3: memory.flavour: unknown key, left alone",)
    assert loaded.selection.name == "mem0"
    assert "flavour" in loaded.memory
    assert snapshot(home) == before


def test_hermes_agents_own_sections_are_left_alone(config):
    home = config.write(
        "model: {default: x}\nagent: {max_turns: 3}\nterminal: [a]\nmemory: {provider: mem0}\n"
        "display:\n  skin: ~\n1: numbers too\nyes: and booleans\n"
    )
    assert load_config(home).selection.name == read_selection(home).name == "mem0"


def test_an_unknown_top_level_key_gets_a_warning(config):
    loaded = load_config(config.write("memory: {provider: mem0}\nflavour: 3\n"))
    assert loaded.warnings == ("config.yaml:2: flavour: unknown key, left alone",)


@pytest.mark.parametrize(
    "section", ["{}", "{api_url: 'http://x', retries: 3}", "{provider: [a, b], pin: 3}"]
)
@pytest.mark.parametrize("name", ["mem0", "honcho", "my-memory", "Hindsight"])
def test_a_providers_section_is_accepted_whoever_is_chosen(config, name, section):
    home = config.write(f"memory:\n  provider: mem0\n  {name}: {section}\n")
    assert load_config(home).warnings == ()


@pytest.mark.parametrize(
    ("provider", "section"),
    [("observer", "observer"), ("Providers", "providers"), ("dead_lines@x", "dead-lines")],
)
def test_the_chosen_providers_section_may_be_called_nearly_like_a_key_of_ours(
    config, provider, section
):
    home = config.write(f"memory:\n  provider: {provider}\n  {section}: {{a: 1}}\n")
    assert load_config(home).warnings == ()


def test_the_chosen_providers_section_may_be_empty(config):
    assert load_config(config.write("memory:\n  provider: mem0\n  mem0:\n")).warnings == ()


@pytest.mark.parametrize("key", ["1", "yes", "~", "2020-01-01", "1.5"])
def test_a_key_that_is_no_string_is_left_alone_with_a_warning(config, key):
    (warning,) = load_config(config.write(f"memory:\n  {key}: 3\n")).warnings
    assert "unknown key, left alone" in warning


@pytest.mark.parametrize("key", ['"fla\\nvour"', '"fla\\rvour"', '"\\e[31mred"'])
def test_a_warning_is_one_line_whatever_the_key_is(config, key):
    (warning,) = load_config(config.write(f"memory:\n  {key}: 3\n")).warnings
    assert warning.isprintable()


def test_a_problem_is_one_line_whatever_the_key_is(config):
    with pytest.raises(ConfigError) as caught:
        load_config(config.write('"memo\\nry": 3\n'))
    assert all(problem.isprintable() for problem in caught.value.problems)
