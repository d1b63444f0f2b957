"""Finds, installs, upgrades and removes plugins: packages by pip or uv, directory plugins, bridges.

Nothing here imports a plugin. Which providers a package has is read from its files before it
is installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from hermes_core.install._bridge import Bridge, build_bridge, remove_bridge
    from hermes_core.install._directories import (
        StagedPlugin,
        plugins_folder,
        put,
        remove_folder,
        stage,
    )
    from hermes_core.install._installers import (
        OURSELVES,
        Download,
        Installer,
        PackageChange,
        Plan,
        installer,
    )
    from hermes_core.install._sources import (
        Folder,
        InstallError,
        NeedsBuild,
        NoSuchPackage,
        Package,
        Repository,
        read_source,
    )
    from hermes_core.install._wheels import check_wheel

__all__ = [
    "OURSELVES",
    "Bridge",
    "Download",
    "Folder",
    "InstallError",
    "Installer",
    "NeedsBuild",
    "NoSuchPackage",
    "Package",
    "PackageChange",
    "Plan",
    "Repository",
    "StagedPlugin",
    "build_bridge",
    "check_wheel",
    "installer",
    "plugins_folder",
    "put",
    "read_source",
    "remove_bridge",
    "remove_folder",
    "stage",
]

#: Where each name is defined. Imported when it is used: `search` needs only `index`, and what the
#: others import takes longer than a whole search.
_MODULES: Final = {
    "Bridge": "_bridge",
    "build_bridge": "_bridge",
    "remove_bridge": "_bridge",
    "StagedPlugin": "_directories",
    "plugins_folder": "_directories",
    "put": "_directories",
    "remove_folder": "_directories",
    "stage": "_directories",
    "OURSELVES": "_installers",
    "PackageChange": "_installers",
    "Download": "_installers",
    "Installer": "_installers",
    "Plan": "_installers",
    "installer": "_installers",
    "Folder": "_sources",
    "InstallError": "_sources",
    "NeedsBuild": "_sources",
    "NoSuchPackage": "_sources",
    "Package": "_sources",
    "Repository": "_sources",
    "read_source": "_sources",
    "check_wheel": "_wheels",
}


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value
