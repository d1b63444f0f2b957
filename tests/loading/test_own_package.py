"""Plugins that were copied from a package, and import themselves by its name."""

from __future__ import annotations

import importlib
import sys

import pytest
from support.modules import provider_class
from support.sites import add_directory

from hermes_core import ProviderLoadError, load_provider

GIVES = "\ndef register(ctx):\n    ctx.register_memory_provider(Provider())\n"


@pytest.fixture(autouse=True)
def _no_leftovers():
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith(("copied_acme", "_hermes_plugin_")):
            del sys.modules[name]


def copied(home, files, name="acme"):
    folder = add_directory(home, name, files["__init__.py"])
    for path, source in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(source, "utf-8")
    return folder


def provider(body: str = "") -> str:
    return provider_class("acme", body=body)


SHAPES = {
    "relative": {
        "__init__.py": "from .provider import register  # register_memory_provider\n",
        "provider.py": "from .deep.store import KEPT\n" + provider() + GIVES,
        "deep/__init__.py": "",
        "deep/store.py": "from .. import other\nKEPT = other.VALUE\n",
        "other.py": "VALUE = 7\n",
    },
    "absolute": {
        "__init__.py": "from copied_acme.provider import register  # register_memory_provider\n",
        "provider.py": "from copied_acme.deep.store import KEPT\n" + provider() + GIVES,
        "deep/__init__.py": "",
        "deep/store.py": "import copied_acme.other\nKEPT = copied_acme.other.VALUE\n",
        "other.py": "VALUE = 7\n",
    },
    "a module from the package": {
        "__init__.py": "from copied_acme import provider\nregister = provider.register\n",
        "provider.py": provider() + GIVES,
    },
    "a name from the package": {
        "__init__.py": "VERSION = '1'\nfrom .provider import register\n",
        "provider.py": "from copied_acme import VERSION\n" + provider() + GIVES,
    },
    "a class in a module, and nothing in the package": {
        "__init__.py": "'Memory by Acme.'\n",
        "provider.py": "from copied_acme import store\n" + provider(),
        "store.py": "",
    },
    "register in a package within": {
        "__init__.py": "",
        "plugin/__init__.py": "from copied_acme.provider import Provider\n" + GIVES,
        "provider.py": provider(),
    },
    "a package within that imports its own modules": {
        "__init__.py": "from copied_acme.deep import register\n",
        "deep/__init__.py": "from copied_acme.deep.provider import register\n",
        "deep/provider.py": "import copied_acme.deep.store as store\n" + provider() + GIVES,
        "deep/store.py": "import copied_acme\nimport copied_acme.deep\n",
    },
    "names that the package takes from its modules": {
        "__init__.py": "from .store import (\n    Store as Kept,\n)\n"
        "from .provider import register\n",
        "provider.py": "from copied_acme import Kept\nfrom copied_acme.store import Store\n"
        + provider()
        + GIVES,
        "store.py": "class Store: ...\n",
    },
    "over several lines": {
        "__init__.py": "from .provider import register\n",
        "provider.py": "from copied_acme import (\n    store,\n)\n" + provider() + GIVES,
        "store.py": "",
    },
}


@pytest.mark.parametrize("files", SHAPES.values(), ids=SHAPES)
def test_its_imports_of_itself_work(home, files):
    copied(home, files)
    assert load_provider("acme", home).name == "acme"


def test_both_names_lead_to_one_module(home):
    body = """
    def both(self):
        from copied_acme import store as absolute
        import copied_acme.store
        from . import store as relative
        return absolute is relative is copied_acme.store
    """
    copied(
        home,
        {
            "__init__.py": "from .provider import register\n",
            "provider.py": "from copied_acme.store import X\n" + provider(body) + GIVES,
            "store.py": "X = object()\n",
        },
    )
    assert load_provider("acme", home).both()


def test_an_installed_package_of_that_name_is_used(home, site):
    body = "def where(self):\n    from copied_acme.store import WHERE\n    return WHERE\n"
    files = {
        "__init__.py": "from .provider import register\n",
        "provider.py": "from copied_acme.store import WHERE\n" + provider(body) + GIVES,
        "store.py": "WHERE = 'copy'\n",
    }
    copied(home, files)
    site.add(
        "acme", files={"copied_acme/__init__.py": "", "copied_acme/store.py": "WHERE = 'site'\n"}
    )
    assert load_provider("acme", home).where() == "site"


def test_two_homes_have_each_their_own_copy(home, tmp_path):
    files = {
        "__init__.py": "from copied_acme.provider import register\n",
        "provider.py": "from copied_acme.store import WHERE\n"
        + provider("where = property(lambda self: WHERE)\n")
        + GIVES,
    }
    other = tmp_path / "other"
    copied(home, {**files, "store.py": "WHERE = 'first'\n"})
    copied(other, {**files, "store.py": "WHERE = 'second'\n"})
    assert load_provider("acme", home).where == "first"
    assert load_provider("acme", other).where == "second"


def test_a_module_that_is_not_there_is_missed_by_the_name_that_was_asked_for(home):
    files = {
        "__init__.py": "from copied_acme.store import X\n" + provider() + GIVES,
        "store.py": "from copied_acme.missing import X\n",
    }
    copied(home, files)
    with pytest.raises(ProviderLoadError, match=r"No module named 'copied_acme\.missing'"):
        load_provider("acme", home)


@pytest.mark.parametrize(
    "files",
    [
        {
            "__init__.py": "",
            "session.py": "def later():\n    from copied_acme.session import Config\n",
            "client.py": "def later():\n    from copied_acme import Client\n",
        },
        {
            "__init__.py": "Client = None\ntry:\n    from copied_acme import Client\n"
            "except ImportError:\n    pass\n"
        },
        {
            "__init__.py": '"""\nClient of Acme.\n"""\n',
            "client.py": "def later():\n    from copied_acme import Client\n",
        },
    ],
    ids=["a module of the same name", "a name that is None without it", "a word of the docstring"],
)
def test_a_client_library_that_is_missing_is_not_taken_for_the_plugin(home, files):
    copied(home, {**files, "__init__.py": files["__init__.py"] + provider() + GIVES})
    assert load_provider("acme", home).name == "acme"
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("copied_acme")


def test_of_two_names_that_fit_the_one_that_is_imported_more_is_the_plugins(home):
    files = {
        "__init__.py": "from copied_acme.provider import register\n",
        "provider.py": "from copied_acme.config import X\n" + provider() + GIVES,
        "config.py": "X = 1\ndef later():\n    from zz_library.config import Settings\n",
    }
    copied(home, files)
    assert load_provider("acme", home).name == "acme"
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("zz_library")


@pytest.mark.parametrize(
    "statement",
    ["import json", "import copied_acme_missing.store", "from copied_acme_missing import *"],
)
def test_other_imports_are_left_alone(home, statement):
    copied(
        home,
        {
            "__init__.py": provider() + GIVES,
            "json.py": "raise RuntimeError\n",
            "lazy.py": f"{statement}\n",
        },
    )
    assert load_provider("acme", home).name == "acme"
    assert "copied_acme_missing" not in sys.modules
