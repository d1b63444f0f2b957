"""Pins: who owned a provider and what was in it when a person enabled it."""

from __future__ import annotations

import json

import pytest
from support.sites import MEMORY, add_directory, provider_source

from hermes_core import discover
from hermes_core.discovery import content_hash, find_provider, pin_of
from hermes_core.errors import UnknownProviderError


def info_of(home, name):
    try:
        return find_provider(name, discover(home))
    except UnknownProviderError:  # looking into every package takes longer
        return find_provider(name, discover(home, everything=True))


def enable(home, name, *, mode="warn"):
    """Write what `enable` would: the choice and the pin of what is there now."""
    pin = pin_of(info_of(home, name))._asdict()
    memory = {"provider": name, "pin": mode, "pins": {name: pin}}
    (home / "config.yaml").write_text(json.dumps({"memory": memory}), "utf-8")


@pytest.fixture
def acme(home, site):
    """An enabled distribution; gives its dist-info folder."""
    info = site.add_provider("acme", "acme-memory", "1.0")
    enable(home, "acme")
    return info


def source_of(site):
    return site.folder / "acme_memory" / "__init__.py"


def test_a_pin_says_owner_version_and_hash(home, site):
    site.add_provider("acme", "Acme-Memory", "1.0")
    pin = pin_of(info_of(home, "acme"))
    assert (pin.owner, pin.version) == ("Acme-Memory", "1.0")
    assert pin.hash.startswith("sha256:")
    assert len(pin.hash) == len("sha256:") + 64


def test_what_has_not_changed_is_active(home, acme):
    info = info_of(home, "acme")
    assert (info.state, info.active, info.problem) == ("active", True, "")


def test_another_content_is_told_and_still_active(home, site, acme):
    source_of(site).write_text(provider_source("acme") + "# new\n", "utf-8")
    info = info_of(home, "acme")
    assert (info.state, info.active) == ("changed", True)
    assert "files differ" in info.problem
    assert "hermes-plugins enable acme" in info.problem


def test_the_files_are_read_and_record_is_not_believed(home, site, acme):
    before = (acme / "RECORD").read_bytes()
    source_of(site).write_text("# other content of any length", "utf-8")
    assert (acme / "RECORD").read_bytes() == before
    assert info_of(home, "acme").state == "changed"


def test_another_version_is_told_with_both(home, site, acme):
    for path in acme.iterdir():
        path.unlink()
    acme.rmdir()
    site.add_provider("acme", "acme-memory", "2.0")
    info = info_of(home, "acme")
    assert (info.state, info.active) == ("changed", True)
    assert "1.0" in info.problem
    assert "2.0" in info.problem


def test_another_owner_is_refused_with_both_named(home, site, acme):
    for path in acme.iterdir():
        path.unlink()
    acme.rmdir()
    site.add_provider("acme", "squatter")
    info = info_of(home, "acme")
    assert (info.state, info.active) == ("changed", False)
    assert "squatter" in info.problem
    assert "acme-memory" in info.problem
    assert "hermes-plugins enable acme" in info.problem


def test_a_directory_in_place_of_a_distribution_is_another_owner(home, site, acme):
    for path in acme.iterdir():
        path.unlink()
    acme.rmdir()
    add_directory(home, "acme")
    info = info_of(home, "acme")
    assert (info.state, info.active) == ("changed", False)


@pytest.mark.parametrize("change", ["content", "version"])
def test_strict_refuses_what_would_only_be_told(home, site, change):
    acme = site.add_provider("acme", "acme-memory", "1.0")
    enable(home, "acme", mode="strict")
    assert info_of(home, "acme").active
    if change == "content":
        source_of(site).write_text("# new", "utf-8")
    else:
        metadata = (acme / "METADATA").read_text("utf-8").replace("Version: 1.0", "Version: 1.1")
        (acme / "METADATA").write_text(metadata, "utf-8")
    info = info_of(home, "acme")
    assert (info.state, info.active) == ("changed", False)


def test_the_owner_is_the_same_however_it_is_spelt(home, site):
    site.add_provider("acme", "Acme_Memory")
    enable(home, "acme")
    config = (home / "config.yaml").read_text("utf-8").replace("Acme_Memory", "acme-memory")
    (home / "config.yaml").write_text(config, "utf-8")
    assert info_of(home, "acme").state == "active"


def test_what_was_never_pinned_is_active(home, site):
    site.add_provider("acme")
    (home / "config.yaml").write_text("memory: {provider: acme, pin: strict}", "utf-8")
    assert info_of(home, "acme").active


def test_the_pin_of_another_provider_does_not_matter(home, site, acme):
    site.add_provider("other")
    source_of(site).write_text("# new", "utf-8")
    config = json.loads((home / "config.yaml").read_text("utf-8"))
    config["memory"]["provider"] = "other"
    (home / "config.yaml").write_text(json.dumps(config), "utf-8")
    assert info_of(home, "other").state == "active"
    assert info_of(home, "acme").state == "installed"


@pytest.mark.parametrize(
    "noise",
    [
        "acme_memory/__pycache__/__init__.cpython-311.pyc",
        "acme_memory-1.0.dist-info/INSTALLER",
        "acme_memory-1.0.dist-info/direct_url.json",
        "../bin/acme",
    ],
)
def test_bytecode_metadata_and_scripts_do_not_count(home, site, acme, noise):
    with (acme / "RECORD").open("a", encoding="utf-8") as record:
        record.write(f"{noise},,\n")
    target = site.folder / noise
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(b"noise")
    assert info_of(home, "acme").state == "active"


def test_a_new_and_a_missing_file_change_the_hash(home, site, acme):
    before = content_hash(info_of(home, "acme"))
    with (acme / "RECORD").open("a", encoding="utf-8") as record:
        record.write("acme_memory/extra.py,,\n")
    missing = content_hash(info_of(home, "acme"))
    (site.folder / "acme_memory" / "extra.py").write_text("", "utf-8")
    empty = content_hash(info_of(home, "acme"))
    assert len({before, missing, empty}) == 3


def test_a_file_that_is_renamed_changes_the_hash(home):
    folder = add_directory(home, "mine")
    (folder / "prompts.txt").write_text("text", "utf-8")
    before = content_hash(info_of(home, "mine"))
    (folder / "prompts.txt").rename(folder / "prompts.md")
    assert content_hash(info_of(home, "mine")) != before


def test_two_files_that_swap_their_contents_change_the_hash(home, site):
    site.add(
        "acme-memory",
        groups={MEMORY: {"acme": "acme_memory"}},
        files={"acme_memory/a.py": "1", "acme_memory/b.py": "2"},
    )
    before = content_hash(info_of(home, "acme"))
    (site.folder / "acme_memory" / "a.py").write_text("2", "utf-8")
    (site.folder / "acme_memory" / "b.py").write_text("1", "utf-8")
    assert content_hash(info_of(home, "acme")) != before


def test_the_order_of_record_does_not_change_the_hash(home, site):
    files = {"acme_memory/a.py": "1", "acme_memory/b.py": "2", "acme_memory/c.py": "3"}
    acme = site.add("acme-memory", groups={MEMORY: {"acme": "acme_memory"}}, files=files)
    before = content_hash(info_of(home, "acme"))
    lines = (acme / "RECORD").read_text("utf-8").splitlines()
    (acme / "RECORD").write_text("\n".join(reversed(lines)), "utf-8")
    assert content_hash(info_of(home, "acme")) == before


def test_an_editable_install_has_an_owner_and_a_version_to_compare(home, site):
    info = site.add("dev", "1.0", groups={MEMORY: {"acme": "dev_acme"}})
    (site.folder / "dev_acme.py").write_text(provider_source("acme"), "utf-8")
    enable(home, "acme")
    (site.folder / "dev_acme.py").write_text("# edited", "utf-8")
    assert info_of(home, "acme").state == "active"  # that is what editable is for
    metadata = (info / "METADATA").read_text("utf-8").replace("1.0", "1.1")
    (info / "METADATA").write_text(metadata, "utf-8")
    assert info_of(home, "acme").state == "changed"


def test_a_directory_is_pinned_with_all_its_files_but_bytecode(home):
    folder = add_directory(home, "mine", manifest="version: '1'")
    (folder / "sub").mkdir()
    (folder / "sub" / "data.json").write_text("{}", "utf-8")
    enable(home, "mine")
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "x.pyc").write_bytes(b"x")
    assert info_of(home, "mine").state == "active"
    (folder / "sub" / "data.json").write_text("[]", "utf-8")
    info = info_of(home, "mine")
    assert (info.state, info.active) == ("changed", True)


def test_a_directory_may_be_moved_to_another_home(home, tmp_path):
    folder = add_directory(home, "mine")
    before = content_hash(info_of(home, "mine"))
    (tmp_path / "other").mkdir()
    folder.parent.rename(tmp_path / "other" / "plugins")
    assert content_hash(info_of(tmp_path / "other", "mine")) == before


@pytest.mark.parametrize("changed", ["carrier/plugin/__init__.py", "carrier/client.py"])
def test_a_carried_directory_is_pinned_as_its_distribution(home, site, changed):
    site.add(
        "carrier-memory",
        "2.0",
        files={
            "carrier/client.py": "",
            "carrier/plugin/__init__.py": provider_source("x"),
            "carrier/plugin/plugin.yaml": "name: plugin",
        },
    )
    pin = pin_of(info_of(home, "plugin"))
    assert (pin.owner, pin.version) == ("carrier-memory", "2.0")
    (site.folder / changed).write_text(provider_source("y"), "utf-8")
    assert pin_of(info_of(home, "plugin")).hash != pin.hash


@pytest.mark.parametrize("line", [",,", "nul\0byte.py,,", ".,,", "acme_memory,,"])
def test_a_record_with_a_line_that_names_no_file_can_be_pinned(home, acme, line):
    with (acme / "RECORD").open("a", encoding="utf-8") as record:
        record.write(f"{line}\n")
    enable(home, "acme")
    assert info_of(home, "acme").state == "active"


def test_a_script_that_record_names_by_its_absolute_path_does_not_count(home, acme, tmp_path):
    script = tmp_path / "bin-acme"
    script.write_text("#!/bin/sh", "utf-8")
    with (acme / "RECORD").open("a", encoding="utf-8") as record:
        record.write(f"{script},,\n")
    assert info_of(home, "acme").state == "active"


def test_a_version_that_is_gone_is_told_in_words(home):
    folder = add_directory(home, "mine", manifest="version: '1.0'")
    enable(home, "mine")
    (folder / "plugin.yaml").unlink()
    problem = info_of(home, "mine").problem
    assert "1.0" in problem
    assert "version ," not in problem
