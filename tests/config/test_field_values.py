"""Values for fields: coerced, defaulted, validated; all problems at once; no secret shown."""

from __future__ import annotations

import pytest
from jsonschema import Draft202012Validator

from hermes_core.config.fields import (
    Value,
    WrongTypeError,
    coerce,
    json_schema,
    read_fields,
    validate_values,
)

CANARY = "canary-secret-value"
FIELDS = read_fields(
    [
        {"key": "api_key", "secret": True, "required": True, "when": {"mode": "cloud"},
         "env_var": "ACME_API_KEY", "url": "https://example.org/keys"},
        {"key": "mode", "choices": ["cloud", "local"], "default": "cloud"},
        {"key": "timeout", "type": "integer", "minimum": 1, "maximum": 60, "default": 30},
        {"key": "rate", "type": "number"},
        {"key": "verbose", "type": "boolean"},
        {"key": "host", "required": True, "when": {"mode": ["local", "self"]}},
        {"key": "port", "type": "integer",
         "default_from": {"field": "mode", "map": {"cloud": 443, "local": 8000}}},
    ],
    "acme",
)  # fmt: skip


def validated(**given):
    return validate_values(
        FIELDS, {key: Value(value, "config.yaml") for key, value in given.items()}, "m.acme"
    )


@pytest.mark.parametrize(
    ("value", "kind", "meant"),
    [
        ("10", "integer", 10), (" 7 ", "integer", 7), (5.0, "integer", 5), ("-3", "integer", -3),
        ("1.5", "number", 1.5), (2, "number", 2), ("1e3", "number", 1000.0),
        ("yes", "boolean", True), ("Off", "boolean", False), (1, "boolean", True),
        (False, "boolean", False), (12, "text", "12"),
        (True, "text", "true"), ("x", "text", "x"),
        ("a, b,", "list", ["a", "b"]), ('["a, b", 1]', "list", ["a, b", 1]), ([2], "list", [2]),
    ],
)  # fmt: skip
def test_values_are_what_is_meant(value, kind: str, meant) -> None:
    result = coerce(value, kind)
    assert result == meant
    assert type(result) is type(meant)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("ten", "integer"), (True, "integer"), (1.5, "integer"), ("1.5", "integer"),
        ("nan", "number"), (float("inf"), "number"), ("maybe", "boolean"), (2, "boolean"),
        ("[1", "list"), (3, "list"), ({}, "list"),
        ([], "text"), ({}, "integer"), ("", "integer"), ("1_0", "integer"),
    ],
)  # fmt: skip
def test_what_can_not_be_meant_is_refused(value, kind: str) -> None:
    with pytest.raises(WrongTypeError):
        coerce(value, kind)


def test_a_value_that_is_no_choice_any_more_is_answered_with_what_to_do_instead() -> None:
    raw = {"key": "mode", "choices": ["cloud"], "instead": {"local": "run it yourself"}}
    fields = read_fields([raw], "acme")
    for value, ending in (("local", "; run it yourself)"), ("moon", "from file)")):
        (problem,) = validate_values(fields, {"mode": Value(value, "file")}, "memory.acme").problems
        assert str(problem).endswith(ending)


def test_defaults_are_filled_in_and_may_follow_from_another_field() -> None:
    result = validated(api_key="k")
    assert result.values == {"api_key": "k", "mode": "cloud", "timeout": 30, "port": 443}
    assert result.origins["timeout"] == "default"
    assert not result.problems
    assert validated(mode="local", host="h").values["port"] == 8000


def test_a_field_that_does_not_apply_is_neither_asked_for_nor_given() -> None:
    result = validated(mode="local", host="h", api_key=CANARY)
    assert "api_key" not in result.values
    assert not result.problems


def test_an_empty_value_is_none() -> None:
    assert [problem.cause for problem in validated(api_key="").problems] == ["is missing"]


def test_all_problems_come_at_once_with_field_cause_what_is_allowed_and_origin() -> None:
    lines = [
        str(problem) for problem in validated(timeout="99", rate="fast", verbose="perhaps").problems
    ]
    assert len(lines) == 4
    text = "\n".join(lines)
    assert "m.acme.timeout: 99 is too large" in text
    assert "at least 1, at most 60" in text
    assert "from config.yaml" in text
    assert "m.acme.rate: 'fast' is not a number" in text
    assert "m.acme.verbose: 'perhaps' is not yes or no" in text
    assert "m.acme.api_key: is missing" in text
    assert "set ACME_API_KEY" in text
    assert "https://example.org/keys" in text


def test_a_choice_is_named_with_the_others() -> None:
    (line,) = map(str, validated(mode="moon", api_key="k").problems)
    assert (
        line
        == "m.acme.mode: 'moon' is not one of the choices (one of cloud, local; from config.yaml)"
    )


def test_no_problem_shows_the_value_of_a_secret() -> None:
    fields = read_fields(
        [
            {"key": "k", "secret": True, "choices": ["a"]},
            {"key": "n", "secret": True, "type": "integer"},
        ],
        "acme",
    )
    given = {"k": Value(CANARY, ".env"), "n": Value(CANARY, "keyring")}
    problems = validate_values(fields, given, "m.acme").problems
    assert len(problems) == 2
    assert CANARY not in "".join(map(str, problems)) + repr(problems)


def test_the_schema_is_valid_json_schema_and_agrees() -> None:
    schema = json_schema(FIELDS)
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    assert validator.is_valid({"mode": "cloud", "api_key": "k"})
    assert not validator.is_valid({"mode": "cloud"})
    assert validator.is_valid({"mode": "local", "host": "h"})
    assert not validator.is_valid({"mode": "local"})
    assert schema["properties"]["api_key"]["writeOnly"] is True
    assert "default" not in schema["properties"]["api_key"]
