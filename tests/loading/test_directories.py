"""Directory plugins, imported as packages with a name of their own."""

from __future__ import annotations

import sys

import pytest
from support.modules import provider_class
from support.sites import add_directory, provider_source

from hermes_core import ProviderLoadError, discover, load_provider
from hermes_core.discovery import find_provider


def write(folder, files):
    for name, source in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, "utf-8")


@pytest.mark.parametrize("manifest", [None, "name: mine\nversion: 1.0.0\n"])
def test_with_and_without_a_manifest(home, manifest):
    add_directory(home, "mine", manifest=manifest)
    assert load_provider("mine", home).name == "mine"
    assert load_provider("mine@directory", home).name == "mine"


def test_a_class_alone_is_enough(home):
    add_directory(home, "mine", provider_class("mine"))
    assert load_provider("mine", home).name == "mine"


def test_relative_imports_and_sub_packages_work(home):
    folder = add_directory(
        home,
        "mine",
        "from .provider import register  # register_memory_provider\nfrom . import version\n",
    )
    write(
        folder,
        {
            "version.py": "NUMBER = 7",
            "provider.py": "from .store import deep\nfrom .store.deep import Real as Provider\n"
            "def register(ctx):\n    ctx.register_memory_provider(Provider())\n",
            "store/__init__.py": "from .. import version",
            "store/deep.py": "from ..version import NUMBER\n" + provider_class("mine", "Real"),
        },
    )
    provider = load_provider("mine", home)
    assert provider.name == "mine"
    assert sys.modules[type(provider).__module__].NUMBER == 7


def test_a_lazy_relative_import_works_later(home):
    body = "def late(self):\n    from .extra import answer\n    return answer\n"
    folder = add_directory(home, "mine", provider_class("mine", body=body))
    provider = load_provider("mine", home)
    write(folder, {"extra.py": "answer = 42"})
    assert provider.late() == 42


def test_data_files_are_found_beside_the_source(home):
    folder = add_directory(
        home,
        "mine",
        "from pathlib import Path\n"
        "TEXT = (Path(__file__).parent / 'data.txt').read_text()\n" + provider_class("mine"),
    )
    write(folder, {"data.txt": "content"})
    assert load_provider("mine", home).name == "mine"


@pytest.mark.parametrize("name", ["my-memory", "with space", "v1.2", "class", "sys", "記憶"])
def test_the_folders_name_need_not_be_a_module_name(home, name):
    add_directory(home, name, provider_source("any"))
    assert load_provider(name, home).name == "any"


def test_the_name_of_an_installed_module_is_not_taken_over(home):
    add_directory(home, "json", provider_source("json"))
    assert load_provider("json", home).name == "json"
    import json

    assert json.loads("1") == 1


def test_two_homes_with_a_plugin_of_one_name_stay_apart(tmp_path):
    homes = [tmp_path / "one", tmp_path / "two"]
    for home in homes:
        folder = add_directory(
            home, "same", "from .impl import register  # register_memory_provider"
        )
        write(folder, {"impl.py": provider_source(f"from {home.name}")})
    first, second = (load_provider("same", home) for home in homes)
    assert (first.name, second.name) == ("from one", "from two")
    assert load_provider("same", homes[0]).name == "from one"


def test_a_plugin_that_failed_can_be_mended_and_loaded_in_the_same_process(home):
    folder = add_directory(
        home, "mine", "from . import impl\nraise RuntimeError('broken')  # MemoryProvider"
    )
    write(folder, {"impl.py": "STATE = 'old'"})
    with pytest.raises(ProviderLoadError, match="broken"):
        load_provider("mine", home)
    write(folder, {"impl.py": "STATE = 'mended'  # of another length"})
    (folder / "__init__.py").write_text(
        "from .impl import STATE\n" + provider_class("mine", body="state = STATE"), "utf-8"
    )
    assert load_provider("mine", home).state == "mended"


def test_a_failure_names_the_plugin_and_the_step(home):
    add_directory(home, "mine", "import nothing_of_that_name  # MemoryProvider")
    with pytest.raises(ProviderLoadError) as caught:
        load_provider("mine", home)
    assert caught.value.plugin == "mine"
    assert caught.value.step == "import"
    assert "nothing_of_that_name" in str(caught.value)


def test_a_syntax_error_names_the_file_and_the_line(home):
    add_directory(home, "mine", "# MemoryProvider\n\ndef broken(:\n")
    with pytest.raises(ProviderLoadError, match="SyntaxError") as caught:
        load_provider("mine", home)
    assert "line 3" in str(caught.value)
    assert "__init__.py" in str(caught.value)


def test_the_current_folder_does_not_matter(home, tmp_path, monkeypatch):
    add_directory(home, "mine")
    info = find_provider("mine", discover(home))
    monkeypatch.chdir(tmp_path)
    assert load_provider(info).name == "mine"


def test_a_relative_home_is_resolved_when_it_is_given(home, tmp_path, monkeypatch):
    add_directory(home, "mine")
    monkeypatch.chdir(home.parent)
    info = find_provider("mine", discover("home"))
    monkeypatch.chdir(tmp_path / "home" / "plugins")
    assert load_provider(info).name == "mine"
