"""Providers that installed distributions declare, and those that they only carry."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from hermes_core.discovery._directories import describe_directory, read_manifest
from hermes_core.discovery._info import (
    COMMAND_GROUP,
    MEMORY_GROUP,
    NO_PROVIDER,
    OBSERVER_GROUP,
    OURS,
    PLUGIN_GROUP,
    ProviderInfo,
)
from hermes_core.discovery._metadata import Distribution, EntryPoint, distributions
from hermes_core.discovery._sources import module_files, registers_provider
from hermes_core.errors import ProviderConflictError, UnknownProviderError
from hermes_core.names import BUILTIN, normalise

# What an editable install puts into the site instead of its sources.
_FINDERS: Final = ("__editable__", "_editable_impl_")
_MARKER: Final = b"hermes"  # the group may be misspelt
_BUILTIN_DESCRIPTION: Final = "What an agent remembers without any backend; always on."


def declared_providers(site: Iterable[str] | None = None) -> Iterator[ProviderInfo]:
    """One for each provider that a distribution declares in one of the two groups."""
    for distribution in distributions(_MARKER, site):
        declared = list(dict.fromkeys(distribution.entry_points))
        memory = [each for each in declared if each.group == MEMORY_GROUP]
        plugins = [each for each in declared if each.group == PLUGIN_GROUP]
        misspelt = {each.name: each for each in declared if _is_misspelt(each)}
        if memory:
            # It says itself which of its plugins are for memory: the others are not.
            yield from (_info(distribution, each) for each in memory)
        elif plugins:
            for each in plugins:
                info = _plugin_info(distribution, each)
                if each.name in misspelt and not info.problem:
                    info = info._replace(problem=_unread(misspelt[each.name]))
                yield info
        elif distribution.problem:
            yield _broken(distribution)
        else:
            yield from (_unusable(distribution, each) for each in misspelt.values())


def _info(distribution: Distribution, entry_point: EntryPoint) -> ProviderInfo:
    ours = normalise(distribution.name) in OURS and entry_point.name == BUILTIN
    problem = distribution.problem
    if entry_point.group and not entry_point.sound:
        problem = f"its entry point {entry_point.value!r} names no object"
    return ProviderInfo(
        name=entry_point.name,
        source="builtin" if ours else "entry-point",
        distribution=distribution.name,
        version=distribution.version,
        entry_point=entry_point.value,
        description=_BUILTIN_DESCRIPTION if ours else distribution.summary,
        state="broken" if problem else "installed",
        problem=problem,
        location=distribution.location,
        files=distribution.files,
        loadable=entry_point.sound,
    )


def _plugin_info(distribution: Distribution, entry_point: EntryPoint) -> ProviderInfo:
    info = _info(distribution, entry_point)
    if not info.loadable or _registers(distribution, entry_point):
        return info
    return info._replace(state="no-provider", problem=NO_PROVIDER, loadable=False)


def _broken(distribution: Distribution) -> ProviderInfo:
    info = _info(distribution, EntryPoint("", distribution.name, ""))
    return info._replace(loadable=False)


def _is_misspelt(entry_point: EntryPoint) -> bool:
    """Whether it is in a group that nobody reads, but that was meant for us."""
    group = entry_point.group
    return group.startswith("hermes") and "memory" in group and group != MEMORY_GROUP


def _unread(entry_point: EntryPoint) -> str:
    return (
        f"declared in the group {entry_point.group}, which nobody reads; "
        f"the right one is {MEMORY_GROUP}"
    )


def _unusable(distribution: Distribution, entry_point: EntryPoint) -> ProviderInfo:
    info = _info(distribution, entry_point)
    return info._replace(state="broken", loadable=False, problem=_unread(entry_point))


def _registers(distribution: Distribution, entry_point: EntryPoint) -> bool:
    """Whether the distribution's own sources register a memory provider.

    Not counted: directory plugins that it carries beside this one.
    """
    top = entry_point.module.partition(".")[0]
    carried = {
        str(PurePosixPath(name).parent)
        for name in distribution.files
        if PurePosixPath(name).name == "plugin.yaml"
    }
    recorded = [
        distribution.location / name
        for name in distribution.files
        if name.endswith(".py")
        and not name.startswith(_FINDERS)
        and (name.startswith(f"{top}/") or not carried & set(map(str, PurePosixPath(name).parents)))
    ]
    if distribution.registers or registers_provider(recorded):
        return True
    # An editable install records no sources of its own.
    return not recorded and registers_provider(module_files(entry_point.module))


def installed_versions() -> dict[str, str]:
    """The versions of all installed distributions, by normalised name."""
    return {normalise(each.name): each.version for each in distributions()}


def find_distribution(project: str) -> Distribution | None:
    """An installed distribution by its name."""
    key = normalise(project)
    return next((each for each in distributions() if normalise(each.name) == key), None)


def own_commands() -> dict[str, str]:
    """The commands that our own distribution's providers add: name and entry point."""
    return {
        each.name: each.value
        for distribution in distributions(COMMAND_GROUP.encode())
        if normalise(distribution.name) in OURS
        for each in distribution.entry_points
        if each.group == COMMAND_GROUP
    }


def find_observer(name: str) -> ProviderInfo:
    """The observer of that name, from its own entry-point group.

    Raises:
        UnknownProviderError: No installed distribution declares it.
        ProviderConflictError: Several do.
    """
    found = [
        _info(distribution, each)
        for distribution in distributions(OBSERVER_GROUP.encode())
        for each in distribution.entry_points
        if each.group == OBSERVER_GROUP and normalise(each.name) == normalise(name)
    ]
    where = "memory.observers"
    if not found:
        raise UnknownProviderError(f"no observer {name!r} is installed", where=where)
    if len(found) > 1:
        owners = ", ".join(sorted(each.distribution for each in found))
        raise ProviderConflictError(f"observer {name!r} is claimed by {owners}", where=where)
    return found[0]


def carried_directories(
    known: Iterable[ProviderInfo], site: Iterable[str] | None = None
) -> Iterator[ProviderInfo]:
    """Directory plugins inside distributions that declare no provider: plugin.yaml beside
    an ``__init__.py``, used in place.
    """  # noqa: D205
    declared = {normalise(each.distribution) for each in known if each.loadable}
    for distribution in distributions(path=site):
        if normalise(distribution.name) in declared:
            continue
        files = set(distribution.files)
        for name in sorted(files):
            path = PurePosixPath(name)
            if path.name == "plugin.yaml" and str(path.parent / "__init__.py") in files:
                # RECORD may lead out of the site: ../share/...
                folder = Path(os.path.normpath(distribution.location / path.parent))
                info = describe_directory(folder)
                if info.loadable and info.state != "no-provider":
                    yield info._replace(
                        name=str(read_manifest(folder)[0].get("name") or info.name),
                        distribution=distribution.name,
                        version=distribution.version,
                        description=info.description or distribution.summary,
                        location=distribution.location,
                        files=distribution.files,
                    )
