"""Which providers are installed: metadata and text only, no plugin code is imported."""

from __future__ import annotations

import os
from pathlib import Path

from hermes_core.config import Selection, read_selection
from hermes_core.discovery._conflicts import settle
from hermes_core.discovery._directories import describe_directory, home_directories, manifest_of
from hermes_core.discovery._entry_points import (
    carried_directories,
    declared_providers,
    find_distribution,
    find_observer,
    installed_versions,
    own_commands,
)
from hermes_core.discovery._info import ProviderInfo
from hermes_core.discovery._pins import content_hash, pin_of, pin_problem, same_owner
from hermes_core.discovery._records import RECORD, Record, read_record, write_record
from hermes_core.discovery._select import find_provider
from hermes_core.discovery._sources import registering_module, source_files
from hermes_core.home import resolve_home
from hermes_core.names import normalise

__all__ = [
    "RECORD",
    "ProviderInfo",
    "Record",
    "content_hash",
    "describe_directory",
    "discover",
    "find_distribution",
    "find_observer",
    "find_provider",
    "installed_versions",
    "manifest_of",
    "own_commands",
    "pin_of",
    "pin_problem",
    "providers_in",
    "read_record",
    "registering_module",
    "same_owner",
    "scan",
    "source_files",
    "write_record",
]


def discover(
    home: str | os.PathLike[str] | None = None, *, everything: bool = False
) -> list[ProviderInfo]:
    """All installed providers, the built-in first, then by name.

    Args:
        home: HERMES_HOME; by default the environment's.
        everything: Also look for distributions that carry a directory plugin without
            declaring it. That reads the file list of every distribution.

    Raises:
        ConfigError: config.yaml, which says what is active, can't be understood. `scan`
            lists without it.
    """
    folder = resolve_home(home)
    return scan(folder, read_selection(folder), everything=everything)


def scan(home: Path, selection: Selection, *, everything: bool = False) -> list[ProviderInfo]:
    """Like `discover`, for a selection that is known already."""
    found = [*declared_providers(), *home_directories(home)]
    # What a bridge leads to has to be found, else it would be listed as something else.
    bridged = {normalise(each.bridge) for each in found if each.bridge}
    if everything or bridged - {normalise(each.distribution) for each in found}:
        found += [
            each
            for each in carried_directories(found)
            if everything or normalise(each.distribution) in bridged
        ]
    return settle(found, selection)


def providers_in(folder: Path) -> list[ProviderInfo]:
    """What the distributions in a folder bring, which need not be on the import path."""
    path = [str(folder)]
    found = list(declared_providers(path))
    return settle([*found, *carried_directories(found, path)], Selection())
