"""A Honcho server, and agents that use it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.honcho_agents import Agent
from support.honcho_server import HonchoServer

from hermes_memory_honcho import service

StartAgent = Callable[..., Agent]


@pytest.fixture(autouse=True)
def _own_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("API_KEY", "BASE_URL", "ENVIRONMENT", "TIMEOUT", "SERVER_KEY", "PEER_NAME"):
        monkeypatch.delenv(f"HONCHO_{name}", raising=False)
    for name in ("HERMES_HONCHO_HOST", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that is not there yet is looked for as often as ever, in less time."""
    monkeypatch.setattr(service, "PATIENCE", (0.01, 0.02, 0.05, 0.1, 0.2))


@pytest.fixture
def server() -> Iterator[HonchoServer]:
    """A server whose every request and answer was as Honcho's description says."""
    made = HonchoServer().start()
    yield made
    made.stop()
    assert made.faults == []


@pytest.fixture
def agent(
    server: HonchoServer, home: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StartAgent]:
    """Starts agents on one home: ``agent("session", user_id=..., config={...})``."""
    monkeypatch.setenv("HONCHO_BASE_URL", server.url)
    started: list[Agent] = []

    def start(session: str = "s1", /, config: dict[str, Any] | None = None, **facts: Any) -> Agent:
        made = Agent(home, session, provider_config=config or {}, **facts)
        started.append(made)
        return made

    yield start
    for each in started:
        each.provider.shutdown()
