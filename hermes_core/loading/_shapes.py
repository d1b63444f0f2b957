"""All shapes in which a plugin may offer its provider.

An instance; a class; a factory without arguments; ``register(ctx)``; a module with
``register`` or with a subclass of `MemoryProvider`. A step that raises is an error, never
a reason to try the next shape: that would turn a plugin's bug into "not found".
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final, cast

from hermes_core.compat import base_classes
from hermes_core.loading._context import PluginContext, counted
from hermes_core.names import normalise
from hermes_core.provider import MemoryProvider

_MEMBERS: Final = ("name", "is_available", "initialize", "get_tool_schemas")


class Progress:
    """How far loading came: the step that a failure is told with, and what else is known."""

    def __init__(self) -> None:
        self.step = "find"
        self.name = ""  # what the provider calls itself, read once: a property may do anything
        self.registered: dict[str, int] = {}


def provider_from(value: Any, name: str, progress: Progress, attribute: str = "") -> MemoryProvider:
    """The provider that an entry point's value stands for.

    Args:
        value: What it names.
        name: The provider's name, for choosing among several.
        progress: Told how far it came.
        attribute: How the value is called where it was found.
    """
    if isinstance(value, ModuleType):
        return _from_module(value, name, progress)
    if inspect.isclass(value):
        return _constructed(value, progress)
    if looks_like_provider(value):
        return cast("MemoryProvider", value)
    if callable(value):
        return _from_callable(value, name, progress, attribute)
    raise TypeError(f"{type(value).__name__} is neither a provider nor a way to get one")


def looks_like_provider(value: Any) -> bool:
    """Whether an object has what every provider has; duck types are welcome."""
    return not missing_members(value)


def missing_members(value: Any) -> list[str]:
    """What an object lacks to be a provider.

    Looks at the class first, so that a ``name`` property which raises is not run yet.
    """
    return [
        member
        for member in _MEMBERS
        if not hasattr(type(value), member) and not hasattr(value, member)
    ]


def _from_module(module: ModuleType, name: str, progress: Progress) -> MemoryProvider:
    register = getattr(module, "register", None)
    if callable(register):
        return _registered(register, name, progress)
    classes = _provider_classes(module)
    # A class that misses a method is built all the same: Python says which one.
    candidates = [each for each in classes if not inspect.isabstract(each)] or classes
    candidates = [each for each in candidates if _is_within(each, module)] or candidates
    if len(candidates) == 1:
        return _constructed(candidates[0], progress)
    if candidates:
        names = ", ".join(each.__name__ for each in candidates)
        raise TypeError(f"module {module.__name__} has several providers: {names}")
    raise TypeError(f"module {module.__name__} has neither register(ctx) nor a MemoryProvider")


def offers_provider(module: ModuleType) -> bool:
    """Whether a module has a way to a provider."""
    return callable(getattr(module, "register", None)) or bool(_provider_classes(module))


def _provider_classes(module: ModuleType) -> list[type]:
    bases = base_classes()
    named = dict.fromkeys(each for each in vars(module).values() if inspect.isclass(each))
    return [each for each in named if issubclass(each, bases) and each not in bases]


def _is_within(kind: type, module: ModuleType) -> bool:
    return f"{kind.__module__}.".startswith(f"{module.__name__}.")


def _from_callable(
    value: Callable[..., Any], name: str, progress: Progress, attribute: str
) -> MemoryProvider:
    if attribute == "register" or _wants_context(value):
        return _registered(value, name, progress)
    progress.step = "construct"
    return _instance(value(), progress)


def _wants_context(value: Callable[..., Any]) -> bool:
    try:
        parameters = list(inspect.signature(value).parameters.values())
    except (TypeError, ValueError):
        return False
    first = parameters[0] if parameters else None
    if first is None or first.kind not in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD):
        return False
    return first.default is first.empty or first.name in ("ctx", "context")


def _takes_one(register: Callable[..., Any]) -> bool:
    """Whether a ``register`` can be given the context."""
    try:
        inspect.signature(register).bind(None)
    except TypeError:
        return False
    except ValueError:  # written in C: the contract says that it takes one
        return True
    return True


def _registered(register: Callable[..., Any], name: str, progress: Progress) -> MemoryProvider:
    progress.step = "register"
    context = PluginContext()
    progress.registered = context.registered
    returned = register(context) if _takes_one(register) else register()
    offered = list(context.providers)
    if not offered and (inspect.isclass(returned) or looks_like_provider(returned)):
        offered = [returned]
    if not offered:
        others = counted(context.registered)
        raise LookupError(f"it registered no memory provider{others and f', only {others}'}")
    providers = [_instance(each, progress) for each in offered]
    if len(providers) == 1:
        return providers[0]
    named = [each for each in providers if normalise(str(each.name)) == normalise(name)]
    if len(named) == 1:
        return named[0]
    raise LookupError(f"it registered {len(providers)} providers, not one called {name}")


def _instance(value: Any, progress: Progress) -> MemoryProvider:
    if inspect.isclass(value):
        return _constructed(value, progress)
    if looks_like_provider(value):
        return cast("MemoryProvider", value)
    raise TypeError(_no_provider(value))


def _no_provider(value: Any) -> str:
    missing = ", ".join(missing_members(value))
    return f"{type(value).__name__} is no memory provider: it has no {missing}"


def _constructed(kind: type[Any], progress: Progress) -> MemoryProvider:
    progress.step = "construct"
    value = kind()
    if looks_like_provider(value):
        return cast("MemoryProvider", value)
    raise TypeError(_no_provider(value))
