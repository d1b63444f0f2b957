"""All checks, one module per family. Ids never change: plugin authors refer to them."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from hermes_core.conformance.model import Check

#: Ordered by id.
FAMILIES: Final = (
    "identity",
    "availability",
    "lifecycle",
    "config",
    "tools",
    "turns",
    "isolation",
    "mirror",
    "storage",
    "concurrency",
    "prompt",
)


def all_checks() -> list[Check]:
    """Return every check, ordered by id."""
    modules = [import_module(f"{__name__}.{family}") for family in FAMILIES]
    # By id: a check that is imported by another family's module is counted once.
    found = {
        each.id: each
        for module in modules
        for each in vars(module).values()
        if isinstance(each, Check)
    }
    return [found[number] for number in sorted(found)]
