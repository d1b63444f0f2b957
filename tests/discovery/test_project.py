"""Plugins of a project: read only if a person allows it, and never in another one's place."""

from __future__ import annotations

import pytest
from support.modules import leaves_a_mark
from support.sites import add_directory, provider_source
from support.theirs import their_source

from hermes_core import MemoryManager, ProviderConflictError, discover, load_provider

VARIABLE = "HERMES_ENABLE_PROJECT_PLUGINS"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """The folder that an agent runs in, with a .hermes of its own."""
    folder = tmp_path / "repository"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv(VARIABLE, raising=False)
    return folder / ".hermes"


@pytest.fixture
def allowed(monkeypatch):
    monkeypatch.setenv(VARIABLE, "1")


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (None, False), ("", False), ("0", False), ("false", False), ("no", False), ("2", False),
        ("1", True), ("true", True), (" YES ", True), ("on", True),
    ],
)  # fmt: skip
def test_it_is_read_only_if_a_person_allows_it(found, project, monkeypatch, value, read):
    add_directory(project, "acme")
    if value is not None:
        monkeypatch.setenv(VARIABLE, value)
    assert set(found()) == ({"acme"} if read else set())


def test_who_names_one_that_is_not_allowed_reads_how_to_allow_it(home, project):
    add_directory(project, "acme")
    (home / "config.yaml").write_text("memory: {provider: acme}\n", "utf-8")
    manager = MemoryManager.from_config(home)
    assert f"set {VARIABLE}=1" in " ".join(map(str, manager.problems))
    manager.shutdown_all()


def test_it_is_told_apart_from_the_homes_and_loads(found, home, project, allowed):
    folder = add_directory(project, "acme")
    info = found()["acme"]
    assert (info.source, info.state, info.directory) == ("project", "installed", folder)
    assert info.owner == f"project:{folder}"
    assert load_provider("acme", home).name == "acme"


def test_it_is_not_imported_to_be_listed(found, project, allowed, tmp_path):
    mark = tmp_path / "imported"
    add_directory(project, "acme", leaves_a_mark(mark) + provider_source("acme"))
    assert set(found()) == set(found(everything=True)) == {"acme"}
    assert not mark.exists()


def by_source(home, *, everything=False):
    listed = discover(home, everything=everything)
    return {each.source: each for each in listed if each.name == "acme"}


def test_the_homes_plugin_of_that_name_is_used(home, project, allowed):
    add_directory(project, "acme")
    add_directory(home, "acme")
    listed = by_source(home)
    assert listed["directory"].state == "installed"
    assert listed["project"].state == "conflict"
    assert listed["project"].problem == "its name is taken by the directory acme"
    assert "_hermes_plugin_" in type(load_provider("acme", home)).__module__


def test_an_installed_provider_of_that_name_is_used(home, site, project, allowed):
    add_directory(project, "acme")
    site.add_provider("acme", "acme-memory")
    assert by_source(home)["entry-point"].state == "installed"
    assert type(load_provider("acme", home)).__module__ == "acme_memory"


def test_a_package_that_only_a_longer_search_finds_is_used_too(home, site, project, allowed):
    add_directory(project, "acme")
    site.add("hermes-acme", files={"quiet_acme/__init__.py": their_source("acme")})
    (home / "config.yaml").write_text("memory: {provider: acme}\n", "utf-8")
    manager = MemoryManager.from_config(home)
    try:
        assert type(manager.get_provider("acme")).__module__ == "quiet_acme"
    finally:
        manager.shutdown_all()


def test_a_person_can_choose_it_by_its_owner(home, project, allowed):
    folder = add_directory(project, "acme")
    add_directory(home, "acme")
    (home / "config.yaml").write_text(f"memory: {{provider: 'acme@project:{folder}'}}\n", "utf-8")
    listed = by_source(home)
    assert listed["project"].active
    assert listed["directory"].state == "conflict"


def test_what_was_enabled_elsewhere_is_not_enabled_here(home, project, allowed):
    add_directory(project, "acme")
    (home / "config.yaml").write_text(
        "memory: {provider: acme, pins: {acme: {owner: 'project:/another/repository'}}}\n", "utf-8"
    )
    with pytest.raises(ProviderConflictError, match="was enabled as"):
        load_provider("acme", home)
    manager = MemoryManager.from_config(home)
    assert manager.get_provider("acme") is None
    assert "was enabled as" in str(manager.problems[0])
    manager.shutdown_all()


def test_a_home_that_is_the_projects_own_is_listed_once(project, allowed):
    add_directory(project, "acme")
    assert [each.source for each in discover(project) if each.name == "acme"] == ["directory"]
