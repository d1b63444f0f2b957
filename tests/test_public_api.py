"""The public API is complete: what pages teach and what public signatures show is exported."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import hermes_core

ROOT = Path(__file__).parents[1]
#: Packages whose ``__all__`` is public. Every other module is an implementation detail.
PUBLIC_PACKAGES = (
    "hermes_core",
    "hermes_core.conformance",
    "hermes_core.service",
    "hermes_core.testing",
)
#: Types in the constructors of conversations and turns, which only the manager makes.
INTERNAL = {"CallQueue", "ConversationSlot", "_Exchange"}
PAGES = [
    *(ROOT / "docs").glob("*.md"),
    *(ROOT / "plugins").glob("*/README.md"),
    ROOT / "README.md",
]
IMPORT = re.compile(r"^ *from (hermes_core[\w.]*) import (?:\(([^)]*)\)|(.+))$", re.MULTILINE)


def exported() -> dict[str, Any]:
    """Every public name, with its object."""
    packages = map(import_module, PUBLIC_PACKAGES)
    return {name: getattr(each, name) for each in packages for name in each.__all__}


def annotations_of(thing: Any) -> Iterator[tuple[ModuleType, str]]:
    """The annotations in the public signatures of a class or function, each with its module."""
    if inspect.isfunction(thing):
        for text in inspect.unwrap(thing).__annotations__.values():
            yield sys.modules[inspect.unwrap(thing).__module__], str(text)
    for each in thing.__mro__ if inspect.isclass(thing) else ():
        members = {name: member for name, member in vars(each).items() if name[0] != "_"}
        if "__init__" in vars(each):
            members["__init__"] = vars(each)["__init__"]
        for member in members.values():
            function = getattr(member, "fget", None) or getattr(member, "__func__", member)
            if inspect.isfunction(function):
                yield from annotations_of(function)
        for name, text in vars(each).get("__annotations__", {}).items():
            if name[0] != "_":
                yield sys.modules[each.__module__], str(text)


@cache
def own_names(module: ModuleType) -> set[str]:
    """The names that a module defines, or imports from another module of ours."""
    found = set()
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hermes_core"):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            alias = isinstance(node.annotation, ast.Name) and node.annotation.id == "TypeAlias"
            found |= {node.target.id} if alias else set()
    return found


def test_every_type_in_a_public_signature_is_public() -> None:
    public = exported()
    missing = set()
    for name, thing in public.items():
        for module, text in annotations_of(thing):
            if module.__name__.partition(".")[0] == "hermes_core":
                words = set(re.findall(r"[A-Za-z_]\w*", text))
                unknown = (words & own_names(module)) - set(public) - INTERNAL
                missing |= {f"{each}, in {name}" for each in unknown}
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pages_import_public_names_only(page: Path) -> None:
    for module, several, one in IMPORT.findall(page.read_text("utf-8")):
        names = {each.split()[0] for each in (several or one).split(",") if each.strip()}
        assert module in PUBLIC_PACKAGES, f"{page.name}: {module} is not public"
        assert names <= set(import_module(module).__all__)


def test_a_type_checker_sees_every_public_name() -> None:
    """`tests/typing/api.py` uses each of them, so that none can vanish unnoticed."""
    used = set(re.findall(r"\w+", (ROOT / "tests/typing/api.py").read_text("utf-8")))
    assert set(hermes_core.__all__) - used == {"__version__"}


def test_dir_shows_the_public_names_before_they_were_used() -> None:
    code = "import hermes_core; print(*dir(hermes_core))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == sorted(hermes_core.__all__)


def test_a_star_import_gives_the_public_names() -> None:
    namespace: dict[str, object] = {}
    exec("from hermes_core import *", namespace)
    assert set(hermes_core.__all__) <= set(namespace)


def test_an_unknown_name_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="no attribute 'MemoryManger'"):
        hermes_core.MemoryManger  # noqa: B018
    with pytest.raises(ImportError, match="MemoryManger"):
        exec("from hermes_core import MemoryManger")
