"""What a plugin consists of on the disk: everything that Python could import from its place.

A pin is a hash over it, and with ``memory.pin: strict`` each file is compared with its digest
again when it is imported (`hermes_core.loading.pinned`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final, NamedTuple

from hermes_core.discovery.provider_info import RECORD, ProviderInfo
from hermes_core.storage.files import open_regular

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

#: What the import system looks for, on every platform.
IMPORTABLE: Final = (".py", ".pyw", ".pyc", ".so", ".pyd")

#: In the folder of a directory plugin: git's own files, and our record of where it came from.
_NOT_CONTENT: Final = frozenset((".git", RECORD))
_DESKTOP: Final = ".DS_Store"
_CACHE: Final = "__pycache__"

_MAX_FILES: Final = 20_000
_MAX_SOURCE_BYTES: Final = 10_000_000
_MAX_NATIVE_BYTES: Final = 500_000_000
_WHOLE_BYTES: Final = 64_000_000  # of a larger file that nobody imports, only the ends count
_CHUNK: Final = 1 << 20


class Contents(NamedTuple):
    """The hash over a plugin's files, the digest of each, and what can't be checked, if any.

    ``names`` are the modules that belong to a distribution, by their dotted names.
    """

    hash: str
    digests: Mapping[Path, str]
    names: frozenset[str] = frozenset()
    problem: str = ""


class _TooLargeError(Exception):
    """A file that takes too long to hash."""


def content_hash(info: ProviderInfo) -> str:
    """A hash over the names and contents of a plugin's files; see `read_contents`."""
    return read_contents(info).hash


def read_contents(info: ProviderInfo) -> Contents:
    """Read and hash everything that belongs to a plugin.

    Of a directory plugin that is all in the directory, through links too. Of a distribution it
    is what RECORD lists without metadata and scripts (an editable install has nothing else),
    and what Python could import beside that. Byte code in ``__pycache__`` does not count: it
    comes and goes, and a strict pin does not use it.
    """
    from hashlib import sha256  # noqa: PLC0415 - only for the provider that is pinned

    whole = sha256()
    digests: dict[Path, str] = {}
    problem = ""
    files = iter(_content(info))
    for name, path in islice(files, _MAX_FILES):
        try:
            digest = _digest(path)
        except _TooLargeError as error:
            digest, problem = "missing", problem or f"{name} {error}"
        except OSError:
            digest = "missing"
        digests[path] = digest
        # A hash of hashes: contents can't be shifted from one file to the next.
        # "surrogatepass": names of files on Linux are bytes, and may not be valid UTF-8.
        whole.update(f"{name}\0{digest}\n".encode("utf-8", "surrogatepass"))
    if next(files, None) is not None:
        problem = problem or f"it has more than {_MAX_FILES:,} files"
    return Contents(f"sha256:{whole.hexdigest()}", digests, _own_names(info), problem)


def foreign_module(info: ProviderInfo, contents: Contents) -> str:
    """The module that an entry point names, if it is none of the plugin's; else ""."""
    module = info.entry_point.partition(":")[0].partition("[")[0].strip()
    is_known = contents.digests and contents.names and module
    return module if is_known and not is_below(module, contents.names) else ""


def is_below(module: str, names: frozenset[str]) -> bool:
    """Whether a module is one of these, or in one of them."""
    return any(f"{module}.".startswith(f"{each}.") for each in names)


def tried_hash(info: ProviderInfo) -> str:
    """The hash of a plugin of which a run of the checks can speak; "" if it covers only a part."""
    found = read_contents(info)
    return "" if found.problem or foreign_module(info, found) else found.hash


def digest_of(content: ReadableBuffer) -> str:
    """The digest of a file that somebody has read."""
    from hashlib import sha256  # noqa: PLC0415

    return sha256(content).hexdigest()


def _digest(path: Path) -> str:
    """The digest of a file, in little memory.

    Raises:
        OSError: It can't be read.
        _TooLargeError: It is too large to be what its name says.
    """
    from hashlib import sha256  # noqa: PLC0415

    digest = sha256()
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if path.name.endswith(IMPORTABLE):
            source = path.name.endswith((".py", ".pyw"))
            if size > (_MAX_SOURCE_BYTES if source else _MAX_NATIVE_BYTES):
                raise _TooLargeError(f"is too large to be checked: {size:,} bytes")
        elif size > _WHOLE_BYTES:
            digest.update(file.read(_CHUNK))
            file.seek(-_CHUNK, os.SEEK_END)
            return f"{sha256(digest.digest() + file.read(_CHUNK)).hexdigest()} of {size}"
        for _ in range(size // _CHUNK + 1):  # no further, if somebody keeps writing
            digest.update(file.read(_CHUNK))
    return digest.hexdigest()


def _content(info: ProviderInfo) -> Iterator[tuple[str, Path]]:
    if info.directory is not None and not info.distribution:
        yield from _in_directory(info.directory)
        return
    if info.location is None:
        return
    listed = [each for each in info.files if _counts(each)]
    more = set(_beside(info.location, listed)) - set(listed)
    for name in sorted([*listed, *more]):
        yield name, info.location / name
    if info.directory is not None and not info.directory.is_relative_to(info.location):
        for name, path in _in_directory(info.directory):  # RECORD may lead out of the site
            yield f"../{name}", path


def _in_directory(folder: Path) -> Iterator[tuple[str, Path]]:
    for name, path in _walk(folder):
        if name.partition("/")[0] not in _NOT_CONTENT and path.name != _DESKTOP:
            yield name, path


def _walk(folder: Path, inner: str = "", above: tuple[str, ...] = ()) -> Iterator[tuple[str, Path]]:
    """The files below a folder and their names, the folder's own first, without byte code."""
    real = os.path.realpath(folder)
    try:
        names = [] if real in above else sorted(os.listdir(folder))  # noqa: PTH208 - names alone
    except OSError:
        yield f"{inner}.", folder
        return
    folders = [each for each in names if os.path.isdir(folder / each)]  # noqa: PTH112 - never raises
    for each in names:
        if each not in folders and not _is_byte_code(f"{inner}{each}"):
            yield f"{inner}{each}", folder / each
    for each in folders:
        if inner or each not in _NOT_CONTENT:
            yield from _walk(folder / each, f"{inner}{each}/", (*above, real))


def _is_byte_code(name: str) -> bool:
    """Whether it is what Python stores beside the sources. Elsewhere it can be imported."""
    path = PurePosixPath(name)
    return path.suffix == ".pyc" and path.parent.name == _CACHE


def _counts(name: str) -> bool:
    # Metadata differs between two installs of the same version, and so do the paths of scripts: a
    # pin must hold on another machine.
    path = PurePosixPath(name)
    outside = ".." in path.parts or Path(name).is_absolute()  # scripts lie there
    if _is_byte_code(name) or outside or not path.parts:
        return False
    return not path.parts[0].endswith((".dist-info", ".data"))


def _own_names(info: ProviderInfo) -> frozenset[str]:
    if info.directory is not None and not info.distribution:
        return frozenset()
    return frozenset(map(".".join, module_names(each for each in info.files if _counts(each))))


def module_names(listed: Iterable[str]) -> set[tuple[str, ...]]:
    """The packages and modules of a distribution, from below its namespace packages."""
    code = [PurePosixPath(each) for each in listed if each.endswith(IMPORTABLE)]
    packages = {each.parent for each in code if _stem(each.name) == "__init__"}
    found = set()
    for path in code:
        inside = [each for each in reversed(path.parents) if each in packages and each.parts]
        found.add(inside[0].parts if inside else (*path.parts[:-1], _stem(path.name)))
    return found


def _stem(name: str) -> str:
    return name.partition(".")[0]


def _beside(location: Path, listed: Iterable[str]) -> Iterator[str]:
    """The names of what Python could import under a distribution's names: also what nobody lists.

    An extension module is imported instead of a ``.py`` of the same name, and a package
    instead of a module.
    """
    wanted: dict[tuple[str, ...], set[str]] = {}
    for *above, name in module_names(listed):
        wanted.setdefault(tuple(above), set()).add(name)
        for depth in range(1, len(above) + 1):  # a namespace package must stay one
            wanted.setdefault(tuple(above[:depth]), set()).add("__init__")
    for parts, stems in wanted.items():
        folder = location.joinpath(*parts)
        inner = "".join(f"{each}/" for each in parts)
        try:
            names = os.listdir(folder)  # noqa: PTH208
        except OSError:
            continue
        for name in names:
            if _stem(name) not in stems or name.endswith((".dist-info", ".data")):
                continue
            if os.path.isdir(folder / name):  # noqa: PTH112
                below = _walk(folder / name, f"{inner}{name}/")
                yield from (each for each, _ in below if each.endswith(IMPORTABLE))
            elif name.endswith(IMPORTABLE):
                yield f"{inner}{name}"
