"""What the contract does not allow gives the neutral value, and a failure in `health`."""

from __future__ import annotations

from typing import Any

import pytest
from support.providers import DRIVE, Recorder, running, sample_arguments

from hermes_core import Outcome
from hermes_core.dispatch import ProviderAdapter
from hermes_core.errors import WrongReturnType
from hermes_core.hookspecs import HOOKS

WRONG = {
    "bytes": b"x",
    "dict": {"a": 1},
    "int": 7,
    "float": 0.5,
    "object": object(),
    "set": {1},
    "class": dict,
}

CONTRACT = {
    "is_available": "bool",
    "unavailable_reason": "str",
    "system_prompt_block": "str",
    "prefetch": "str",
    "get_tool_schemas": "list",
    "on_pre_compress": "str",
    "get_config_schema": "list",
    "backup_paths": "list",
}


def _adapted(provider: Any) -> ProviderAdapter:
    adapter = ProviderAdapter(provider, "ext")
    adapter.tools = frozenset({"ext_tool"})
    return adapter


def _called(adapter: ProviderAdapter, hook: str) -> Outcome:
    try:
        outcome = getattr(adapter, hook)(**sample_arguments(hook))
    finally:
        adapter.close(5)
    assert isinstance(outcome, Outcome)
    return outcome


@pytest.mark.parametrize("value", WRONG.values(), ids=WRONG.keys())
@pytest.mark.parametrize("hook", CONTRACT)
def test_a_wrong_type_gives_the_neutral_value_and_says_what_was_expected(
    hook: str, value: Any
) -> None:
    adapter = _adapted(Recorder(**{hook: lambda *args, **kwargs: value}))
    outcome = _called(adapter, hook)
    assert outcome.value == HOOKS[hook].neutral
    assert isinstance(outcome.error, WrongReturnType)
    assert type(value).__name__ in str(outcome.error)
    assert CONTRACT[hook] in str(outcome.error)
    health = adapter.health()[hook]
    assert (health.calls, health.failures) == (1, 1)


@pytest.mark.parametrize("hook", CONTRACT)
def test_none_where_a_value_is_due_gives_the_neutral_value(hook: str) -> None:
    outcome = _called(_adapted(Recorder(**{hook: lambda *args, **kwargs: None})), hook)
    assert outcome.value == HOOKS[hook].neutral


@pytest.mark.parametrize("value", [b"x", 7, object(), {1}], ids=["bytes", "int", "object", "set"])
def test_a_wrong_type_from_a_tool_is_a_failure(value: Any) -> None:
    adapter = _adapted(Recorder(handle_tool_call=lambda *args, **kwargs: value))
    outcome = _called(adapter, "handle_tool_call")
    assert isinstance(outcome.error, WrongReturnType)
    assert adapter.health()["handle_tool_call"].failures == 1


@pytest.mark.parametrize(
    "value",
    [pytest.param(value, id=name) for name, value in WRONG.items()],
)
def test_a_wrong_recall_status_is_a_failure(value: Any) -> None:
    external = Recorder(recall_status=lambda: value)
    with running(external) as manager:
        assert manager.recall_status_all() == []
        assert manager.health()["ext"]["recall_status"].failures == 1


def test_a_recall_status_that_raises_when_looked_at_does_not_break_the_turn() -> None:
    class Status:
        @property
        def provider_label(self) -> str:
            raise RuntimeError("boom")

    with running(Recorder(recall_status=Status)) as manager:
        assert manager.recall_status_all() == []


@pytest.mark.parametrize("value", WRONG.values(), ids=WRONG.keys())
def test_a_life_with_wrong_types_from_every_method_is_one_of_the_built_in_alone(
    value: Any,
) -> None:
    builtin = Recorder("builtin", system_prompt_block="notes", prefetch="recalled")
    external = Recorder(**dict.fromkeys(HOOKS, lambda *args, **kwargs: value))
    with running(builtin, external) as manager:
        assert manager.get_all_tool_schemas() == []
        assert manager.build_system_prompt() == "notes"
        assert manager.prefetch_all("q") == "recalled"
        assert manager.on_pre_compress([]) == ""
        for drive in DRIVE.values():
            drive(manager)
        assert manager.flush_pending(60)
