"""The tools that providers offer: normalised, checked, and owned by one."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.providers import Recorder, running

from hermes_core.manager.tools import ToolError, normalise_schema

PARAMETERS = {
    "type": "object",
    "properties": {"query": {"type": "string", "description": "What to look for."}},
    "required": ["query"],
}
BARE = {"name": "ext_search", "description": "Search.", "parameters": PARAMETERS}
WRAPPED = {"type": "function", "function": BARE}


def _offering(*schemas: Any, name: str = "ext") -> Recorder:
    return Recorder(name, tools=schemas)


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


@pytest.mark.parametrize(
    "schema", [BARE, WRAPPED, {"function": BARE}], ids=["bare", "wrapped", "half"]
)
def test_both_shapes_come_out_bare(schema: dict[str, Any]) -> None:
    with running(_offering(schema)) as manager:
        assert manager.get_all_tool_schemas() == [BARE]
        assert manager.get_all_tool_names() == {"ext_search"}
        assert manager.has_tool("ext_search")
        assert not manager.has_tool("other")


@pytest.mark.parametrize(
    ("parameters", "offered"),
    [
        ({"type": "object"}, {"type": "object", "properties": {}}),
        ({"properties": {"a": {}}}, {"type": "object", "properties": {"a": {}}}),
    ],
)
def test_what_some_model_apis_demand_is_added(
    parameters: dict[str, Any], offered: dict[str, Any]
) -> None:
    schema = normalise_schema({"name": "t", "description": None, "parameters": parameters})
    assert schema == {"name": "t", "description": "", "parameters": offered}


def test_a_tool_without_description_or_parameters_takes_no_arguments() -> None:
    with running(_offering({"name": "ext_count"})) as manager:
        assert manager.get_all_tool_schemas() == [
            {
                "name": "ext_count",
                "description": "",
                "parameters": {"type": "object", "properties": {}},
            }
        ]


def test_what_else_a_schema_says_is_kept() -> None:
    with running(_offering({**BARE, "strict": True})) as manager:
        assert manager.get_all_tool_schemas()[0]["strict"] is True


CYCLE: dict[str, Any] = {"name": "ext_cycle", "parameters": {"type": "object"}}
CYCLE["parameters"]["properties"] = CYCLE

INVALID = {
    "no mapping": (5, "int"),
    "text": ("search", "str"),
    "none": (None, "NoneType"),
    "list": ([BARE], "list"),
    "no name": ({"description": "x"}, "None"),
    "name no text": ({"name": 5}, "5"),
    "empty name": ({"name": ""}, "''"),
    "name with a space": ({"name": "a b"}, "'a b'"),
    "name with a line": ({"name": "ab\n"}, "'ab\\n'"),
    "name far too long": ({"name": "x" * 129}, "64"),
    "name not ascii": ({"name": "sucheä"}, "'sucheä'"),
    "parameters no object": ({"name": "t", "parameters": {"type": "string"}}, "object"),
    "parameters a list": ({"name": "t", "parameters": ["a"]}, "object"),
    "object": ({"name": "t", "parameters": {"type": "object", "x": object()}}, "JSON"),
    "nan": ({"name": "t", "parameters": {"type": "object", "x": float("nan")}}, "JSON"),
    "cycle": (CYCLE, "JSON"),
    "set": ({"name": "t", "parameters": {"type": "object", "required": {"a"}}}, "JSON"),
}


@pytest.mark.parametrize(("schema", "told"), INVALID.values(), ids=INVALID.keys())
def test_an_invalid_schema_is_refused_with_a_cause_and_the_others_stay(
    schema: Any, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    with running(_offering(BARE, schema), start=False) as manager:
        assert manager.get_all_tool_names() == {"ext_search"}
        assert json.loads(manager.handle_tool_call("ext_search", {})) == {}
    (warning,) = _warnings(caplog)
    assert "provider ext: get_tool_schemas" in warning
    assert told in warning
    assert "\n" not in warning


EMPTY = {"type": "object", "properties": {}}
ANYTHING = {"type": "object", "properties": {"a": {}}}

# What hermes-agent offers to the model; with what is offered of it here, and the warning's cause.
CHANGED = {
    "long name": ({"name": "x" * 65}, EMPTY, "64"),
    "dotted name": ({"name": "acme.search"}, EMPTY, "acme.search"),
    "unknown type": (
        {
            "name": "t",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "strng"}, "b": {"type": "string"}},
                "required": ["a", "b"],
            },
        },
        {
            "type": "object",
            "properties": {"a": {}, "b": {"type": "string"}},
            "required": ["a", "b"],
        },
        "strng",
    ),
    "required no list": (
        {"name": "t", "parameters": {"type": "object", "required": "a"}},
        EMPTY,
        "'a'",
    ),
    "required at a property": (
        {
            "name": "t",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "string", "required": True}},
            },
        },
        ANYTHING,
        "True",
    ),
    "bad pattern": (
        {"name": "t", "parameters": {"type": "object", "properties": {"a": {"pattern": "("}}}},
        ANYTHING,
        "(",
    ),
    "bytes": ({"name": "t", "description": b"x"}, EMPTY, "JSON"),
    "description no text": ({"name": "t", "description": ["x"]}, EMPTY, "not text"),
    "function": ({"name": "t", "handler": print}, EMPTY, "JSON"),
}


@pytest.mark.parametrize(("schema", "parameters", "told"), CHANGED.values(), ids=CHANGED.keys())
def test_what_hermes_agent_accepts_is_offered_in_a_form_that_models_take_with_a_warning(
    schema: dict[str, Any],
    parameters: dict[str, Any],
    told: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with running(_offering(BARE, schema), start=False) as manager:
        assert manager.get_all_tool_schemas() == [
            BARE,
            {"name": schema["name"], "description": "", "parameters": parameters},
        ]
        assert json.loads(manager.handle_tool_call(schema["name"], {})) == {}
        (line,) = manager.warnings
    (warning,) = _warnings(caplog)
    assert line in warning
    assert told in warning
    with pytest.raises(ToolError, match="offered"):  # the kit tells the plugin's author
        normalise_schema(schema)


def test_a_schema_that_is_nested_very_deep_is_refused() -> None:
    nested: dict[str, Any] = {}
    for _ in range(5000):
        nested = {"type": "object", "properties": {"a": nested}}
    with running(_offering(BARE, {"name": "deep", "parameters": nested})) as manager:
        assert manager.get_all_tool_names() == {"ext_search"}


def test_a_schema_too_deep_for_the_validator_alone_is_refused() -> None:
    nested: dict[str, Any] = {}
    for _ in range(300):
        nested = {"type": "object", "properties": {"a": nested}}
    with running(_offering(BARE, {"name": "deep", "parameters": nested})) as manager:
        assert "ext_search" in manager.get_all_tool_names()


def test_a_list_that_raises_when_walked_costs_no_more_than_the_tools() -> None:
    class Odd(list):  # type: ignore[type-arg]
        def __iter__(self):
            raise RuntimeError("not that one")

    with running(Recorder(get_tool_schemas=lambda: Odd([BARE]), prefetch="recalled")) as manager:
        assert manager.get_all_tool_names() <= {"ext_search"}
        assert manager.prefetch_all("q") == "recalled"


@pytest.mark.parametrize("name", ["memory", "session_search"])
def test_the_built_in_s_names_are_reserved_for_it(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with running(_offering({"name": name}, BARE), start=False) as manager:
        assert manager.get_all_tool_names() == {"ext_search"}
    (warning,) = _warnings(caplog)
    assert "provider ext" in warning
    assert repr(name) in warning
    assert "built-in" in warning
    with running(_offering({"name": name}, name="builtin")) as manager:
        assert manager.get_all_tool_names() == {name}


def test_the_host_s_names_are_reserved_even_from_the_built_in(
    caplog: pytest.LogCaptureFixture,
) -> None:
    schemas = ({"name": "terminal"}, {"name": "ext_search"})
    builtin, external = _offering(*schemas, name="builtin"), _offering({"name": "terminal"})
    with running(builtin, external, start=False, reserved_tools=["terminal"]) as manager:
        assert manager.get_all_tool_names() == {"ext_search"}
    assert len(_warnings(caplog)) == 2
    assert all("host" in each and "'terminal'" in each for each in _warnings(caplog))


def test_a_name_that_is_taken_is_refused_with_its_owner_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    builtin = _offering({"name": "recall"}, name="builtin")
    external = _offering({"name": "recall"}, {"name": "other"})
    with running(builtin, external, start=False) as manager:
        assert manager.get_all_tool_names() == {"recall", "other"}
        builtin.answers["handle_tool_call"] = '"builtin"'
        assert manager.handle_tool_call("recall", {}) == '"builtin"'
    (warning,) = _warnings(caplog)
    assert "provider ext" in warning
    assert "'recall' belongs to builtin" in warning


def test_the_built_in_has_the_name_whoever_was_added_first() -> None:
    builtin = _offering({"name": "recall"}, name="builtin")
    external = _offering({"name": "recall"})
    with running(external, builtin) as manager:
        builtin.answers["handle_tool_call"] = '"builtin"'
        external.answers["handle_tool_call"] = '"external"'
        assert manager.handle_tool_call("recall", {}) == '"builtin"'


def test_a_provider_that_offers_a_name_twice_has_it_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with running(_offering(BARE, WRAPPED), start=False) as manager:
        assert manager.get_all_tool_schemas() == [BARE]
    (warning,) = _warnings(caplog)
    assert "belongs to ext" in warning


def test_the_built_in_s_tools_come_first() -> None:
    builtin = _offering({"name": "first"}, name="builtin")
    with running(builtin, _offering({"name": "second"})) as manager:
        assert [each["name"] for each in manager.get_all_tool_schemas()] == ["first", "second"]


def test_the_built_in_s_tools_come_first_whoever_was_added_first() -> None:
    builtin = _offering({"name": "first"}, name="builtin")
    with running(_offering({"name": "second"}), builtin, start=False) as manager:
        assert [each["name"] for each in manager.get_all_tool_schemas()] == ["first", "second"]


def test_tools_that_appear_with_the_session_are_routed() -> None:
    external = _offering()
    external.answers["initialize"] = lambda *args, **kwargs: external.answers.update(
        get_tool_schemas=[BARE]
    )
    with running(external, start=False) as manager:
        assert not manager.has_tool("ext_search")
        manager.initialize_all("s1")
        assert manager.has_tool("ext_search")
        assert manager.handle_tool_call("ext_search", {"query": "x"}) == "{}"


def test_tools_that_disappear_with_the_session_are_no_longer_routed() -> None:
    external = _offering(BARE)
    external.answers["initialize"] = lambda *args, **kwargs: external.answers.update(
        get_tool_schemas=[]
    )
    with running(external) as manager:
        assert manager.get_all_tool_names() == set()
        assert "error" in json.loads(manager.handle_tool_call("ext_search", {}))
    assert external.of("handle_tool_call") == []


def test_two_hundred_tools_are_refused_as_a_whole_and_everything_else_works(
    caplog: pytest.LogCaptureFixture,
) -> None:
    builtin = _offering({"name": "memory"}, name="builtin")
    external = _offering(*({"name": f"tool_{number}"} for number in range(200)))
    external.answers["prefetch"] = "recalled"
    with running(builtin, external, start=False) as manager:
        assert manager.get_all_tool_names() == {"memory"}
        (warning,) = _warnings(caplog)
        assert "provider ext: get_tool_schemas" in warning
        assert "200 tools" in warning
        manager.initialize_all("s1")
        assert manager.prefetch_all("q") == "recalled"
        manager.sync_all("u", "a")
        assert manager.flush_pending(60)
        assert "error" in json.loads(manager.handle_tool_call("tool_1", {}))


def test_what_a_host_does_to_the_schemas_stays_with_the_host() -> None:
    with running(_offering(BARE)) as manager:
        manager.get_all_tool_schemas()[0]["name"] = "changed"
        manager.get_all_tool_schemas()[0]["parameters"].clear()
        manager.get_all_tool_names().clear()
        assert manager.get_all_tool_schemas() == [BARE]
        assert manager.has_tool("ext_search")


def test_what_a_provider_does_to_its_schemas_afterwards_changes_nothing() -> None:
    mine = json.loads(json.dumps(BARE))
    with running(_offering(mine)) as manager:
        mine["name"] = "changed"
        mine["parameters"].clear()
        assert manager.get_all_tool_schemas() == [BARE]


@settings(deadline=None)
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.floats()
        | st.text("aé_ ", max_size=5)
        | st.binary(max_size=3),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(["name", "function", "parameters", "type", "properties", "x"]),
                inner,
            )
        ),
    )
)
def test_whatever_a_schema_is_it_is_taken_or_refused(value: Any) -> None:
    try:
        schema = normalise_schema(value)
    except ToolError:
        return
    assert schema == normalise_schema({"type": "function", "function": schema})
    assert schema["parameters"].get("type", "object") == "object"
    json.dumps(schema, allow_nan=False)
