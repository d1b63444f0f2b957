"""Installs and removes plugins: packages by pip or uv, directory plugins, and bridges.

Nothing here imports a plugin. Which providers a package has is read from its files before it
is installed.
"""

from __future__ import annotations

from hermes_core.install._bridge import Bridge, build_bridge, remove_bridge
from hermes_core.install._directories import StagedPlugin, plugins_folder, put, remove_folder, stage
from hermes_core.install._installers import OURSELVES, Change, Download, Installer, Plan, installer
from hermes_core.install._sources import (
    Folder,
    InstallError,
    NeedsBuild,
    Package,
    Repository,
    read_source,
)
from hermes_core.install._wheels import check_wheel

__all__ = [
    "OURSELVES",
    "Bridge",
    "Change",
    "Download",
    "Folder",
    "InstallError",
    "Installer",
    "NeedsBuild",
    "Package",
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
