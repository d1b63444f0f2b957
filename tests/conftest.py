"""Fixtures for all tests: a home and a site of their own, and no trace of either left."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.sites import Site

from hermes_core.dispatch._observers import Observer

# In the background of a shell Ctrl-C is ignored, and so it is by all that we start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _no_real_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.delenv("HERMES_HOME", raising=False)
    for variable in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty HERMES_HOME."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HERMES_HOME", str(folder))
    return folder


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A site on the import path; what was imported from it is forgotten afterwards."""
    before = set(sys.modules)
    made = Site(tmp_path / "site")
    monkeypatch.syspath_prepend(str(made.folder))
    yield made
    for name in set(sys.modules) - before:
        origin = getattr(sys.modules[name], "__file__", None) or ""
        if origin.startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture(autouse=True)
def _patient_observers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Observers get more time than 50 ms, where that is not what a test is about."""
    about_time = ("slow", "hang", "longer")
    if not any(word in f"{request.path.name} {request.node.name}" for word in about_time):
        monkeypatch.setattr(Observer, "SECONDS", 2.0)
