"""What the tests of the kit share: the scaffold's provider, and mutants of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent, indent

import pytest
from support.forked_children import run_forked
from support.kit import acme

from hermes_core.conformance import _runner
from hermes_core.conformance.scaffold import PROJECT
from hermes_core.discovery import ProviderInfo

#: Tests whose subject is the child process, or that choose between the two kinds themselves.
_PROCESSES = ("test_runner.py", "test_mutants.py")


@pytest.fixture(autouse=True)
def _sources(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The kit's child processes find what this one finds."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.syspath_prepend(str(PROJECT / "src"))
    yield
    for name in [
        each for each in sys.modules if each.startswith(("mutants", "hermes_memory_acme"))
    ]:
        del sys.modules[name]


@pytest.fixture(autouse=True)
def _few_distributions(few_distributions: None) -> None:
    """The commands find few distributions."""


@pytest.fixture(autouse=True)
def _forked_children(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kit's child is forked from a server that has imported the kit."""
    if os.name == "posix" and request.path.name not in _PROCESSES:
        monkeypatch.setattr(_runner, "run_child", run_forked)


@pytest.fixture
def good() -> ProviderInfo:
    """The scaffold's provider, as an entry point would name it."""
    return acme()


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Makes a plugin of the scaffold's provider and some methods."""
    folder = tmp_path / "plugins"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))

    def make(methods: str, top: str = "") -> ProviderInfo:
        source = dedent(top) + "\nimport os, time\nfrom hermes_memory_acme import AcmeProvider\n\n"
        source += "class Plugin(AcmeProvider):\n" + indent(dedent(methods), "    ")
        (folder / "checked_plugin.py").write_text(source)
        return acme("checked_plugin:Plugin")

    return make
