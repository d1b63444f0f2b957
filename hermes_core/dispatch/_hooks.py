"""The pluggy side: one plugin manager per `MemoryManager`, and calls to chosen providers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pluggy

from hermes_core.dispatch._adapter import ProviderAdapter
from hermes_core.dispatch._health import HookHealth
from hermes_core.dispatch._observers import GuardedHooks, Observer, ObserverError
from hermes_core.dispatch._outcome import Outcome
from hermes_core.errors import describe
from hermes_core.hookspecs import HOOKS, PROJECT, MemoryHooks
from hermes_core.names import BUILTIN


class _Plugins(pluggy.PluginManager):
    """Knows hookimpls by the table of hooks, for the plugins that are our own guards."""

    def __init__(self) -> None:
        super().__init__(PROJECT)
        self.add_hookspecs(MemoryHooks)

    def parse_hookimpl_opts(self, plugin: Any, name: str) -> Any:
        if isinstance(plugin, ProviderAdapter):
            # pluggy calls the last registered first; the built-in is always first.
            return {"tryfirst": plugin.inline} if name in HOOKS else None
        if isinstance(plugin, GuardedHooks):
            return plugin.observer.options.get(name)
        return None

    def marked(self, plugin: Any, name: str) -> Any:
        """What an author wrote at ``@hookimpl``, for an observer's own object."""
        return super().parse_hookimpl_opts(plugin, name) if hasattr(plugin, name) else None


class HookCalls:
    """Calls hooks at all providers or at some; observers see every call."""

    def __init__(self) -> None:
        self._plugins = _Plugins()
        self._adapters: list[ProviderAdapter] = []
        self._observers: list[Observer] = []
        self._callers: dict[tuple[str, int], Callable[..., Outcome]] = {}

    def add(self, adapter: ProviderAdapter) -> None:
        """Register a provider."""
        self._plugins.register(adapter, name=f"provider:{adapter.name}")
        self._adapters.append(adapter)
        self._callers = {}  # a new one: another thread may be putting something into the old

    def observe(self, name: str, observer: Any) -> None:
        """Register an observer: a module, an instance or a class with hookimpls."""
        guard = Observer(name, observer, self._plugins.marked)
        try:
            self._plugins.register(guard.plugin, name=f"observer:{name}")
        except (ValueError, pluggy.PluginValidationError) as error:
            guard.close()
            raise ObserverError(describe(error), where=f"observer {name}") from error
        self._observers.append(guard)
        self._callers = {}  # as above

    def call(self, hook: str, **arguments: Any) -> list[Outcome]:
        """Call a hook at every provider, the built-in first."""
        outcomes: list[Outcome] = getattr(self._plugins.hook, hook)(**arguments)
        if self._observers:  # one may have put itself in front
            outcomes.sort(key=lambda each: each.provider != BUILTIN)
        return outcomes

    def first(self, hook: str, **arguments: Any) -> Outcome | None:
        """Call a ``firstresult`` hook."""
        outcome: Outcome | None = getattr(self._plugins.hook, hook)(**arguments)
        return outcome

    def only(self, adapter: ProviderAdapter, hook: str) -> Callable[..., Outcome]:
        """A caller of ``hook`` that reaches one provider, and the observers."""
        callers = self._callers  # before a look at the observers, who may come at any time
        key = (hook, id(adapter))
        if key not in callers:
            callers[key] = self._caller(adapter, hook)
        return callers[key]

    def _caller(self, adapter: ProviderAdapter, hook: str) -> Callable[..., Outcome]:
        if not self._observers:  # nobody else hears it, and half of a call would be pluggy's
            method: Callable[..., Outcome] = getattr(adapter, hook)
            return method
        others = [each for each in self._adapters if each is not adapter]
        caller = self._plugins.subset_hook_caller(hook, others)

        def call(**arguments: Any) -> Outcome:
            own = (each for each in caller(**arguments) if each.provider == adapter.name)
            return next(own, None) or Outcome(adapter.name, hook, HOOKS[hook].neutral)

        return call

    def health(self) -> Iterable[tuple[str, dict[str, HookHealth]]]:
        """Providers and observers by name, with how their hooks have fared."""
        for adapter in self._adapters:
            yield adapter.name, adapter.health()
        for observer in self._observers:
            yield f"observer:{observer.name}", observer.health()

    def close(self) -> None:
        """Let go of the observers' threads."""
        for observer in self._observers:
            observer.close()
