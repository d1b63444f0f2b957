"""For tests: `FakeProvider`, and `store_suite` for stores of LangGraph.

Both are imported when they are first used: a host's tests need no pytest plugin of ours, and only
the suite needs LangGraph.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from hermes_core.testing.fake_provider import Call, FakeProvider, StoredTurn
    from hermes_core.testing.stores import store_suite

__all__ = ["Call", "FakeProvider", "StoredTurn", "store_suite"]

_MODULES: Final = {"store_suite": "stores"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'fake_provider')}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
