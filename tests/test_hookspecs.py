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
from hermes_core.provider import CAPABILITIES

#: What newer versions of a method may have, which the class's own signature does not show:
#: ``on_pre_compress(messages, *, require_checkpoint=False)``, and who wrote a turn.
EXTENDED = {"on_pre_compress": ["extra"], "sync_turn": ["turn_author"]}

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
        "probe",
        "own_settings",
        "get_status_config",
        "post_setup",
        "forget",
        "list_memories",
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
    extra = ["extra"] if inspect.Parameter.VAR_KEYWORD in kinds else EXTENDED.get(name, [])
    return [*plain, *extra]


def _contract(kind: type) -> dict[str, Any]:
    """The methods of the base class, and those of the optional capabilities."""
    methods = [_public_functions(each) for each in (kind, *CAPABILITIES)]
    return {name: function for each in methods for name, function in each.items()}


def drift(contract: type, specs: type, rules: Mapping[str, HookRule], adapter: type) -> list[str]:
    """What differs between the four places in which the contract is written down."""
    methods = _contract(contract)
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


def test_optional_hooks_are_the_capabilities_and_no_base_class_has_them() -> None:
    names = {name for each in CAPABILITIES for name in _public_functions(each)}
    assert {hook for hook, rule in HOOKS.items() if rule.optional} == names
    # hermes-agent asks `hasattr(provider, "post_setup")`: a default would change its set-up.
    assert not names & set(dir(MemoryProvider))


def test_a_method_added_to_the_class_alone_is_noticed() -> None:
    class Grown(MemoryProvider):
        def recite(self, query: str) -> None:
            """New."""

    assert sorted(drift(Grown, MemoryHooks, HOOKS, ProviderAdapter)) == [
        "recite is missing in policies",
        "recite is missing in specs",
    ]


def test_a_spec_added_alone_is_noticed() -> None:
    class Grown(MemoryHooks):
        def recite(self, query: str) -> None:
            """New."""

    assert drift(MemoryProvider, Grown, HOOKS, ProviderAdapter) == ["recite is only in specs"]


def test_a_policy_added_alone_is_noticed() -> None:
    rules = {**HOOKS, "recite": HookRule(Policy.NOTIFY)}
    assert drift(MemoryProvider, MemoryHooks, rules, ProviderAdapter) == [
        "recite is only in policies"
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
    assert recall == {"prefetch", "recall_status"}
    assert write == {"sync_turn", "queue_prefetch"}


@pytest.mark.parametrize("hook", HOOKS)
def test_the_neutral_value_is_empty_and_what_the_contract_allows(hook: str) -> None:
    rule = HOOKS[hook]
    assert not rule.neutral
    if rule.neutral is not None:
        assert isinstance(rule.neutral, rule.returns)


def test_the_return_types_follow_the_contract() -> None:
    expected = {"bool": bool, "str": str, "list[dict[str, Any]]": list, "list[str]": list}
    for hook, rule in HOOKS.items():
        annotation = str(inspect.signature(_contract(MemoryProvider)[hook]).return_annotation)
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
