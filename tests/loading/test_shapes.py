"""Every shape in which an entry point may offer a provider."""

from __future__ import annotations

import importlib.util
import os

import pytest
from support.modules import duck_class, provider_class
from support.sites import MEMORY, provider_source

from hermes_core import MemoryProvider, discover, load_provider
from hermes_core.discovery import find_provider

CLASS = provider_class("acme")
REGISTER = "\ndef register(ctx):\n    ctx.register_memory_provider(Provider())\n"


def test_the_built_in_is_loaded_like_any_other(home):
    provider = load_provider("builtin", home)
    assert isinstance(provider, MemoryProvider)
    assert provider.name == "builtin"
    assert provider.is_available() is True


def test_an_instance(load):
    assert load(CLASS + "\nplugin = Provider()\n", "MODULE:plugin").name == "acme"


def test_an_instance_of_a_duck_type(load):
    provider = load(duck_class("acme") + "\nplugin = Duck()\n", "MODULE:plugin")
    assert provider.name == "acme"
    assert not isinstance(provider, MemoryProvider)


def test_an_instance_whose_name_is_its_own_attribute(load):
    source = provider_class("x").replace(
        "    @property\n    def name(self):\n        return 'x'\n", ""
    )
    source = source.replace("(MemoryProvider)", "") + "\nplugin = Provider()\nplugin.name = 'own'\n"
    assert load(source, "MODULE:plugin").name == "own"


def test_an_instance_that_can_be_called_is_a_provider_and_not_called(load):
    source = provider_class("acme", body="def __call__(self): raise RuntimeError('called')")
    assert load(source + "\nplugin = Provider()\n", "MODULE:plugin").name == "acme"


def test_a_class(load):
    assert load(CLASS, "MODULE:Provider").name == "acme"


def test_a_class_that_is_a_duck_type(load):
    assert load(duck_class("acme"), "MODULE:Duck").name == "acme"


def test_a_class_whose_arguments_are_all_optional(load):
    source = provider_class(
        "acme", body="def __init__(self, url=None, *rest, key='', **more): pass"
    )
    assert load(source, "MODULE:Provider").name == "acme"


def test_a_factory_without_arguments(load):
    assert load(CLASS + "\ndef make():\n    return Provider()\n", "MODULE:make").name == "acme"


def test_a_factory_that_gives_the_class(load):
    assert load(CLASS + "\ndef make():\n    return Provider\n", "MODULE:make").name == "acme"


@pytest.mark.parametrize(
    "signature", ["url=None", "*, key=''", "**options", "url=None, *, key='', **options"]
)
def test_a_factory_with_optional_arguments_gets_none_of_them(load, signature):
    source = f"""
def make({signature}):
    assert not any(value for value in locals().values()), locals()
    return Provider()
"""
    assert load(CLASS + source, "MODULE:make").name == "acme"


@pytest.mark.parametrize(
    "factory", ["lambda: Provider()", "__import__('functools').partial(Provider)"]
)
def test_a_factory_that_is_no_function(load, factory):
    assert load(CLASS + f"\nmake = {factory}\n", "MODULE:make").name == "acme"


def test_an_object_that_can_be_called_is_a_factory(load):
    source = "\nclass Factory:\n    def __call__(self):\n        return Provider()\n"
    assert load(CLASS + source + "make = Factory()\n", "MODULE:make").name == "acme"


def test_a_class_method_is_a_factory(load):
    source = provider_class("acme", body="@classmethod\ndef create(cls): return cls()")
    assert load(source, "MODULE:Provider.create").name == "acme"


def test_register(load):
    assert load(CLASS + REGISTER).name == "acme"


@pytest.mark.parametrize(
    "signature", ["ctx", "ctx, /", "context", "plugin_api", "ctx=None", "context=None", "ctx, x=1"]
)
def test_register_gets_the_context_whatever_it_calls_it(load, signature):
    name = signature.partition(",")[0].partition("=")[0]
    source = f"\ndef register({signature}):\n    {name}.register_memory_provider(Provider())\n"
    assert load(CLASS + source).name == "acme"


def test_register_may_give_the_class(load):
    assert load(CLASS + REGISTER.replace("Provider()", "Provider")).name == "acme"


def test_register_may_return_the_provider_instead(load):
    assert load(CLASS + "\ndef register(ctx):\n    return Provider()\n").name == "acme"


def test_register_of_a_class_or_an_instance_is_a_way_too(load):
    source = """
class Plugin:
    def register(self, ctx):
        ctx.register_memory_provider(Provider())

plugin = Plugin()
"""
    assert load(CLASS + source, "MODULE:plugin.register").name == "acme"


def test_an_attribute_of_an_attribute(load):
    source = CLASS.replace("class Provider", "class Inner")
    source += "\nclass Outer:\n    Deep = Inner\n"
    assert load(source, "MODULE:Outer.Deep").name == "acme"


@pytest.mark.parametrize(
    "value",
    ["MODULE:register [redis]", "MODULE:register[a,b]", "MODULE : register", "MODULE.sub:register"],
)
def test_extras_spaces_and_submodules_in_the_value(load, value):
    assert load(CLASS + REGISTER, value, sub=CLASS + REGISTER).name == "acme"


def test_a_module_with_register(load):
    assert load(CLASS + REGISTER, "MODULE").name == "acme"


def test_a_module_with_extras(load):
    assert load(CLASS + REGISTER, "MODULE [redis]").name == "acme"


def test_it_can_be_loaded_by_name_by_owner_and_by_what_discover_gave(home, installed):
    installed(provider_source("acme"))
    for choice in ("acme", "acme@acme-memory", find_provider("acme", discover(home))):
        assert load_provider(choice, home).name == "acme"


def test_what_discover_gave_needs_no_home(home, installed, monkeypatch):
    installed(provider_source("acme"))
    info = find_provider("acme", discover(home))
    monkeypatch.setenv("HERMES_HOME", "/proc/nowhere")
    assert load_provider(info).name == "acme"


def test_every_load_gives_a_provider_of_its_own(home, installed):
    installed(provider_source("acme"))
    assert load_provider("acme", home) is not load_provider("acme", home)


def test_a_provider_of_the_other_group_is_loaded(home, site):
    site.add(
        "memra",
        groups={"hermes_agent.plugins": {"memra": "memra_plugin:register"}},
        files={"memra_plugin.py": provider_source("memra")},
    )
    assert load_provider("memra", home).name == "memra"


def test_a_name_unlike_the_entry_points_is_the_providers_business(home, site):
    site.add(
        "colony",
        groups={MEMORY: {"colony-memory": "colony_mod"}},
        files={"colony_mod.py": provider_source("colony")},
    )
    assert load_provider("colony-memory", home).name == "colony"


def test_an_instance_that_delegates_to_another_is_a_duck_type(load):
    source = """
class Proxy:
    def __init__(self, target):
        self._target = target

    def __getattr__(self, name):
        return getattr(self._target, name)

plugin = Proxy(Provider())
"""
    assert load(CLASS + source, "MODULE:plugin").name == "acme"


def test_a_plugin_installed_a_moment_ago_loads_in_a_running_process(home, site):
    assert importlib.util.find_spec("memory_second") is None  # now import knows the folder
    stamp = site.folder.stat()
    site.add_provider("second")
    # A file system with coarse time stamps does not show that the folder has changed.
    os.utime(site.folder, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert load_provider("second", home).name == "second"
