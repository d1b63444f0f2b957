"""Listing imports no plugin: plugins here write a file when they are imported."""

from __future__ import annotations

import sys

import pytest
from support.modules import leaves_a_mark, run_python
from support.sites import MEMORY, PLUGINS, add_directory, provider_source

from hermes_core import discover


@pytest.fixture
def mark(tmp_path):
    """The file that an imported plugin leaves behind."""
    return tmp_path / "imported"


@pytest.fixture
def everywhere(home, site, mark, tmp_path, monkeypatch):
    """Plugins from all sources, all of which tell when they are imported."""
    tell = leaves_a_mark(mark)
    loud = tell + provider_source("loud")
    tools = tell + "def register(ctx): pass\n"
    add_directory(home, "loud-directory", loud, manifest="version: 1")
    site.add("a", groups={MEMORY: {"a": "loud_a.b.c:register"}}, files=package("loud_a", loud))
    site.add("b", groups={PLUGINS: {"b": "loud_b.b.c:register"}}, files=package("loud_b", loud))
    site.add("c", groups={PLUGINS: {"c": "loud_c.b.c"}}, files=package("loud_c", tools))
    site.add("d", files={**package("loud_d", loud), "loud_d/plugin.yaml": "name: d"})
    site.add("g", files=package("loud_g", loud))  # declares nothing
    broken = site.add("e", groups={PLUGINS: {"e": "loud_e.b.c:register"}})
    for name, source in package("loud_e", loud).items():  # not in RECORD, nor is there one
        path = site.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, "utf-8")
    (broken / "RECORD").unlink()
    checkout = tmp_path / "checkout"
    for name, source in package("loud_f", tools).items():
        path = checkout / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, "utf-8")
    monkeypatch.syspath_prepend(str(checkout))
    site.add("f", groups={PLUGINS: {"f": "loud_f.b.c:register"}})


def package(name, source):
    return {
        f"{name}/__init__.py": source,
        f"{name}/b/__init__.py": source,
        f"{name}/b/c.py": source,
    }


@pytest.mark.parametrize("everything", [False, True])
def test_listing_runs_no_plugin_code(home, everywhere, mark, everything):
    before = set(sys.modules)
    listed = {each.name: each.state for each in discover(home, everything=everything)}
    assert not mark.exists()
    assert not [name for name in set(sys.modules) - before if name.startswith("loud")]
    assert listed["a"] == listed["b"] == listed["e"] == listed["loud-directory"] == "installed"
    assert listed["c"] == listed["f"] == "no-provider"
    assert ("d" in listed) == ("loud" in listed) == everything


def test_a_chosen_and_pinned_plugin_is_not_imported_to_be_listed(home, everywhere, mark):
    (home / "config.yaml").write_text(
        "memory:\n  provider: a\n  pins: {a: {owner: a, version: '1.0', hash: 'sha256:0'}}\n",
        "utf-8",
    )
    states = {each.name: each.state for each in discover(home)}
    assert states["a"] == "changed"
    assert not mark.exists()


def test_listing_leaves_no_file_behind(home, everywhere, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    discover(home, everything=True)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_fresh_process_that_lists_has_neither_plugins_nor_importlib_metadata(
    home, site, everywhere, mark
):
    done = run_python(
        """
        import sys
        from hermes_core import discover
        assert len(discover()) > 4
        heavy = {"importlib.metadata", "importlib_metadata", "jsonschema", "keyring", "pluggy"}
        print(sorted(n for n in sys.modules if n in heavy or n.startswith("loud")))
        """,
        home=home,
        site=site.folder,
    )
    assert done.stdout.strip() == "[]", done.stderr
    assert not mark.exists()
