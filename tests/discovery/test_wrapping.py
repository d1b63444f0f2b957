"""A directory that only wraps an installed package is the same provider."""

from __future__ import annotations

import pytest
from support.modules import provider_class
from support.sites import PLUGINS, add_directory, provider_source

from hermes_core import discover, load_provider


def listed(home, name):
    return [each for each in discover(home) if each.key == name]


@pytest.mark.parametrize(
    "source",
    [
        "from acme_memory import register",
        "from acme_memory import *  # register_memory_provider",
        "import acme_memory\n\ndef register(ctx):\n    acme_memory.register(ctx)\n",
        "try:\n    from acme_memory.provider import register\nexcept ImportError:\n    raise\n",
    ],
)
def test_it_is_listed_once_as_the_package(home, site, source):
    site.add_provider("acme", "acme-memory")
    add_directory(home, "acme", source, manifest="name: acme")
    (info,) = listed(home, "acme")
    assert (info.state, info.distribution) == ("installed", "acme-memory")
    assert load_provider("acme", home).name == "acme"


def test_a_directory_that_imports_something_with_a_longer_name_is_another_provider(home, site):
    site.add_provider("acme", "acme-memory")
    add_directory(home, "acme", "import acme_memory_tools\n" + provider_source("acme"))
    assert [each.state for each in listed(home, "acme")] == ["conflict", "conflict"]


def test_a_wrapper_of_another_name_is_a_provider_of_its_own(home, site):
    site.add_provider("acme", "acme-memory")
    add_directory(home, "mine", "from acme_memory import register  # register_memory_provider")
    assert listed(home, "mine")[0].state == "installed"
    assert load_provider("mine", home).name == "acme"


def test_a_directory_that_uses_a_package_without_a_provider_stays(home, site):
    site.add(
        "acme-tools",
        groups={PLUGINS: {"acme": "acme_tools"}},
        files={"acme_tools/__init__.py": "def register(ctx): ctx.register_tool('x', print)"},
    )
    add_directory(home, "acme", "import acme_tools\n" + provider_source("acme"))
    assert "installed" in [each.state for each in listed(home, "acme")]
    assert load_provider("acme", home).name == "acme"


def test_a_directory_with_a_provider_of_its_own_is_a_rival_even_if_it_uses_the_package(home, site):
    site.add_provider("acme", "acme-memory")
    source = "import acme_memory\n" + provider_class("acme", "Mine") + "\ndef register(ctx):\n"
    add_directory(home, "acme", source + "    ctx.register_memory_provider(Mine())\n")
    assert [each.state for each in listed(home, "acme")] == ["conflict", "conflict"]


def test_a_word_in_the_docstring_does_not_make_it_a_wrapper(home, site):
    site.add_provider("acme", "acme-memory")
    add_directory(
        home,
        "acme",
        '"""A rewrite, free\nfrom acme_memory and its bugs."""\n' + provider_source("a"),
    )
    assert [each.state for each in listed(home, "acme")] == ["conflict", "conflict"]


@pytest.mark.parametrize(
    "source",
    [
        "from plain_acme import register",
        "from plain_acme import setup as register",
        pytest.param("from plain_acme import register as start\nregister = start"),
        pytest.param("from plain_acme import *"),
        pytest.param("import plain_acme\n\ndef register(ctx):\n    plain_acme.register(ctx)\n"),
        pytest.param("import plain_acme as it\nregister = it.register"),
    ],
)
def test_a_wrapper_of_a_package_without_entry_points_is_a_provider(home, site, source):
    package = provider_source("acme") + "\nsetup = register\n"
    site.add("plain-acme", files={"plain_acme/__init__.py": package})
    add_directory(home, "acme", source + "\n")
    assert [each.state for each in listed(home, "acme")] == ["installed"]
    assert load_provider("acme", home).name == "acme"
