"""What a provider returned, as plain values: nothing of the provider's reaches the caller's thread.

A value of a plugin's own class runs the plugin's code whenever it is compared, printed or walked,
and may hang or raise there. So its worker copies it to strings, numbers, lists and dictionaries,
within the deadline of the call, and no more of it than anybody can use.
"""

from __future__ import annotations

from collections.abc import Mapping
from json import dumps, loads
from math import isfinite
from os import PathLike, fspath
from typing import Any, Final

from hermes_core.errors import WrongReturnType
from hermes_core.hookspecs import HOOKS
from hermes_core.provider import (
    INDICATOR_GLYPH,
    LONGEST_TEXT,
    ForgetItem,
    ForgetReport,
    MemoryItem,
    MemoryPage,
    ProbeResult,
    RecallStatus,
)

#: A whole answer, in characters, in values and in levels.
_MOST_TEXT: Final = 10_000_000
_MOST_VALUES: Final = 200_000
_DEEPEST: Final = 200
_LONGEST_LABEL: Final = 1_000
_MOST_ITEMS: Final = 1_000


def plain_value(hook: str, value: Any) -> Any:
    """Return a copy of what a provider returned, if the contract allows it.

    Call it on the provider's worker. Text is cut after 1,000,000 characters.

    Raises:
        WrongReturnType: The contract does not allow it, or it is too large.
    """
    rule = HOOKS[hook]
    if value is None or (not rule.returns and hook not in _SHAPED):
        return rule.neutral
    if hook in _SHAPED:
        return _SHAPED[hook](value)
    kind = type(value)  # not `isinstance`: that believes what `__class__` says
    if not issubclass(kind, rule.returns):
        raise WrongReturnType(f"returned {_name(kind)}, expected {rule.returns[0].__name__}")
    if issubclass(kind, str) and hook != "handle_tool_call":
        return text_of(value)
    copy = _Copy().of(value)
    return [*copy] if rule.returns[0] is list else copy


def text_of(value: str, longest: int = LONGEST_TEXT) -> str:
    """Return a string, or an instance of a subclass, as a string of at most so many characters."""
    return str.__getitem__(value, slice(0, longest))


def _recall_status(value: Any) -> RecallStatus:
    if not hasattr(value, "provider_label"):
        raise WrongReturnType(f"returned {_name(type(value))}, expected RecallStatus")
    count = getattr(value, "count", 0)
    return RecallStatus(
        text_of(str(value.provider_label), _LONGEST_LABEL),
        int.__index__(count) if isinstance(count, int) else 0,
        text_of(str(getattr(value, "glyph", INDICATOR_GLYPH)), _LONGEST_LABEL),
    )


def _probe_result(value: Any) -> ProbeResult:
    if not hasattr(value, "ok") or not hasattr(value, "detail"):
        raise WrongReturnType(f"returned {_name(type(value))}, expected ProbeResult")
    return ProbeResult(bool(value.ok), text_of(str(value.detail)))


def _forget_report(value: Any) -> ForgetReport:
    if not hasattr(value, "items") or not hasattr(value, "unreachable"):
        raise WrongReturnType(f"returned {_name(type(value))}, expected ForgetReport")
    # An attribute, and not the method of a dictionary, which has one of this name.
    given = () if callable(value.items) else value.items
    items = [ForgetItem(*_Copy().of(tuple(each))) for each in list(given)[:_MOST_ITEMS]]
    reasons = list(value.unreachable)[:_MOST_ITEMS]
    return ForgetReport(tuple(items), tuple(text_of(str(each), _LONGEST_LABEL) for each in reasons))


def _memory_page(value: Any) -> MemoryPage:
    given = getattr(value, "items", None)
    if given is None or callable(given) or not hasattr(value, "cursor"):
        raise WrongReturnType(f"returned {_name(type(value))}, expected MemoryPage")
    items = list(given)
    if len(items) > _MOST_ITEMS:  # not cut off: an export would be incomplete without a word
        raise WrongReturnType(f"returned more than {_MOST_ITEMS:,} memories in a page")
    missing = text_of(str(getattr(value, "missing", "")), _LONGEST_LABEL)
    return MemoryPage(tuple(map(_memory_item, items)), text_of(str(value.cursor)), missing)


def _memory_item(value: Any) -> MemoryItem:
    name, text, created, metadata = MemoryItem(*value)
    # As JSON, which has no name for some numbers and for the types of a backend.
    known = loads(dumps(dict(metadata or {}), default=str, skipkeys=True), parse_constant=str)
    at = float(created or 0.0)
    return MemoryItem(
        text_of(str(name)), text_of(str(text)), at if isfinite(at) else 0.0, _Copy().of(known)
    )


#: Hooks whose values are known by their attributes, not by their type: a plugin written for
#: hermes-agent returns that project's class.
_SHAPED: Final = {
    "recall_status": _recall_status,
    "probe": _probe_result,
    "forget": _forget_report,
    "list_memories": _memory_page,
}


class OpaqueValue:
    """Stands for a value that is not plain. Its class has the name of the value's."""


class DeepValue(OpaqueValue):
    """Stands for what is nested more than 200 levels deep."""


class _Copy:
    """Copies one value. What is not plain becomes an `OpaqueValue`, for messages that name it."""

    def __init__(self) -> None:
        self._text = _MOST_TEXT
        self._values = _MOST_VALUES

    def of(self, value: Any, level: int = 0) -> Any:
        """Return the copy.

        Raises:
            WrongReturnType: It is too large.
        """
        self._count()
        if level > _DEEPEST:  # or it contains itself
            return DeepValue()
        kind = type(value)
        if issubclass(kind, Mapping):
            return {self._key(key): self.of(each, level + 1) for key, each in value.items()}
        if issubclass(kind, set | frozenset):
            return {*map(self._key, value)}
        if issubclass(kind, list | tuple):
            parts = [self.of(each, level + 1) for each in value]
            return tuple(parts) if issubclass(kind, tuple) else parts
        return self._leaf(value, kind)

    def _count(self) -> None:
        self._values -= 1
        if self._values < 0:
            raise WrongReturnType(f"returned too much: more than {_MOST_VALUES:,} values")

    def _key(self, key: Any) -> Any:
        self._count()
        kind = type(key)
        return tuple(map(self._key, key)) if issubclass(kind, tuple) else self._leaf(key, kind)

    def _leaf(self, value: Any, kind: type) -> Any:
        if issubclass(kind, PathLike):
            value = fspath(value)
            kind = type(value)
        if issubclass(kind, str):
            self._text -= str.__len__(value)
            if self._text < 0:
                raise WrongReturnType(f"returned too much: more than {_MOST_TEXT:,} characters")
            return text_of(value, _MOST_TEXT)
        if value is None or kind in (bool, int, float):
            return value
        if issubclass(kind, int):
            return int.__index__(value)
        return float.__float__(value) if issubclass(kind, float) else _opaque(kind)


def _opaque(kind: type) -> OpaqueValue:
    return opaque(_name(kind))


def opaque(name: str) -> OpaqueValue:
    """What stands for a value of a class of this name."""
    return type(text_of(name, 100) or "object", (OpaqueValue,), {})()  # type: ignore[no-any-return]


def _name(kind: type) -> str:
    name = type.__dict__["__name__"].__get__(kind)
    return text_of(name, 100) if name.isidentifier() else "object"
