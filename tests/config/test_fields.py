"""A provider's list of fields: what is understood, and what is its author's fault."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hermes_core.config.fields import SchemaError, in_order, read_fields, variable_of

FULL = {
    "key": "timeout",
    "description": "Seconds to wait.",
    "type": "integer",
    "required": True,
    "default": "30",
    "minimum": 1,
    "maximum": 60,
    "step": 5,
    "env_var": "ACME_WAIT",
    "url": "https://example.org",
    "unknown": "ignored",
}


def test_a_field_is_read_with_its_default_coerced() -> None:
    (field,) = read_fields([FULL], "acme")
    assert field.default == 30
    assert (field.minimum, field.maximum, field.step) == (1, 60, 5)
    assert field.variable == "ACME_WAIT"
    assert field.required
    assert not field.secret


def test_a_field_without_a_variable_gets_provider_and_key() -> None:
    (field,) = read_fields([{"key": "baseUrl"}], "my-acme")
    assert field.variable == "MY_ACME_BASEURL" == variable_of("my-acme", "baseUrl")
    assert field.type == "text"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("int", "integer"),
        ("float", "number"),
        ("bool", "boolean"),
        ("string", "text"),
        ("array", "list"),
        ("?", "text"),
    ],
)
def test_types_are_known_by_their_usual_names(written: str, meant: str) -> None:
    assert read_fields([{"key": "a", "type": written}], "acme")[0].type == meant


def test_a_secret_has_no_default() -> None:
    fields = read_fields(
        [{"key": "a", "secret": True, "default": "hunter2"}, {"key": "b", "type": "password"}], "x"
    )
    assert [(field.secret, field.default) for field in fields] == [(True, None)] * 2


def test_choices_may_come_with_labels() -> None:
    choices = [{"value": "a", "label": "The a"}, ("b", "The b"), "c"]
    assert read_fields([{"key": "k", "choices": choices}], "x")[0].choices == ("a", "b", "c")


def test_all_that_is_malformed_is_named_at_once_as_the_plugins_fault() -> None:
    raw = [
        {"description": "no key"},
        {"key": "a", "type": "integer", "default": "many"},
        {"key": "b", "choices": ["x", "y"], "default": "z"},
        {"key": "b"},
        {"key": "c", "minimum": 5, "maximum": 1},
        {"key": "d", "when": {"missing": 1}},
        {"key": "e", "env_var": "NOT A NAME"},
        "no mapping",
    ]
    with pytest.raises(SchemaError) as caught:
        read_fields(raw, "acme")
    text = str(caught.value)
    for part in (
        "plugin acme",
        "field 1 has no key",
        "a: its default or a choice is not a whole number",
        "b: its default 'z' is not among its choices",
        "'b' is there twice",
        "c: its minimum is larger than its maximum",
        "d: its when names 'missing'",
        "'NOT A NAME' can't be an environment variable",
        "field 8 is a str",
        "a bug in the plugin",
    ):
        assert part in text


@pytest.mark.parametrize("raw", [None, "text", 5, {"key": "a"}])
def test_what_is_no_list_is_the_plugins_fault(raw) -> None:
    with pytest.raises(SchemaError, match="not a list"):
        read_fields(raw, "acme")


def test_fields_are_asked_after_those_that_decide_about_them() -> None:
    raw = [
        {"key": "api_key", "when": {"mode": "cloud"}},
        {"key": "mode", "default_from": {"field": "tier", "map": {"free": "local"}}},
        {"key": "tier"},
        {"key": "loop", "when": {"pool": 1}},
        {"key": "pool", "when": {"loop": 1}},
    ]
    order = [field.key for field in in_order(read_fields(raw, "acme"))]
    assert order.index("tier") < order.index("mode") < order.index("api_key")
    assert sorted(order) == ["api_key", "loop", "mode", "pool", "tier"]


def test_fields_keep_their_authors_order_where_nothing_decides() -> None:
    raw = [
        {"key": "mode"},
        {"key": "api_key", "when": {"mode": "cloud"}},
        {"key": "timeout"},
    ]
    order = [field.key for field in in_order(read_fields(raw, "acme"))]
    assert order == ["mode", "api_key", "timeout"]


@pytest.mark.parametrize("source", [["x"], {}, 3])
def test_a_default_from_what_is_no_field_is_the_plugins_fault(source) -> None:
    with pytest.raises(SchemaError, match="its default_from names"):
        read_fields([{"key": "a", "default_from": {"field": source, "map": {}}}], "acme")


@pytest.mark.parametrize("bound", [10**400, float("inf"), float("nan"), True, "3"])
def test_a_bound_that_is_no_number_is_the_plugins_fault(bound) -> None:
    with pytest.raises(SchemaError, match="its minimum is not a number"):
        read_fields([{"key": "a", "type": "integer", "minimum": bound}], "acme")


def test_when_a_field_applies_is_said_in_words() -> None:
    raw = [{"key": "a"}, {"key": "b"}, {"key": "c", "when": {"a": ["x", "y"], "b": 1}}]
    assert read_fields(raw, "acme")[2].condition == "a is x or y and b is 1"


def test_what_set_up_asks_may_depend_on_other_values_and_is_taken_all_the_same() -> None:
    raw = [
        {"key": "rare", "ask": False},
        {"key": "url", "ask": {"mode": "own"}, "when": {"on": True}},
        {"key": "mode"},
        {"key": "on", "type": "boolean", "ask": True},
    ]
    rare, url, mode, on = read_fields(raw, "acme")
    assert not rare.is_prompted({})
    assert rare.applies({})
    assert mode.is_prompted({})
    assert on.is_prompted({})
    assert url.is_prompted({"mode": "own", "on": True})
    assert not url.is_prompted({"mode": "own"})
    assert not url.is_prompted({"mode": "cloud", "on": True})
    assert [each.key for each in in_order((rare, url, mode, on))][-1] == "url"


def test_asking_by_what_is_no_field_is_the_plugins_fault() -> None:
    with pytest.raises(SchemaError, match="its ask names 'mood', which is not a field"):
        read_fields([{"key": "a", "ask": {"mood": "good"}}], "acme")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
)
KEYS = (
    "key", "type", "default", "choices", "when", "minimum", "env_var", "default_from", "secret",
    "ask",
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(KEYS), JSON), max_size=4))
@example([{"key": "a", "default": []}])
def test_whatever_a_plugin_lists_is_read_or_is_its_fault(raw) -> None:
    # Nobody can answer a field whose default is a list or a mapping: it is left out.
    answerable = [each for each in raw if not isinstance(each.get("default"), list | dict)]
    with suppress(SchemaError):
        assert len(read_fields(raw, "acme")) == len(answerable)
