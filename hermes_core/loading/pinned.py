"""Imports a pinned plugin from exactly the bytes that were checked (``memory.pin: strict``).

Comparing a hash and importing afterwards would leave a gap in which files can change, and
Python prefers byte code that no hash covers. So the digest of every file is fixed when the
plugin is compared with its pin. From then on, a module of the plugin is read once, compared with
its digest and compiled from these bytes. Byte code in ``__pycache__`` is neither read nor written.

The operating system loads an extension module by its path: it is compared immediately before.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import (
    ExtensionFileLoader,
    ModuleSpec,
    PathFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final, NamedTuple

from hermes_core.discovery import (
    IMPORTABLE,
    ProviderInfo,
    digest_of,
    foreign_module,
    is_below,
    read_contents,
)
from hermes_core.errors import ProviderConflictError


class _Place(NamedTuple):
    """Where a pinned plugin is imported from: the modules ``names``, or all below ``roots``."""

    plugin: str
    hash: str
    names: frozenset[str]
    roots: tuple[str, ...]
    digests: Mapping[str, str]
    location: str

    def owns(self, name: str, origin: str) -> bool:
        """Whether a module is the plugin's, by its name or by the file that Python found."""
        if is_below(name, self.names) and any(map(self._is_location, sys.path)):
            return True
        return any(each in self.digests or each.startswith(self.roots) for each in _keys(origin))

    def _is_location(self, entry: str) -> bool:
        return os.path.abspath(entry) == self.location  # noqa: PTH100 - links count

    def check(self, path: str, digest: str) -> None:
        """Raise `ImportError` unless the file has that digest in the pinned plugin."""
        known = next((self.digests[each] for each in _keys(path) if each in self.digests), "")
        if known != digest:
            what = "differs from" if known else "is not among"
            raise ImportError(
                f"{path} {what} the files that were enabled, and memory.pin is strict; "
                f"run: hermes-plugins enable {self.plugin}",
                path=path,
            )


def _keys(path: str) -> tuple[str, str]:
    """A file as it is called, and without links in the way to it."""
    folder, name = os.path.split(os.path.abspath(path))  # noqa: PTH100 - links count
    real = os.path.join(os.path.realpath(folder), name)  # noqa: PTH118
    return os.path.normcase(os.path.join(folder, name)), os.path.normcase(real)  # noqa: PTH118


class _PinnedLoader:
    """The part of a loader that reads: what can be imported is compared with its digest."""

    place: _Place

    def get_data(self, path: str) -> bytes:
        data: bytes = super().get_data(path)  # type: ignore[misc]
        if str(path).endswith(IMPORTABLE):
            self.place.check(str(path), digest_of(data))
        return data


class _PinnedSourceLoader(_PinnedLoader, SourceFileLoader):  # type: ignore[misc]
    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


class _PinnedBytecodeLoader(_PinnedLoader, SourcelessFileLoader):
    pass


class _Extension(ExtensionFileLoader):
    place: _Place

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        self.place.check(self.path, digest_of(Path(self.path).read_bytes()))
        return super().create_module(spec)


_LOADERS: Final[Mapping[type, type[Any]]] = {
    SourceFileLoader: _PinnedSourceLoader,
    SourcelessFileLoader: _PinnedBytecodeLoader,
    ExtensionFileLoader: _Extension,
}


class _PinnedFinder(MetaPathFinder):
    """Finds what Python's own finder finds, and replaces the loader of pinned modules."""

    def __init__(self) -> None:
        self.places: dict[str, _Place] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target)
        return None if spec is None else self.checked(spec)

    def checked(self, spec: ModuleSpec) -> ModuleSpec | None:
        """The specification of a pinned module with a loader that compares; None for others."""
        origin = spec.origin if spec.has_location else None
        place = next(
            (each for each in self.places.values() if each.owns(spec.name, origin or "")), None
        )
        if place is None or not place.digests:
            return None
        # Of a library that hooks into imports, such as beartype, too: the pinned file counts.
        kinds = (ours for base, ours in _LOADERS.items() if isinstance(spec.loader, base))
        kind = next(kinds, None)
        if origin is None or kind is None:
            if spec.submodule_search_locations and origin is None:  # a namespace has no code
                return spec
            raise ImportError(f"{spec.name} is imported in a way that can't be compared with a pin")
        loader = kind(spec.name, origin)
        loader.place = place
        return spec_from_file_location(
            spec.name,
            origin,
            loader=loader,
            submodule_search_locations=spec.submodule_search_locations,
        )


# The import system belongs to the process; so does what is added to it.
_FINDER: Final = _PinnedFinder()


def pin_imports(info: ProviderInfo, pin: str) -> None:
    """Compare a plugin with the hash of its pin, and import nothing else of it from now on.

    Raises:
        ProviderConflictError: It is not what was enabled.
    """
    now = read_contents(info)
    if now.problem or now.hash != pin:
        raise ProviderConflictError(
            now.problem or "its files differ from those that were enabled",
            where=f"plugin {info.name}",
            hint=f"if you changed it yourself, run: hermes-plugins enable {info.name}",
        )
    digests = {key: digest for path, digest in now.digests.items() for key in _keys(str(path))}
    if module := foreign_module(info, now):
        raise ProviderConflictError(
            f"its entry point names {module}, which is not a module of {info.distribution}",
            where=f"plugin {info.name}",
        )
    _FINDER.places[str(info.directory or f"{info.location}:{info.distribution}")] = _Place(
        info.name, now.hash, now.names, _roots(info), digests, _location(info)
    )
    if _FINDER not in sys.meta_path:
        # Behind the finder of copied packages, which leads to names that this one finds.
        ours = [type(each).__module__ == "hermes_core.loading.modules" for each in sys.meta_path]
        sys.meta_path.insert(ours.index(True) + 1 if True in ours else 0, _FINDER)


def _roots(info: ProviderInfo) -> tuple[str, ...]:
    """The folder of a directory plugin, unless it lies among the modules of its distribution."""
    folder = info.directory
    if folder is None or (info.location is not None and folder.is_relative_to(info.location)):
        return ()
    given = (os.path.abspath(folder), os.path.realpath(folder))  # noqa: PTH100 - links count
    return tuple(f"{os.path.normcase(each)}{os.sep}" for each in given)


def _location(info: ProviderInfo) -> str:
    return "" if info.location is None else os.path.abspath(info.location)  # noqa: PTH100


def checked_spec(spec: ModuleSpec) -> ModuleSpec:
    """The specification with a loader that compares, if the module is a pinned plugin's."""
    return _FINDER.checked(spec) or spec


def is_current(module: ModuleType) -> bool:
    """Whether a module that was imported before is what its pin asks for now, if it has one."""
    spec = module.__spec__
    if spec is None or spec.origin is None:
        return True
    place = next(
        (each for each in _FINDER.places.values() if each.owns(spec.name, spec.origin)), None
    )
    imported = getattr(spec.loader, "place", None)
    return place is None or (imported is not None and imported.hash == place.hash)
