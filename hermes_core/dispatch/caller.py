"""Which provider, and which home, the running code is called for.

Every call of a provider has its `ProviderInstance` in a context variable. Threads that we start
copy the context. A thread that a plugin starts itself has no context variables: it gets the home
that is in use, and an error if several are.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Protocol

from hermes_core.errors import HomeError
from hermes_core.storage.home import resolve_home


class Unload(Protocol):
    """Something to call once when a plugin is no longer used."""

    def dispose(self) -> None:
        """Call it."""


@dataclass(eq=False)
class ProviderInstance:
    """One provider object that works for one home.

    ``unload`` is what its plugin registered with ``ctx.on_unload``. ``around`` is entered around
    each of its calls, and sets its variables; ``may_read`` says which of them it may have.
    ``of_host`` says that the host made the object itself: no plugin was loaded for it.
    """

    name: str
    home: Path | None = None
    unload: list[Unload] = field(default_factory=list)
    around: Callable[[], AbstractContextManager[None]] = nullcontext
    may_read: Callable[[str], bool] = lambda _: True
    of_host: bool = False


#: Set for each call of a provider, in the context of that call alone.
CALLER: Final[ContextVar[ProviderInstance]] = ContextVar("hermes_caller")


def set_caller(instance: ProviderInstance) -> None:
    """Mark the current context as a call of this provider.

    Every call has its own context, so nothing has to be reset.
    """
    CALLER.set(instance)
    # Where hermes-agent is installed, plugins use its own module, which has its own variable.
    theirs = sys.modules.get("hermes_constants")
    if type(theirs) is ModuleType and instance.home is not None:
        override = getattr(theirs, "set_hermes_home_override", None)
        if override is not None:
            override(str(instance.home))


def current_home() -> Path:
    """Return the home that the calling code runs for.

    Raises:
        HomeError: Several homes are in use, and this thread belongs to none of them.
    """
    instance = CALLER.get(None)
    if instance is not None and instance.home is not None:
        return instance.home
    homes = _HOMES.in_use()
    if len(homes) > 1:
        known = ", ".join(sorted(map(str, homes)))
        raise HomeError(
            f"several homes are in use ({known}), and this thread belongs to none of them",
            where=f"thread {threading.current_thread().name}",
            hint="start the thread with contextvars.copy_context().run, or pass it the home",
        )
    return next(iter(homes), None) or resolve_home()


def instance_of(provider: object, name: str, home: Path | None = None) -> ProviderInstance:
    """Return the instance of a provider object; the same one for every caller."""
    # The weak reference is compared, too: an id is used again after its object is gone, and the
    # callback that removes the entry may not have run yet.
    known = _INSTANCES.get(id(provider))
    if known is not None and known[0]() is provider:
        instance = known[1]
        instance.home = home or instance.home
        return instance
    instance = ProviderInstance(name, home, of_host=True)
    register_instance(provider, instance)
    return instance


def register_instance(provider: object, instance: ProviderInstance) -> None:
    """Let `instance_of` find this instance for a provider object."""
    key = id(provider)
    try:
        reference = weakref.ref(provider, lambda _: _INSTANCES.pop(key, None))
    except TypeError:  # its class allows no weak references
        return
    _INSTANCES[key] = (reference, instance)


def use_home(home: Path, manager: object) -> Callable[[], None]:
    """Record that a manager uses a home, until the returned function is called.

    A manager that is garbage collected without having been shut down no longer uses it, either.
    """
    homes = _HOMES
    homes.add(manager, home)
    return lambda: homes.remove(manager)


class _Homes:
    """The homes of the managers in this process that have an external provider."""

    def __init__(self) -> None:
        # The collector removes entries at any moment, also while this lock is held: it takes none.
        self._lock = threading.Lock()
        self._homes: weakref.WeakKeyDictionary[object, Path] = weakref.WeakKeyDictionary()

    def in_use(self) -> frozenset[Path]:
        with self._lock:
            return frozenset(self._homes.values())

    def add(self, manager: object, home: Path) -> None:
        with self._lock:
            self._homes[manager] = home

    def remove(self, manager: object) -> None:
        with self._lock:
            self._homes.pop(manager, None)


# By identity: a provider may be unhashable, or equal to another. `load_provider` hands out plain
# provider objects, and a manager that gets one has to find out what it was loaded for.
_INSTANCES: Final[dict[int, tuple[weakref.ref[Any], ProviderInstance]]] = {}
# All managers of the process share its threads.
_HOMES: Final = _Homes()
