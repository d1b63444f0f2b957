"""The contract as hookspecs: it can't drift from the class, the policies or the adapter."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import pluggy
import pytest

from hermes_core import Deadlines, MemoryProvider, hookimpl
from hermes_core.dispatch import ProviderAdapter
from hermes_core.hookspecs import HOOKS, PROJECT, HookRule, Lane, MemoryHooks, Policy

#: Version 2 of one method has a keyword that the class's own signature does not show:
#: ``on_pre_compress(messages, *, require_checkpoint=False)``.
EXTENDED = {"on_pre_compress"}

POLICIES = {
    Policy.COLLECT: {
        "system_prompt_block",
        "prefetch",
        "get_tool_schemas",
        "on_pre_compress",
        "recall_status",
        "backup_paths",
    },
    Policy.NOTIFY: {
        "initialize",
        "initialize_for_inspection",
        "queue_prefetch",
        "sync_turn",
        "on_turn_start",
        "on_session_end",
        "on_session_switch",
        "on_delegation",
        "on_memory_write",
    },
    Policy.TARGETED: {
        "handle_tool_call",
        "is_available",
        "unavailable_reason",
        "get_config_schema",
        "save_config",
    },
    Policy.REVERSE: {"shutdown"},
}


def _public_functions(kind: type) -> dict[str, Any]:
    return {
        name: function
        for name, function in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


def _names(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


def _mirrored(name: str, method: Any) -> list[str]:
    """The parameters of a spec, as they follow from the method's."""
    kinds = {each.kind for each in inspect.signature(method).parameters.values()}
    plain = [
        each.name
        for each in inspect.signature(method).parameters.values()
        if each.kind is not each.VAR_KEYWORD
    ]
    has_extra = inspect.Parameter.VAR_KEYWORD in kinds or name in EXTENDED
    return [*plain, "extra"] if has_extra else plain


def drift(contract: type, specs: type, rules: Mapping[str, HookRule], adapter: type) -> list[str]:
    """What differs between the four places in which the contract is written down."""
    methods = _public_functions(contract)
    hooks = _public_functions(specs)
    found = []
    for place, names in (("specs", set(hooks)), ("policies", set(rules))):
        found += [f"{each} is missing in {place}" for each in set(methods) - names]
        found += [f"{each} is only in {place}" for each in names - set(methods)]
    for name in set(methods) & set(hooks):
        expected = _mirrored(name, methods[name])
        if _names(hooks[name]) != expected:
            found.append(f"the spec {name} has the parameters {_names(hooks[name])}")
        implementation = getattr(adapter, name, None)
        if implementation is None:
            found.append(f"{name} is missing in the adapter")
        elif _names(implementation) != expected:
            found.append(f"the adapter's {name} has the parameters {_names(implementation)}")
    return found


def test_class_specs_policies_and_adapter_say_the_same() -> None:
    assert drift(MemoryProvider, MemoryHooks, HOOKS, ProviderAdapter) == []


def test_a_method_added_to_the_class_alone_is_noticed() -> None:
    class Grown(MemoryProvider):
        def forget(self, query: str) -> None:
            """New."""

    assert sorted(drift(Grown, MemoryHooks, HOOKS, ProviderAdapter)) == [
        "forget is missing in policies",
        "forget is missing in specs",
    ]


def test_a_spec_added_alone_is_noticed() -> None:
    class Grown(MemoryHooks):
        def forget(self, query: str) -> None:
            """New."""

    assert drift(MemoryProvider, Grown, HOOKS, ProviderAdapter) == ["forget is only in specs"]


def test_a_policy_added_alone_is_noticed() -> None:
    rules = {**HOOKS, "forget": HookRule(Policy.NOTIFY)}
    assert drift(MemoryProvider, MemoryHooks, rules, ProviderAdapter) == [
        "forget is only in policies"
    ]


def test_a_parameter_added_to_the_class_alone_is_noticed() -> None:
    class Grown(MemoryProvider):
        def prefetch(self, query: str, *, session_id: str = "", limit: int = 5) -> str:
            return ""

    found = drift(Grown, MemoryHooks, HOOKS, ProviderAdapter)
    assert len(found) == 2
    assert all("prefetch" in each for each in found)


def test_a_method_that_the_adapter_does_not_pass_on_is_noticed() -> None:
    kept = {name: each for name, each in vars(ProviderAdapter).items() if name != "prefetch"}
    shrunk = type("Shrunk", (), {k: v for k, v in kept.items() if k in HOOKS})
    assert drift(MemoryProvider, MemoryHooks, HOOKS, shrunk) == [
        "prefetch is missing in the adapter"
    ]


@pytest.mark.parametrize("hook", HOOKS)
def test_a_spec_has_plain_parameters_without_defaults(hook: str) -> None:
    parameters = list(inspect.signature(getattr(MemoryHooks, hook)).parameters.values())
    for each in parameters:
        assert each.kind is each.POSITIONAL_OR_KEYWORD
        assert each.default is each.empty  # pluggy would never pass one that has a default


def _specified() -> pluggy.PluginManager:
    plugins = pluggy.PluginManager(PROJECT)
    plugins.add_hookspecs(MemoryHooks)
    return plugins


@pytest.mark.parametrize("hook", HOOKS)
def test_pluggy_knows_each_hook_and_nothing_is_historic(hook: str) -> None:
    caller = getattr(_specified().hook, hook)
    assert caller.spec is not None
    assert not caller.is_historic()
    assert bool(caller.spec.opts["firstresult"]) == (hook == "handle_tool_call")


def test_the_policies_are_those_of_the_design() -> None:
    found: dict[Policy, set[str]] = {}
    for hook, rule in HOOKS.items():
        found.setdefault(rule.policy, set()).add(hook)
    assert found == POLICIES


@pytest.mark.parametrize("hook", HOOKS)
def test_each_deadline_is_one_that_can_be_configured(hook: str) -> None:
    assert HOOKS[hook].deadline in Deadlines._fields


def test_recall_and_writes_have_lanes_of_their_own() -> None:
    recall = {hook for hook, rule in HOOKS.items() if rule.lane is Lane.RECALL}
    write = {hook for hook, rule in HOOKS.items() if rule.lane is Lane.WRITE}
    assert recall == {"prefetch", "queue_prefetch", "recall_status"}
    assert {"sync_turn", "on_session_end", "on_delegation", "on_memory_write"} <= write
    assert not write & {"initialize", "shutdown", "handle_tool_call", "system_prompt_block"}


@pytest.mark.parametrize("hook", HOOKS)
def test_the_neutral_value_is_empty_and_what_the_contract_allows(hook: str) -> None:
    rule = HOOKS[hook]
    assert not rule.neutral
    if rule.neutral is not None:
        assert isinstance(rule.neutral, rule.returns)


def test_the_return_types_follow_the_contract() -> None:
    expected = {"bool": bool, "str": str, "list[dict[str, Any]]": list, "list[str]": list}
    for hook, rule in HOOKS.items():
        annotation = str(inspect.signature(getattr(MemoryProvider, hook)).return_annotation)
        if annotation in expected:
            assert expected[annotation] in rule.returns, hook


def test_the_marker_for_observers_is_public_and_of_our_project() -> None:
    @hookimpl
    def prefetch(query: str) -> str:
        return query

    assert getattr(prefetch, f"{PROJECT}_impl")["wrapper"] is False


def test_an_observer_may_name_any_parameter_of_any_spec() -> None:
    plugins = _specified()
    for hook in HOOKS:
        names = _names(getattr(MemoryHooks, hook))[1:]
        namespace: dict[str, Any] = {"hookimpl": hookimpl}
        exec(f"@hookimpl\ndef {hook}({', '.join(names)}): return None", namespace)
        plugins.register(type("Observer", (), {hook: staticmethod(namespace[hook])})())
    plugins.check_pending()
