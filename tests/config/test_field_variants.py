"""A key that is listed more than once, under different conditions."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from jsonschema import Draft202012Validator
from support.hermes_agent import PEER

from hermes_core.config.fields import (
    SchemaError,
    Value,
    active_fields,
    in_order,
    json_schema,
    read_fields,
    validate_values,
)

MODE = {"key": "mode", "choices": ["cloud", "local", "off"], "default": "cloud"}
URLS = [
    MODE,
    {"key": "url", "default": "https://acme.example", "when": {"mode": "cloud"}},
    {"key": "url", "required": True, "when": {"mode": "local"}},
]


def validated(raw, **given):
    fields = read_fields(raw, "acme")
    return validate_values(
        fields, {key: Value(value, "file") for key, value in given.items()}, "m.acme"
    )


def is_valid(raw, **values) -> bool:
    return Draft202012Validator(json_schema(read_fields(raw, "acme"))).is_valid(values)


def test_the_one_whose_condition_holds_is_used() -> None:
    assert validated(URLS).values == {"mode": "cloud", "url": "https://acme.example"}
    assert validated(URLS, mode="local", url="http://here").values["url"] == "http://here"
    (problem,) = validated(URLS, mode="local").problems
    assert str(problem).startswith("m.acme.url: is missing")


def test_where_no_condition_holds_the_key_is_left_out() -> None:
    result = validated(URLS, mode="off", url="http://here")
    assert result.values == {"mode": "off"}
    assert result.problems == ()


def test_one_without_a_condition_is_for_all_other_cases_wherever_it_stands() -> None:
    otherwise = {"key": "size", "type": "integer", "default": 1}
    special = {"key": "size", "type": "integer", "default": 9, "when": {"mode": "local"}}
    for raw in ([MODE, otherwise, special], [MODE, special, otherwise], [otherwise, special, MODE]):
        assert validated(raw).values["size"] == 1
        assert validated(raw, mode="local").values["size"] == 9
        assert is_valid(raw, mode="local", size=2)
        assert not is_valid(raw, mode="cloud", size="x")


def test_of_two_that_hold_the_first_counts() -> None:
    raw = [
        MODE,
        {"key": "n", "type": "integer", "maximum": 5, "default": 1, "when": {"mode": "local"}},
        {"key": "n", "default": "text", "when": {"mode": ["local", "cloud"]}},
    ]
    assert validated(raw, mode="local").values["n"] == 1
    assert validated(raw).values["n"] == "text"
    (problem,) = validated(raw, mode="local", n=9).problems
    assert str(problem) == "m.acme.n: 9 is too large (a whole number, at most 5; from file)"
    assert not validated(raw, n="9").problems
    assert is_valid(raw, mode="local", n=5)
    assert not is_valid(raw, mode="local", n="text")
    assert is_valid(raw, mode="cloud", n="text")
    assert not is_valid(raw, mode="cloud", n=5)


def test_types_and_choices_are_those_of_the_one_in_force() -> None:
    raw = [
        MODE,
        {"key": "level", "choices": ["low", "high"], "when": {"mode": "cloud"}},
        {"key": "level", "type": "integer", "when": {"mode": "local"}},
    ]
    assert validated(raw, level="7").problems
    assert validated(raw, mode="local", level="7").values["level"] == 7


def test_a_default_may_follow_from_another_field() -> None:
    models = {"field": "vendor", "map": {"a": "a-1", "b": "b-1"}}
    raw = [
        {"key": "model", "default": "cloud-1", "when": {"mode": "cloud"}},
        {"key": "model", "default": "x", "default_from": models, "when": {"mode": "local"}},
        {"key": "vendor", "choices": ["a", "b", "c"], "default": "b", "when": {"mode": "local"}},
        MODE,
    ]
    assert validated(raw).values["model"] == "cloud-1"
    assert validated(raw, mode="local").values["model"] == "b-1"
    assert validated(raw, mode="local", vendor="c").values["model"] == "x"


def test_a_field_that_depends_on_such_a_key_comes_after_all_of_them() -> None:
    raw = [{"key": "last", "when": {"url": "x"}}, *reversed(URLS)]
    assert [each.key for each in in_order(read_fields(raw, "acme"))] == [
        "mode",
        "url",
        "url",
        "last",
    ]


def test_in_force_has_one_field_for_each_key() -> None:
    fields = read_fields(URLS, "acme")
    assert [each.required for each in active_fields(fields, {"mode": "local"})] == [False, True]
    none = active_fields(fields, {"mode": "off"})
    assert [each.key for each in none] == ["mode", "url"]
    assert not none[1].applies({"mode": "off"})


@pytest.mark.parametrize("condition", [{}, {"mode": "cloud"}, {"mode": ["cloud", "off"]}])
def test_the_same_condition_twice_is_the_authors_fault(condition) -> None:
    raw = [MODE, {"key": "a", "when": condition}, {"key": "a", "when": condition, "default": "x"}]
    with pytest.raises(SchemaError, match="'a' is there twice"):
        read_fields(raw, "acme")


HINDSIGHT = [
    {"key": "mode", "default": "cloud", "choices": ["cloud", "local_embedded", "local_external"]},
    {"key": "api_url", "default": "https://cloud.example", "when": {"mode": "cloud"}},
    {"key": "api_key", "secret": True, "env_var": "HINDSIGHT_API_KEY", "when": {"mode": "cloud"}},
    {"key": "api_url", "default": "http://localhost:8888", "when": {"mode": "local_external"}},
    {"key": "api_key", "secret": True, "env_var": "HINDSIGHT_API_KEY",
     "when": {"mode": "local_external"}},
    {"key": "llm_provider", "default": "openai", "choices": ["openai", "ollama"],
     "when": {"mode": "local_embedded"}},
    {"key": "llm_model", "default": "gpt-4o-mini", "when": {"mode": "local_embedded"},
     "default_from": {"field": "llm_provider", "map": {"ollama": "gemma3:12b"}}},
]  # fmt: skip

_ASK = (
    "import json; from plugins.memory.hindsight import HindsightMemoryProvider as P; "
    "print(json.dumps(P().get_config_schema()))"
)


def their_schema(peer: str) -> list[dict[str, object]]:
    """What hermes-agent's own plugin lists, or a short form of it."""
    python = PEER.parents[2] / peer / "bin" / "python"
    if not peer:
        return HINDSIGHT
    if not os.access(python, os.X_OK):
        pytest.skip(f"no hermes-agent: {python} can't be run")
    done = subprocess.run(
        [python, "-P", "-c", _ASK], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("peer", ["", "peer", "peer20"])
def test_the_schema_of_hermes_agents_hindsight_is_understood(peer) -> None:
    raw = their_schema(peer)
    urls = {}
    for mode in ("cloud", "local_external", "local_embedded"):
        result = validated(raw, mode=mode, api_key="key", llm_provider="ollama")
        assert result.problems == ()
        urls[mode] = result.values.get("api_url")
        assert ("api_key" in result.values) == (mode != "local_embedded")
        assert ("llm_model" in result.values) == (mode == "local_embedded")
        assert is_valid(raw, **result.values)
    assert urls["cloud"].startswith("https://")
    assert urls["local_external"].startswith("http://localhost")
    assert urls["local_embedded"] is None
    assert (
        validated(raw, mode="local_embedded", llm_provider="ollama").values["llm_model"]
        != validated(raw, mode="local_embedded").values["llm_model"]
    )
