"""What the tests of discovery share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_core import ProviderInfo, discover


@pytest.fixture(autouse=True)
def _few_distributions(request: pytest.FixtureRequest) -> None:
    """Scan a small site, unless another user scans it, who may not read temporary folders."""
    if request.path.stem != "test_permissions":
        request.getfixturevalue("few_distributions")


@pytest.fixture
def found(home: Path) -> Callable[..., dict[str, ProviderInfo]]:
    """All that is listed but the built-in, by name; each name once."""

    def look(*, everything: bool = False) -> dict[str, ProviderInfo]:
        listed = [
            each for each in discover(home, everything=everything) if each.source != "builtin"
        ]
        by_name = {each.name: each for each in listed}
        assert len(by_name) == len(listed), [each.name for each in listed]
        return by_name

    return look
