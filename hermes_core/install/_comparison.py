"""What is different in a new version of a plugin, read from its files before it is installed."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any, Final

from hermes_core.config.names import normalise
from hermes_core.discovery import installed_distributions, read_manifest
from hermes_core.discovery.metadata import Distribution, parse_entry_points
from hermes_core.install._installers import Download
from hermes_core.install._wheels import installed_name
from hermes_core.storage.files import read_regular

_MAX_FILE: Final = 500_000_000
_MAX_SOURCE: Final = 5_000_000
# os.environ["X"], os.environ.get("X"), getenv("X"), and the fields and manifests of plugins.
_VARIABLE: Final = re.compile(
    r"""(?:environ(?:\.get|\.pop|\.setdefault)?\s*[\[(]|getenv\s*\(|["']?env(?:_var)?["']?\s*[:=])"""
    r"""\s*["']([A-Z][A-Z0-9_]{2,})["']"""
)
# In a plugin.yaml: an item of a list, with or without its key.
_LISTED: Final = re.compile(
    r"""^\s*-\s*(?:name:\s*)?["']?([A-Z][A-Z0-9_]{2,})["']?\s*(?:#.*)?$""", re.MULTILINE
)
_REQUIRES: Final = re.compile(r"^Requires-Dist:\s*(.+?)\s*$", re.MULTILINE | re.IGNORECASE)

#: A file's name below the site or the folder, and how to read it.
File = tuple[str, Callable[[], bytes]]


@dataclass(frozen=True, slots=True)
class PluginFiles:
    """What a version of a plugin consists of.

    Attributes:
        digests: The hash of each file.
        entry_points: Its entry points, a line for each.
        variables: The environment variables that its sources name.
        dependencies: Its requirements, as its metadata has them.
    """

    digests: dict[str, str] = field(default_factory=dict)
    entry_points: frozenset[str] = frozenset()
    variables: frozenset[str] = frozenset()
    dependencies: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Difference:
    """What a new version adds, changes and removes."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    entry_points: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    dependencies: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The difference for `upgrade --json`."""
        return {
            "files": {
                "added": list(self.added),
                "changed": list(self.changed),
                "removed": list(self.removed),
            },
            "entry_points": list(self.entry_points),
            "environment": list(self.variables),
            "dependencies": list(self.dependencies),
        }


def compare(old: PluginFiles, new: PluginFiles) -> Difference:
    """What the new version has that the old one has not."""
    common = old.digests.keys() & new.digests.keys()
    return Difference(
        tuple(sorted(new.digests.keys() - common)),
        tuple(sorted(each for each in common if old.digests[each] != new.digests[each])),
        tuple(sorted(old.digests.keys() - common)),
        tuple(sorted(new.entry_points - old.entry_points)),
        tuple(sorted(new.variables - old.variables)),
        tuple(sorted(new.dependencies - old.dependencies)),
    )


def read_installed(distribution: Distribution) -> PluginFiles:
    """The files of an installed distribution."""
    site = distribution.location
    return _read(_on_disk(site, distribution.files))


def read_download(fetched: Download, project: str) -> PluginFiles:
    """The files of a project that was downloaded."""
    return _read(downloaded_files(fetched, project))


def downloaded_files(fetched: Download, project: str) -> Iterator[File]:
    """The files that a downloaded project puts into the site."""
    for wheel in fetched.wheels:
        if normalise(wheel.name.partition("-")[0]) == normalise(project):
            yield from _in_wheel(wheel)
            return
    for each in installed_distributions([str(fetched.site)]):
        if normalise(each.name) == normalise(project):
            yield from _on_disk(fetched.site, each.files)


def read_folder(folder: Path) -> PluginFiles:
    """The files of a directory plugin."""
    names = (
        each.relative_to(folder).as_posix()
        for each in sorted(folder.rglob("*"))
        if each.is_file() and not each.is_symlink()
    )
    found = _read(_on_disk(folder, (each for each in names if not _is_hidden(each))))
    needed = read_manifest(folder)[0].get("pip_dependencies")
    dependencies = frozenset(map(str, needed) if isinstance(needed, list) else ())
    return replace(found, dependencies=dependencies)


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") or part == "__pycache__" for part in name.split("/"))


def _on_disk(folder: Path, names: Iterable[str]) -> Iterator[File]:
    for name in names:
        path = folder / name
        yield name, lambda path=path: read_regular(path, _MAX_FILE)  # type: ignore[misc]


def _in_wheel(wheel: Path) -> Iterator[File]:
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            name = installed_name(entry.filename)
            if name and not entry.is_dir():
                yield name, lambda entry=entry: archive.read(entry)  # type: ignore[misc]


def _read(files: Iterable[File]) -> PluginFiles:
    digests: dict[str, str] = {}
    points: set[str] = set()
    variables: set[str] = set()
    dependencies: set[str] = set()
    for name, read in files:
        path = PurePosixPath(name)
        # Programs lie elsewhere on every machine; bytecode is made here.
        if ".." in path.parts or path.suffix == ".pyc" or name.startswith("<"):
            continue
        try:
            content = read()
        except OSError:  # listed, but not there
            continue
        if path.parts[0].endswith(".dist-info"):  # its name has the version in it
            points |= _entry_points(path.name, content)
            dependencies |= _dependencies(path.name, content)
            continue
        digests[name] = sha256(content).hexdigest()
        if path.suffix in (".py", ".yaml") and len(content) <= _MAX_SOURCE:
            pattern = _VARIABLE if path.suffix == ".py" else _LISTED
            variables |= {*pattern.findall(content.decode("utf-8", "replace"))}
    return PluginFiles(digests, frozenset(points), frozenset(variables), frozenset(dependencies))


def _entry_points(name: str, content: bytes) -> set[str]:
    if name != "entry_points.txt":
        return set()
    found, _ = parse_entry_points(content.decode("utf-8", "replace"))
    return {f"{each.group}: {each.name} = {each.value}" for each in found}


def _dependencies(name: str, content: bytes) -> set[str]:
    if name != "METADATA":
        return set()
    head = content.decode("utf-8", "replace").replace("\r\n", "\n").partition("\n\n")[0]
    return {*_REQUIRES.findall(head)}
