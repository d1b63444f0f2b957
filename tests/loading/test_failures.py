"""Every failure is a ProviderLoadError with the plugin, the distribution, the step, the cause."""

from __future__ import annotations

import threading
import traceback

import pytest
from support.modules import leaves_a_mark, provider_class
from support.sites import PLUGINS

from hermes_core import HermesError, ProviderLoadError, discover, load_provider

CLASS = provider_class("acme")
BOOM = "raise RuntimeError('kaboom')\n"


def frames(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def test_an_exception_at_import(failure):
    error = failure("def helper():\n    raise RuntimeError('kaboom')\nhelper()\n", "MODULE")
    assert error.step == "import"
    assert "RuntimeError: kaboom" in str(error)
    assert isinstance(error.__cause__, RuntimeError)
    assert "in helper" in frames(error)
    assert "acme_" in frames(error)


def test_an_exception_in_a_submodule_at_import(failure):
    error = failure("from .inner import x", "MODULE:x", inner=BOOM)
    assert error.step == "import"
    assert "inner.py" in frames(error)


def test_an_exception_in_register(failure):
    error = failure(CLASS + "\ndef register(ctx):\n    raise RuntimeError('kaboom')\n")
    assert error.step == "register"
    assert "kaboom" in str(error)
    assert isinstance(error.__cause__, RuntimeError)
    assert "in register" in frames(error)


@pytest.mark.parametrize("value", ["MODULE:Provider", "MODULE"])
def test_an_exception_in_the_constructor(failure, value):
    body = "def __init__(self):\n    raise RuntimeError('kaboom')\n"
    error = failure(provider_class("acme", body=body), value)
    assert error.step == "construct"
    assert "kaboom" in str(error)
    assert isinstance(error.__cause__, RuntimeError)
    assert "in __init__" in frames(error)


def test_an_exception_in_a_factory(failure):
    error = failure(CLASS + "\ndef make():\n    raise RuntimeError('kaboom')\n", "MODULE:make")
    assert error.step == "construct"
    assert "kaboom" in str(error)


@pytest.mark.parametrize("kind", ["TypeError", "AttributeError", "LookupError", "RuntimeError"])
@pytest.mark.parametrize("value", ["MODULE:Provider", "MODULE:make", "MODULE"])
def test_what_raised_is_not_tried_in_another_shape(failure, tmp_path, kind, value):
    calls = tmp_path / "calls"
    body = f"""
        def __init__(self, *args):
            with open({str(calls)!r}, "a") as file:
                file.write("x")
            raise {kind}("missing 1 required positional argument: 'ctx'")
    """
    source = provider_class("acme", body=body)
    if value == "MODULE:make":
        source += "\ndef make():\n    return Provider()\n"
    error = failure(source, value)
    assert kind in str(error)
    assert calls.read_text("utf-8") == "x"


def test_a_register_that_raises_a_type_error_is_called_once(failure, tmp_path):
    calls = tmp_path / "calls"
    source = f"""
def register(ctx):
    with open({str(calls)!r}, "a") as file:
        file.write("x")
    raise TypeError("register() takes 0 positional arguments but 1 was given")
"""
    assert "TypeError" in str(failure(CLASS + source, "MODULE"))
    assert calls.read_text("utf-8") == "x"


def test_a_constructor_that_wants_arguments_names_them(failure):
    body = "def __init__(self, api_key): pass"
    error = failure(provider_class("acme", body=body), "MODULE:Provider")
    assert error.step == "construct"
    assert "api_key" in str(error)


@pytest.mark.parametrize("value", ["MODULE:Provider", "MODULE", "MODULE:make", "MODULE:register"])
def test_a_missing_abstract_method_is_named(failure, value):
    source = CLASS.replace("def get_tool_schemas", "def get_tools")
    source += "\ndef make():\n    return Provider()\n"
    if value == "MODULE:register":
        source += "\ndef register(ctx):\n    ctx.register_memory_provider(Provider)\n"
    error = failure(source, value)
    assert error.step == "construct"
    assert "get_tool_schemas" in str(error)


def test_a_module_that_is_not_there(failure):
    error = failure("", "acme_nowhere.sub:register")
    assert error.step == "import"
    assert "acme_nowhere" in str(error)
    assert isinstance(error.__cause__, ModuleNotFoundError)


def test_a_dependency_that_is_not_there_is_named_with_a_hint(failure):
    error = failure("import redis_of_another_planet.client\n", "MODULE")
    assert error.step == "import"
    assert "redis_of_another_planet" in error.hint
    assert "pip install" in error.hint
    assert error.hint in str(error)


def test_an_attribute_that_is_not_there(failure):
    error = failure(CLASS, "MODULE:Provder")
    assert error.step == "import"
    assert "Provder" in str(error)
    assert isinstance(error.__cause__, AttributeError)


@pytest.mark.parametrize(
    "value", [":register", ".relative:x", "not a module!", "a..b:c", "MODULE:a..b"]
)
def test_a_value_that_names_no_object(failure, value):
    assert failure("", value).step == "find"


@pytest.mark.parametrize("value", ["42", "'text'", "None", "[1]", "{}", "object()"])
def test_a_value_that_is_no_provider_and_no_way_to_one(failure, value):
    error = failure(f"plugin = {value}\n", "MODULE:plugin")
    assert "is not a MemoryProvider" in str(error)


@pytest.mark.parametrize("kind", ["dict", "int", "object", "Thing"])
def test_a_class_that_is_no_provider_is_told_what_it_misses(failure, kind):
    error = failure(f"class Thing: pass\nkind = {kind}\n", "MODULE:kind")
    assert "not a memory provider" in str(error)
    assert "get_tool_schemas" in str(error)


@pytest.mark.parametrize("result", ["None", "42", "object()"])
def test_a_factory_that_gives_no_provider_is_told_what_it_misses(failure, result):
    error = failure(f"def make(): return {result}\n", "MODULE:make")
    assert error.step == "construct"
    assert "not a memory provider" in str(error)


def test_the_message_is_one_line_however_long_the_plugins_own(failure):
    error = failure("raise ValueError('one\\n\\n  two\\tthree')\n", "MODULE")
    assert "ValueError: one two three" in str(error)


def test_an_exception_without_a_text_is_named_by_its_type(failure):
    assert "NotImplementedError" in str(failure("raise NotImplementedError\n", "MODULE"))


def test_an_exception_group_keeps_its_members(failure):
    error = failure("raise ExceptionGroup('many', [ValueError('inner')])\n", "MODULE")
    assert "inner" in frames(error)


def test_the_error_is_one_of_ours(failure):
    error = failure(BOOM, "MODULE")
    assert isinstance(error, HermesError)
    assert error.where == "plugin acme of acme-memory"
    assert error.what == "import failed: RuntimeError: kaboom"


def test_what_is_listed_as_no_provider_is_not_imported(home, site, tmp_path):
    mark = tmp_path / "imported"
    site.add(
        "toolbox",
        groups={PLUGINS: {"toolbox": "toolbox_plugin"}},
        files={"toolbox_plugin.py": leaves_a_mark(mark)},
    )
    (info,) = [each for each in discover(home) if each.name == "toolbox"]
    with pytest.raises(ProviderLoadError, match="no memory provider") as caught:
        load_provider(info, home)
    assert (caught.value.step, caught.value.distribution) == ("find", "toolbox")
    assert not mark.exists()


def test_the_next_plugin_loads_after_one_has_failed(failure, home, site):
    failure(BOOM, "MODULE")
    site.add_provider("sound")
    assert load_provider("sound", home).name == "sound"


def test_a_failed_load_leaves_no_thread_behind(failure):
    before = set(threading.enumerate())
    failure(BOOM, "MODULE")
    for each in set(threading.enumerate()) - before:
        each.join(60)
        assert not each.is_alive()


def test_an_exception_that_has_no_text_at_all_is_told_by_its_type(failure):
    source = """
class Mute(Exception):
    def __str__(self):
        raise ValueError("no text")

raise Mute
"""
    assert "Mute" in str(failure(source, "MODULE"))


def test_the_second_attempt_fails_with_the_same_cause(failure, home):
    first = failure("from . import inner\nraise RuntimeError('kaboom')\n", "MODULE", inner="x = 1")
    with pytest.raises(ProviderLoadError) as caught:
        load_provider("acme", home)
    assert str(caught.value) == str(first)
