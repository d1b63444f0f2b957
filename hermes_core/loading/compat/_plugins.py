"""Plugins as hermes-agent has them: hermes_cli.plugins and plugins.plugin_utils.

Here only memory providers run.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from hermes_core.loading.compat._files import env_var_enabled
from hermes_core.loading.context import PluginContext, PluginManifest  # noqa: F401 - offered

#: By hermes-agent's module: the names that can be imported from it.
OFFERS: Final[dict[str, tuple[str, ...]]] = {
    "hermes_cli.plugins": (
        "ENTRY_POINTS_GROUP",
        "PluginContext",
        "PluginManager",
        "PluginManifest",
        "_env_enabled",
        "discover_plugins",
        "get_plugin_manager",
        "has_hook",
        "invoke_hook",
        "resolve_module_origin",
    ),
    "plugins.plugin_utils": ("SingletonSlot", "lazy_singleton"),
}


# -- hermes_cli.plugins: plugins as hermes-agent has them. Here only memory providers run

ENTRY_POINTS_GROUP: Final = "hermes_agent.plugins"


class PluginManager:
    """Has no plugins: what they register beside a memory provider is counted and never run."""

    def discover_and_load(self, force: bool = False) -> None:
        """Nothing to be found."""

    def list_plugins(self) -> list[dict[str, Any]]:
        """No plugins."""
        return []

    def has_hook(self, hook_name: str) -> bool:  # noqa: ARG002 - the same for all
        """Return whether somebody listens: nobody."""
        return False

    def invoke_hook(self, hook_name: str, **kwargs: Any) -> list[Any]:  # noqa: ARG002
        """Return what the listeners say: there are none."""
        return []

    def find_plugin_skill(self, qualified_name: str) -> Path | None:  # noqa: ARG002
        """Return where a plugin's skill is: there are none."""
        return None

    def list_plugin_skills(self, plugin_name: str) -> list[str]:  # noqa: ARG002
        """Return the skills of a plugin: none."""
        return []

    def remove_plugin_skill(self, qualified_name: str) -> None:
        """Nothing to remove."""


_MANAGER: Final = PluginManager()


def get_plugin_manager() -> PluginManager:
    """Return the manager of the process."""
    return _MANAGER


def discover_plugins(force: bool = False) -> None:
    """Look for plugins: memory providers are found by `plugins.memory`."""
    get_plugin_manager().discover_and_load(force)


def has_hook(hook_name: str) -> bool:
    """Return whether somebody listens to a hook."""
    return get_plugin_manager().has_hook(hook_name)


def invoke_hook(hook_name: str, **kwargs: Any) -> list[Any]:
    """Return what the listeners of a hook say."""
    return get_plugin_manager().invoke_hook(hook_name, **kwargs)


def _env_enabled(name: str) -> bool:
    """Return whether a variable means yes."""
    return env_var_enabled(name)


def resolve_module_origin(module_name: str) -> str | None:
    """Return the file of a module, which is not imported for it; None if it has none."""
    # find_spec of a dotted name imports the parents, which a lookup must not do.
    top, *below = module_name.split(".")
    try:
        spec = importlib.util.find_spec(top) if top else None
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    origin, places = spec.origin, spec.submodule_search_locations
    for name in below:
        origin = _file_in(places or (), name)
        if origin is None:
            return None
        file = Path(origin)
        places = [str(file.parent)] if file.name == "__init__.py" else None
    return origin


def _file_in(places: Sequence[str], name: str) -> str | None:
    for place in map(Path, places):
        for file in (place / name / "__init__.py", place / f"{name}.py"):
            if file.is_file():
                return str(file)
    return None


# -- plugins.plugin_utils: things of which there is one, made by whoever asks first

T = TypeVar("T")


class SingletonSlot(Generic[T]):
    """A place for one object. A factory that raises leaves it empty."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # A tuple, since None is a valid object: () means that none was made.
        self._made: tuple[T, ...] = ()

    def get(self, factory: Callable[[], T]) -> T:
        """Return the object; ``factory`` makes it if there is none yet."""
        made = self._made
        if not made:
            # Checked again under the lock by `or`: another thread may have been first. The read
            # above needs no lock, since assigning a tuple is atomic.
            with self._lock:
                made = self._made = self._made or (factory(),)
        return made[0]

    def peek(self) -> T | None:
        """Return the object, if there is one."""
        made = self._made
        return made[0] if made else None

    def reset(self) -> None:
        """Forget the object: the next `get` makes another."""
        with self._lock:
            self._made = ()


def lazy_singleton(factory: Callable[[], T]) -> Callable[[], T]:
    """Return a function that calls ``factory`` once; its ``reset()`` forgets what was made."""
    slot: SingletonSlot[T] = SingletonSlot()

    @wraps(factory)
    def accessor() -> T:
        return slot.get(factory)

    made: Any = accessor
    made.reset = slot.reset
    return accessor
