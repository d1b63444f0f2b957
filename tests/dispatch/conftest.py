"""Fixtures for the tests of calls: a clock that a test moves."""

from __future__ import annotations

from functools import partial

import pytest
from support.providers import Clock

from hermes_core.dispatch import ProviderAdapter
from hermes_core.manager import _manager


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock by which every manager of the test measures its providers' calls."""
    clock = Clock()
    monkeypatch.setattr(_manager, "ProviderAdapter", partial(ProviderAdapter, clock=clock))
    return clock
