"""The documentation is what the code says."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

import hermes_core
from hermes_core import conformance, service

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_of_the_checks_are_those_of_the_checks(generate):
    """If this fails: `.venv/bin/python -P docs/generate.py`."""
    pages = generate.check_pages()
    for path, text in pages.items():
        assert (DOCS / path).read_text("utf-8") == text, path
    assert {f"checks/{each.name}" for each in (DOCS / "checks").iterdir()} == set(pages)


def test_the_reference_has_every_public_name_and_command(generate):
    pages = generate.reference_pages()
    for module in (hermes_core, service, conformance):
        for name in module.__all__:
            directive = f"::: {module.__name__}.{name}\n"
            assert name.startswith("_") or directive in pages["reference/python.md"]
    for command in ("check", "new", "memory undo", "sessions search"):
        assert f"## hermes-plugins {command}\n" in pages["reference/commands.md"]


def test_the_front_page_counts_the_checks():
    text = (DOCS.parent / "README.md").read_text("utf-8")
    assert f"`check` runs {len(conformance.all_checks())} checks" in text


def test_there_are_twenty_decisions():
    """A page that answers every question is read by nobody: the others are comments in code."""
    text = (DOCS / "decisions.md").read_text("utf-8").partition("## Twenty questions")[2]
    assert len(re.findall(r"^\*\*.+\?\*\*", text, re.MULTILINE)) == 20


def test_every_page_is_in_the_navigation_once():
    listed = (DOCS.parent / "mkdocs.yml").read_text("utf-8").split()
    for page in DOCS.rglob("*.md"):
        assert listed.count(page.relative_to(DOCS).as_posix()) == 1, page
