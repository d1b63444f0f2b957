"""What the tests of the kit share: the scaffold's provider, and mutants of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.kit import acme

from hermes_core.discovery import ProviderInfo
from hermes_core.scaffold import PROJECT


@pytest.fixture(autouse=True)
def _sources(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The kit's child processes find what this one finds."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.syspath_prepend(str(PROJECT / "src"))
    yield
    for name in [each for each in sys.modules if each.startswith(("mutants", "hermes_memory_"))]:
        del sys.modules[name]


@pytest.fixture
def good() -> ProviderInfo:
    """The scaffold's provider, as an entry point would name it."""
    return acme()
