"""What a tool answers reaches the host as a JSON string, for good and for bad."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.providers import Minimal, Recorder, raising, running

from hermes_core.manager.tools import tool_answer

TEXT = st.text('aé{}[]"\\ 1', max_size=6)
SEARCH = {"name": "ext_search", "description": "Search."}


def _answering(value: Any) -> Recorder:
    return Recorder(tools=[SEARCH], handle_tool_call=value)


ANSWERS = {
    "json text": ('{"a": 1}', {"a": 1}),
    "json list": ("[1]", [1]),
    "plain text": ("found it", {"result": "found it"}),
    "empty text": ("", {"result": ""}),
    "not quite json": ("{'a': 1}", {"result": "{'a': 1}"}),
    "dict": ({"a": "ä"}, {"a": "ä"}),
    "list": ([{"a": 1}], [{"a": 1}]),
}


@pytest.mark.parametrize(("value", "expected"), ANSWERS.values(), ids=ANSWERS.keys())
def test_an_answer_is_a_json_string_that_says_what_the_tool_said(value: Any, expected: Any) -> None:
    with running(_answering(value)) as manager:
        answer = manager.handle_tool_call("ext_search", {"query": "x"})
    assert isinstance(answer, str)
    assert json.loads(answer) == expected


WRONG = {
    "none": None,
    "bytes": b"x",
    "int": 5,
    "object": object(),
    "dict of objects": {"a": object()},
    "dict of tuples": {(1, 2): 3},
}


@pytest.mark.parametrize("value", WRONG.values(), ids=WRONG.keys())
def test_what_is_no_answer_is_a_json_error_that_names_the_provider(value: Any) -> None:
    with running(_answering(value)) as manager:
        answer = json.loads(manager.handle_tool_call("ext_search", {"query": "x"}))
    assert list(answer) == ["error"]
    assert "ext" in answer["error"]


@pytest.mark.parametrize("error", [ValueError("bad query"), SystemExit(2)], ids=["error", "exit"])
def test_a_tool_that_raises_is_a_json_error_that_names_tool_and_provider(
    error: BaseException,
) -> None:
    with running(_answering(raising(error))) as manager:
        answer = json.loads(manager.handle_tool_call("ext_search", {}))["error"]
        assert manager.health()["ext"]["handle_tool_call"].failures == 1
    assert "ext_search" in answer
    assert "ext" in answer
    assert ("bad query" if isinstance(error, ValueError) else "SystemExit") in answer


def test_an_unknown_tool_is_a_json_error_and_nobody_is_called() -> None:
    builtin, external = Recorder("builtin"), _answering("{}")
    with running(builtin, external) as manager:
        assert "'nonsense'" in json.loads(manager.handle_tool_call("nonsense", {}))["error"]
    assert builtin.of("handle_tool_call") == external.of("handle_tool_call") == []


def test_a_manager_without_providers_has_no_tools() -> None:
    with running() as manager:
        assert manager.get_all_tool_schemas() == []
        assert manager.get_all_tool_names() == set()
        assert "error" in json.loads(manager.handle_tool_call("any", {}))


def test_a_provider_that_offers_tools_without_handling_them_says_so() -> None:
    class Provider(Minimal):
        def get_tool_schemas(self):
            return [SEARCH]

    with running(Provider()) as manager:
        assert "error" in json.loads(manager.handle_tool_call("ext_search", {}))


@pytest.mark.parametrize("value", [{"a": float("nan")}, "NaN", [float("inf")]], ids=str)
def test_an_answer_is_json_for_strict_parsers_too(value: Any) -> None:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    json.loads(tool_answer(value, "ext"), parse_constant=refuse)


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | TEXT | st.binary(max_size=3),
        lambda inner: st.lists(inner) | st.dictionaries(TEXT | st.integers(), inner),
    )
)
def test_whatever_a_tool_gives_the_answer_is_json(value: Any) -> None:
    json.loads(tool_answer(value, "ext"))
