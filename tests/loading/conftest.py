"""What the tests of loading share."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from support.sites import MEMORY, Site

from hermes_core import MemoryProvider, ProviderLoadError, load_provider

_numbers = count()


@pytest.fixture(autouse=True)
def _few_distributions(few_distributions: None) -> None:
    """Scan a small site, not all that is installed here."""


@pytest.fixture
def installed(site: Site) -> Callable[..., str]:
    """Install a distribution acme-memory, whose entry point acme has a given value.

    In the value, and in sources that name themselves, ``MODULE`` stands for the module, which
    has a name of its own in every test.
    """

    def install(source: str, value: str = "MODULE:register", **more: str) -> str:
        module = f"acme_{next(_numbers)}"
        files = {f"{module}/__init__.py": source.replace("MODULE", module)}
        files |= {f"{module}/{name}.py": text for name, text in more.items()}
        entry = value.replace("MODULE", module)
        site.add("acme-memory", groups={MEMORY: {"acme": entry}}, files=files)
        return module

    return install


@pytest.fixture
def load(home: Path, installed: Callable[..., str]) -> Callable[..., MemoryProvider]:
    """Install such a distribution and load its provider."""

    def install_and_load(source: str, value: str = "MODULE:register", **more: str):
        installed(source, value, **more)
        return load_provider("acme", home, deadline=60)

    return install_and_load


@pytest.fixture
def failure(load: Callable[..., MemoryProvider]) -> Callable[..., ProviderLoadError]:
    """Install such a distribution and give the error with which it fails to load."""

    def install_and_fail(source: str, value: str = "MODULE:register", **more: str):
        with pytest.raises(ProviderLoadError) as caught:
            load(source, value, **more)
        error = caught.value
        assert error.plugin == "acme"
        assert error.distribution == "acme-memory"
        assert "acme" in str(error)
        assert "acme-memory" in str(error)
        assert error.step == "find" or error.step in str(error)
        assert "\n" not in str(error)
        return error

    return install_and_fail
