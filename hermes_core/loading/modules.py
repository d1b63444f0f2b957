"""Imports what an entry point names, or a directory plugin as a package.

A directory plugin may import itself by the name that its package had before it was copied:
packages that declare nothing are copied into ``$HERMES_HOME/plugins/<name>/``, where they have
another name. Their relative imports work there. Their absolute ones (``from acme_memory.store
import Store``) work only where the package is installed as well. Where it is not, a finder
leads them to the copy.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import reduce
from hashlib import sha256
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from hermes_core.discovery import content_of, python_files
from hermes_core.loading.pinned import checked_spec, is_current

_PREFIX: Final = "_hermes_plugin_"
_OVER: Final = "__hermes_over__"


def import_value(entry_point: str) -> Any:
    """Return the object that ``module:attribute [extras]`` names."""
    with suppress(KeyError):  # raised by Python 3.11 if two threads do this at once
        importlib.invalidate_caches()  # it may have been installed a moment ago
    reference = entry_point.partition("[")[0]
    module, _, attributes = (part.strip() for part in reference.partition(":"))
    value: Any = importlib.import_module(module)
    return reduce(getattr, attributes.split("."), value) if attributes else value


def package_name(folder: Path) -> str:
    """Return the name under which a directory plugin is imported."""
    # 12 digits of the path: no two plugins of one process share a name.
    digest = sha256(str(folder).encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{_PREFIX}{digest}"


def _forget_namesake(alias: str, name: str) -> None:
    """Forget a name that leads to a directory plugin of another home."""
    # Two homes in one process: the alias is in sys.modules with the other home's copy.
    known = getattr(sys.modules.get(alias), "__name__", name)
    if known.startswith(_PREFIX) and known != name:
        _forget(alias)


def _forget(name: str) -> None:
    # A list first: deleting while iterating over a dict raises.
    for each in [key for key in sys.modules if key == name or key.startswith(f"{name}.")]:
        del sys.modules[each]


def _end_of_import(module: ModuleType) -> threading.Event:
    """The event of a directory plugin that says that its import is over."""
    event: threading.Event | None = getattr(module, _OVER, None)
    if event is None:  # a module that has put something else in its place, at its end
        event = threading.Event()
        event.set()
    return event


def import_directory(folder: Path, site: Path | None = None) -> Any:
    """Import a directory plugin as a package, so that its relative imports work.

    One inside an installed distribution is imported by its name there. Any other has a name made
    from its path: two homes may have plugins of one name.
    """
    if site is not None and folder.is_relative_to(site):
        return import_value(".".join(folder.relative_to(site).parts))
    name = package_name(folder)
    if alias := lead_to(folder, name):
        _forget_namesake(alias, name)
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    spec = None if spec is None else checked_spec(spec)
    loader = None if spec is None else spec.loader
    if spec is None or loader is None:
        raise ImportError(f"{folder} can't be imported")
    module = importlib.util.module_from_spec(spec)
    over = threading.Event()
    setattr(module, _OVER, over)
    known = sys.modules.get(name)
    if known is not None and _end_of_import(known).is_set() and not is_current(known):
        _forget(name)
    # Another thread may be importing it, and may never end: our deadline covers the wait.
    # setdefault is atomic, so exactly one thread runs the module; the others wait for its end.
    # `importlib.import_module` has a lock for that, but can't import a file by its path.
    while (first := sys.modules.setdefault(name, module)) is not module:
        _end_of_import(first).wait()
        if sys.modules.get(name) is first:  # else its import failed, and this thread tries
            return first
    try:
        loader.exec_module(module)
    # A half-executed module must not stay: the next import would return it as complete.
    except BaseException:
        _forget(name)
        raise
    finally:
        over.set()
    return module


# "from a.b import c, d", also with parentheses over several lines; or "import a.b". A plain
# "import a" says nothing: every library is imported like that.
_IMPORT: Final = re.compile(
    r"^[ \t]*(?:from[ \t]+(\w+)((?:\.\w+)*)[ \t]+import[ \t]+(\([^)]*\)|[^#\n]+)"
    r"|import[ \t]+(\w+)((?:\.\w+)+))",
    re.MULTILINE,
)
#: Hosts, and modules that they offer: never a plugin's own.
_NOT_OWN: Final = frozenset(
    {"agent", "hermes_agent", "hermes_cli", "hermes_constants", "hermes_core", "plugins", "tools"}
)


def own_package(folder: Path) -> str:
    """Return the name by which the files in a folder import each other; "" if there is none.

    The files are read as text.

    A client library may have a module of the same name as the plugin (``acme.session``). It is
    recognised by the names that the plugin imports from its top and does not have itself. Of
    what is left, the package that is imported most is the plugin's own.
    """
    begin = _text(folder / "__init__.py")
    own: Counter[str] = Counter()
    others: set[str] = set()
    for path in python_files(folder):
        first = path == folder / "__init__.py"
        for top, below, names in _imports_in(_text(path)):
            # "from acme.store import X": evidence if this folder has a store.py.
            if below:
                own[top] += _is_module(folder.joinpath(*below.split(".")))
            for name in () if below else names:
                # A package can't import from itself what it has not defined yet.
                if _is_module(folder / name) or (not first and _defines(begin, name)):
                    own[top] += 1
                # The name is nowhere in this plugin, so the package is somebody else's.
                elif first or not _may_have(begin, name):
                    others.add(top)
    found = ((count, top) for top, count in own.items() if count and top not in others)
    # Ties go to the last name in the alphabet: arbitrary, but the same every time.
    return max(found, default=(0, ""))[1]


def _text(path: Path) -> str:
    return content_of(path).decode("utf-8", "replace")


def _imports_in(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield absolute imports: package, module below it, and the names imported from that."""
    for top, below, listed, plain, plain_below in _IMPORT.findall(text):
        package = top or plain
        if package not in _NOT_OWN and package not in sys.stdlib_module_names:
            names = re.sub(r"#.*", "", listed).split(",")
            found = [name for each in names for name in re.findall(r"\w+", each)[:1]]
            yield package, (below or plain_below).strip("."), found


def _defines(begin: str, name: str) -> bool:
    """Return whether a module has a function, a class or a variable of that name."""
    # At the left margin: a definition, or an assignment that may have an annotation. `=(?!=)`
    # excludes a comparison.
    pattern = rf"^(?:(?:async )?def |class ){name}\b|^{name}\s*(?::[^=\n]+)?=(?!=)"
    return bool(re.search(pattern, begin, re.MULTILINE))


def _may_have(begin: str, name: str) -> bool:
    """Return whether a module may have a name, also imported or made on demand."""
    pattern = (
        # Also inside `try` or `if`, by __getattr__, by a star import, or from a relative import.
        rf"^[ \t]*{name}\s*(?::[^=\n]+)?=(?!=)|\b__getattr__\b|import \*"
        rf"|^[ \t]*from[ \t]+\.[\w.]*[ \t]+import[ \t]+(?:\([^)]*|[^(\n]*)\b{name}\b"
    )
    return _defines(begin, name) or bool(re.search(pattern, begin, re.MULTILINE))


def _is_module(path: Path) -> bool:
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


class _OwnFinder(MetaPathFinder, Loader):
    """Finds the copy of a package, and of its modules, under its former name."""

    def __init__(self) -> None:
        self.packages: dict[str, str] = {}  # by their former names

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return the copy's module, unless a package of that name is installed."""
        top, _, below = fullname.partition(".")
        if top not in self.packages:
            return None
        real = self.packages[top]
        if below:
            # The package decides for its modules: after a real one was imported, none of the copy
            # is used.
            copied = sys.modules.get(top) is sys.modules.get(real)
        else:
            others = (each for each in sys.meta_path if each is not self)
            # An installed package wins. Other finders are asked directly, since `find_spec` of
            # importlib would ask this one as well and never end.
            copied = not any(_finds(each, fullname, path, target) for each in others)
        if not copied or real not in sys.modules:
            return None
        # Imported before sys.modules has the former name: its modules may import that name again.
        return ModuleSpec(fullname, self) if _imports(f"{real}.{below}".rstrip(".")) else None

    def create_module(self, spec: ModuleSpec) -> None:
        """Use the default module."""

    def exec_module(self, module: ModuleType) -> None:
        """Replace this module by the copy's."""
        top, dot, below = module.__name__.partition(".")
        real = f"{self.packages[top]}{dot}{below}"
        sys.modules[module.__name__] = sys.modules[real]


def _imports(name: str) -> bool:
    """Import a module of the copy; return False if there is none of that name."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Another missing module is a bug inside the copy, and must not look like "not found".
        if error.name == name:
            return False
        raise
    return True


def _finds(
    finder: object, name: str, path: Sequence[str] | None, target: ModuleType | None
) -> bool:
    find = getattr(finder, "find_spec", None)
    return find is not None and find(name, path, target) is not None


# sys.meta_path is global to the process, so one finder serves all homes.
_FINDER: Final = _OwnFinder()


def lead_to(folder: Path, name: str) -> str:
    """Make a copied package importable under its former name; return that name, or ""."""
    alias = own_package(folder)
    if alias:
        _FINDER.packages[alias] = name
        if _FINDER not in sys.meta_path:
            # In front: a path finder would load the copy's modules a second time.
            sys.meta_path.insert(0, _FINDER)
    return alias
