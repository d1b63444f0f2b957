"""The group hermes_agent.plugins: only some of what it holds is a memory provider."""

from __future__ import annotations

import pytest
from support.sites import MEMORY, PLUGINS, provider_source

TOOLS_ONLY = """
    def register(ctx):
        ctx.register_tool("clock", lambda: 12)
"""


def test_a_plugin_whose_source_registers_a_memory_provider_is_listed(found, site):
    site.add(
        "hermes-memra",
        "4.5.0",
        groups={PLUGINS: {"memra": "hermes_memra:register"}},
        files={
            "hermes_memra/__init__.py": "from .provider import register",
            "hermes_memra/provider.py": provider_source("memra"),
        },
    )
    memra = found()["memra"]
    assert (memra.state, memra.source, memra.problem) == ("installed", "entry-point", "")
    assert memra.entry_point == "hermes_memra:register"


def test_a_plugin_that_registers_no_memory_provider_says_so(found, site):
    site.add(
        "hindsight-hermes",
        groups={PLUGINS: {"hindsight": "hindsight_hermes"}},
        files={"hindsight_hermes/__init__.py": TOOLS_ONLY},
    )
    hindsight = found()["hindsight"]
    assert hindsight.state == "no-provider"
    assert "no memory provider" in hindsight.problem
    assert not hindsight.loadable


def test_the_source_may_be_one_module_instead_of_a_package(found, site):
    site.add(
        "single",
        groups={PLUGINS: {"single": "single_module"}},
        files={"single_module.py": provider_source("single")},
    )
    assert found()["single"].state == "installed"


def test_a_distribution_in_both_groups_is_listed_once(found, site):
    site.add(
        "mnemosyne-hermes",
        groups={
            PLUGINS: {"mnemosyne": "mnemosyne_hermes:register"},
            MEMORY: {"mnemosyne": "mnemosyne_hermes"},
        },
        files={"mnemosyne_hermes/__init__.py": provider_source("mnemosyne")},
    )
    assert {name: each.entry_point for name, each in found().items()} == {
        "mnemosyne": "mnemosyne_hermes"
    }
    assert found()["mnemosyne"].state == "installed"


def test_another_plugin_of_a_distribution_with_a_provider_is_not_listed(found, site):
    site.add(
        "colony-hermes",
        groups={PLUGINS: {"colony": "colony_hermes"}, MEMORY: {"colony-memory": "colony_memory"}},
        files={
            "colony_hermes/__init__.py": TOOLS_ONLY,
            "colony_memory/__init__.py": provider_source("colony"),
        },
    )
    assert set(found()) == {"colony-memory"}


def test_another_distribution_that_mentions_it_does_not_count(found, site):
    site.add(
        "acme-tools",
        groups={PLUGINS: {"clock": "acme_tools"}},
        files={"acme_tools/__init__.py": TOOLS_ONLY},
    )
    site.add("acme-other", files={"acme_other/__init__.py": provider_source("other")})
    assert found()["clock"].state == "no-provider"


def test_a_group_that_nobody_reads_is_shown_with_the_right_one(found, site):
    site.add("typo", groups={"hermes_agent.memory_provider": {"typo": "typo:register"}})
    typo = found()["typo"]
    assert typo.state == "broken"
    assert "hermes_agent.memory_provider;" in typo.problem
    assert "hermes_agent.memory_providers" in typo.problem
    assert not typo.loadable


@pytest.mark.parametrize(
    "recorded",
    [
        "__editable__.dev.pth",
        pytest.param("__editable___dev_finder.py"),
        pytest.param("_editable_impl_dev.py"),
    ],
)
def test_an_editable_install_without_its_files_in_record_is_read_where_it_lies(
    found, site, tmp_path, monkeypatch, recorded
):
    checkout = tmp_path / "checkout"
    (checkout / "dev_plugin").mkdir(parents=True)
    (checkout / "dev_plugin" / "__init__.py").write_text("from .impl import register", "utf-8")
    (checkout / "dev_plugin" / "impl.py").write_text(provider_source("dev"), "utf-8")
    site.add(
        "dev-plugin",
        groups={PLUGINS: {"dev": "dev_plugin:register"}},
        files={recorded: ""},
    )
    monkeypatch.syspath_prepend(str(checkout))
    assert found()["dev"].state == "installed"


def test_an_install_without_record_is_read_where_it_lies(found, site):
    info = site.add(
        "no-record",
        groups={PLUGINS: {"norecord": "no_record.deep.inside:register"}},
        files={"no_record/deep/inside.py": provider_source("norecord")},
    )
    (info / "RECORD").unlink()
    assert found()["norecord"].state == "installed"


@pytest.mark.parametrize("value", ["", "gone:register", "a..b:c", ":register", "???"])
def test_a_plugin_whose_source_is_not_there_is_listed_as_one_that_can_not_be_used(
    found, site, value
):
    site.add("ghost", groups={PLUGINS: {"ghost": value}})
    (ghost,) = found().values()
    assert ghost.state in ("no-provider", "broken")
    assert ghost.problem
    assert not ghost.loadable


def test_a_provider_beside_another_plugin_of_its_distribution_is_listed(found, site):
    site.add(
        "mixed",
        groups={PLUGINS: {"remembers": "mixed_memory", "tools": "mixed_tools"}},
        files={
            "mixed_memory/__init__.py": provider_source("remembers"),
            "mixed_tools/__init__.py": TOOLS_ONLY,
        },
    )
    assert found()["remembers"].state == "installed"


def test_the_mention_may_be_in_another_package_of_the_same_distribution(found, site):
    site.add(
        "two-packages",
        groups={PLUGINS: {"two": "two_entry:register"}},
        files={
            "two_entry/__init__.py": "from two_core import register",
            "two_core/__init__.py": provider_source("two"),
        },
    )
    assert found()["two"].state == "installed"


def test_a_plugin_that_only_talks_about_memory_providers_is_none(found, site):
    site.add(
        "dashboard",
        groups={PLUGINS: {"dashboard": "dashboard_plugin"}},
        files={
            "dashboard_plugin/__init__.py": '''
                """Shows what the active MemoryProvider holds."""
                def register(ctx):
                    ctx.register_command("dashboard", print)
            '''
        },
    )
    assert found()["dashboard"].state == "no-provider"


def test_a_neighbour_in_the_same_namespace_does_not_count(found, site, tmp_path, monkeypatch):
    checkout = tmp_path / "checkout"
    (checkout / "acme" / "clock").mkdir(parents=True)
    (checkout / "acme" / "clock" / "__init__.py").write_text(
        "def register(ctx): ctx.register_tool('clock', print)", "utf-8"
    )
    monkeypatch.syspath_prepend(str(checkout))
    site.add("acme-clock", groups={PLUGINS: {"clock": "acme.clock:register"}})  # editable
    site.add("acme-memory", files={"acme/memory.py": provider_source("memory")})
    assert found()["clock"].state == "no-provider"
