"""One project in two folders of the import path: the one that would be imported counts."""

from __future__ import annotations

import pytest
from support.sites import MEMORY, PLUGINS, Site, provider_source


@pytest.fixture
def earlier(tmp_path, monkeypatch):
    """A site that comes first on the import path."""
    made = Site(tmp_path / "earlier")
    monkeypatch.syspath_prepend(str(made.folder))
    return made


@pytest.fixture
def first(site, earlier):
    """The site that comes first; the other one has acme 1.0 with a provider."""
    site.add_provider("acme", "acme-memory", "1.0")
    return earlier


def test_a_newer_version_with_a_provider_counts(found, first):
    first.add_provider("acme", "Acme.Memory", "2.0")
    assert found()["acme"].version == "2.0"


def test_a_version_without_a_provider_counts_too(found, first):
    first.add("acme-memory", "2.0")
    assert found() == {}


def test_a_checkout_in_development_counts_too(found, first):
    info = first.add("acme-memory", "2.0")
    (info / "METADATA").rename(info / "PKG-INFO")
    info.rename(info.with_name("acme_memory.egg-info"))
    assert found() == {}


def test_a_project_whose_name_only_begins_alike_does_not(found, first):
    first.add("acme", "2.0")
    first.add("acme-memory-tools", "2.0")
    assert found()["acme"].version == "1.0"


@pytest.mark.parametrize(
    "name",
    [
        "acme_memory-0.9.dist-info",
        "~cme_memory-0.9.dist-info",
    ],
)
def test_what_was_left_behind_empty_does_not_hide_the_real_one(found, first, name):
    (first.folder / name).mkdir()
    assert found()["acme"].version == "1.0"


def test_a_plugin_of_the_other_group_is_shadowed_the_same_way(found, site, earlier):
    site.add(
        "old-plugin",
        "1.0",
        groups={PLUGINS: {"old": "old_plugin"}},
        files={"old_plugin.py": provider_source("old")},
    )
    earlier.add("old-plugin", "2.0", groups={MEMORY: {"new": "old_plugin:new"}})
    assert set(found()) == {"new"}
