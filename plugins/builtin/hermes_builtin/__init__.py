"""The provider that is always on."""

from __future__ import annotations

from hermes_builtin.provider import BuiltinProvider

__all__ = ["BuiltinProvider"]
