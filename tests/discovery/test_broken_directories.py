"""Directory plugins in a bad state: listed with the cause, the rest as it is."""

from __future__ import annotations

import os

import pytest
from support.modules import run_python
from support.sites import add_directory, provider_source

from hermes_core import ProviderLoadError, load_provider


@pytest.fixture(autouse=True)
def good(home):
    """A sound neighbour that has to be listed in every case."""
    add_directory(home, "good", manifest="version: 1.0.0")


@pytest.mark.parametrize(
    "manifest",
    [
        "description: [unclosed",
        "a: b: c",
        "a:\n\tb: 1",
        "!!python/object/apply:os.system ['true']",
        "just a text",
        "- a\n- list\n",
        "version: *nowhere",
    ],
)
def test_a_broken_manifest_is_told_and_no_obstacle(found, home, manifest):
    add_directory(home, "bad", manifest=manifest)
    bad = found()["bad"]
    assert bad.state == "broken"
    assert "plugin.yaml" in bad.problem
    assert "\n" not in bad.problem
    assert load_provider("bad", home).name == "bad"
    assert found()["good"].state == "installed"


@pytest.mark.parametrize("content", [b"\xff\xfe\x00\x01", b"name: caf\xe9\n", b"a: \0\n", b"\x80"])
def test_a_manifest_that_is_no_text_is_told(found, home, content):
    (add_directory(home, "bad") / "plugin.yaml").write_bytes(content)
    assert found()["bad"].state == "broken"
    assert "plugin.yaml" in found()["bad"].problem
    assert found()["good"].state == "installed"


def test_a_manifest_with_a_byte_order_mark_is_fine(found, home):
    path = add_directory(home, "marked") / "plugin.yaml"
    path.write_bytes(b"\xef\xbb\xbfversion: 2.0.0\r\ndescription: Marked\r\n")
    marked = found()["marked"]
    assert (marked.state, marked.version, marked.description) == ("installed", "2.0.0", "Marked")


def test_a_manifest_that_is_a_folder_is_told(found, home):
    (add_directory(home, "bad") / "plugin.yaml").mkdir()
    assert found()["bad"].state == "broken"
    assert "plugin.yaml is not a regular file" in found()["bad"].problem


def test_a_manifest_without_end_is_not_read(found, home):
    (add_directory(home, "bad") / "plugin.yaml").write_text("a: b\n" * 300_000, "utf-8")
    assert "too large" in found()["bad"].problem


def test_a_directory_without_init_is_broken_and_not_loaded(found, home):
    folder = add_directory(home, "bad")
    (folder / "__init__.py").rename(folder / "plugin.py")
    bad = found()["bad"]
    assert bad.state == "broken"
    assert "__init__.py" in bad.problem
    with pytest.raises(ProviderLoadError, match=r"__init__\.py") as caught:
        load_provider("bad", home)
    assert caught.value.plugin == "bad"


def test_an_empty_directory_is_broken(found, home):
    (home / "plugins" / "void").mkdir()
    assert found()["void"].state == "broken"


def test_a_directory_plugin_for_something_else_says_so(found, home):
    add_directory(home, "tools", "def register(ctx): ctx.register_tool('x', print)")
    tools = found()["tools"]
    assert tools.state == "no-provider"
    assert "no memory provider" in tools.problem
    with pytest.raises(ProviderLoadError, match="no memory provider"):
        load_provider("tools", home)


def test_a_source_that_is_no_text_is_listed_all_the_same(found, home):
    folder = add_directory(home, "bad")
    (folder / "__init__.py").write_bytes(b"\xff\xfe register_memory_provider \0")
    assert set(found()) == {"bad", "good"}


@pytest.mark.parametrize(
    ("written", "shown"), [("1.2.3", "1.2.3"), ("'1.10'", "1.10"), ("2026-01-02", "2026-01-02")]
)
def test_the_version_is_shown_as_it_is_written(found, home, written, shown):
    add_directory(home, "dated", manifest=f"version: {written}")
    assert found()["dated"].version == shown


@pytest.mark.parametrize("written", ["1.10", "1_0", "0x10", "2024.10"])
def test_a_version_that_looks_like_a_number_is_shown_as_it_is_written(found, home, written):
    add_directory(home, "dated", manifest=f"version: {written}")
    assert found()["dated"].version == written


@pytest.mark.parametrize("manifest", ["", "# nothing yet\n", "---\n"])
def test_an_empty_manifest_is_as_good_as_none(found, home, manifest):
    add_directory(home, "bare", manifest=manifest)
    assert found()["bare"].state == "installed"


def test_a_manifest_that_nests_without_end_does_not_end_the_process(home):
    add_directory(home, "deep", manifest="a: " + "[" * 200_000)
    done = run_python(
        "from hermes_core import discover\nprint({each.name: each.state for each in discover()})",
        home=home,
    )
    assert done.returncode == 0, done.stderr[-500:]
    assert "'deep': 'broken'" in done.stdout
    assert "'good': 'installed'" in done.stdout


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.parametrize("name", ["plugin.yaml", "extra.py"])
def test_a_named_pipe_does_not_hold_up_the_list(home, name):
    folder = add_directory(home, "pipe", "from .impl import register")
    os.mkfifo(folder / name)
    code = "from hermes_core import discover; print(len(discover()))"
    assert run_python(code, home=home, timeout=60).returncode == 0


def test_a_provider_in_a_sub_package_is_found(found, home):
    folder = add_directory(home, "deep", "from .inner.provider import setup as register")
    (folder / "inner").mkdir()
    (folder / "inner" / "__init__.py").touch()
    (folder / "inner" / "provider.py").write_text(
        provider_source("deep").replace("def register", "def setup"), "utf-8"
    )
    assert found()["deep"].state == "installed"
    assert load_provider("deep", home).name == "deep"
