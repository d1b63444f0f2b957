"""Imports what an entry point names, or a directory plugin as a package."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import time
from contextlib import suppress
from functools import reduce
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

_PREFIX: Final = "_hermes_plugin_"
_COMPLETE: Final = "__hermes_complete__"


def import_value(entry_point: str) -> Any:
    """The object that ``module:attribute [extras]`` names."""
    with suppress(KeyError):  # of Python 3.11, when two threads do so at once
        importlib.invalidate_caches()  # it may have been installed a moment ago
    reference = entry_point.partition("[")[0]
    module, _, attributes = (part.strip() for part in reference.partition(":"))
    value: Any = importlib.import_module(module)
    return reduce(getattr, attributes.split("."), value) if attributes else value


def package_name(folder: Path) -> str:
    """The name under which a directory plugin is imported."""
    digest = sha256(str(folder).encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{_PREFIX}{digest}"


def _forget_namesake(folder: Path, name: str) -> None:
    """Let ``plugins.memory.<folder>`` be found anew, if it is another home's plugin now."""
    alias = f"plugins.memory.{folder.name}"
    known = getattr(sys.modules.get(alias), "__name__", name)
    if known.startswith(_PREFIX) and known != name:
        _forget(alias)


def _forget(name: str) -> None:
    for each in [key for key in sys.modules if key == name or key.startswith(f"{name}.")]:
        del sys.modules[each]


def import_directory(folder: Path, site: Path | None = None) -> Any:
    """A directory plugin as a package, so that its relative imports work.

    One that lies in an installed distribution has its own name there and keeps it. Any
    other gets a name made from its path: two homes may have plugins of one name.
    """
    if site is not None and folder.is_relative_to(site):
        return import_value(".".join(folder.relative_to(site).parts))
    name = package_name(folder)
    _forget_namesake(folder, name)
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{folder} can't be imported")
    module = importlib.util.module_from_spec(spec)
    # Another thread may be at it, and may never end: our deadline covers the wait.
    while (first := sys.modules.setdefault(name, module)) is not module:
        if getattr(first, _COMPLETE, False):
            return first
        time.sleep(0.01)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        _forget(name)
        raise
    setattr(module, _COMPLETE, True)
    return module
