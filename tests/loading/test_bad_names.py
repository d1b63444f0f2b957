"""A provider's name is read once, when it is loaded, and has to be one."""

from __future__ import annotations

import pytest
from support.modules import provider_class

WAYS = ["MODULE:Provider", "MODULE:plugin", "MODULE:register", "MODULE"]


def named(expression: str) -> str:
    source = provider_class("acme").replace("return 'acme'", f"return {expression}")
    return source + "\ndef make_plugin():\n    return Provider()\n"


def offered(expression: str, value: str) -> str:
    source = named(expression)
    if value == "MODULE:plugin":
        source += "\nplugin = Provider()\n"
    if value == "MODULE:register":
        source += "\ndef register(ctx):\n    ctx.register_memory_provider(Provider())\n"
    return source


@pytest.mark.parametrize("value", WAYS)
def test_a_name_that_raises(failure, value):
    error = failure(offered("self.config['name']", value), value)
    assert error.step == "check"
    assert "AttributeError" in str(error)
    assert isinstance(error.__cause__, AttributeError)


@pytest.mark.parametrize("value", WAYS)
@pytest.mark.parametrize("name", ["''", "'  '", "None", "42", "b'acme'", "['acme']"])
def test_what_is_no_name_is_refused(failure, value, name):
    error = failure(offered(name, value), value)
    assert error.step == "check"
    assert "name" in str(error)


@pytest.mark.parametrize(
    "name", ["'builtin'", "'Builtin'", "'\uff42\uff55\uff49\uff4c\uff54\uff49\uff4e'"]
)
def test_the_name_of_the_built_in_is_refused(failure, name):
    error = failure(offered(name, "MODULE:Provider"), "MODULE:Provider")
    assert error.step == "check"
    assert "reserved" in str(error)


def test_a_name_that_is_a_method_is_refused(failure):
    source = provider_class("acme").replace("    @property\n", "")
    error = failure(source, "MODULE:Provider")
    assert error.step == "check"
    assert "name" in str(error)


def test_a_name_that_is_a_plain_attribute_is_fine(load):
    source = provider_class("acme").replace(
        "    @property\n    def name(self):\n        return 'acme'\n", "    name = 'acme'\n"
    )
    assert load(source, "MODULE:Provider").name == "acme"


def test_a_name_that_exits_is_refused(failure):
    error = failure(offered("__import__('sys').exit(3)", "MODULE:Provider"), "MODULE:Provider")
    assert error.step == "check"


def test_an_empty_name_is_told_to_be_empty(failure):
    error = failure(offered("''", "MODULE:Provider"), "MODULE:Provider")
    assert "not a string" not in str(error)
    assert "empty" in str(error)


@pytest.mark.parametrize("name", ["provider", "pins", "observers"])
def test_a_name_that_is_one_of_our_configuration_keys_is_refused(failure, name):
    error = failure(offered(repr(name), "MODULE:Provider"), "MODULE:Provider")
    assert "reserved" in str(error)
