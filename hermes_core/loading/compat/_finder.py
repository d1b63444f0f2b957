"""The import finder that offers hermes-agent's modules, and the modules that it makes.

A name like ``utils`` may become importable at any time: somebody installs a package, or puts
a folder on the import path. Python asks no finder about a module that it already has. So an
offered module looks for the real one whenever it is used. As soon as there is one, it passes
everything on to it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from hermes_core.dispatch.caller import current_home
from hermes_core.errors import HomeError

#: By hermes-agent's name: the module of ours that has its names in ``OFFERS``, or None for a
#: package that only has submodules. What is not here is not importable: plugins handle a
#: missing module, but not one that is half right.
OFFERED: Final = {
    "agent": None,
    "agent.async_utils": "_agent",
    "agent.context_compressor": "_messages",
    "agent.file_safety": "_safety",
    "agent.memory_manager": "_agent",
    "agent.memory_provider": "_agent",
    "agent.message_content": "_messages",
    "agent.redact": "_messages",
    "agent.secret_scope": "_config",
    "agent.skill_commands": "_agent",
    "agent.turn_author": "_messages",
    "hermes_cli": None,
    "hermes_cli.config": "_config",
    "hermes_cli.curses_ui": "_setup",
    "hermes_cli.memory_setup": "_setup",
    "hermes_cli.plugins": "_plugins",
    "hermes_cli.profiles": "home",
    "hermes_cli.secret_prompt": "_setup",
    "hermes_cli.tools_config": "_setup",
    "hermes_cli.urllib_security": "_safety",
    "hermes_constants": "home",
    "hermes_state": "home",
    "plugins": None,
    "plugins.memory": "_memory_plugins",
    "plugins.memory.config_schema": "_memory_plugins",
    "plugins.memory.query_rewrite": "_memory_plugins",
    "plugins.plugin_utils": "_plugins",
    "tools": None,
    "tools.lazy_deps": "_setup",
    "tools.registry": "_agent",
    "tools.url_safety": "_safety",
    "utils": "_files",
}
_PACKAGES: Final = frozenset(name.rpartition(".")[0] for name in OFFERED)

#: What the import system asks every module for, even before there is anything in it.
_IMPORTING: Final = frozenset({"__path__", "__spec__", "_initializing"})

_PLUGIN_PREFIX: Final = "plugins.memory."


# -- modules --------------------------------------------------------------------------------


class OfferedModule(ModuleType):
    """A module of ours under hermes-agent's name, until the real one can be imported."""

    def __getattr__(self, name: str) -> Any:
        real = _real_module(self.__name__)
        if real is not None:
            return getattr(real, name)
        if name not in _IMPORTING:
            return self._offered(name)
        raise self._missing(name)

    def _offered(self, name: str) -> Any:
        """Return one of the names that `OFFERED` lists for this module."""
        # Before exec_module the import system asks for attributes that must not exist yet.
        ours = OFFERED[self.__name__] if self.__dict__.get("_executed") else None
        if ours is None:
            raise self._missing(name)
        # Imported on first use: a plugin that needs `agent.memory_provider` does not pay for all.
        module = importlib.import_module(f"{__package__}.{ours}")
        names: tuple[str, ...] = module.OFFERS[self.__name__]
        if name == "__all__":
            return list(names)
        if name not in names:
            raise self._missing(name)
        return getattr(module, name)

    def _missing(self, name: str) -> AttributeError:
        return AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        """List what can be imported from it."""
        return sorted({*super().__dir__(), *getattr(self, "__all__", ())})

    def __setattr__(self, name: str, value: Any) -> None:
        # After `_drop_modules` another object may be under this name, which a plugin that imported
        # us earlier should still change.
        now = sys.modules.get(self.__name__)
        if name.startswith("__") or now is None or isinstance(now, OfferedModule):
            super().__setattr__(name, value)
        else:  # a submodule of the real module, which was found by way of us
            setattr(now, name, value)


class HomePlugin(OfferedModule):
    """``plugins.memory.<name>``: the directory plugin of that name in the caller's home.

    hermes-agent imports its own providers under these names, and a provider that began there
    still imports its parts so. We import it under a name made from its folder, because two homes
    may have plugins of one name. So this module is empty: it passes everything on
    to the plugin in the home of whoever asks.
    """

    def plugin(self) -> ModuleType:
        """Return the module of the plugin in the caller's home."""
        # The folder it was imported from is the fallback for a caller without a home, such as a
        # thread.
        folder = _plugin_folder(self.__name__) or self.__dict__["_folder"]
        return _import_plugin(folder, self.__name__)

    def _offered(self, name: str) -> Any:
        try:
            module = self.plugin()
        except (ImportError, OSError):
            if not name.startswith("__"):
                raise
            # A tool that inspects all of sys.modules, and the home may not exist any more.
            raise self._missing(name) from None
        if not hasattr(module, name):
            raise self._missing(name)
        return getattr(module, name)

    def __dir__(self) -> list[str]:
        """List what the plugin has."""
        return dir(self.plugin())

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__"):
            super().__setattr__(name, value)
        elif not isinstance(value, OfferedModule):
            # The import system sets submodules as attributes: the plugin has those itself.
            setattr(self.plugin(), name, value)


class _SearchPath(list[str]):
    """The ``__path__`` of an offered package: empty, until there is a real package."""

    def __init__(self, package: str) -> None:
        super().__init__()
        self._package = package

    def __iter__(self) -> Iterator[str]:
        real = _real_module(self._package)
        yield from super().__iter__() if real is None else getattr(real, "__path__", ())


# -- finders and loaders --------------------------------------------------------------------


class OfferFinder(MetaPathFinder, Loader):
    """Stands at the end of ``sys.meta_path``: everything really installed is found before."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - the name is enough
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Return the spec of the offered module of that name."""
        if fullname not in OFFERED:
            return _plugin_spec(fullname)
        spec = ModuleSpec(fullname, self, origin="hermes-plugins")
        if fullname in _PACKAGES:
            spec.submodule_search_locations = _SearchPath(fullname)
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Make an empty module; its names are imported when they are asked for."""
        return OfferedModule(spec.name, "Offered by hermes-plugins.")

    def exec_module(self, module: ModuleType) -> None:
        """Let the module's names be asked for."""
        module.__dict__["_executed"] = True

    def invalidate_caches(self) -> None:
        """Drop offered modules whose real ones were installed meanwhile."""
        drop_replaced_modules()


class _PluginLoader(Loader):
    """Makes a `HomePlugin`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return HomePlugin(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["_folder"] = self._folder
        _import_plugin(self._folder, module.__name__)


def _plugin_spec(fullname: str) -> ModuleSpec | None:
    """Return where a plugin or a module of it is, if the caller's home has it."""
    folder = _plugin_folder(fullname)
    if folder is None:
        return None
    # Checked for existence: for a missing file the import has to fail as "not found", which
    # plugins catch to try their next name.
    file = next((each for each in _plugin_files(folder, fullname) if each.is_file()), None)
    if file is None:
        return None
    spec = ModuleSpec(fullname, _PluginLoader(folder), origin=str(file))
    if file.name == "__init__.py":
        spec.submodule_search_locations = _SearchPath(fullname)
    return spec


def _plugin_files(folder: Path, fullname: str) -> Iterator[Path]:
    inner = _inner_names(fullname)
    yield folder.joinpath(*inner, "__init__.py")
    if inner:
        yield folder.joinpath(*inner[:-1], f"{inner[-1]}.py")


def _inner_names(fullname: str) -> list[str]:
    """Return the names below the plugin's own."""
    return fullname.removeprefix(_PLUGIN_PREFIX).split(".")[1:]


def _plugin_folder(fullname: str) -> Path | None:
    if not fullname.startswith(_PLUGIN_PREFIX):
        return None
    name = fullname.removeprefix(_PLUGIN_PREFIX).partition(".")[0]
    try:
        folder = current_home() / "plugins" / name
    except HomeError:
        return None
    return folder if (folder / "__init__.py").is_file() else None


def _import_plugin(folder: Path, fullname: str) -> ModuleType:
    from hermes_core.loading.modules import import_directory, package_name  # noqa: PLC0415

    # We may be importing it right now, and it imports itself meanwhile.
    package = sys.modules.get(package_name(folder)) or import_directory(folder)
    return importlib.import_module(".".join((package.__name__, *_inner_names(fullname))))


# -- the real modules -----------------------------------------------------------------------


def _real_module(name: str) -> ModuleType | None:
    """Return the real module of that name, if there is one by now, and drop ours."""
    if real_spec(name) is None:
        return None
    _drop_modules(name)
    return importlib.import_module(name)


def real_spec(name: str) -> ModuleSpec | None:
    """Return where all other finders find a module of that name; imports nothing."""
    parent = name.rpartition(".")[0]
    path = None
    if parent:
        # Recursive and by hand: importlib.util.find_spec("a.b") would import a, which may be ours.
        above = real_spec(parent)
        path = above.submodule_search_locations if above is not None else None
        if path is None:
            return None
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        if find is None or isinstance(finder, OfferFinder):
            continue
        spec: ModuleSpec | None = find(name, path)
        if spec is not None:
            return spec
    return None


def _drop_modules(name: str) -> None:
    """Forget all offered modules of a top-level name: the next import finds the real ones."""
    top = name.partition(".")[0]
    # All modules of the top-level name at once: a mix of real and offered ones would have two
    # classes of the same name.
    for each, module in list(sys.modules.items()):
        if each.partition(".")[0] == top and isinstance(module, OfferedModule):
            del sys.modules[each]


def drop_replaced_modules() -> None:
    """Forget the offered modules whose real ones can be imported by now."""
    for name, module in list(sys.modules.items()):
        if isinstance(module, OfferedModule) and real_spec(name) is not None:
            _drop_modules(name)


def is_offering() -> bool:
    """Return whether hermes-agent's modules are offered in this process."""
    return any(isinstance(each, OfferFinder) for each in sys.meta_path)


def offer_hermes_agent_modules() -> None:
    """Make hermes-agent's modules importable in this process, behind all that is installed."""
    drop_replaced_modules()
    if not is_offering():
        sys.meta_path.append(OfferFinder())
    elif not isinstance(sys.meta_path[-1], OfferFinder):  # another finder was added after ours
        sys.meta_path.sort(key=lambda each: isinstance(each, OfferFinder))
