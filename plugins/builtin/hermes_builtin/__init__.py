"""The provider that is always on, and what hosts of the memory use of it beside the tools."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hermes_builtin.provider import BuiltinProvider

if TYPE_CHECKING:
    from hermes_builtin.items import Items, ItemWrite, StoredItem, text_parts
    from hermes_builtin.sessions.words import words

__all__ = ["BuiltinProvider", "ItemWrite", "Items", "StoredItem", "text_parts", "words"]

# Imported on first use: an agent without such a host does not need them.
_MODULES = {
    "ItemWrite": "items",
    "Items": "items",
    "StoredItem": "items",
    "text_parts": "items",
    "words": "sessions.words",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
