"""The contract that plugin authors implement, and the names under which they find it."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest
from support.providers import Minimal

import hermes_core
from hermes_core import MemoryProvider, Outcome, RecallStatus

# The table of the contract: what a plugin author relies on.
SIGNATURES = {
    "is_available": "(self) -> bool",
    "unavailable_reason": "(self) -> str",
    "initialize": "(self, session_id: str, **kwargs: Any) -> None",
    "initialize_for_inspection": "(self, session_id: str, **kwargs: Any) -> None",
    "system_prompt_block": "(self) -> str",
    "prefetch": "(self, query: str, *, session_id: str = '') -> str",
    "queue_prefetch": "(self, query: str, *, session_id: str = '') -> None",
    "recall_status": "(self) -> RecallStatus | None",
    "sync_turn": "(self, user_content: str, assistant_content: str, *, session_id: str = '', "
    "messages: list[dict[str, Any]] | None = None) -> None",
    "get_tool_schemas": "(self) -> list[dict[str, Any]]",
    "handle_tool_call": "(self, tool_name: str, args: dict[str, Any], **kwargs: Any) -> str",
    "shutdown": "(self) -> None",
    "on_turn_start": "(self, turn_number: int, message: str, **kwargs: Any) -> None",
    "on_session_end": "(self, messages: list[dict[str, Any]]) -> None",
    "on_session_switch": "(self, new_session_id: str, *, parent_session_id: str = '', "
    "reset: bool = False, rewound: bool = False, **kwargs: Any) -> None",
    "on_pre_compress": "(self, messages: list[dict[str, Any]]) -> str",
    "on_delegation": "(self, task: str, result: str, *, child_session_id: str = '', "
    "**kwargs: Any) -> None",
    "on_memory_write": "(self, action: str, target: str, content: str, "
    "metadata: dict[str, Any] | None = None) -> None",
    "get_config_schema": "(self) -> list[dict[str, Any]]",
    "save_config": "(self, values: dict[str, Any], hermes_home: str) -> None",
    "backup_paths": "(self) -> list[str]",
}


def _methods() -> list[str]:
    return [name for name, _ in inspect.getmembers(MemoryProvider, inspect.isfunction)]


def test_the_class_has_the_methods_of_the_contract_and_no_others() -> None:
    assert sorted(_methods()) == sorted(SIGNATURES)


@pytest.mark.parametrize("method", SIGNATURES)
def test_each_method_has_the_signature_of_the_contract(method: str) -> None:
    found = str(inspect.signature(getattr(MemoryProvider, method))).replace("'", "")
    assert found == SIGNATURES[method].replace("'", "")


def test_four_members_are_abstract_and_everything_else_has_a_default() -> None:
    abstract = {"name", "is_available", "initialize", "get_tool_schemas"}
    assert MemoryProvider.__abstractmethods__ == abstract
    assert isinstance(MemoryProvider.name, property)


def test_every_method_is_documented_for_authors() -> None:
    for method in [*SIGNATURES, "name"]:
        assert inspect.getdoc(getattr(MemoryProvider, method)), method


def test_the_annotations_can_be_resolved_by_tools() -> None:
    from typing import Any

    for method in SIGNATURES:
        hints = get_type_hints(
            getattr(MemoryProvider, method), {"RecallStatus": RecallStatus, "Any": Any}
        )
        assert "return" in hints


def test_the_defaults_are_neutral() -> None:
    provider = Minimal()
    assert provider.unavailable_reason() == ""
    assert provider.system_prompt_block() == ""
    assert provider.prefetch("q", session_id="s") == ""
    assert provider.queue_prefetch("q", session_id="s") is None
    assert provider.recall_status() is None
    assert provider.sync_turn("u", "a", session_id="s", messages=[]) is None
    assert provider.shutdown() is None
    assert provider.on_turn_start(1, "m", model="x") is None
    assert provider.on_session_end([]) is None
    assert provider.on_session_switch("s2", parent_session_id="s1", reset=True, odd=1) is None
    assert provider.on_pre_compress([]) == ""
    assert provider.on_delegation("t", "r", child_session_id="c", odd=1) is None
    assert provider.on_memory_write("add", "memory", "x", {"a": 1}) is None
    assert provider.get_config_schema() == []
    assert provider.save_config({}, "home") is None
    assert provider.backup_paths() == []


def test_defaults_that_are_lists_are_not_shared_between_providers() -> None:
    Minimal().get_config_schema().append({"key": "x"})
    Minimal().backup_paths().append("x")
    assert Minimal().get_config_schema() == []
    assert Minimal().backup_paths() == []


def test_the_default_tool_answer_is_a_json_error() -> None:
    import json

    assert "error" in json.loads(Minimal().handle_tool_call("any", {}, odd=1))


def test_an_inspection_is_an_initialisation_unless_a_provider_says_otherwise() -> None:
    seen = []

    class Provider(Minimal):
        def initialize(self, session_id: str, **kwargs: object) -> None:
            seen.append((session_id, kwargs))

    Provider().initialize_for_inspection("s1", platform="cli")
    assert seen == [("s1", {"platform": "cli"})]


def test_a_provider_promises_neither_checkpoints_nor_delivery_by_default() -> None:
    assert MemoryProvider.pre_compress_checkpoint_api_version == 1
    assert MemoryProvider.confirms_delivery is False


def test_a_class_that_misses_a_member_can_not_be_built_and_python_says_which() -> None:
    class Incomplete(MemoryProvider):
        name = "x"

        def is_available(self) -> bool:
            return True

    with pytest.raises(TypeError, match="get_tool_schemas"):
        Incomplete()


def test_recall_status_and_outcome_have_the_fields_of_the_contract() -> None:
    status = RecallStatus("Notes", 3, "*")
    assert (status.provider_label, status.count, status.glyph) == ("Notes", 3, "*")
    assert RecallStatus("Notes", 3).glyph == "🧠"  # as hermes-agent has it
    with pytest.raises(AttributeError):
        status.count = 4  # type: ignore[misc]
    assert Outcome._fields == ("provider", "hook", "value", "error", "seconds")


def test_importing_the_contract_imports_no_machinery() -> None:
    code = (
        "import sys; before = set(sys.modules)\n"
        "from hermes_core import MemoryProvider\n"
        "print(*sorted(name.partition('.')[0] for name in set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    )
    heavy = {"pluggy", "yaml", "jsonschema", "keyring", "asyncio", "click", "inspect", "logging"}
    assert not heavy & set(done.stdout.split())


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(hermes_core.__file__).parent / "py.typed").is_file()
