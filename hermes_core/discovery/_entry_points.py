"""Providers that installed distributions declare, and those that they only carry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from hermes_core.discovery._directories import describe_directory, mentions_provider
from hermes_core.discovery._info import (
    MEMORY_GROUP,
    OBSERVER_GROUP,
    OURS,
    PLUGIN_GROUP,
    ProviderInfo,
)
from hermes_core.discovery._metadata import Distribution, EntryPoint, distributions
from hermes_core.errors import ProviderConflictError, UnknownProviderError
from hermes_core.names import BUILTIN, normalise

_MARKER: Final = b"hermes_agent."
_BUILTIN_DESCRIPTION: Final = "What an agent remembers without any backend; always on."
_NO_PROVIDER: Final = "registers no memory provider"


def declared_providers() -> Iterator[ProviderInfo]:
    """One for each provider that a distribution declares in one of the two groups."""
    for distribution in distributions(_MARKER):
        memory = [each for each in distribution.entry_points if each.group == MEMORY_GROUP]
        plugins = [each for each in distribution.entry_points if each.group == PLUGIN_GROUP]
        if memory:
            # It says itself which of its plugins are for memory: the others are not.
            yield from (_info(distribution, each) for each in memory)
        elif plugins:
            yield from (_plugin_info(distribution, each) for each in plugins)
        elif distribution.problem:
            yield _broken(distribution)
        else:
            yield from _misspelt(distribution)


def _info(distribution: Distribution, entry_point: EntryPoint) -> ProviderInfo:
    ours = normalise(distribution.name) in OURS and entry_point.name == BUILTIN
    return ProviderInfo(
        name=entry_point.name,
        source="builtin" if ours else "entry-point",
        distribution=distribution.name,
        version=distribution.version,
        entry_point=entry_point.value,
        description=_BUILTIN_DESCRIPTION if ours else distribution.summary,
        state="broken" if distribution.problem else "installed",
        problem=distribution.problem,
        location=distribution.location,
        files=distribution.files,
    )


def _plugin_info(distribution: Distribution, entry_point: EntryPoint) -> ProviderInfo:
    info = _info(distribution, entry_point)
    if any(mentions_provider(path) for path in _sources(distribution, entry_point)):
        return info
    return info._replace(state="no-provider", problem=_NO_PROVIDER, loadable=False)


def _broken(distribution: Distribution) -> ProviderInfo:
    info = _info(distribution, EntryPoint("", distribution.name, ""))
    return info._replace(loadable=False)


def _misspelt(distribution: Distribution) -> Iterator[ProviderInfo]:
    """An entry point in a group that nobody reads, but that was meant for us."""
    for each in distribution.entry_points:
        if each.group.startswith("hermes_agent.") and "memory" in each.group:
            yield _info(distribution, each)._replace(
                state="broken",
                loadable=False,
                problem=f"declared in the group {each.group}, which nobody reads; "
                f"the right one is {MEMORY_GROUP}",
            )


def _sources(distribution: Distribution, entry_point: EntryPoint) -> Iterator[Path]:
    """The Python files of an entry point's package, found without importing it."""
    top = entry_point.top
    recorded = [
        distribution.location / name
        for name in distribution.files
        if name.endswith(".py") and PurePosixPath(name).parts[0] in (top, f"{top}.py")
    ]
    yield from recorded or _importable(top)


def _importable(top: str) -> Iterator[Path]:
    """The files of a top-level package that RECORD does not list: an editable install."""
    from importlib.util import find_spec  # noqa: PLC0415 - rarely needed

    try:
        spec = find_spec(top)  # of a top-level name: imports nothing
    except (ImportError, ValueError):
        return
    if spec is None:
        return
    for folder in spec.submodule_search_locations or ():
        yield from Path(folder).rglob("*.py")
    if spec.origin and spec.origin.endswith(".py"):
        yield Path(spec.origin)


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


def carried_directories(known: Iterable[ProviderInfo]) -> Iterator[ProviderInfo]:
    """Directory plugins inside distributions that declare no provider: plugin.yaml beside
    an ``__init__.py``, used in place.
    """  # noqa: D205
    declared = {normalise(each.distribution) for each in known if each.loadable}
    for distribution in distributions():
        if normalise(distribution.name) in declared:
            continue
        files = set(distribution.files)
        for name in sorted(files):
            path = PurePosixPath(name)
            if path.name == "plugin.yaml" and str(path.parent / "__init__.py") in files:
                info = describe_directory(distribution.location / path.parent)
                if info.loadable:
                    yield info._replace(
                        distribution=distribution.name,
                        version=distribution.version,
                        description=info.description or distribution.summary,
                        location=distribution.location,
                        files=distribution.files,
                    )
