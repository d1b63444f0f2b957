"""What the tests of the log of calls share."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.commands import Machine


@pytest.fixture
def machine(tmp_path: Path, few_distributions: None) -> Machine:
    """The command with an empty home and an empty site, in this process."""
    return Machine(tmp_path / "machine", in_process=True)
