"""What source files say, read as text: nothing here runs or imports a plugin."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hermes_core.config.names import normalise
from hermes_core.storage.files import open_regular

if TYPE_CHECKING:
    import ast

    from hermes_core.discovery.provider_info import ProviderInfo

REGISTERS: Final = b"register_memory_provider"
# At the beginning of a line: a method called `register` does not count.
_DEF: Final = b"\ndef register("
_SUBCLASS: Final = b"MemoryProvider"

# Bounds for what a listing may read: a package can carry generated or vendored sources.
_MAX_BYTES: Final = 1_000_000
_MAX_FILES: Final = 2_000


def registers_provider(paths: Iterable[Path]) -> bool:
    """Whether one of the files registers a memory provider."""
    return any(REGISTERS in content_of(path) for path in paths)


def speaks_of_provider(folder: Path) -> bool:
    """Whether a directory plugin defines a memory provider or imports one."""
    for path in python_files(folder):
        content = content_of(path)
        # Also in a comment or a string. A false match costs a failed load with a clear message; a
        # miss would hide a provider.
        if REGISTERS in content or _SUBCLASS in content:
            return True
    tree = syntax(folder / "__init__.py")
    if tree is None:
        return False
    # The directory may only import its `register` from an installed package.
    return any(
        registers_provider(module_files(name))
        for name, _ in imports(tree)
        if name.partition(".")[0] not in sys.stdlib_module_names | {"hermes_core"}
    )


def source_files(info: ProviderInfo) -> Iterator[Path]:
    """The Python files that belong to a plugin: its directory's, or its distribution's."""
    if info.directory is not None and not info.distribution:
        yield from python_files(info.directory)
        return
    recorded = [name for name in info.files if name.endswith(".py") and info.location is not None]
    for name in recorded[:_MAX_FILES]:
        yield Path(info.location or "", name)
    if info.entry_point:  # an editable install does not record its sources
        yield from module_files(info.entry_point.partition(":")[0].partition("[")[0].strip())


def requirements(info: ProviderInfo) -> set[str]:
    """The distributions that a plugin's distribution requires, by their normal names."""
    metadata = [name for name in info.files if name.endswith(".dist-info/METADATA")]
    if info.location is None or not metadata:
        return set()
    head = content_of(info.location / metadata[0]).decode("utf-8", "replace").partition("\n\n")[0]
    # Without versions, markers and extras: an optional requirement also shows that they belong
    # together.
    found = re.findall(r"^Requires-Dist: *([A-Za-z0-9._-]+)", head, re.MULTILINE)
    return set(map(normalise, found))


def registering_module(folder: Path) -> str:
    """The one module beside ``__init__.py`` that registers a provider, "" if there is none.

    Some packages have the plugin in a module that their installer renames.
    """
    found = [
        path.stem
        for path in sorted(folder.glob("*.py"))
        if path.name != "__init__.py" and REGISTERS in (text := content_of(path)) and _DEF in text
    ]
    return found[0] if len(found) == 1 else ""


def python_files(folder: Path) -> Iterator[Path]:
    """The Python files below a folder, in a bounded number."""
    count = 0
    for parent, folders, names in os.walk(folder):
        # In place: os.walk descends into the folders that remain in this list.
        folders[:] = sorted(each for each in folders if not each.startswith((".", "__pycache__")))
        for name in sorted(names):
            if name.endswith(".py"):
                count += 1
                if count > _MAX_FILES:
                    return
                yield Path(parent, name)


def module_files(module: str) -> Iterator[Path]:
    """The files of an importable package, found without importing it.

    Only a top-level name may be asked for (``find_spec("a.b")`` imports ``a``), so below a
    namespace package the path is followed by hand.
    """
    from importlib.util import find_spec  # noqa: PLC0415 - rarely needed

    top, *rest = module.split(".")
    try:
        spec = find_spec(top)
    # find_spec runs other packages' import hooks, and raises for `__main__` without a spec.
    except (ImportError, ValueError, AttributeError):
        return
    if spec is None:
        return
    namespace = spec.origin is None
    for location in spec.submodule_search_locations or ():
        base = Path(location, *rest) if namespace else Path(location)
        yield from python_files(base)
        if base.with_suffix(".py").is_file():
            yield base.with_suffix(".py")
    if spec.origin and spec.origin.endswith(".py"):
        yield Path(spec.origin)


def syntax(path: Path) -> ast.Module | None:
    """The syntax tree of a file, or None if it has none."""
    import ast  # noqa: PLC0415 - only where names collide or a plugin wraps a package

    try:
        return ast.parse(content_of(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def imports(tree: ast.Module) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The modules that a file imports, absolutely, with the names it takes from them."""
    import ast  # noqa: PLC0415

    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module, tuple(alias.asname or alias.name for alias in node.names)


def defines_class(tree: ast.Module) -> bool:
    """Whether a file defines a class."""
    import ast  # noqa: PLC0415

    return any(isinstance(node, ast.ClassDef) for node in ast.walk(tree))


def content_of(path: Path) -> bytes:
    """The beginning of a regular file; opening anything else might never return."""
    try:
        with open_regular(path) as file:
            return file.read(_MAX_BYTES)
    except (OSError, ValueError):
        return b""
