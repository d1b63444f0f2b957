"""One home's config.yaml."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from support.configs import ConfigFile

from hermes_core.config import document


@pytest.fixture
def config(home: Path) -> ConfigFile:
    return ConfigFile(home)


@pytest.fixture(params=["c", "python"])
def loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """PyYAML with its C parser, and without: not every platform has a wheel with it."""
    if request.param == "c":
        if not yaml.__with_libyaml__:
            pytest.skip("PyYAML has no C parser here")
    else:
        monkeypatch.setattr(document, "LOADER", yaml.SafeLoader)
        monkeypatch.setattr(document.parse, "__defaults__", (yaml.SafeLoader,))
    return request.param
