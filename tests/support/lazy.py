"""Modules that import a framework: the test that first uses one pays, not every worker of xdist."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any


class Lazy:
    """A module, imported when a name of it is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        with warnings.catch_warnings():  # what a framework deprecates within itself is not ours
            warnings.simplefilter("ignore")
            return getattr(import_module(self._name), name)
