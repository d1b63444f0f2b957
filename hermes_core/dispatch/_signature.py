"""Calls a method with those of the contract's arguments that its signature accepts.

Plugins in the wild were written against older contracts: ``sync_turn`` without
``messages``, ``on_memory_write`` without ``metadata`` or with it under another name,
``handle_tool_call`` without ``**kwargs``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter, signature
from typing import Any, Final

_IDENTITY: Final = frozenset({"turn_id", "event_id", "attempt"})
_POSITIONAL: Final = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


class Invocation:
    """How to call one method: worked out once, used for every call.

    ``instant`` says that the method can neither block nor fail.
    """

    __slots__ = (
        "_keywords",
        "_method",
        "_required",
        "_slots",
        "_takes_any_keyword",
        "_takes_any_position",
        "instant",
    )

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method
        self.instant = returns_constant(method)
        self._slots: list[Parameter] = []
        self._keywords: set[str] = set()
        self._required: set[str] = set()
        self._takes_any_keyword = self._takes_any_position = False
        try:
            parameters = signature(method).parameters.values()
        except (TypeError, ValueError):  # written in C: nothing to adapt to
            self._takes_any_keyword = self._takes_any_position = True
            return
        for parameter in parameters:
            if parameter.kind in _POSITIONAL:
                self._slots.append(parameter)
            if parameter.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY):
                self._keywords.add(parameter.name)
                if parameter.default is Parameter.empty:
                    self._required.add(parameter.name)
            self._takes_any_keyword |= parameter.kind is Parameter.VAR_KEYWORD
            self._takes_any_position |= parameter.kind is Parameter.VAR_POSITIONAL

    def __call__(
        self,
        *args: Any,
        optional: Mapping[str, Any] | None = None,
        by_position: Mapping[str, Any] | None = None,
        by_name: Callable[[], Mapping[str, Any]] | None = None,
    ) -> Any:
        """Call the method.

        Args:
            *args: What every version of the contract passes by position.
            optional: Keywords, passed to whom names them or takes any.
            by_position: Like ``optional``, but also passed to whom has a further positional
                parameter, whatever its name is.
            by_name: Gives keywords that are passed only to whom names them; asked only then.
        """
        if not self._takes_any_position:
            args = args[: len(self._slots)]
        taken = {slot.name for slot in self._slots[: len(args)]}
        keywords = {
            key: value
            for key, value in (optional or {}).items()
            if self.accepts(key) and key not in taken
        }
        if by_name is not None and self._keywords & _IDENTITY:
            keywords |= {k: v for k, v in by_name().items() if k in self._keywords}
        for key, value in (by_position or {}).items():
            if self.accepts(key):
                keywords[key] = value
            elif len(args) < len(self._slots):
                args = (*args, value)
        return self._method(*args, **keywords)

    def demanded(self, keywords: Iterable[str]) -> list[str]:
        """Those of the keywords that the method can't be called without."""
        return [name for name in keywords if name in self._required]

    def accepts(self, keyword: str) -> bool:
        """Whether the method can be given this keyword."""
        return self._takes_any_keyword or keyword in self._keywords


def _constant() -> None:
    """What a method that does nothing looks like to the interpreter."""


def returns_constant(method: Callable[..., Any]) -> bool:
    """Whether all that a method does is to give back a constant, as stubs do.

    Compares operations without their arguments. The code of anything that does more (calls,
    reads an attribute, is a generator or a coroutine) has more of them.
    """
    code = getattr(getattr(method, "__func__", method), "__code__", None)
    return code is not None and code.co_code[::2] == _constant.__code__.co_code[::2]
