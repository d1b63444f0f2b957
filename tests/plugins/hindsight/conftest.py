"""A small server, and providers on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.hindsight_agents import provider_on
from support.hindsight_server import HindsightServer

from hermes_memory_hindsight.provider import HindsightProvider


@pytest.fixture
def server() -> Iterator[HindsightServer]:
    with HindsightServer() as made:
        yield made


@pytest.fixture
def started(home: Path, server: HindsightServer) -> Iterator[Callable[..., HindsightProvider]]:
    """Starts providers: with what the host knows as `facts`, and settings."""
    with ExitStack() as stack:

        def start(**settings: Any) -> HindsightProvider:
            return stack.enter_context(provider_on(home, server.url, **settings))

        yield start
