"""Reads ``*.dist-info`` folders like `importlib.metadata`, at a third of its cost.

Importing that module takes longer than the whole scan. It (as its backport) remains the
fallback for what is not a plain folder on ``sys.path``, and the tests compare
the two.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from hermes_core.config.names import normalise
from hermes_core.discovery.source_text import REGISTERS
from hermes_core.errors import describe
from hermes_core.storage.files import read_regular

_SUFFIXES: Final = (".dist-info", ".egg-info")
_MAX_BYTES: Final = 5_000_000
_MAX_RECORD_BYTES: Final = 20_000_000  # the largest packages have 3 MB
# Only the three headers that a listing shows. Folded lines are not joined: build backends write
# each of these on one line.
_HEADER: Final = re.compile(
    r"^(Name|Version|Summary):[ \t]*(.*?)[ \t]*\r?$", re.MULTILINE | re.IGNORECASE
)


class EntryPoint(NamedTuple):
    """A line of entry_points.txt."""

    group: str
    name: str
    value: str

    @property
    def module(self) -> str:
        """The module's dotted name: ``a.b`` of ``a.b:c [extra]``."""
        return self.value.partition("[")[0].partition(":")[0].strip()

    @property
    def sound(self) -> bool:
        """Whether the value can name an object: ``module``, or ``module:object``."""
        # Stricter than importlib.metadata, which accepts anything and fails when it is loaded.
        module, _, attributes = self.value.partition("[")[0].partition(":")
        names = f"{module}.{attributes}" if attributes else module
        return all(part.strip().isidentifier() for part in names.split("."))


class Distribution(NamedTuple):
    """An installed distribution, and what its metadata says."""

    name: str
    version: str
    summary: str
    location: Path
    entry_points: tuple[EntryPoint, ...]
    files: tuple[str, ...]  # as in RECORD, below location
    problem: str
    registers: bool = False  # a provider, in sources inside an archive


def distributions(
    marker: bytes | None = None, path: Iterable[str] | None = None
) -> Iterator[Distribution]:
    """The distributions on the import path, each project once, the first one found.

    Args:
        marker: Only those whose entry_points.txt has these bytes in it.
        path: Instead of ``sys.path``.
    """
    seen: set[str] = set()
    shadowing: list[tuple[str, list[str]]] = []
    # As `importlib.metadata` does: the first entry of the path wins. Duplicates are common, since
    # virtual environments and editors add folders again.
    for entry in dict.fromkeys(_usable(sys.path if path is None else path)):
        names = _info_folders(entry)
        for distribution in _once(list(_in_folder(entry, names, marker))):
            key = normalise(distribution.name)
            # An older one further down the path is not the one that would be imported.
            if key not in seen and not _is_shadowed(key, shadowing):
                seen.add(key)
                yield distribution
        # The marker hides distributions that declare nothing, but those shadow others as well. So
        # the names of all info folders are remembered, not only what was yielded.
        shadowing.append((entry, names or []))
    if path is None:
        yield from _from_finders(seen, marker)


def _usable(path: Iterable[object]) -> Iterator[str]:
    """The entries that the import system looks at, too."""
    for entry in path:
        if isinstance(entry, str) and "\0" not in entry:
            # "" is the working folder on sys.path.
            yield entry or "."


def _is_shadowed(key: str, shadowing: list[tuple[str, list[str]]]) -> bool:
    return any(
        # The folder is called NAME-VERSION.dist-info, and "-" in the name is written as "_".
        normalise(name.rpartition(".")[0].partition("-")[0]) == key and _has_metadata(folder, name)
        for folder, names in shadowing
        for name in names
    )


def _has_metadata(folder: str, name: str) -> bool:
    """Whether it is a real record: pip may leave an empty folder behind."""
    return any(os.path.exists(f"{folder}/{name}/{file}") for file in ("METADATA", "PKG-INFO"))  # noqa: PTH110


def _info_folders(folder: str) -> list[str] | None:
    """The names of the dist-info folders in a folder; None if it is a file."""
    try:
        with os.scandir(folder) as entries:
            # os.scandir returns names in any order; sorted, a listing is the same on every
            # machine.
            return sorted(
                each.name
                for each in entries
                # pip leaves "~name" behind when it could not remove an old version
                if each.name.endswith(_SUFFIXES) and not each.name.startswith("~")
            )
    except NotADirectoryError:
        return None
    except OSError:  # missing or unreadable: nothing can be imported from it either
        return []


def _in_folder(
    folder: str, names: list[str] | None, marker: bytes | None
) -> Iterator[Distribution]:
    if names is None:
        yield from _from_archive(folder, marker)
        return
    for name in names:
        # The one file that is read for every distribution; the rest only for those that match.
        declared = _read(f"{folder}/{name}/entry_points.txt")
        if marker is None or (declared is not None and marker in declared):
            yield _distribution(Path(folder), name, declared or b"")


def _distribution(folder: Path, name: str, declared: bytes) -> Distribution:
    info = folder / name
    stem = name.rpartition(".")[0]
    label, _, version = stem.partition("-")
    problem = ""
    # METADATA in a dist-info folder, PKG-INFO in an egg-info one.
    headers = _read(str(info / "METADATA")) or _read(str(info / "PKG-INFO"))
    if headers is None:
        problem = f"{name} has no METADATA that can be read"
    fields = _headers((headers or b"").decode("utf-8", "replace"))
    entry_points: tuple[EntryPoint, ...] = ()
    try:
        entry_points, bad = parse_entry_points(declared.decode())
        problem = bad or problem
    except UnicodeDecodeError:
        problem = f"{name}/entry_points.txt is not UTF-8"
    return Distribution(
        fields.get("Name") or label,
        fields.get("Version") or version,
        fields.get("Summary", ""),
        folder,
        entry_points,
        _recorded(info),
        problem,
    )


def parse_entry_points(text: str) -> tuple[tuple[EntryPoint, ...], str]:
    """The entry points of an entry_points.txt, and what is wrong with it, if anything."""
    found = []
    problem = ""
    group = ""
    for raw in text.splitlines():
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        # Not configparser: its import is slow, it lowers the case of names and takes ":" for "=".
        if line.startswith("[") and line.endswith("]"):
            group = line[1:-1]
            continue
        name, equals, value = (part.strip() for part in line.partition("="))
        if equals and name and value and group:
            found.append(EntryPoint(group, name, value))
        else:
            problem = f"entry_points.txt has a line that is not an entry point: {line!r}"
    return tuple(found), problem


def _headers(text: str) -> dict[str, str]:
    # The description follows the first blank line, and it may have a line "Name: ...".
    head = re.split(r"\r?\n\r?\n", text, maxsplit=1)[0]
    # Reversed, so that the first of two headers of one name stays in the dict.
    return {key.title(): value for key, value in reversed(_HEADER.findall(head))}


def _recorded(info: Path) -> tuple[str, ...]:
    """The files of RECORD; an editable or foreign install may have none."""
    content = _read(str(info / "RECORD"), _MAX_RECORD_BYTES)
    if content is None:
        return ()
    lines = content.decode("utf-8", "replace").splitlines()
    names = (_first_cell(line) for line in lines)
    return tuple(name for name in names if name and "\0" not in name)


def _first_cell(line: str) -> str:
    """The first of three cells of a line of CSV."""
    if not line.startswith('"'):
        # Two cells follow, hash and size, which have no commas; an unquoted path may have some.
        return line.rsplit(",", 2)[0]
    quoted = re.match(r'"((?:[^"]|"")*)"', line)
    return quoted.group(1).replace('""', '"') if quoted else ""


def _read(path: str, limit: int = _MAX_BYTES) -> bytes | None:
    """The content of a metadata file; None if it is none, or too large to be one."""
    try:
        return read_regular(path, limit)
    except OSError:
        return None


def _once(found: list[Distribution]) -> Iterator[Distribution]:
    """Each project once; one with two records has a problem."""
    by_name: dict[str, list[Distribution]] = {}
    for each in found:
        by_name.setdefault(normalise(each.name), []).append(each)
    for same in by_name.values():
        if len(same) == 1:
            yield same[0]
            continue
        versions = ", ".join(each.version for each in same)
        problem = f"two versions of {same[0].name} are recorded ({versions}): reinstall it"
        # An interrupted upgrade leaves both. importlib.metadata picks whichever the file system
        # lists first; here it is always the last by name, and the problem is shown.
        yield same[-1]._replace(problem=problem)


def _from_archive(path: str, marker: bytes | None) -> Iterator[Distribution]:
    """A zip file on the import path."""
    if not os.path.isfile(path):  # noqa: PTH113 - opening a pipe would never end
        return
    import importlib_metadata  # noqa: PLC0415 - costs more than the rest of a listing

    for each in importlib_metadata.distributions(path=[path]):
        with suppress(AttributeError, OSError, ValueError):  # a damaged archive
            yield from _translated(each, marker)


def _from_finders(seen: set[str], marker: bytes | None) -> Iterator[Distribution]:
    """The distributions of import hooks other than the interpreter's and the backport's."""
    for finder in _foreign_finders():
        for distribution in _listed_by(finder, marker)[0]:
            if normalise(distribution.name) not in seen:
                seen.add(normalise(distribution.name))
                yield distribution


def hook_problems() -> list[str]:
    """What import hooks raise when they are asked for their packages, which are not listed."""
    return [problem for each in _foreign_finders() for problem in _listed_by(each, None)[1]]


def _foreign_finders() -> list[Any]:
    return [
        finder
        for finder in sys.meta_path
        # The default finders have this method as well, but read the folders that are done above.
        if hasattr(finder, "find_distributions")
        and getattr(finder, "__module__", "").partition(".")[0]
        not in ("_frozen_importlib_external", "importlib_metadata")
    ]


def _listed_by(finder: Any, marker: bytes | None) -> tuple[list[Distribution], list[str]]:
    """The distributions of an import hook, and a problem for each that it can't show."""
    import importlib_metadata  # noqa: PLC0415

    context = importlib_metadata.DistributionFinder.Context()  # type: ignore[no-untyped-call]
    found: list[Distribution] = []
    problems: list[str] = []
    name = getattr(finder, "__qualname__", type(finder).__qualname__)
    hook = f"the import hook {getattr(finder, '__module__', '?')}.{name}"
    try:
        for each in finder.find_distributions(context):
            try:
                found += _translated(each, marker)
            except Exception as error:  # noqa: BLE001 - somebody's hook
                problems.append(f"{hook} has a package that can't be read: {describe(error)}")
    except Exception as error:  # noqa: BLE001
        problems.append(f"{hook} could not list its packages: {describe(error)}")
    if problems:
        import logging  # noqa: PLC0415 - costs more than a listing, in which nothing fails

        logging.getLogger("hermes_core").warning("%s", "; ".join(problems))
    return found, problems


def _translated(found: Any, marker: bytes | None) -> Iterator[Distribution]:
    """One of importlib's distributions as one of ours; raises what reading its files raises."""
    problem = ""
    entry_points: tuple[EntryPoint, ...] = ()
    fields = _headers(found.read_text("METADATA") or found.read_text("PKG-INFO") or "")
    name = fields.get("Name", "")
    try:
        text = found.read_text("entry_points.txt") or ""
        if marker is not None and marker.decode() not in text:
            return
        entry_points, problem = parse_entry_points(text)
    except UnicodeDecodeError:
        problem = f"entry_points.txt of {name} is not UTF-8"
    location, registers = Path(), False
    with suppress(NotImplementedError, OSError, ValueError):  # it may have no files
        location = Path(str(found.locate_file("")))
        # Sources in an archive have no path that the scan could open later.
        registers = any(REGISTERS in _archived(found, each) for each in found.files or ())
    version, summary = fields.get("Version", ""), fields.get("Summary", "")
    yield Distribution(name, version, summary, location, entry_points, (), problem, registers)


def _archived(found: Any, name: Any) -> bytes:
    """A source file in an archive."""
    if not str(name).endswith(".py"):
        return b""
    try:
        return bytes(found.locate_file(name).read_bytes())
    except (OSError, KeyError):
        return b""
