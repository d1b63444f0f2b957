"""Modules of ours under hermes-agent's names, which step aside for the real ones.

A name like ``utils`` may become importable at any time: somebody installs a package, or puts
a folder on the import path. Python asks no finder about a module that it has already. So a
stand-in looks for the real module whenever it is used, and from the first time that there is
one it hands everything on to it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class StandIn(ModuleType):
    """One offered module. Its names are those of ``__all__`` of the module behind it."""

    def __getattr__(self, name: str) -> Any:
        real = real_module(self.__name__)
        if real is not None:
            return getattr(real, name)
        behind = self.__dict__.get("_behind")  # not there before the import has got to it
        if behind:
            ours = importlib.import_module(behind)
            if name == "__all__" or name in ours.__all__:
                return getattr(ours, name)
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        """What can be asked for."""
        return sorted({*super().__dir__(), *getattr(self, "__all__", ())})

    def __setattr__(self, name: str, value: Any) -> None:
        now = sys.modules.get(self.__name__)
        if name.startswith("__") or now is None or isinstance(now, StandIn):
            super().__setattr__(name, value)
        else:  # a submodule of the real one, which was found by way of us
            setattr(now, name, value)


class Path(list[str]):
    """Where the submodules of a stand-in are: nowhere, until there is a real package."""

    def __init__(self, package: str) -> None:
        super().__init__()
        self._package = package

    def __iter__(self) -> Iterator[str]:
        real = real_module(self._package)
        yield from super().__iter__() if real is None else getattr(real, "__path__", ())


def real_module(name: str) -> ModuleType | None:
    """The real module of that name, if there is one by now; the stand-ins make way for it."""
    if real_spec(name) is None:
        return None
    step_aside(name)
    return importlib.import_module(name)


def real_spec(name: str) -> ModuleSpec | None:
    """Where everybody else finds a module of that name; nothing is imported for it."""
    parent = name.rpartition(".")[0]
    path = None
    if parent:
        above = real_spec(parent)
        path = above.submodule_search_locations if above is not None else None
        if path is None:
            return None
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        if find is None or getattr(finder, "offers_stand_ins", False):
            continue
        spec: ModuleSpec | None = find(name, path)
        if spec is not None:
            return spec
    return None


def step_aside(name: str) -> None:
    """Let go of all stand-ins of a top-level name: what is imported next is found anew."""
    top = name.partition(".")[0]
    for each, module in list(sys.modules.items()):
        if each.partition(".")[0] == top and isinstance(module, StandIn):
            del sys.modules[each]


def step_aside_everywhere() -> None:
    """Do so for every name that has become real."""
    for name, module in list(sys.modules.items()):
        if isinstance(module, StandIn) and real_spec(name) is not None:
            step_aside(name)
