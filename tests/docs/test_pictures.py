"""The picture of the README shows what the commands print today."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
DOCS = Path(__file__).parents[2] / "docs"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_terminal_of_the_front_page_is_of_today():
    """If this fails: `.venv/bin/python -P docs/screenshots.py`."""
    screenshots = script("screenshots")
    shown = screenshots.text_of(screenshots.TARGET.read_text("utf-8"))
    assert "$ hermes-plugins status" in shown
    assert shown == screenshots.text_of(screenshots.picture())
