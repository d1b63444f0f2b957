"""The one way to a provider: every hook call goes through pluggy.

`HookCalls` has the providers and observers of one `MemoryManager`. `SingleProvider` calls a
provider that no manager runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import pluggy

from hermes_core.dispatch.adapter import ProviderAdapter
from hermes_core.dispatch.call import Deadlines, Outcome, overrides
from hermes_core.dispatch.health import HookHealth
from hermes_core.dispatch.observers import GuardedHooks, Observer, ObserverError
from hermes_core.errors import describe
from hermes_core.hookspecs import HOOKS, PROJECT, MemoryHooks
from hermes_core.provider import BUILTIN, BuiltinMethods, MemoryProvider


class _Plugins(pluggy.PluginManager):
    """Recognises hookimpls by the rule table: our adapters and guards carry no markers."""

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
        """Return the options of ``@hookimpl`` on a method of an observer's own object."""
        return super().parse_hookimpl_opts(plugin, name) if hasattr(plugin, name) else None


class HookCalls:
    """Calls hooks at all providers or at one. Observers see every call."""

    def __init__(self) -> None:
        self._plugins = _Plugins()
        self._adapters: list[ProviderAdapter] = []
        self._observers: list[Observer] = []
        self._callers: dict[tuple[str, int], Callable[..., Outcome]] = {}

    def add(self, adapter: ProviderAdapter) -> None:
        """Register a provider."""
        self._plugins.register(adapter, name=f"provider:{adapter.name}")
        self._adapters.append(adapter)
        self._callers = {}  # a new dict: another thread may be adding to the old one

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
        if self._observers:  # an observer's outcome may come first
            outcomes.sort(key=lambda each: each.provider != BUILTIN)
        return outcomes

    def first(self, hook: str, **arguments: Any) -> Outcome | None:
        """Call a ``firstresult`` hook."""
        outcome: Outcome | None = getattr(self._plugins.hook, hook)(**arguments)
        return outcome

    def only(self, adapter: ProviderAdapter, hook: str) -> Callable[..., Outcome]:
        """Return a function that calls ``hook`` at one provider; observers see the call."""
        callers = self._callers  # read once: an observer may be added at any time
        # By id: adapters live as long as this object, so no id is used again. Building a subset
        # caller costs far more than a call, so each is built once.
        key = (hook, id(adapter))
        if key not in callers:
            callers[key] = self._caller(adapter, hook)
        return callers[key]

    def _caller(self, adapter: ProviderAdapter, hook: str) -> Callable[..., Outcome]:
        others = [each for each in self._adapters if each is not adapter]
        # pluggy has no call to one plugin. A subset without the other providers is one provider
        # plus all observers.
        caller = self._plugins.subset_hook_caller(hook, others)

        def call(**arguments: Any) -> Outcome:
            found = caller(**arguments)
            for each in found if isinstance(found, list) else [found]:  # one: handle_tool_call
                if each is not None and each.provider == adapter.name:  # not an observer's
                    return each  # type: ignore[no-any-return]
            return Outcome(adapter.name, hook, HOOKS[hook].neutral)

        return call

    def health(self) -> Iterable[tuple[str, dict[str, HookHealth]]]:
        """Yield the health of each provider and observer, by name."""
        for adapter in self._adapters:
            yield adapter.name, adapter.health()
        for observer in self._observers:
            yield f"observer:{observer.name}", observer.health()

    def close(self) -> None:
        """End the observers' threads."""
        for observer in self._observers:
            observer.close()


class SingleProvider:
    """One provider, called as a manager would call it.

    Every call goes through pluggy, runs on the provider's threads under its deadline, and
    returns an `Outcome`; nothing is raised. Use it as a context manager::

        with SingleProvider(provider, "acme", deadlines=deadlines) as acme:
            if acme.overrides("probe"):
                outcome = acme.call("probe", write=False)

    Args:
        provider: A `MemoryProvider`, or anything that looks like one.
        name: Its name, for threads and messages.
        deadlines: How long its calls may take. You may replace them between two calls.
        config: Its settings, passed to ``initialize``.
        home: The home for which it is called; by default the one that it was loaded for.
    """

    def __init__(
        self,
        provider: MemoryProvider,
        name: str,
        *,
        deadlines: Deadlines | None = None,
        config: Mapping[str, Any] | None = None,
        home: Path | None = None,
    ) -> None:
        self._adapter = ProviderAdapter(
            provider, name, deadlines=deadlines, config=config, home=home
        )
        self._hooks = HookCalls()
        self._hooks.add(self._adapter)

    @property
    def deadlines(self) -> Deadlines:
        """How long its calls may take."""
        return self._adapter.deadlines

    @deadlines.setter
    def deadlines(self, deadlines: Deadlines) -> None:
        self._adapter.deadlines = deadlines

    @property
    def confirms_delivery(self) -> bool:
        """Whether the provider promises that a write which returned has reached its backend."""
        return self._adapter.confirms_delivery

    def overrides(self, hook: str) -> bool:
        """Whether the provider has its own method for a hook, capabilities included."""
        return overrides(self._adapter.provider, hook)

    def call(self, hook: str, **arguments: Any) -> Outcome:
        """Call a hook with the parameters of its hookspec, by name.

        Raises:
            TypeError: An argument is missing.
        """
        if hook == "handle_tool_call":  # a manager knows whose tool it is; here it is clear
            self._adapter.tools |= {arguments["tool_name"]}
        return self._hooks.only(self._adapter, hook)(**arguments)

    def close(self, timeout: float = 0.0) -> None:
        """End the threads. Does not call ``shutdown``."""
        self._adapter.close(timeout)
        self._hooks.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def as_builtin(provider: object) -> BuiltinMethods | None:
    """The provider, if it has what only our own built-in has."""
    return provider if isinstance(provider, BuiltinMethods) else None
