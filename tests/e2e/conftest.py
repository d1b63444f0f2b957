"""What the end-to-end tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands import Holder, Machine


@pytest.fixture
def machine(tmp_path: Path, few_distributions: None) -> Machine:
    """The command with an empty home and an empty site."""
    return Machine(tmp_path / "machine", in_process=True)


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[Holder]:
    """A process for plugins to leave behind; it does not outlive the test."""
    made = Holder(tmp_path / "held")
    yield made
    made.end()
