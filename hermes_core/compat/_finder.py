"""The import finder that offers what plugins written for hermes-agent import."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path as FilePath
from types import ModuleType
from typing import Final

from hermes_core.compat._stand_in import Path, StandIn, step_aside_everywhere
from hermes_core.errors import HomeError
from hermes_core.scope import current_home

#: By hermes-agent's name: the module behind it, or None for a package that only has others.
#: What is not here is not importable: plugins have a way of their own for that case, and
#: none for a module that is half right.
OFFERED: Final = {
    "agent": None,
    "agent.memory_manager": "_memory_manager",
    "agent.memory_provider": "_memory_provider",
    "agent.secret_scope": "_secret_scope",
    "hermes_cli": None,
    "hermes_cli.config": "_config",
    "hermes_cli.profiles": "_profiles",
    "hermes_constants": "_constants",
    "plugins": None,
    "plugins.memory": None,
    "tools": None,
    "tools.registry": "_registry",
    "utils": "_files",
}


class OfferFinder(MetaPathFinder, Loader):
    """Stands at the end of ``sys.meta_path``: everything really installed is found before."""

    offers_stand_ins = True

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - the name says all
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """The offered module of that name."""
        if fullname not in OFFERED:
            return _directory_spec(fullname)
        spec = ModuleSpec(fullname, self, origin="hermes-plugins")
        if OFFERED[fullname] is None:
            spec.submodule_search_locations = Path(fullname)
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """A stand-in; its names come when they are asked for."""
        return StandIn(spec.name, "Offered by hermes-plugins.")

    def exec_module(self, module: ModuleType) -> None:
        """Say where its names are."""
        behind = OFFERED[module.__name__]
        if behind is not None:
            module.__dict__["_behind"] = f"{__package__}.{behind}"

    def invalidate_caches(self) -> None:
        """Something was installed: it may be what we stand in for."""
        step_aside_everywhere()


class _DirectoryLoader(Loader):
    """Gives a directory plugin that was, or is being, imported under a name of ours."""

    def __init__(self, folder: FilePath) -> None:
        self._folder = folder

    def create_module(self, spec: ModuleSpec) -> None:
        """Nothing of our own."""

    def exec_module(self, module: ModuleType) -> None:
        """Put the plugin's package in the place of the module."""
        from hermes_core.loading._importing import import_directory, package_name  # noqa: PLC0415

        known = sys.modules.get(package_name(self._folder))
        sys.modules[module.__name__] = known or import_directory(self._folder)


def _directory_spec(fullname: str) -> ModuleSpec | None:
    """``plugins.memory.<name>``: the directory plugin of that name in the caller's home.

    hermes-agent imports its own under these names, and plugins that began there still use them.
    """
    parent, _, name = fullname.rpartition(".")
    if parent != "plugins.memory":
        return None
    try:
        folder = current_home() / "plugins" / name
    except HomeError:
        return None
    if not (folder / "__init__.py").is_file():
        return None
    return ModuleSpec(fullname, _DirectoryLoader(folder), origin=str(folder), is_package=True)


def is_offering() -> bool:
    """Whether hermes-agent's modules are offered in this process."""
    return any(isinstance(each, OfferFinder) for each in sys.meta_path)


def offer() -> None:
    """Make hermes-agent's modules importable in this process, behind all that is installed."""
    step_aside_everywhere()
    if not is_offering():
        sys.meta_path.append(OfferFinder())
    elif not isinstance(sys.meta_path[-1], OfferFinder):  # somebody came after us
        sys.meta_path.sort(key=lambda each: isinstance(each, OfferFinder))
