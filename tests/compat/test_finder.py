"""The offered modules stand behind everything that is really there, at any time."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
from support.sites import MEMORY, Site, add_directory, provider_source
from support.theirs import their_source

import hermes_core
from hermes_core import ProviderLoadError, load_provider
from hermes_core.loading.compat import OFFERED, offer_hermes_agent_modules
from hermes_core.loading.compat._finder import OfferFinder, is_offering


@pytest.fixture
def later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Put modules on the import path in the middle of a test; what they bring goes with it."""
    before = set(sys.modules)

    def add(files: dict[str, str], *, told: bool = True) -> Path:
        site = Site(tmp_path / "later")
        site.add("later", files=files)
        monkeypatch.setattr(sys, "path", [str(site.folder), *sys.path])
        if told:
            importlib.invalidate_caches()
        return site.folder

    yield add
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_a_plugin_for_hermes_agent_is_a_subclass_of_our_class(home):
    add_directory(home, "theirs", their_source())
    provider = load_provider("theirs", home)
    assert isinstance(provider, hermes_core.MemoryProvider)
    import agent.memory_provider

    assert agent.memory_provider.MemoryProvider is hermes_core.MemoryProvider


def test_nothing_is_offered_before_such_a_plugin_is_loaded(home):
    add_directory(home, "ours", provider_source("ours"))
    load_provider("ours", home)
    load_provider("builtin", home)
    assert not is_offering()
    with pytest.raises(ModuleNotFoundError):
        import agent.memory_provider  # noqa: F401


def test_the_finder_stands_behind_all_others(home):
    add_directory(home, "theirs", their_source())
    load_provider("theirs", home)
    assert isinstance(sys.meta_path[-1], OfferFinder)
    sys.meta_path.append(other := object())
    try:
        offer_hermes_agent_modules()
        assert isinstance(sys.meta_path[-1], OfferFinder)
        assert sum(isinstance(each, OfferFinder) for each in sys.meta_path) == 1
    finally:
        sys.meta_path.remove(other)


def test_what_is_not_offered_is_not_importable():
    offer_hermes_agent_modules()
    for name in ("agent.auxiliary_client", "hermes_cli.gateway", "tools.terminal", "gateway"):
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(name)
    with pytest.raises(ImportError):
        from tools.registry import registry  # noqa: F401


def test_every_offered_module_has_the_names_that_it_says():
    offer_hermes_agent_modules()
    for name in OFFERED:
        module = importlib.import_module(name)
        for each in getattr(module, "__all__", ()):
            assert getattr(module, each) is not None
            assert each in dir(module)


def test_a_real_module_is_not_replaced(home, site):
    site.add("hermes-like", files={
        "agent/__init__.py": "MINE = 1",
        "agent/memory_provider.py": "class MemoryProvider:\n    theirs = True\n",
        "utils.py": "MINE = 2",
    })  # fmt: skip
    files = {"acme/__init__.py": their_source() + "\nimport utils\nMINE = utils.MINE\n"}
    site.add("acme", groups={MEMORY: {"theirs": "acme"}}, files=files)
    provider = load_provider("theirs", home)
    assert provider.theirs
    assert not isinstance(provider, hermes_core.MemoryProvider)
    assert sys.modules["acme"].MINE == 2


def test_a_subclass_of_the_real_base_class_needs_no_register(home, site):
    site.add("hermes-like", files={
        "agent/__init__.py": "",
        "agent/memory_provider.py": "class MemoryProvider:\n    theirs = True\n",
    })  # fmt: skip
    source = their_source().partition("def register")[0]
    site.add("acme", groups={MEMORY: {"theirs": "acme_class"}}, files={"acme_class.py": source})
    assert load_provider("theirs", home).theirs


def test_a_submodule_that_a_real_package_lacks_is_served(home, site):
    site.add("somebody", files={"agent/__init__.py": "MINE = 1", "agent/own.py": ""})
    site.add("acme", groups={MEMORY: {"theirs": "acme2"}}, files={"acme2.py": their_source()})
    assert isinstance(load_provider("theirs", home), hermes_core.MemoryProvider)
    import agent

    assert agent.MINE == 1
    import agent.own


def test_a_module_that_is_no_package_is_named_where_it_is_in_the_way(home, site):
    site.add("somebody", files={"agent.py": "MINE = 1"})
    site.add("acme", groups={MEMORY: {"theirs": "acme3"}}, files={"acme3.py": their_source()})
    with pytest.raises(ProviderLoadError) as caught:
        load_provider("theirs", home)
    assert "agent.memory_provider" in str(caught.value)
    assert "agent.py" in str(caught.value)
    assert "is not a package" in str(caught.value)


@pytest.mark.parametrize("told", [True, False])
def test_a_module_that_becomes_importable_later_is_the_one_that_is_used(home, later, told):
    add_directory(home, "theirs", their_source() + "\nimport utils\n")
    load_provider("theirs", home)
    assert "utils" in sys.modules
    folder = later(
        {"utils.py": "VALUE = 1\ndef is_truthy_value():\n    return 'mine'\n"}, told=told
    )
    import utils

    assert utils.VALUE == 1
    assert utils.is_truthy_value() == "mine"
    assert utils.__file__ == str(folder / "utils.py")
    assert sys.modules["utils"].__file__ == str(folder / "utils.py")
    with pytest.raises(ImportError):
        from utils import atomic_json_write  # noqa: F401


@pytest.mark.parametrize("told", [True, False])
def test_so_is_a_package_with_its_submodules(home, later, told):
    add_directory(home, "theirs", their_source() + "\nimport tools.registry\n")
    load_provider("theirs", home)
    later({"tools/__init__.py": "", "tools/hammer.py": "WEIGHT = 2"}, told=told)
    import tools.hammer

    assert tools.hammer.WEIGHT == 2
    from tools.registry import tool_error  # what the real one lacks is served on

    assert tool_error("x") == '{"error": "x"}'


def test_a_plugin_that_has_ours_goes_on_with_the_real_one_when_it_comes(home, later):
    source = their_source(methods="def shown(self):\n    return utils.is_truthy_value('yes')\n")
    add_directory(home, "theirs", "import utils\n" + source)
    provider = load_provider("theirs", home)
    assert provider.shown() is True
    later({"utils.py": "def is_truthy_value(value):\n    return 'real'\n"})
    assert provider.shown() == "real"


def test_ours_are_served_again_when_a_real_module_goes(later, monkeypatch):
    offer_hermes_agent_modules()
    folder = later({"utils.py": "VALUE = 1"})
    import utils

    assert utils.VALUE == 1
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each != str(folder)])
    del sys.modules["utils"]
    from utils import safe_json_loads

    assert safe_json_loads("no") is None


def test_a_name_can_be_replaced_for_a_test(monkeypatch):
    offer_hermes_agent_modules()
    monkeypatch.setattr("hermes_constants.get_hermes_home", lambda: "elsewhere")
    from hermes_constants import get_hermes_home

    assert get_hermes_home() == "elsewhere"
    monkeypatch.undo()
    from hermes_constants import get_hermes_home

    assert get_hermes_home() != "elsewhere"
