"""Which program installs, and what is said where another one has to."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

import pytest

from hermes_core.install import InstallError, installer
from hermes_core.install import _installers as environment


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another environment's folder, as if it ran us."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    return tmp_path


def refused(verb: str, spec: str) -> str:
    with pytest.raises(InstallError) as caught:
        installer(verb, spec)
    assert "\n" not in str(caught.value)
    return caught.value.hint


@pytest.mark.parametrize(
    ("verb", "spec", "command"),
    [
        ("install", "memory-acme", "pipx inject hermes-plugins memory-acme"),
        ("install", "memory-acme>=1", "pipx inject hermes-plugins 'memory-acme>=1'"),
        ("uninstall", "memory-acme", "pipx uninject hermes-plugins memory-acme"),
        ("upgrade", "memory-acme", "pipx upgrade --include-injected hermes-plugins"),
    ],
)
def test_in_an_environment_of_pipx_its_command_is_said(prefix, verb, spec, command):
    metadata = '{"main_package": {"package": "hermes-plugins"}, "injected_packages": {}}'
    (prefix / "pipx_metadata.json").write_text(metadata)
    assert refused(verb, spec).endswith(f"run: {command}")


def test_where_pipx_has_us_injected_into_another_program_that_one_is_named(prefix):
    (prefix / "pipx_metadata.json").write_text('{"main_package": {"package": "hermes-agent"}}')
    assert "pipx inject hermes-agent memory-acme" in refused("install", "memory-acme")
    (prefix / "pipx_metadata.json").write_text("no JSON")
    assert "pipx inject hermes-plugins memory-acme" in refused("install", "memory-acme")


RECEIPT = """
[tool]
requirements = [{ name = "hermes-plugins" }, { name = "memory-one", specifier = ">=2" }]
entrypoints = []
"""


@pytest.mark.parametrize(
    ("verb", "spec", "command"),
    [
        (
            "install",
            "memory-acme",
            "uv tool install hermes-plugins --with 'memory-one>=2' --with memory-acme",
        ),
        ("uninstall", "memory-one", "uv tool install hermes-plugins"),
        ("upgrade", "memory-one", "uv tool upgrade hermes-plugins"),
    ],
)
def test_in_a_tool_environment_of_uv_its_command_keeps_what_was_added_before(
    prefix, verb, spec, command
):
    (prefix / "uv-receipt.toml").write_text(RECEIPT)
    assert refused(verb, spec).endswith(f"run: {command}")


def test_what_came_from_elsewhere_is_named_by_its_place(prefix):
    entries = (
        '{ name = "hermes-plugins", path = "/dist/ours.whl" }',
        '{ name = "one", git = "https://host/one?rev=v1" }',
        '{ name = "two", extras = ["x", "y"], specifier = "<3" }',
    )
    text = f"[tool]\nrequirements = [{', '.join(entries)}]\n"
    (prefix / "uv-receipt.toml").write_text(text)
    said = refused("uninstall", "other")
    added = "--with 'one @ git+https://host/one?rev=v1' --with 'two[x,y]<3'"
    assert said.endswith(f"uv tool install /dist/ours.whl {added}")
    assert refused("uninstall", "Two").endswith("one?rev=v1'")


def test_without_a_receipt_that_can_be_read_the_command_is_the_plain_one(prefix):
    (prefix / "uv-receipt.toml").write_text("not [ toml")
    said = refused("install", "memory-acme")
    assert said.endswith("uv tool install hermes-plugins --with memory-acme")


def test_a_python_of_the_operating_system_is_left_alone(tmp_path, monkeypatch):
    (tmp_path / "EXTERNALLY-MANAGED").touch()
    paths = {"stdlib": str(tmp_path), "purelib": str(tmp_path)}
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    monkeypatch.setattr(sysconfig, "get_path", paths.__getitem__)
    monkeypatch.delenv("PIP_BREAK_SYSTEM_PACKAGES", raising=False)
    assert "pipx inject hermes-plugins memory-acme" in refused("install", "memory-acme")
    monkeypatch.setenv("PIP_BREAK_SYSTEM_PACKAGES", "1")
    assert installer("install", "memory-acme")


def test_a_venv_that_can_not_be_written_to_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path / "gone" / name))
    assert refused("install", "memory-acme") == "use your own virtual environment"


def test_without_pip_and_uv_the_way_to_a_pip_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert refused("install", "memory-acme").endswith("-m ensurepip")
