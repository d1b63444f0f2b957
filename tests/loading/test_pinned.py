"""``memory.pin: strict``: what was enabled runs, and nothing else that Python could find."""

from __future__ import annotations

import json
import marshal
import os
import py_compile
import shutil
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import MAGIC_NUMBER, cache_from_source
from itertools import count
from pathlib import Path

import pytest
from support.commands import posix_only
from support.modules import leaves_a_mark
from support.sites import MEMORY, Site, add_directory, provider_source

from hermes_core import MemoryManager, discover, load_provider
from hermes_core.discovery import find_provider, pin_of
from hermes_core.errors import HermesError
from hermes_core.loading import load
from hermes_core.loading.pinned import pin_imports

_numbers = count()


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """Where code that nobody enabled leaves its trace."""
    return tmp_path / "ran"


@pytest.fixture(autouse=True)
def _own_finders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))


def enable(home: Path, name: str) -> None:
    pin = pin_of(find_provider(name, discover(home)))._asdict()
    memory = {"provider": name, "pin": "strict", "pins": {name: pin}}
    (home / "config.yaml").write_text(json.dumps({"memory": memory}), "utf-8")


def is_refused(home: Path, name: str) -> bool:
    """Whether neither an agent nor `load_provider` gets the provider."""
    manager = MemoryManager.from_config(home=home)
    refused = name not in [each.name for each in manager.providers]
    manager.shutdown_all()
    try:
        load_provider(name, home)
    except HermesError:
        return refused
    assert not refused
    return False


def poison(source: Path, mark: Path, *, unchecked: bool) -> None:
    """Byte code for a source file that does something else, and that Python accepts."""
    code = compile(leaves_a_mark(mark) + source.read_text("utf-8"), str(source), "exec")
    status = source.stat()
    flags = b"\1\0\0\0" + bytes(8)  # by hash, which nobody compares
    if not unchecked:
        flags = b"\0\0\0\0" + int(status.st_mtime).to_bytes(4, "little")
        flags += status.st_size.to_bytes(4, "little")
    cached = Path(cache_from_source(str(source)))
    cached.parent.mkdir(exist_ok=True)
    cached.write_bytes(MAGIC_NUMBER + flags + marshal.dumps(code))


SOURCE = "from . import helper\n" + provider_source("mine")


@pytest.fixture
def folder(home: Path) -> Path:
    """A directory plugin with a second module and a folder that begins with a dot, enabled."""
    made = add_directory(home, "mine", SOURCE)
    (made / "helper.py").write_text("import json\n", "utf-8")
    (made / ".hidden").mkdir()
    (made / ".hidden" / "more.py").write_text("", "utf-8")
    enable(home, "mine")
    return made


@pytest.fixture
def package(home: Path, site: Site) -> Path:
    """The folder of an installed package with a second module, enabled as mine."""
    module = f"mine_{next(_numbers)}"
    files = {f"{module}/__init__.py": SOURCE, f"{module}/helper.py": "import json\n"}
    site.add("mine-memory", groups={MEMORY: {"mine": f"{module}:register"}}, files=files)
    enable(home, "mine")
    return site.folder / module


def test_what_was_enabled_is_loaded_and_leaves_no_byte_code(home, folder):
    assert not is_refused(home, "mine")
    assert not is_refused(home, "mine")  # a second time in one process
    assert not list(folder.rglob("*.pyc"))


def test_a_package_that_was_enabled_is_loaded(home, package):
    assert not is_refused(home, "mine")
    assert not list(package.rglob("*.pyc"))


@pytest.mark.parametrize("unchecked", [True, False])
@pytest.mark.parametrize("place", ["folder", "package"])
def test_byte_code_is_not_used(home, mark, request, place, unchecked):
    for name in ("__init__.py", "helper.py"):
        poison(request.getfixturevalue(place) / name, mark, unchecked=unchecked)
    assert not is_refused(home, "mine")
    assert not mark.exists()


def module_beside(package: Path, source: str) -> None:
    (package / "json.py").write_text(source, "utf-8")


def package_in_place_of_a_module(package: Path, source: str) -> None:
    (package / "helper").mkdir()
    (package / "helper" / "__init__.py").write_text(source, "utf-8")


def extension_in_place_of_a_module(package: Path, source: str) -> None:
    (package / f"helper{EXTENSION_SUFFIXES[0]}").write_text(source, "utf-8")


def byte_code_without_a_source(package: Path, source: str) -> None:
    path = package / "json.py"
    path.write_text(source, "utf-8")
    py_compile.compile(str(path), str(package / "json.pyc"))
    path.unlink()


def module_in_the_cache(package: Path, source: str) -> None:
    (package / "__pycache__").mkdir(exist_ok=True)
    (package / "__pycache__" / "json.py").write_text(source, "utf-8")


def linked_folder(package: Path, source: str) -> None:
    target = package.parent.parent / "elsewhere"
    target.mkdir()
    (target / "__init__.py").write_text(source, "utf-8")
    (package / "helper").symlink_to(target, target_is_directory=True)


def linked_file(package: Path, source: str) -> None:
    target = package.parent.parent / "elsewhere.py"
    target.write_text(source, "utf-8")
    (package / "json.py").symlink_to(target)


def module_in_a_hidden_folder(package: Path, source: str) -> None:
    (package / ".hidden").mkdir(exist_ok=True)
    (package / ".hidden" / "more.py").write_text(source, "utf-8")


def hidden_module(package: Path, source: str) -> None:
    (package / ".more.py").write_text(source, "utf-8")


@pytest.mark.parametrize(
    "change",
    [
        module_beside,
        package_in_place_of_a_module,
        extension_in_place_of_a_module,
        byte_code_without_a_source,
        module_in_the_cache,
        pytest.param(linked_folder, marks=posix_only),
        pytest.param(linked_file, marks=posix_only),
        module_in_a_hidden_folder,
        hidden_module,
    ],
)
@pytest.mark.parametrize("place", ["folder", "package"])
def test_whatever_could_be_imported_besides_is_refused(home, mark, request, place, change):
    change(request.getfixturevalue(place), leaves_a_mark(mark))
    assert is_refused(home, "mine")
    assert not mark.exists()


@posix_only
@pytest.mark.parametrize("place", ["folder", "package"])
def test_what_a_link_leads_to_counts(home, request, tmp_path, place):
    made = request.getfixturevalue(place)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "part.py").write_text("", "utf-8")
    (tmp_path / "one.py").write_text("", "utf-8")
    (made / "linked").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    (made / "endless").symlink_to(made, target_is_directory=True)
    (made / "one.py").symlink_to(tmp_path / "one.py")
    enable(home, "mine")
    assert not is_refused(home, "mine")
    for changed in (tmp_path / "elsewhere" / "part.py", tmp_path / "one.py"):
        changed.write_text("# changed", "utf-8")
        assert is_refused(home, "mine")
        changed.write_text("", "utf-8")


def test_an_extension_or_a_package_beside_a_single_module_is_refused(home, site, mark):
    module = f"single_{next(_numbers)}"
    groups = {MEMORY: {"mine": f"{module}:register"}}
    site.add("mine-memory", groups=groups, files={f"{module}.py": provider_source("mine")})
    enable(home, "mine")
    assert not is_refused(home, "mine")
    (site.folder / module).mkdir()
    (site.folder / module / "__init__.py").write_text(leaves_a_mark(mark), "utf-8")
    assert is_refused(home, "mine")


def test_a_namespace_package_stays_one_and_may_have_other_parts(home, site, mark):
    space = f"space_{next(_numbers)}"
    files = {f"{space}/mine/__init__.py": provider_source("mine")}
    site.add("mine-memory", groups={MEMORY: {"mine": f"{space}.mine:register"}}, files=files)
    enable(home, "mine")
    (site.folder / space / "other.py").write_text("", "utf-8")  # another distribution's
    assert not is_refused(home, "mine")
    (site.folder / space / "__init__.py").write_text(leaves_a_mark(mark), "utf-8")
    assert is_refused(home, "mine")
    assert not mark.exists()


def test_a_package_earlier_on_the_import_path_is_refused(
    home, package, mark, tmp_path, monkeypatch
):
    shutil.copytree(package, tmp_path / "earlier" / package.name)
    source = tmp_path / "earlier" / package.name / "__init__.py"
    source.write_text(leaves_a_mark(mark) + provider_source("mine"), "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path / "earlier"))
    assert is_refused(home, "mine")
    assert not mark.exists()


def test_an_entry_point_that_leads_elsewhere_is_refused(home, site, package, mark):
    (site.folder / "planted.py").write_text(leaves_a_mark(mark) + provider_source("mine"), "utf-8")
    (declared,) = site.folder.glob("*.dist-info/entry_points.txt")
    declared.write_text(declared.read_text("utf-8").replace(package.name, "planted"), "utf-8")
    assert is_refused(home, "mine")
    assert not mark.exists()


@pytest.mark.parametrize("name", ["__init__.py", "helper.py"])
@pytest.mark.parametrize("place", ["folder", "package"])
def test_what_changes_after_the_check_does_not_run(home, mark, request, place, name):
    path = request.getfixturevalue(place) / name
    info = find_provider("mine", discover(home))
    pin_imports(info, pin_of(info).hash)
    path.write_text(leaves_a_mark(mark) + path.read_text("utf-8"), "utf-8")
    with pytest.raises(HermesError, match="differs from the files that were enabled"):
        load(info, home)
    assert not mark.exists()


def test_a_module_that_appears_after_the_check_does_not_run(home, mark):
    add_directory(home, "late", SOURCE.replace("mine", "late") + LATE).joinpath(
        "helper.py"
    ).write_text("", "utf-8")
    enable(home, "late")
    provider = load_provider("late", home)
    with pytest.raises(ImportError, match="is not among the files that were enabled"):
        provider.shutdown(leaves_a_mark(mark))
    assert not mark.exists()


#: A plugin that writes a module of its own and imports it, as somebody else might do.
LATE = """
import importlib, pathlib

def shutdown(self, source):
    pathlib.Path(__file__).with_name("new.py").write_text(source)
    importlib.invalidate_caches()
    from . import new

Provider.shutdown = shutdown
"""


def test_a_plugin_that_adds_its_own_folder_to_the_path_is_checked_there_too(home, mark):
    source = (
        f"import os, sys\nsys.path.insert(0, os.path.dirname(__file__))\n"
        f"import flat_{next(_numbers)} as flat\n"
    )
    folder = add_directory(home, "flat", source + provider_source("flat"))
    name = source.split()[-3]
    (folder / f"{name}.py").write_text("", "utf-8")
    enable(home, "flat")
    poison(folder / f"{name}.py", mark, unchecked=True)
    path = list(sys.path)
    try:
        assert not is_refused(home, "flat")
    finally:
        sys.path[:] = path
    assert not mark.exists()


@posix_only
@pytest.mark.parametrize("place", ["folder", "package"])
def test_a_file_without_end_is_named_and_not_hashed(home, request, place):
    path = request.getfixturevalue(place) / "helper.py"
    os.truncate(path, 50_000_000_000)
    (info,) = (each for each in discover(home) if each.name == "mine")
    assert (info.state, info.active) == ("changed", False)
    assert "helper.py is too large to be checked: 50,000,000,000 bytes" in info.problem
    assert is_refused(home, "mine")
