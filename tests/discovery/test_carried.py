"""Distributions that carry a directory plugin without declaring it."""

from __future__ import annotations

import pytest
from support.modules import provider_class
from support.sites import MEMORY, PLUGINS, provider_source

from hermes_core import discover, load_provider

MANIFEST = "name: {name}\nversion: 9.9\ndescription: Carried {name}\n"


def carried(folder: str, name: str) -> dict[str, str]:
    return {
        f"{folder}/__init__.py": "from .impl import register",
        f"{folder}/impl.py": provider_source(name),
        f"{folder}/plugin.yaml": MANIFEST.format(name=name),
    }


@pytest.fixture
def membase(site):
    files = {"membase_hermes/__init__.py": "", **carried("membase_hermes/membase", "membase")}
    return site.add("hermes-membase", "0.2.0", files=files, summary="Membase for Hermes")


def test_it_is_listed_only_when_everything_is_asked_for(found, membase):
    assert found() == {}
    assert set(found(everything=True)) == {"membase"}


def test_it_is_described_by_its_distribution_and_its_manifest(found, membase):
    info = found(everything=True)["membase"]
    assert (info.source, info.state, info.problem) == ("directory", "installed", "")
    assert (info.distribution, info.version) == ("hermes-membase", "0.2.0")
    assert info.description == "Carried membase"


def test_it_is_loaded_in_place_by_name_and_by_name_at_owner(home, membase):
    for choice in ("membase", "membase@hermes-membase", "membase@Hermes_Membase"):
        assert load_provider(choice, home).name == "membase"


def test_a_folder_with_a_hyphen_is_loaded(home, site):
    site.add(
        "dashed", files={"dashed_pkg/__init__.py": "", **carried("dashed_pkg/my-memory", "dash")}
    )
    assert load_provider("dash", home).name == "dash"


def test_a_top_level_package_that_is_a_directory_plugin_is_found(found, home, site):
    site.add("metronix-plugin", files=carried("metronix", "metronix"))
    assert found(everything=True)["metronix"].distribution == "metronix-plugin"
    assert load_provider("metronix", home).name == "metronix"


def test_a_manifest_without_a_package_beside_it_is_no_plugin(found, site):
    site.add("data-only", files={"data_only/plugin.yaml": "name: x", "other/__init__.py": ""})
    assert found(everything=True) == {}


def test_a_package_without_a_manifest_is_found_as_a_plain_module(found, site):
    site.add("no-manifest", files={"no_manifest/__init__.py": provider_source("x")})
    assert found(everything=True)["x"].source == "module"


def test_a_carried_plugin_that_is_no_memory_provider_is_not_listed(found, site):
    site.add(
        "tools",
        files={
            "tools_plugin/__init__.py": "def register(ctx): ctx.register_tool('x', print)",
            "tools_plugin/plugin.yaml": "name: tools",
        },
    )
    assert found(everything=True) == {}


def test_a_distribution_that_declares_its_carried_plugin_is_listed_once(found, site):
    site.add(
        "pgvector-plugin",
        groups={MEMORY: {"pgvector": "hermes_pgvector"}},
        files=carried("hermes_pgvector", "pgvector"),
    )
    listed = found(everything=True)
    assert set(listed) == {"pgvector"}
    assert listed["pgvector"].source == "entry-point"


def test_a_distribution_with_another_plugin_and_a_carried_provider_offers_the_provider(
    found, home, site
):
    site.add(
        "both",
        groups={PLUGINS: {"both-tools": "both_tools"}},
        files={"both_tools/__init__.py": "def register(ctx): pass", **carried("both_mem", "both")},
    )
    assert found(everything=True)["both"].state == "installed"
    assert found(everything=True)["both-tools"].state == "no-provider"
    assert load_provider("both", home).name == "both"


def test_a_broken_manifest_is_told_and_the_plugin_still_loads(found, home, site):
    files = carried("sibyl", "sibyl")
    files["sibyl/plugin.yaml"] = "description: [unclosed\n"
    site.add("sibyl-memory-hermes", "0.5.0", files=files)
    info = found(everything=True)["sibyl"]
    assert info.state == "broken"
    assert "plugin.yaml" in info.problem
    assert load_provider("sibyl", home).name == "sibyl"


def test_two_distributions_that_carry_one_name_are_a_conflict(site, home):
    site.add("first-owner", files={"one/__init__.py": "", **carried("one/plugin", "same")})
    site.add("second-owner", files={"two/__init__.py": "", **carried("two/plugin", "same")})
    listed = [each for each in discover(home, everything=True) if each.name == "same"]
    assert [each.state for each in listed] == ["conflict", "conflict"]
    assert type(load_provider("same@second-owner", home)).__module__ == "two.plugin.impl"


def test_a_provider_class_in_a_carried_module_is_enough(home, site):
    site.add(
        "plain-class",
        files={
            "plain_class/__init__.py": provider_class("plain"),
            "plain_class/plugin.yaml": "{}",
        },
    )
    assert load_provider("plain_class", home).name == "plain"


@pytest.mark.parametrize("folder", ["plugin", "_hermes_plugin"])
def test_a_carried_plugin_is_called_what_its_manifest_says(found, site, folder):
    site.add(
        "hermes-membase",
        files={"membase_hermes/__init__.py": "", **carried(f"membase_hermes/{folder}", "membase")},
    )
    assert set(found(everything=True)) == {"membase"}


def test_a_carried_plugin_among_the_data_files_is_loaded_in_place(home, tmp_path, site):
    share = tmp_path / "share" / "hermes" / "shared_memory"
    share.mkdir(parents=True)
    (share / "__init__.py").write_text(provider_source("shared"), "utf-8")
    (share / "plugin.yaml").write_text("name: shared_memory", "utf-8")
    info = site.add("shared-data")
    with (info / "RECORD").open("a", encoding="utf-8") as record:
        record.write("../share/hermes/shared_memory/__init__.py,,\n")
        record.write("../share/hermes/shared_memory/plugin.yaml,,\n")
    assert load_provider("shared_memory", home).name == "shared"
