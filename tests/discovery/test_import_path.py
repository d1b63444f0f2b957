"""What is on sys.path and sys.meta_path besides plain folders."""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

import importlib_metadata
import pytest
from support.modules import run_python
from support.sites import PLUGINS, Site, provider_source

from hermes_core import discover, load_provider


def zipped(site: Site, path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for each in sorted(site.folder.rglob("*")):
            if each.is_file():
                archive.write(each, each.relative_to(site.folder).as_posix())
    return path


@pytest.fixture
def packed(tmp_path):
    """A site that is not on the import path, to be made an archive of."""
    return Site(tmp_path / "packed")


def test_a_provider_in_a_zip_file_is_listed_and_loaded(found, home, packed, tmp_path, monkeypatch):
    packed.add_provider("zippy", "zippy-memory", "3.0")
    monkeypatch.syspath_prepend(str(zipped(packed, tmp_path / "plugins.zip")))
    zippy = found()["zippy"]
    assert (zippy.state, zippy.source) == ("installed", "entry-point")
    assert (zippy.distribution, zippy.version) == ("zippy-memory", "3.0")
    assert zippy.description == "Memory by zippy-memory"
    assert load_provider("zippy", home).name == "zippy"
    sys.modules.pop("zippy_memory")


def test_a_zip_file_without_a_provider_adds_nothing(found, packed, tmp_path, monkeypatch):
    packed.add("quiet", groups={"console_scripts": {"x": "y:z"}}, files={"quiet.py": ""})
    monkeypatch.syspath_prepend(str(zipped(packed, tmp_path / "plugins.zip")))
    assert found(everything=True) == {}


@pytest.mark.parametrize(
    "content", [b"", b"no archive", b"PK\x03\x04 cut off", b"PK\x05\x06" + b"\xff" * 18]
)
def test_a_file_on_the_path_that_is_no_archive_is_passed_over(
    found, site, tmp_path, monkeypatch, content
):
    site.add_provider("good")
    (tmp_path / "file").write_bytes(content)
    monkeypatch.syspath_prepend(str(tmp_path / "file"))
    assert set(found(everything=True)) == {"good"}


@pytest.mark.parametrize(
    "entry", ["/nowhere/at/all", "/proc/1/root", "x" * 5000, "archive.zip/inside", "~", "*"]
)
def test_an_entry_that_can_not_be_read_is_passed_over(found, site, monkeypatch, entry):
    site.add_provider("good")
    monkeypatch.syspath_prepend(entry)
    assert set(found(everything=True)) == {"good"}


def test_an_empty_entry_is_the_current_folder(found, packed, monkeypatch):
    packed.add_provider("here")
    monkeypatch.chdir(packed.folder)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    assert found()["here"].state == "installed"


def test_a_folder_that_is_on_the_path_twice_is_listed_once(found, site, tmp_path, monkeypatch):
    site.add_provider("good")
    (tmp_path / "lib64").symlink_to(site.folder, target_is_directory=True)
    monkeypatch.syspath_prepend(str(tmp_path / "lib64"))
    monkeypatch.setattr(sys, "path", [str(site.folder), *sys.path])
    assert found()["good"].state == "installed"


@pytest.mark.parametrize("kind", [lambda _: "nul\0byte", os.fsencode, lambda path: [path]])
def test_an_entry_that_is_no_path_is_passed_over_as_import_does(
    found, site, packed, monkeypatch, kind
):
    site.add_provider("good")
    packed.add_provider("unreachable")
    monkeypatch.setattr(sys, "path", [*sys.path, kind(packed.folder)])
    assert set(found()) == {"good"}


def test_an_older_version_further_down_the_path_is_not_the_one_that_counts(
    found, site, packed, monkeypatch
):
    site.add_provider("gone", "acme-memory", "1.0")
    packed.add("acme-memory", "2.0", groups={"console_scripts": {"acme": "acme:main"}})
    monkeypatch.syspath_prepend(str(packed.folder))
    assert found() == {}


class Finder:
    """An import hook that brings distributions of its own."""

    def __init__(self, *folders: Path) -> None:
        self.found = [importlib_metadata.Distribution.at(each) for each in folders]

    def find_spec(self, name, path=None, target=None):
        return None

    def find_distributions(self, context=None):
        return iter(self.found)


def test_a_distribution_that_an_import_hook_brings_is_listed(found, packed, monkeypatch):
    info = packed.add_provider("hooked", "hooked-memory", "1.1")
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder(info)])
    hooked = found()["hooked"]
    assert (hooked.state, hooked.distribution) == ("installed", "hooked-memory")
    assert hooked.version == "1.1"


def test_a_hook_whose_distributions_have_no_files_is_listed(found, packed, monkeypatch):
    class Fileless(importlib_metadata.Distribution):
        def read_text(self, filename):
            path = info / filename
            return path.read_text("utf-8") if path.is_file() else None

        def locate_file(self, path):
            raise NotImplementedError

    info = packed.add_provider("hooked", "hooked-memory")
    finder = Finder()
    finder.found = [Fileless()]
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, finder])
    assert found()["hooked"].state == "installed"


def test_what_is_on_the_path_wins_over_what_a_hook_brings(found, site, packed, monkeypatch):
    site.add_provider("acme", "acme-memory", "1.0")
    info = packed.add_provider("acme", "acme-memory", "2.0")
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder(info)])
    assert found()["acme"].version == "1.0"


def test_importlib_metadata_being_imported_changes_nothing(home, site):
    site.add_provider("acme", "acme-memory")
    code = """
        import json, {module}
        from hermes_core import discover
        print([(each.name, each.state, each.version) for each in discover()])
    """
    answers = {
        run_python(code.format(module=module), home=home, site=site.folder).stdout
        for module in ("sys", "importlib.metadata", "importlib_metadata")
    }
    assert len(answers) == 1
    assert "('acme', 'installed', '1.0')" in answers.pop()


def test_an_import_hook_that_fails_is_named_and_does_not_end_the_listing(
    found, site, monkeypatch, caplog
):
    class Broken(Finder):
        def find_distributions(self, context=None):
            raise RuntimeError("no distributions today")

    site.add_provider("good")
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Broken()])
    assert set(found()) == {"good"}
    assert "Broken could not list its packages: RuntimeError: no distributions today" in caplog.text


def test_a_broken_stranger_that_an_import_hook_brings_is_not_listed(found, packed, monkeypatch):
    info = packed.add("stranger", entry_points=b"[console_scripts]\nbroken\n")
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder(info)])
    assert found() == {}


def test_broken_metadata_in_a_zip_file_is_told(found, packed, tmp_path, monkeypatch):
    packed.add("latin", entry_points=b"[hermes_agent.memory_providers]\n\xff = latin\n")
    monkeypatch.syspath_prepend(str(zipped(packed, tmp_path / "plugins.zip")))
    assert found()["latin"].state == "broken"


def test_a_plugin_of_the_other_group_in_a_zip_file_is_listed(found, packed, tmp_path, monkeypatch):
    packed.add(
        "zippy-memory",
        groups={PLUGINS: {"zippy": "zippy_memory:register"}},
        files={"zippy_memory/__init__.py": provider_source("zippy")},
    )
    monkeypatch.syspath_prepend(str(zipped(packed, tmp_path / "plugins.zip")))
    assert found()["zippy"].state == "installed"


def test_everything_on_this_machine_can_be_listed(home):
    assert discover(home, everything=True)[0].name == "builtin"
