"""What was enabled is what runs: another owner is refused, another version is told."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from support.sites import Site, add_directory
from support.trees import tree

from hermes_core import ProviderConflictError, discover
from hermes_core.discovery import pin_of


@pytest.fixture
def pinned(home: Path, write_config: Any) -> Any:
    """Chooses ``acme`` and pins it as it is installed now."""

    def pin(mode: str = "", **changes: str) -> None:
        (info,) = [each for each in discover(home) if each.name == "acme"]
        owner, version, digest = pin_of(info)._replace(**changes)
        policy = f"  pin: {mode}\n" if mode else ""
        write_config(
            f"memory:\n  provider: acme\n{policy}  pins:\n"
            f'    acme: {{owner: {owner}, version: "{version}", hash: "{digest}"}}\n'
        )

    return pin


def _reinstall(site: Site, version: str) -> None:
    for each in site.folder.iterdir():
        shutil.rmtree(each)
    site.add_provider("acme", version=version)


@pytest.mark.parametrize("mode", ["", "warn", "strict"])
def test_what_is_unchanged_runs_without_a_word(
    mode: str, site: Site, pinned: Any, configured: Any
) -> None:
    site.add_provider("acme")
    pinned(mode)
    manager = configured()
    assert len(manager.providers) == 2
    assert (manager.problems, manager.warnings) == ((), ())


@pytest.mark.parametrize("mode", ["", "strict"])
def test_another_owner_is_refused_with_both_named(
    mode: str, site: Site, pinned: Any, configured: Any, home: Path
) -> None:
    site.add_provider("acme", "acme-evil")
    pinned(mode, owner="acme-good")
    before = tree(home)
    manager = configured()
    assert len(manager.providers) == 1
    (problem,) = manager.problems
    assert isinstance(problem, ProviderConflictError)
    assert "acme-evil" in str(problem)
    assert "acme-good" in str(problem)
    assert "enable" in str(problem)
    assert tree(home) == before


def test_a_directory_in_place_of_a_distribution_is_another_owner(
    home: Path, pinned: Any, configured: Any
) -> None:
    add_directory(home, "acme")
    pinned(owner="memory-acme")
    manager = configured()
    assert len(manager.providers) == 1
    assert "directory" in str(manager.problems[0])


def test_an_owner_is_the_same_however_it_is_spelt(site: Site, pinned: Any, configured: Any) -> None:
    site.add_provider("acme", "Memory_Acme")
    pinned(owner="memory-acme")
    assert len(configured().providers) == 2


def test_another_version_runs_with_a_warning_that_names_both(
    site: Site, pinned: Any, configured: Any
) -> None:
    site.add_provider("acme", version="1.0")
    pinned()
    _reinstall(site, "2.0")
    manager = configured()
    assert len(manager.providers) == 2
    assert manager.problems == ()
    (warning,) = manager.warnings
    assert "acme" in warning
    assert "1.0" in warning
    assert "2.0" in warning


def test_other_content_runs_with_a_warning(site: Site, pinned: Any, configured: Any) -> None:
    site.add_provider("acme")
    pinned()
    module = site.folder / "memory_acme" / "__init__.py"
    module.write_text(module.read_text() + "\n# changed\n")
    manager = configured()
    assert len(manager.providers) == 2
    (warning,) = manager.warnings
    assert "acme" in warning
    assert "files" in warning


def test_other_content_of_a_directory_plugin_runs_with_a_warning(
    home: Path, pinned: Any, configured: Any
) -> None:
    folder = add_directory(home, "acme")
    pinned()
    (folder / "more.py").write_text("# new\n")
    manager = configured()
    assert len(manager.providers) == 2
    assert len(manager.warnings) == 1


def test_running_a_directory_plugin_does_not_change_its_content(
    home: Path, pinned: Any, configured: Any
) -> None:
    add_directory(home, "acme")
    pinned("strict")
    for _ in range(2):  # the first run may leave bytecode behind
        manager = configured()
        assert len(manager.providers) == 2
        assert manager.warnings == ()


@pytest.mark.parametrize("change", ["version", "content"])
def test_strict_refuses_another_version_or_content(
    change: str, site: Site, pinned: Any, configured: Any, home: Path
) -> None:
    site.add_provider("acme")
    pinned("strict")
    if change == "version":
        _reinstall(site, "2.0")
    else:
        (site.folder / "memory_acme" / "__init__.py").write_text("raise SystemExit(1)\n")
    before = tree(home)
    manager = configured()
    assert len(manager.providers) == 1
    (problem,) = manager.problems
    assert isinstance(problem, ProviderConflictError)
    assert "acme" in str(problem)
    assert tree(home) == before


def test_a_provider_without_a_pin_runs(site: Site, write_config: Any, configured: Any) -> None:
    site.add_provider("acme")
    write_config("memory:\n  provider: acme\n  pin: strict\n  pins: {other: {owner: x}}\n")
    assert len(configured().providers) == 2
