"""An observer has 50 ms for each step; who takes longer is dropped and shown."""

from __future__ import annotations

import pytest
from support.providers import Gate, Recorder

from hermes_core import MemoryManager, hookimpl


def _observed(observer: object) -> MemoryManager:
    manager = MemoryManager()
    manager.add_provider(Recorder(prefetch="recalled"))
    manager.add_observer("eye", observer)
    return manager


@pytest.mark.parametrize("where", ["implement", "before", "after"])
def test_an_observer_that_hangs_is_dropped_and_the_turn_goes_on(
    where: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Gate() as gate:

        class Before:
            @hookimpl(wrapper=True)
            def prefetch(self):
                gate()
                return (yield)

        class After:
            @hookimpl(wrapper=True)
            def prefetch(self):
                outcomes = yield
                gate()
                return outcomes

        class Implement:
            @hookimpl
            def prefetch(self) -> str:
                gate()
                return "late"

        observer = {"implement": Implement, "before": Before, "after": After}[where]()
        manager = _observed(observer)
        for _ in range(5):
            assert manager.prefetch_all("q") == "recalled"
        health = manager.health()["observer:eye"]["prefetch"]
        gate.open()
        manager.shutdown_all()
    assert health.failures == 1  # dropped, and not called again
    assert health.breaker == "open"
    assert "50 ms" in health.last_error
    assert sum("eye" in each.getMessage() for each in caplog.records) == 1


def test_a_dropped_observer_is_dropped_from_all_hooks() -> None:
    seen = []
    with Gate() as gate:

        class Eye:
            @hookimpl
            def prefetch(self) -> None:
                gate()

            @hookimpl
            def on_pre_compress(self) -> None:
                seen.append("compress")

        manager = _observed(Eye())
        manager.on_pre_compress([])
        manager.prefetch_all("q")
        manager.on_pre_compress([])
        gate.open()
        manager.shutdown_all()
    assert seen == ["compress"]
