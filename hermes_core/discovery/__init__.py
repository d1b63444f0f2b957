"""Which providers are installed: metadata and text only, no plugin code is imported."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from hermes_core.config import Selection, read_selection
from hermes_core.config.names import normalise
from hermes_core.discovery.contents import (
    IMPORTABLE,
    Contents,
    content_hash,
    digest_of,
    foreign_module,
    is_below,
    module_names,
    read_contents,
    tried_hash,
)
from hermes_core.discovery.installed import (
    carried_directories,
    companions_of,
    declared_providers,
    describe_directory,
    find_distribution,
    find_observer,
    home_directories,
    installed_versions,
    manifest_of,
    own_commands,
    project_directories,
    read_manifest,
)
from hermes_core.discovery.metadata import Distribution, distributions, hook_problems
from hermes_core.discovery.ownership import (
    assign_owners,
    find_provider,
    pin_of,
    pin_problem,
    same_owner,
)
from hermes_core.discovery.provider_info import (
    MEMORY_GROUP,
    PUBLISHED,
    RECORD,
    ProviderInfo,
    Record,
    read_record,
    write_record,
)
from hermes_core.discovery.source_text import (
    content_of,
    python_files,
    registering_module,
    source_files,
)
from hermes_core.storage.home import resolve_home

__all__ = [
    "IMPORTABLE",
    "MEMORY_GROUP",
    "PUBLISHED",
    "RECORD",
    "Contents",
    "ProviderInfo",
    "Record",
    "companions_of",
    "content_hash",
    "content_of",
    "describe_directory",
    "digest_of",
    "discover",
    "find_distribution",
    "find_observer",
    "find_provider",
    "foreign_module",
    "hook_problems",
    "installed_distributions",
    "installed_versions",
    "is_below",
    "manifest_of",
    "may_have_provider",
    "module_names",
    "own_commands",
    "pin_of",
    "pin_problem",
    "providers_in",
    "python_files",
    "read_contents",
    "read_manifest",
    "read_record",
    "reference_in",
    "registering_module",
    "same_owner",
    "scan",
    "source_files",
    "tried_hash",
    "write_record",
]


def discover(
    home: str | os.PathLike[str] | None = None, *, everything: bool = False
) -> list[ProviderInfo]:
    """All installed providers, the built-in first, then by name.

    Args:
        home: HERMES_HOME; by default the environment's.
        everything: Also look for distributions that have a directory plugin, or a provider in
            a plain module, without declaring it. That reads the file list of every
            distribution, and the modules of those that may be one.

    Raises:
        ConfigError: config.yaml, which says what is active, can't be understood. `scan`
            lists without it.
    """
    folder = resolve_home(home)
    return scan(folder, read_selection(folder), everything=everything)


def scan(home: Path, selection: Selection, *, everything: bool = False) -> list[ProviderInfo]:
    """Like `discover`, for a selection that is known already."""
    found = [*declared_providers(), *home_directories(home), *project_directories(home)]
    # A bridge's distribution has to be found as well. Without it, the bridge would be listed as
    # broken although its package is installed, only without declaring a provider.
    bridged = {normalise(each.bridge) for each in found if each.bridge}
    if everything or bridged - {normalise(each.distribution) for each in found}:
        found += [
            each
            for each in _undeclared(found)
            if everything or normalise(each.distribution) in bridged
        ]
    return assign_owners(found, selection)


def _undeclared(found: list[ProviderInfo], site: Iterable[str] | None = None) -> list[ProviderInfo]:
    """What distributions have without declaring it: directory plugins, else plain modules."""
    from hermes_core.discovery.plain_modules import plain_modules  # noqa: PLC0415 - needs ast

    # A list, since both searches below read all of them.
    installed = list(distributions(path=site))
    carried = list(carried_directories(found, installed))
    # `carried` counts as known: a distribution with a plugin.yaml is not searched a second time.
    return [*carried, *plain_modules([*found, *carried], installed)]


def reference_in(folder: Path) -> str:
    """The module of a directory plugin that has its provider: ``module:attribute``, or ""."""
    from hermes_core.discovery import plain_modules  # noqa: PLC0415 - needs ast

    return plain_modules.reference_in(folder)


def may_have_provider(modules: Sequence[str], metadata: Callable[[], bytes]) -> bool:
    """Whether it is worth reading the modules of a package that declares nothing."""
    from hermes_core.discovery import plain_modules  # noqa: PLC0415 - needs ast

    return plain_modules.may_have_provider(modules, metadata)


def installed_distributions(path: Iterable[str]) -> list[Distribution]:
    """The distributions in folders that need not be on the import path."""
    return list(distributions(path=path))


def providers_in(folder: Path) -> list[ProviderInfo]:
    """The providers of the distributions in a folder, which need not be on the import path."""
    path = [str(folder)]
    found = list(declared_providers(path))
    # An empty selection: what is chosen in some home says nothing about a folder of downloads.
    return assign_owners([*found, *_undeclared(found, path)], Selection())
