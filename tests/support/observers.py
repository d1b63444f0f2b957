"""Marks and parts for tests of observers."""

from __future__ import annotations

from typing import Any

from hermes_core import hookimpl
from hermes_core.hookspecs import HOOKS


def _nothing(self: Any) -> None:
    return None


#: An implementation of each hook, for an observer that lacks none.
FULL = {hook: hookimpl(_nothing) for hook in HOOKS}
