"""Hands over the memory provider that an installed package offers, whatever its shape.

Made by `hermes-plugins bridge`, which puts a copy of this file beside the plugin that it
writes. It runs in hermes-agent, where hermes-plugins itself need not be installed.
"""

from __future__ import annotations

import importlib
import inspect
import logging
from functools import reduce
from types import ModuleType
from typing import Any

#: What every provider has. `hermes-plugins bridge` fills it in when it copies this file.
_MEMBERS: tuple[str, ...] = ()


class _Context:
    """What ``register`` gets: the host's context; a missing ``register_*`` does nothing."""

    def __init__(self, host: Any) -> None:
        self._host = host
        self.providers: list[Any] = []

    def register_memory_provider(self, provider: Any) -> None:
        self.providers.append(provider)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("register_"):
            return getattr(self._host, name)
        # Older releases of hermes-agent lack some of these; that must not cost the provider.
        return getattr(self._host, name, lambda *_, **__: None)


def hand_over(entry_point: str, name: str, package: str, host: Any) -> None:
    """Register the provider that ``module:object`` stands for with the host."""
    try:
        host.register_memory_provider(_provider(_value(entry_point), name, host))
    except Exception as error:
        # hermes-agent logs nothing about a plugin that can't be loaded.
        logging.getLogger(__name__).warning(
            "memory provider %s of the package %s can't be loaded: %s: %s",
            name, package, type(error).__name__, error,
        )  # fmt: skip
        raise


def _value(entry_point: str) -> Any:
    module, _, attributes = entry_point.partition(":")
    value: Any = importlib.import_module(module)
    return reduce(getattr, attributes.split("."), value) if attributes else value


def _provider(value: Any, name: str, host: Any) -> Any:
    if isinstance(value, ModuleType):
        # The same order as in our own loader, so that both hosts load the same provider.
        value = getattr(value, "register", None) or _subclass(value)
    if inspect.isclass(value):
        return value()
    if _is_provider(value):
        return value
    if getattr(value, "__name__", "") == "register" or _required(value):
        return _registered(value, name, host)
    made = value()
    return made() if inspect.isclass(made) else made


def _registered(register: Any, name: str, host: Any) -> Any:
    context = _Context(host)
    returned = register(context) if _parameters(register) else register()
    offered = context.providers or [returned]
    made: list[Any] = [each() if inspect.isclass(each) else each for each in offered]
    found = [each for each in made if _is_provider(each)]
    if not found:
        raise LookupError("it registered no memory provider")
    # Several: the one with the bridged name, else the first.
    return next((each for each in found if str(each.name) == name), found[0])


def _subclass(module: ModuleType) -> Any:
    # By the name of its base, which may be hermes-agent's or another host's.
    classes = [
        each
        for each in vars(module).values()
        if inspect.isclass(each)
        and not inspect.isabstract(each)
        and "MemoryProvider" in {base.__name__ for base in each.__mro__[1:]}
    ]
    own = [each for each in classes if each.__module__.startswith(module.__name__)]
    if own or classes:
        return (own or classes)[0]
    raise LookupError(f"module {module.__name__} has neither register(ctx) nor a provider")


def _is_provider(value: Any) -> bool:
    return all(hasattr(type(value), each) or hasattr(value, each) for each in _MEMBERS)


def _parameters(function: Any) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []


def _required(function: Any) -> bool:
    return any(each.default is each.empty for each in _parameters(function)[:1])
