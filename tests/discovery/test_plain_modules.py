"""Packages that declare nothing: a provider in a plain module, and an installer."""

from __future__ import annotations

import pytest
from support.modules import leaves_a_mark
from support.sites import MEMORY, add_directory, provider_source
from support.theirs import their_source

from hermes_core import discover, load_provider
from hermes_core.discovery import providers_in
from hermes_core.discovery.plain_modules import _MOST_FILES

ALIAS = """
try:
    from agent.memory_provider import MemoryProvider as HermesMemoryProvider
except ImportError:
    class HermesMemoryProvider:
        pass
"""

BODY = """
    def is_available(self):
        return True

    def initialize(self, session_id, **kwargs):
        pass

    def get_tool_schemas(self):
        return []
"""

PROPERTY = """
    @property
    def name(self) -> str:
        "What it is called."
        return {}
"""

INSTALLER = """
import shutil
from pathlib import Path

PLUGIN_NAME = "installed-name"

def main():
    raise SystemExit("an installer is not run to be read")
"""


def derived(name: str = '"acme"', base: str = "HermesMemoryProvider", kind: str = "Acme") -> str:
    return f"class {kind}({base}):{PROPERTY.format(name)}{BODY}"


SHAPES = {
    "a class with an alias of the base class": {"acme_mem/provider.py": ALIAS + derived()},
    "a class in the package itself": {"acme_mem/__init__.py": ALIAS + derived()},
    "a module beside no package": {"acme_mem.py": ALIAS + derived()},
    "a class whose base is chosen": {
        "acme_mem/provider.py": ALIAS
        + "Base = HermesMemoryProvider if HermesMemoryProvider else object\n"
        + derived(base="Base"),
    },
    "a class whose base is there or not": {
        "acme_mem/provider.py": ALIAS
        + "Base = HermesMemoryProvider or object\n"
        + derived(base="Base"),
    },
    "a base class that may be missing": {
        "acme_mem/provider.py": "from contextlib import suppress\nwith suppress(ImportError):\n"
        "    from agent.memory_provider import MemoryProvider\n" + derived(base="MemoryProvider"),
    },
    "register in the package": {"acme_mem/__init__.py": their_source("acme")},
    "register in a module, a class in another": {
        "acme_mem/provider.py": ALIAS + derived(),
        "acme_mem/plugin.py": "from .provider import Acme\n\n"
        "def register(ctx):\n    ctx.register_memory_provider(Acme())  # a MemoryProvider\n",
    },
    "register that calls another function for its provider": {
        "acme_mem/__init__.py": ALIAS
        + derived()
        + "\ndef build():\n    return Acme()\n"
        "\ndef register(ctx):\n    ctx.register_memory_provider(build())\n",
    },
    "register that looks for the method": {
        "acme_mem/__init__.py": ALIAS
        + derived()
        + "\ndef register(ctx):\n    add = getattr(ctx, 'register_memory_provider', None)\n"
        "    add(Acme())\n",
    },
    "register for a class that knows no host": {
        "acme_mem/memory.py": f"class Acme:{PROPERTY.format(repr('acme'))}{BODY}",
        "acme_mem/__init__.py": "from .memory import Acme\n\n"
        "def register(ctx):\n    ctx.register_memory_provider(Acme())\n",
    },
    "the base class from a sibling": {
        "acme_mem/_base.py": ALIAS + "Base = HermesMemoryProvider\n",
        "acme_mem/hermes.py": "from acme_mem._base import Base  # MemoryProvider\n\n"
        + derived(base="Base"),
    },
    "the base class as an attribute": {
        "acme_mem/hermes.py": "from agent import memory_provider\n\n"
        + derived(base="memory_provider.MemoryProvider"),
    },
    "a class that is built on another": {
        "acme_mem/base.py": ALIAS + derived('"base"', kind="AcmeBase"),
        "acme_mem/real.py": "from .base import AcmeBase  # a MemoryProvider\n\n"
        + derived(base="AcmeBase"),
    },
    "a name that is a constant of the module": {
        "acme_mem/hermes.py": ALIAS + 'PROVIDER = "acme"\n\n' + derived("PROVIDER"),
    },
    "a name that is a constant of another module": {
        "acme_mem/const.py": 'PROVIDER: str = "acme"\n',
        "acme_mem/hermes.py": ALIAS + "from .const import PROVIDER\n\n" + derived("PROVIDER"),
    },
    "a name that is a constant of the class": {
        "acme_mem/hermes.py": ALIAS
        + f'class Acme(HermesMemoryProvider):\n    ID = "acme"\n{PROPERTY.format("self.ID")}{BODY}',
    },
    "a name that is an attribute": {
        "acme_mem/hermes.py": ALIAS
        + f'class Acme(HermesMemoryProvider):\n    name = "acme"\n{BODY}',
    },
}  # fmt: skip


@pytest.mark.parametrize("files", SHAPES.values(), ids=SHAPES)
def test_it_is_found_by_its_text_and_loads(found, home, site, files):
    parts = {path.rpartition("/")[0] for path in files} - {""}
    packages = {f"{part}/__init__.py": "" for part in parts}
    site.add("hermes-acme", "2.0", files={**packages, **files}, summary="Acme for Hermes")
    assert found() == {}
    info = found(everything=True)["acme"]
    assert (info.source, info.state, info.problem) == ("module", "installed", "")
    assert (info.distribution, info.version) == ("hermes-acme", "2.0")
    assert info.description == "Acme for Hermes"
    assert load_provider("acme", home).name == "acme"
    assert load_provider("acme@hermes-acme", home).name == "acme"


@pytest.mark.parametrize(
    "installer",
    [
        INSTALLER,
        'NAME = Path.home() / ".hermes" / "plugins" / "installed-name"\n',
        'NAME = home.joinpath("plugins", "memory", "installed-name")\n',
        'HELP = "Copies itself to ~/.hermes/plugins/installed-name/ and ends."\n',
    ],
)
def test_a_name_that_the_class_computes_is_taken_from_the_installer(found, site, installer):
    files = {
        "acme_mem/__init__.py": "",
        "acme_mem/hermes.py": ALIAS + derived("'-'.join(PARTS)"),
        "acme_mem/installer.py": installer,
    }
    site.add("hermes-acme", files=files)
    assert set(found(everything=True)) == {"installed-name"}


def test_a_name_that_only_the_manifest_has_is_taken_from_it(found, site):
    files = {"acme_mem/__init__.py": ALIAS + derived("_name()"), "share/plugin.yaml": "name: mine"}
    site.add("hermes-acme", files=files)
    assert set(found(everything=True)) == {"mine"}


def test_a_name_that_nobody_says_is_the_distributions(found, site):
    site.add("hermes-acme", files={"acme_mem/__init__.py": ALIAS + derived("_name()")})
    assert set(found(everything=True)) == {"hermes-acme"}


@pytest.mark.parametrize(
    "source",
    [
        "from langthing.memory import MemoryProvider\n" + derived(base="MemoryProvider"),
        "class MemoryProvider:\n    pass\n\n" + derived(base="MemoryProvider"),
        "# a MemoryProvider of agent.memory_provider is what this is not\n",
        "from agent.memory_provider import MemoryProvider\ndef wrap(p: MemoryProvider): ...\n",
        ALIAS + "class (",
        "def register(ctx):\n    ctx.register_tool('MemoryProvider', 's', {}, print)\n",
    ],
)
def test_what_is_no_provider_is_not_listed(found, site, source):
    site.add("hermes-other", files={"hermes_other/__init__.py": source})
    assert found(everything=True) == {}


@pytest.mark.parametrize("folder", ["tests", "examples", "docs"])
def test_providers_in_tests_and_examples_are_not_listed(found, site, folder):
    files = {"acme/__init__.py": "", f"acme/{folder}/fake.py": ALIAS + derived()}
    site.add("hermes-acme", files=files)
    assert found(everything=True) == {}


def test_two_providers_of_one_package_are_both_listed(found, home, site):
    files = {
        "acme/__init__.py": "",
        "acme/one.py": ALIAS + derived('"one"', kind="One"),
        "acme/two.py": ALIAS + derived('"two"', kind="Two"),
    }
    site.add("hermes-acme", files=files)
    assert set(found(everything=True)) == {"one", "two"}
    assert load_provider("two", home).name == "two"


def test_a_package_that_declares_a_provider_is_not_searched(found, site):
    files = {"acme/__init__.py": provider_source("acme"), "acme/more.py": ALIAS + derived('"more"')}
    site.add("hermes-acme", groups={MEMORY: {"acme": "acme:register"}}, files=files)
    assert set(found(everything=True)) == {"acme"}


def test_the_copy_that_an_installer_made_is_the_same_provider(found, home, site):
    site.add("hermes-acme", files={"acme_mem/__init__.py": their_source("acme")})
    add_directory(home, "acme", their_source("acme"))
    assert found(everything=True)["acme"].source == "directory"
    assert found()["acme"].state == found(everything=True)["acme"].state == "installed"


def test_two_packages_with_one_name_are_a_conflict(home, site):
    for number in ("one", "two"):
        site.add(f"hermes-{number}", files={f"acme_{number}/__init__.py": their_source("acme")})
    listed = [each for each in discover(home, everything=True) if each.name == "acme"]
    assert [each.state for each in listed] == ["conflict", "conflict"]
    assert type(load_provider("acme@hermes-two", home)).__module__ == "acme_two"


def test_a_large_package_that_says_nothing_of_memory_is_not_read(found, site, monkeypatch):
    files = {f"big/part{number}.py": "" for number in range(30)}
    site.add("big", files={**files, "big/provider.py": ALIAS + derived()})
    assert found(everything=True) == {}
    site.add("other", files={**files, "big/hermes_provider.py": ALIAS + derived()})
    assert set(found(everything=True)) == {"acme"}


def test_a_description_that_speaks_of_hermes_is_enough_for_a_large_package(found, site):
    files = {f"big/part{number}.py": "" for number in range(30)}
    info = site.add("big", files={**files, "big/provider.py": ALIAS + derived()})
    with (info / "METADATA").open("a", encoding="utf-8") as file:
        file.write("It works with Hermes Agent.\n")
    assert set(found(everything=True)) == {"acme"}


def test_the_number_of_files_that_are_read_is_bounded(found, site, monkeypatch):
    from hermes_core.discovery import plain_modules

    read = []
    real = plain_modules.content_of
    monkeypatch.setattr(plain_modules, "content_of", lambda path: read.append(path) or real(path))
    files = {f"hermes_big/part{number}.py": "" for number in range(_MOST_FILES + 100)}
    site.add("hermes-big", files={**files, "hermes_big/provider.py": ALIAS + derived()})
    found(everything=True)
    assert len([path for path in read if "hermes_big" in str(path)]) == _MOST_FILES


def test_a_wheel_that_is_not_installed_yet_is_understood(tmp_path):
    from support.sites import Site

    site = Site(tmp_path / "elsewhere")
    site.add("hermes-acme", files={"acme_mem/__init__.py": their_source("acme")})
    assert [each.name for each in providers_in(site.folder)] == ["acme"]


def test_nothing_is_imported_to_find_it(found, site, tmp_path):
    mark = tmp_path / "imported"
    tell = leaves_a_mark(mark)
    files = {
        "loud_acme/__init__.py": tell,
        "loud_acme/hermes.py": tell + ALIAS + derived(),
        "loud_acme/installer.py": tell + INSTALLER,
    }
    site.add("hermes-acme", files=files)
    assert set(found(everything=True)) == {"acme"}
    assert not mark.exists()
