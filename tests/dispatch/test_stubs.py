"""Methods that do nothing but answer are asked once; nobody can tell, but by the clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hermes_core import MemoryManager, MemoryProvider, hookimpl
from hermes_core.dispatch import HookCalls, ProviderAdapter

TURN = {"user_content": "q", "assistant_content": "a", "session_id": "s", "messages": None}


class Quiet(MemoryProvider):
    """Has nothing to say, and can't be looked at."""

    name = "quiet"

    def is_available(self) -> bool:
        return True

    def initialize(self, session_id: str, **kwargs: Any) -> None:
        pass

    def initialize_for_inspection(self, session_id: str, **kwargs: Any) -> None:
        raise RuntimeError("no look")

    def get_tool_schemas(self) -> Any:
        return ()

    def backup_paths(self) -> Any:
        return ("elsewhere",)

    def prefetch(self, query: str, *, session_id: str = "") -> str:
        raise RuntimeError("down")

    def queue_prefetch(self, query: str, *, session_id: str = "") -> None:
        pass

    def sync_turn(self, *args: Any, **kwargs: Any) -> None:
        pass


@pytest.fixture
def adapter() -> Iterator[ProviderAdapter]:
    adapter = ProviderAdapter(Quiet(), "quiet")
    yield adapter
    adapter.close(5)


def test_every_call_is_counted(adapter: ProviderAdapter) -> None:
    for _ in range(3):
        assert adapter.sync_turn(**TURN).error is None
    assert adapter.health()["sync_turn"].calls == 3


def test_who_changes_a_list_changes_only_their_own(adapter: ProviderAdapter) -> None:
    for _ in range(2):
        paths = adapter.backup_paths().value
        assert paths == ["elsewhere"]
        paths.append("mine")


def test_a_start_that_does_nothing_still_starts_what_had_failed(adapter: ProviderAdapter) -> None:
    assert adapter.initialize("s", {}).error is None
    assert adapter.initialize_for_inspection("s", {}).error is not None
    assert adapter.sync_turn(**TURN).error is not None
    assert adapter.initialize("s", {}).error is None
    assert adapter.ready
    assert adapter.sync_turn(**TURN).error is None


def test_a_method_that_does_nothing_is_no_sign_that_the_others_work(
    adapter: ProviderAdapter,
) -> None:
    for _ in range(6):
        adapter.prefetch("q", "s")
    assert adapter.health()["prefetch"].breaker == "open"
    for _ in range(2):
        assert adapter.queue_prefetch("q", "s").error is None
        assert adapter.health()["prefetch"].breaker == "open"


def test_an_observer_that_comes_later_hears_of_it() -> None:
    heard = []

    class Eye:
        @hookimpl
        def sync_turn(self, user_content: str) -> None:
            heard.append(user_content)

    manager = MemoryManager()
    manager.add_provider(Quiet())
    manager.initialize_all("s")
    manager.sync_all("before", "a")
    manager.add_observer("eye", Eye())
    manager.sync_all("after", "a")
    manager.shutdown_all()
    assert heard == ["after"]


def test_an_observer_that_comes_while_another_thread_calls_hears_the_next_call(
    adapter: ProviderAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = []

    class Eye:
        @hookimpl
        def sync_turn(self, user_content: str) -> None:
            heard.append(user_content)

    hooks = HookCalls()
    hooks.add(adapter)
    make = hooks._caller

    def interrupted(*args: Any) -> Any:
        made = make(*args)
        monkeypatch.undo()
        hooks.observe("eye", Eye())  # as another thread may do just now
        return made

    monkeypatch.setattr(hooks, "_caller", interrupted)
    hooks.only(adapter, "sync_turn")(**TURN)
    hooks.only(adapter, "sync_turn")(**TURN)
    hooks.close()
    assert heard == ["q"]
