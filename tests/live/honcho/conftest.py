"""A Honcho server in a process of its own, which can be killed and started again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.honcho_server import HonchoProcess

KEY = "key-for-tests"


@pytest.fixture
def engine(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HonchoProcess]:
    """The server that the agents of this home use."""
    made = HonchoProcess(tmp_path / "honcho.db", KEY).start()
    monkeypatch.setenv("HONCHO_BASE_URL", made.url)
    monkeypatch.setenv("HONCHO_SERVER_KEY", KEY)
    monkeypatch.setenv("HONCHO_PEER_NAME", "alice")
    for name in ("HONCHO_API_KEY", "HONCHO_ENVIRONMENT", "HONCHO_TIMEOUT", "HERMES_HONCHO_HOST"):
        monkeypatch.delenv(name, raising=False)
    yield made
    faults = made.behave(delay=0) if made.runs else []
    made.kill()
    assert faults == []
