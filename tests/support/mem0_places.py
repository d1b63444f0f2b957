"""The three places in which the Mem0 plugin keeps memories, each ready for a test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hermes_memory_mem0 import Mem0Provider
from hermes_memory_mem0.engine import Oss
from hermes_memory_mem0.sdk import load_sdk
from hermes_memory_mem0.settings import read_settings
from support.fake_model import FakeModel
from support.mem0_servers import Mem0Platform, Mem0Server

KEY = "m0-the-right-key"
MODES = ("platform", "self-hosted", "oss")


def without_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may use Mem0."""
    for name in [*os.environ]:
        if name.startswith(("MEM0_", "OPENAI_", "OPENROUTER_")):
            monkeypatch.delenv(name)


class Place:
    """A home, the settings of a mode, and the server or model behind it."""

    def __init__(self, home: Path, config: dict[str, Any], behind: Any) -> None:
        self.home = home
        self.config = config
        self.behind = behind
        self._providers: list[Mem0Provider] = []

    @property
    def mode(self) -> str:
        """The mode."""
        return str(self.config["mode"])

    def provider(self, session: str = "s1", **facts: Any) -> Mem0Provider:
        """A provider with a session; what is given over the settings is in ``config``."""
        config = {**self.config, **facts.pop("config", {})}
        made = Mem0Provider()
        self._providers.append(made)
        known = {"hermes_home": str(self.home), "platform": "cli", "agent_context": "primary"}
        made.initialize(session, provider_config=config, **{**known, **facts})
        return made

    def rows(self) -> list[dict[str, Any]]:
        """All that is stored, whoever it is of."""
        if self.mode != "oss":
            self.behind.store.work(getattr(self.behind, "fails", lambda: False))
            return list(self.behind.store.rows.values())
        settings = read_settings(self.home, self.config)
        memories = Oss(load_sdk(self.home / "mem0" / "sdk", telemetry=False), settings.engine)
        try:
            answer = memories._opened.get_all(filters={"user_id": "*"}, top_k=10_000)
            rows: list[dict[str, Any]] = answer["results"]
            return rows
        finally:
            memories.close()

    def texts(self) -> list[str]:
        """What is stored, sorted."""
        return sorted(row["memory"] for row in self.rows())

    def close(self) -> None:
        """End all sessions."""
        for each in self._providers:
            each.shutdown()


@contextmanager
def opened(mode: str, home: Path) -> Iterator[Place]:
    """A place of a mode."""
    if mode == "oss":
        with FakeModel() as model:
            yield from _used(Place(home, {"mode": mode, "llm_url": model.url}, model))
    elif mode == "platform":
        with Mem0Platform(key=KEY) as server:
            settings = {"mode": mode, "platform_url": server.url, "api_key": KEY}
            yield from _used(Place(home, settings, server))
    else:
        with Mem0Server(key=KEY) as server:
            settings = {"mode": mode, "host": server.url, "server_key": KEY}
            yield from _used(Place(home, settings, server))


def _used(place: Place) -> Iterator[Place]:
    try:
        yield place
    finally:
        place.close()
    assert getattr(place.behind, "problems", []) == []
    assert place.mode != "oss" or place.behind.stats()["unrecognised"] == 0
