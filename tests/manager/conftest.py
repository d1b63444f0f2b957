"""What tests of configured managers share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes_core import MemoryManager


@pytest.fixture(autouse=True)
def _few_distributions(few_distributions: None) -> None:
    """Scan a small site, not all that is installed here."""


@pytest.fixture
def configured(home: Path) -> Iterator[Callable[..., MemoryManager]]:
    """Gives managers of a home, by default the test's own, and shuts them down at the end."""
    managers = []

    def make(folder: object = home) -> MemoryManager:
        manager = MemoryManager.from_config(folder)  # type: ignore[arg-type]
        managers.append(manager)
        return manager

    yield make
    for each in managers:
        each.shutdown_all()


@pytest.fixture
def write_config(home: Path) -> Callable[[str], None]:
    """Puts a config.yaml into the home."""

    def write(text: str) -> None:
        (home / "config.yaml").write_text(text, "utf-8")

    return write
