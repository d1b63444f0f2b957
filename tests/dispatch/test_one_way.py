"""Every call goes through pluggy, whether or not somebody observes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.providers import Minimal, Recorder

from hermes_core import MemoryManager, hookimpl
from hermes_core.dispatch import HookCalls, ProviderAdapter

TURN = {
    "user_content": "q",
    "assistant_content": "a",
    "session_id": "s",
    "messages": None,
    "turn_author": None,
}


class Eye:
    """Sees turns."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    @hookimpl
    def sync_turn(self, user_content: str) -> None:
        self.seen.append(user_content)


@pytest.fixture
def adapter() -> Iterator[ProviderAdapter]:
    adapter = ProviderAdapter(Recorder(), "ext")
    yield adapter
    adapter.close(5)


def test_a_call_at_one_provider_reaches_no_other(adapter: ProviderAdapter) -> None:
    hooks = HookCalls()
    hooks.add(adapter)
    other = Recorder("builtin", system_prompt_block="notes")
    hooks.add(ProviderAdapter(other, "builtin", inline=True))
    assert hooks.only(adapter, "system_prompt_block")().provider == "ext"
    assert other.calls == []


def test_a_tool_call_at_one_provider_returns_its_outcome(adapter: ProviderAdapter) -> None:
    hooks = HookCalls()
    hooks.add(adapter)
    call = hooks.only(adapter, "handle_tool_call")
    assert call(tool_name="mine", args={}, extra={}).value is None  # not its tool
    adapter.tools = frozenset({"mine"})
    assert call(tool_name="mine", args={}, extra={}).value == "{}"


def test_an_observer_sees_calls_of_methods_that_a_provider_does_not_override(home: Any) -> None:
    eye = Eye()
    manager = MemoryManager()
    manager.add_provider(Minimal())
    manager.initialize_all("s")
    manager.sync_all("before", "a")
    manager.add_observer("eye", eye)
    manager.sync_all("after", "a")
    manager.shutdown_all()
    assert eye.seen == ["after"]


def test_an_observer_that_comes_while_another_thread_calls_sees_the_next_call(
    adapter: ProviderAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    eye = Eye()
    hooks = HookCalls()
    hooks.add(adapter)
    make = hooks._caller

    def interrupted(*args: Any) -> Any:
        made = make(*args)
        monkeypatch.undo()
        hooks.observe("eye", eye)  # as another thread may do just now
        return made

    monkeypatch.setattr(hooks, "_caller", interrupted)
    hooks.only(adapter, "sync_turn")(**TURN)
    hooks.only(adapter, "sync_turn")(**TURN)
    hooks.close()
    assert eye.seen[-1:] == ["q"]


def test_a_list_belongs_to_whoever_receives_it(adapter: ProviderAdapter) -> None:
    adapter.provider.answers["backup_paths"] = ("elsewhere",)  # type: ignore[attr-defined]
    for _ in range(2):
        paths = adapter.backup_paths().value
        assert paths == ["elsewhere"]
        paths.append("mine")


def test_a_start_that_works_ends_an_earlier_failure(adapter: ProviderAdapter) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("not now")

    adapter.provider.answers["initialize"] = fail  # type: ignore[attr-defined]
    assert adapter.initialize("s", {}).error is not None
    assert adapter.sync_turn(**TURN).error is not None  # type: ignore[arg-type]
    del adapter.provider.answers["initialize"]  # type: ignore[attr-defined]
    assert adapter.restart(adapter.initialize)
    assert adapter.sync_turn(**TURN).error is None  # type: ignore[arg-type]
