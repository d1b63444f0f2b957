"""What the tests of deliveries share."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.commands import Machine
from support.deliveries import Alpha


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """The installed command with an empty home."""
    return Machine(tmp_path / "machine")


@pytest.fixture
def alpha(machine: Machine) -> Alpha:
    """A home whose provider can be switched off."""
    return Alpha(machine)


@pytest.fixture
def down(alpha: Alpha) -> Alpha:
    """The same, with its backend down."""
    alpha.set("down")
    return alpha
