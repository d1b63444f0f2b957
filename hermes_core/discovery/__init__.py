"""Which providers are installed: metadata and text only, no plugin code is imported."""

from __future__ import annotations

import os
from pathlib import Path

from hermes_core.config import Selection, read_selection
from hermes_core.discovery._conflicts import settle
from hermes_core.discovery._directories import home_directories, manifest_of
from hermes_core.discovery._entry_points import (
    carried_directories,
    declared_providers,
    find_observer,
    own_commands,
)
from hermes_core.discovery._info import ProviderInfo
from hermes_core.discovery._pins import content_hash, pin_of, pin_problem, same_owner
from hermes_core.discovery._select import find_provider
from hermes_core.home import resolve_home

__all__ = [
    "ProviderInfo",
    "content_hash",
    "discover",
    "find_observer",
    "find_provider",
    "manifest_of",
    "own_commands",
    "pin_of",
    "pin_problem",
    "same_owner",
    "scan",
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
    if everything:
        found += carried_directories(found)
    return settle(found, selection)
