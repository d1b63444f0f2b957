"""A module as an entry point's value: register, or a subclass that is its own."""

from __future__ import annotations

import pytest
from support.modules import provider_class
from support.sites import MEMORY

from hermes_core import load_provider

CLASS = provider_class("acme")


def test_a_subclass_is_built(load):
    assert load(CLASS, "MODULE").name == "acme"


def test_a_subclass_that_was_imported_from_a_submodule_is_its_own(load):
    provider = load("from .backend import Provider", "MODULE", backend=CLASS)
    assert provider.name == "acme"


def test_register_wins_over_a_subclass(load):
    source = CLASS + provider_class("registered", "Other")
    source += "\ndef register(ctx):\n    ctx.register_memory_provider(Other())\n"
    assert load(source, "MODULE").name == "registered"


def test_a_register_that_is_no_function_does_not_count(load):
    assert load(CLASS + "\nregister = True\n", "MODULE").name == "acme"


def test_an_abstract_base_of_its_own_is_not_meant(load):
    source = """
from hermes_core import MemoryProvider

class Base(MemoryProvider):
    def is_available(self):
        return True

class Real(Base):
    name = "real"
    def initialize(self, session_id, **kwargs): pass
    def get_tool_schemas(self): return []
"""
    assert load(source, "MODULE").name == "real"


def test_a_class_from_elsewhere_is_not_meant_if_there_is_one_of_its_own(load, site):
    site.add("base-lib", files={"other_library.py": provider_class("base", "BaseProvider")})
    source = "from other_library import BaseProvider\n" + CLASS.replace(
        "(MemoryProvider)", "(BaseProvider)"
    )
    assert load(source, "MODULE").name == "acme"


def test_a_class_from_elsewhere_will_do_if_there_is_no_other(load, site):
    site.add("sdk", files={"acme_sdk.py": provider_class("sdk", "SdkProvider")})
    assert load("from acme_sdk import SdkProvider", "MODULE").name == "sdk"


def test_two_subclasses_are_named_instead_of_guessed(failure):
    error = failure(CLASS + provider_class("b", "Second"), "MODULE")
    assert "Provider" in str(error)
    assert "Second" in str(error)
    assert "several" in str(error)


@pytest.mark.parametrize("source", ["", "from hermes_core import MemoryProvider", "x = 1"])
def test_a_module_with_nothing_of_the_kind_says_what_it_should_have(failure, source):
    error = failure(source, "MODULE")
    assert "register(ctx)" in str(error)
    assert "MemoryProvider" in str(error)


def test_a_second_name_for_the_same_class_is_no_second_provider(load):
    assert load(CLASS + "\nDefaultProvider = Provider\n", "MODULE").name == "acme"


def test_a_neighbour_whose_name_begins_alike_is_elsewhere(home, site):
    own = CLASS.replace("(MemoryProvider)", "(Base)")
    site.add(
        "acme-memory",
        groups={MEMORY: {"acme": "acme_plugin"}},
        files={
            "acme_plugin/__init__.py": "from acme_plugin_sdk import Base\n" + own,
            "acme_plugin_sdk.py": provider_class("base", "Base"),
        },
    )
    assert load_provider("acme", home).name == "acme"
